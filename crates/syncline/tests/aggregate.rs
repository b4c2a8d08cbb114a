//! Arrays combined over all workers: the same bits everywhere, and no garbage when workers disagree or die.

mod thread_jobs;

use std::time::Duration;

use syncline::{DType, Deadline, Error, ErrorKind, ReduceOp, Session};
use syncline_tensor::kernels::{divide, reduce_many_into};
use syncline_testkit::sim::Chance;
use thread_jobs::{APART, MANNERS, TOGETHER, by, job_in, mortal_job};

fn aggregate(session: &Session, bytes: &mut [u8], dtype: DType, op: ReduceOp) -> Result<(), Error> {
    session.aggregate_bytes(bytes, dtype, op, by())
}

/// What `worker` brings: small whole numbers of the dtype, or for floats anything finite that does not add up exactly.
fn contribution(worker: u32, dtype: DType, elements: usize) -> Vec<u8> {
    let mut chance = Chance::new(u64::from(worker) * 7919 + elements as u64);
    let numbers: Vec<f64> = (0..elements).map(|_| (chance.below(2000) as f64 - 1000.0) / 7.0).collect();
    let mut bytes = vec![0; elements * dtype.size()];
    syncline_tensor::kernels::cast(
        DType::F64,
        &numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<_>>(),
        dtype,
        &mut bytes,
    )
    .expect("numbers can be cast");
    bytes
}

fn expected(workers: u32, dtype: DType, op: ReduceOp, elements: usize) -> Vec<u8> {
    let all: Vec<Vec<u8>> = (0..workers).map(|worker| contribution(worker, dtype, elements)).collect();
    let mut out = vec![0; elements * dtype.size()];
    reduce_many_into(op, dtype, &mut out, &all.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("equal lengths");
    if op == ReduceOp::Mean {
        divide(dtype, &mut out, workers).expect("whole numbers");
    }
    out
}

#[test]
fn every_operation_dtype_and_size_gives_the_bits_of_worker_order() {
    for (workers, manner) in (1..=4).flat_map(|workers| MANNERS.map(|manner| (workers, manner))) {
        job_in(manner, workers, "all", |session| {
            let me = session.worker_id().expect("a worker");
            for (dtype, op) in DType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op))) {
                for elements in [0, 1, 1000, 3000] {
                    let mut bytes = contribution(me, dtype, elements);
                    aggregate(session, &mut bytes, dtype, op).expect("all agree");
                    assert!(bytes == expected(workers, dtype, op, elements), "{workers} workers, {manner:?}: {op} of {elements} {dtype}");
                }
            }
        });
    }
}

#[test]
fn arrays_of_many_chunks_come_out_whole() {
    for (workers, manner) in (1..=4).flat_map(|workers| [TOGETHER, APART].map(|manner| (workers, manner))) {
        job_in(manner, workers, "large", |session| {
            let me = session.worker_id().expect("a worker");
            for (dtype, op, elements) in
                [(DType::U8, ReduceOp::Max, (3 << 20) + 5), (DType::F32, ReduceOp::Sum, 1_000_001), (DType::BF16, ReduceOp::Sum, 700_001)]
            {
                let mut bytes = contribution(me, dtype, elements);
                aggregate(session, &mut bytes, dtype, op).expect("all agree");
                assert!(bytes == expected(workers, dtype, op, elements), "{workers} workers, {manner:?}: {op} of {elements} {dtype}");
            }
        });
    }
}

#[test]
fn calls_of_any_size_may_follow_each_other_without_a_barrier() {
    for (workers, manner) in [(2, TOGETHER), (3, TOGETHER), (4, TOGETHER), (3, APART)] {
        job_in(manner, workers, "mixed", |session| {
            let mut sizes = Chance::new(5); // the same on all
            let mut delays = Chance::new(u64::from(session.rank()));
            for round in 0..200_i64 {
                let elements = [1, 7, 1024, 1025, 40_000, 140_000][sizes.below(6) as usize];
                let mut numbers = vec![round * i64::from(session.rank() + 1); elements];
                for _ in 0..delays.below(4) {
                    std::thread::yield_now();
                }
                session.aggregate(&mut numbers, ReduceOp::Sum).expect("all agree");
                let sum = round * i64::from(workers * (workers + 1) / 2);
                assert!(numbers.iter().all(|number| *number == sum), "round {round}");
            }
        });
    }
}

#[test]
fn threads_of_one_worker_take_turns() {
    job_in(TOGETHER, 2, "threads", |session| {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let mut one = [1_i32; 100];
                        session.aggregate(&mut one, ReduceOp::Sum).expect("all agree");
                        assert_eq!(one, [2; 100]);
                    }
                });
            }
        });
    });
}

#[test]
fn workers_who_disagree_all_hear_of_it_and_go_on() {
    type Wish = (usize, DType, ReduceOp);
    let usual: Wish = (1000, DType::F32, ReduceOp::Sum);
    let others: [Wish; 5] = [
        (1001, DType::F32, ReduceOp::Sum),
        (1000, DType::I32, ReduceOp::Sum),
        (1000, DType::F32, ReduceOp::Max),
        (0, DType::F32, ReduceOp::Sum),
        (2_000_000, DType::F32, ReduceOp::Sum),
    ];
    for (workers, manner) in [(2, TOGETHER), (3, TOGETHER), (4, TOGETHER), (2, APART), (3, APART)] {
        job_in(manner, workers, "mismatch", |session| {
            let last = workers - 1;
            for (round, other) in (1..).zip(others) {
                let (elements, dtype, op) = if session.rank() == last { other } else { usual };
                let before = contribution(session.rank(), dtype, elements);
                let mut bytes = before.clone();
                let error = aggregate(session, &mut bytes, dtype, op).expect_err("they differ");
                assert_eq!(error.kind(), ErrorKind::ContractMismatch, "{error}");
                let text = error.to_string();
                let name = |(elements, dtype, op): Wish| format!("aggregate {}, the {op} of {elements} {}", 2 * round - 1, dtype.name());
                for part in ["rank 0 called", &name(usual), &format!("rank {last}"), &name(other)] {
                    assert!(text.contains(part), "{text:?} says {part:?}");
                }
                assert!(bytes == before, "nothing was changed");
                let mut one = [1.0_f64];
                session.aggregate(&mut one, ReduceOp::Sum).expect("in step again");
                assert_eq!(one, [f64::from(workers)]);
            }
        });
    }
}

#[test]
fn a_worker_that_dies_meanwhile_is_named_by_all() {
    for (workers, manner) in [(2, TOGETHER), (4, TOGETHER), (3, APART)] {
        let victim = 1;
        let seen = mortal_job(manner, workers, "death", "20", |session| {
            for round in 0.. {
                let mut numbers = vec![1.0_f32; 100_000];
                if session.rank() == victim && round == 3 {
                    return None; // dropped without a word
                }
                if let Err(error) = session.aggregate(&mut numbers, ReduceOp::Sum) {
                    assert_eq!(round, 3, "{error}");
                    return Some(error);
                }
            }
            unreachable!("the victim dies");
        });
        for (rank, error) in seen.into_iter().enumerate().filter(|(rank, _)| *rank != victim as usize) {
            let error = error.expect("a survivor");
            assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
            assert_eq!(error.who().map(|who| who.rank), Some(victim), "rank {rank}, {manner:?}: {error}");
        }
    }
}

#[test]
fn who_does_not_come_is_named_and_who_waited_stays_out_of_step() {
    mortal_job(TOGETHER, 3, "late", "10", |session| {
        let soon = Deadline::after(Duration::from_millis(100));
        if session.rank() != 2 {
            let error = session.aggregate_bytes(&mut [0; 8], DType::F64, ReduceOp::Sum, soon).expect_err("one is missing");
            // Before the first meeting its memory is missing, and a second try may be luckier.
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::Timeout, Some(2)), "{error}");
        }
        session.barrier().expect("all come here");
        let mut one = [1_i16];
        session.aggregate(&mut one, ReduceOp::Sum).expect("nothing was published yet");
        assert_eq!(one, [3]);
        session.barrier().expect("all come here");
        if session.rank() != 2 {
            let again = Deadline::after(Duration::from_millis(100));
            let error = session.aggregate_bytes(&mut [0; 8], DType::F64, ReduceOp::Sum, again).expect_err("one is missing");
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::Timeout, Some(2)), "{error}");
            let repeated = session.aggregate(&mut one, ReduceOp::Sum).expect_err("out of step");
            assert_eq!(repeated.to_string(), error.to_string());
        }
        session.barrier().expect("all come here");
        Some(())
    });
}

#[test]
fn who_left_before_is_named_at_once() {
    mortal_job(TOGETHER, 2, "left", "20", |session| {
        let mut one = [1_i32];
        session.aggregate(&mut one, ReduceOp::Sum).expect("both are there");
        if session.rank() == 0 {
            let error = session.aggregate(&mut one, ReduceOp::Sum).expect_err("the other one goes home");
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(1)), "{error}");
        }
        Some(())
    });
}

#[test]
fn half_an_element_is_refused_before_anything_is_shared() {
    job_in(TOGETHER, 2, "half", |session| {
        let error = aggregate(session, &mut [0; 7], DType::F32, ReduceOp::Sum).expect_err("seven bytes");
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch, "{error}");
        let mut one = [1_u8];
        session.aggregate(&mut one, ReduceOp::Sum).expect("still in step");
        assert_eq!(one, [2]);
    });
}
