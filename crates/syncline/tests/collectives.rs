//! Collective operations among ranks that share memory: the bits of the left fold for every number of ranks, dtype and size,
//! and the same error on all of them when their calls differ.

mod thread_jobs;

use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use syncline::collective::{Collectives, How, Leaf};
use syncline::{DType, Deadline, ErrorKind, ReduceOp, Session};
use syncline_tensor::Shape;
use syncline_tensor::kernels::{cast, divide, reduce_many_into};
use syncline_testkit::sim::Chance;
use thread_jobs::{APART, TOGETHER, by, job, job_in, mortal_job};

fn how(site: &str) -> How<'_> {
    How { site, by: by() }
}

fn all(session: &Session) -> Collectives {
    session.collectives().expect("a worker")
}

/// What `rank` brings: whole numbers for integers, for floats anything finite that does not add up exactly.
fn contribution(rank: usize, dtype: DType, elements: usize) -> Vec<u8> {
    let mut chance = Chance::new(rank as u64 * 7919 + elements as u64);
    let numbers: Vec<u8> = (0..elements).flat_map(|_| ((chance.below(2000) as f64 - 1000.0) / 7.0).to_ne_bytes()).collect();
    let mut bytes = vec![0; elements * dtype.size()];
    cast(DType::F64, &numbers, dtype, &mut bytes).expect("numbers can be cast");
    bytes
}

/// The left fold of what `ranks` bring, in this order.
fn folded(ranks: impl Iterator<Item = usize>, dtype: DType, op: ReduceOp, elements: usize) -> Vec<u8> {
    let all: Vec<Vec<u8>> = ranks.map(|rank| contribution(rank, dtype, elements)).collect();
    let mut out = vec![0; elements * dtype.size()];
    reduce_many_into(op, dtype, &mut out, &all.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("equal lengths");
    if op == ReduceOp::Mean {
        divide(dtype, &mut out, all.len() as u32).expect("whole numbers");
    }
    out
}

#[test]
fn every_number_of_ranks_gives_the_bits_of_the_left_fold() {
    for n in 1..=33_usize {
        job(n as u32, "every-n", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            for elements in [0, 1, n - 1, n, n + 1, 1023, 5000] {
                let mut bytes = contribution(me, DType::F32, elements);
                let contributors = group.all_reduce(&mut bytes, DType::F32, ReduceOp::Sum, true, how("")).expect("all agree");
                assert_eq!(contributors, n as u32);
                assert!(bytes == folded(0..n, DType::F32, ReduceOp::Sum, elements), "{n} ranks, {elements} numbers");
            }
        });
    }
}

#[test]
fn every_dtype_and_operation_gives_the_bits_of_the_left_fold() {
    for n in [1, 2, 3, 5_usize] {
        job(n as u32, "dtypes", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            for (dtype, op) in DType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op))) {
                for elements in [0, 1, 1000, 6001] {
                    let mut bytes = contribution(me, dtype, elements);
                    group.all_reduce(&mut bytes, dtype, op, true, how("")).expect("all agree");
                    assert!(bytes == folded(0..n, dtype, op, elements), "{n} ranks: {op} of {elements} {dtype}");
                }
            }
        });
    }
}

#[test]
fn arrays_of_many_chunks_come_out_whole() {
    for n in [2, 3, 4_usize] {
        job(n as u32, "large", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            for (dtype, op) in [(DType::F32, ReduceOp::Sum), (DType::BF16, ReduceOp::Mean), (DType::U8, ReduceOp::Max)] {
                let mut bytes = contribution(me, dtype, 1_000_003);
                group.all_reduce(&mut bytes, dtype, op, true, how("")).expect("all agree");
                let expected = folded(0..n, dtype, op, 1_000_003);
                assert!(bytes == expected, "{n} ranks: {op} of {dtype}");
                let mine = contribution(me, dtype, 1_000_003);
                let mut to_root = mine.clone();
                group.reduce(&mut to_root, dtype, op, n - 1, how("")).expect("all agree");
                assert!(to_root == if me == n - 1 { expected.clone() } else { mine.clone() });
                let part = group.reduce_scatter(&mine, dtype, op, how("")).expect("all agree");
                let (each, more) = (1_000_003 / n, 1_000_003 % n);
                let start = (me * each + me.min(more)) * dtype.size();
                assert!(part == expected[start..start + (each + usize::from(me < more)) * dtype.size()]);
            }
        });
    }
}

#[test]
fn arrays_in_shared_memory_give_the_same_bits_alone_and_mixed_with_others() {
    for n in [2, 3, 5_usize] {
        job(n as u32, "shared", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            for (round, elements) in [3000, 100_003, 400_000, 100_003].into_iter().enumerate() {
                for (dtype, op) in [(DType::F32, ReduceOp::Sum), (DType::F16, ReduceOp::Mean)] {
                    let expected = folded(0..n, dtype, op, elements);
                    let mut shared = session.empty_shared(elements * dtype.size() + 64).expect("memory");
                    let bytes = &mut shared.bytes_mut()[64..];
                    bytes.copy_from_slice(&contribution(me, dtype, elements));
                    group.all_reduce(bytes, dtype, op, true, how("")).expect("all agree");
                    assert!(*bytes == expected, "{n} ranks, round {round}: {op} of {elements} {dtype}");
                    let mut own = contribution(me, dtype, elements);
                    bytes.copy_from_slice(&own);
                    let array = if me == round % n { &mut own[..] } else { bytes };
                    group.all_reduce(array, dtype, op, true, how("")).expect("all agree");
                    assert!(*array == expected, "{n} ranks, round {round}, mixed: {op} of {elements} {dtype}");
                }
            }
        });
    }
}

#[test]
fn an_array_whose_owner_gave_up_is_touched_by_nobody_who_comes_later() {
    let (gave_up, heard) = mpsc::channel();
    let heard = Mutex::new(heard);
    let started = Instant::now();
    let errors = job(3, "gave up", |session| {
        let (group, me) = (all(session), session.rank());
        let mut shared = session.empty_shared(400_000).expect("memory");
        group.all_reduce(shared.bytes_mut(), DType::F32, ReduceOp::Sum, true, how("")).expect("everybody knows everybody's desk");
        shared.bytes_mut().fill(me as u8 + 1);
        let patience = Duration::from_millis(if me == 0 { 50 } else { 20_000 });
        if me == 2 {
            heard.lock().expect("one waits").recv().expect("rank 0 gives up");
        }
        let how = How { site: "", by: Deadline::after(patience) };
        let error = group.all_reduce(shared.bytes_mut(), DType::U8, ReduceOp::Sum, true, how).expect_err("rank 0 is not there any more");
        if me == 0 {
            gave_up.send(()).expect("rank 2 waits");
        }
        session.barrier().expect("all are through with it");
        assert!(shared.bytes().iter().all(|byte| *byte == me as u8 + 1), "rank {me}: somebody wrote there");
        error
    });
    assert!(started.elapsed() < Duration::from_secs(10), "nobody waits until its own time is over");
    // Who gave up says for whom it waited; the one who came too late hears who gave up, and the third hears the same as the first.
    for (error, culprit) in errors.iter().zip(["rank 2", "rank 2", "rank 0"]) {
        let text = error.to_string();
        assert!(error.kind() == ErrorKind::Timeout && text.contains(culprit), "{text}");
    }
}

#[test]
fn bytes_arrive_where_they_should() {
    for n in [1, 2, 3, 4, 7, 17_usize] {
        job(n as u32, "streams", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            let text = |from: usize, to: usize, len: usize| -> Vec<u8> { (0..len).map(|at| (at * 31 + from * 7 + to) as u8).collect() };
            for (round, len) in [0, 1, 1000, 700_000, 1_200_000].into_iter().enumerate().take(if n > 7 { 3 } else { 5 }) {
                let root = round % n;
                let mine = text(me, 0, len * (me + 1) / n);
                let expected: Vec<Vec<u8>> = (0..n).map(|rank| text(rank, 0, len * (rank + 1) / n)).collect();
                assert!(group.all_gather(&mine, how("")).expect("all agree") == expected);
                assert!(group.gather(&mine, root, how("")).expect("all agree") == (me == root).then(|| expected.clone()));
                let parts: Vec<Vec<u8>> = (0..n).map(|to| text(me, to, len * to / n)).collect();
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                let received = group.all_to_all(&parts, how("")).expect("all agree");
                assert!(received == (0..n).map(|from| text(from, me, len * me / n)).collect::<Vec<_>>());
                let part = group.scatter((me == root).then_some(&parts), root, how("")).expect("all agree");
                assert!(part == text(root, me, len * me / n));
                let message = group.broadcast_message((me == root).then_some(&mine), root, how("")).expect("all agree");
                assert!(message == expected[root]);
                let mut array = text(me, 1, len);
                group.broadcast(&mut array, DType::U8, root, how("")).expect("all agree");
                assert!(array == text(root, 1, len));
                group.barrier(how("")).expect("all agree");
            }
        });
    }
}

#[test]
fn calls_that_differ_are_told_within_one_exchange() {
    for n in [2, 3, 4, 7_u32] {
        job_in(APART, n, "one exchange", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            let sent = || group.stats().iter().map(|link| (link.peer, link.calls_sent)).collect::<Vec<_>>();
            group.barrier(how("")).expect("all agree");
            let before = sent();
            let mut array = vec![0; if me == 0 { 400_000 } else { 800_000 }];
            let error = group.all_reduce(&mut array, DType::F32, ReduceOp::Sum, true, how("here")).expect_err("sizes differ");
            assert_eq!(error.kind(), ErrorKind::ContractMismatch);
            // One message to each neighbour of the roll call, which a barrier has shown, and none to anybody else.
            let after = sent();
            assert_eq!(after.len(), before.len(), "{n} ranks: {before:?}, {after:?}");
            for ((peer, before), (_, after)) in before.into_iter().zip(after) {
                assert!(after - before <= 1, "{n} ranks: {} messages to rank {peer}", after - before);
            }
        });
    }
}

#[test]
fn several_arrays_go_in_one_call_and_who_has_no_more_is_not_counted() {
    job(3, "leaves", |session| {
        let (group, me) = (all(session), session.rank() as usize);
        let kinds = [(DType::F32, 10), (DType::I64, 3), (DType::F32, 50_000), (DType::F16, 0), (DType::F32, 1)];
        let mut arrays: Vec<Vec<u8>> = kinds.iter().map(|(dtype, count)| contribution(me, *dtype, *count)).collect();
        let mut leaves: Vec<Leaf<'_>> = arrays
            .iter_mut()
            .zip(kinds)
            .map(|(bytes, (dtype, count))| Leaf { name: "", dtype, shape: Shape::new(&[count, 1]).expect("small"), bytes })
            .collect();
        let contributors = group.all_reduce_leaves(&mut leaves, ReduceOp::Sum, me != 1, how("")).expect("all agree");
        assert_eq!(contributors, 2);
        for (bytes, (dtype, count)) in arrays.iter().zip(kinds) {
            assert!(*bytes == folded(0..3, dtype, ReduceOp::Sum, count), "{count} {dtype}");
        }
        let mut mean = [if me == 2 { 0.0f64 } else { 3.0 }];
        let contributors = group.all_reduce(bytemuck::cast_slice_mut(&mut mean), DType::F64, ReduceOp::Mean, me != 2, how(""));
        assert_eq!((contributors.expect("all agree"), mean), (2, [3.0]));
        assert_eq!(group.all_reduce_leaves(&mut [], ReduceOp::Sum, false, how("")).expect("all agree"), 0);
    });
}

#[test]
fn groups_have_their_own_order_and_do_not_disturb_each_other() {
    job(5, "groups", |session| {
        let me = session.rank();
        let lists: [&[u32]; 3] = [&[4, 0, 2], &[1, 3], &[3, 0, 1, 2, 4]];
        for round in 0..20 {
            for ranks in lists.into_iter().filter(|ranks| ranks.contains(&me)) {
                let group = session.collectives_of(&session.group(ranks).expect("a member"));
                let mut bytes = contribution(me as usize, DType::F32, 100 + round);
                group.all_reduce(&mut bytes, DType::F32, ReduceOp::Sum, true, how("")).expect("all agree");
                assert!(bytes == folded(ranks.iter().map(|rank| *rank as usize), DType::F32, ReduceOp::Sum, 100 + round), "{ranks:?}");
            }
        }
    });
}

#[test]
fn ranks_whose_calls_differ_all_get_the_same_error_with_both_sites_and_go_on() {
    type Other = fn(&Collectives) -> Result<(), syncline::collective::Error>;
    let usual: Other = |group| group.all_reduce(&mut [0; 40], DType::F32, ReduceOp::Sum, true, how("usual.py:1")).map(drop);
    let others: [(Other, &str); 8] = [
        (|group| group.all_reduce(&mut [0; 40], DType::I32, ReduceOp::Sum, true, how("other.py:2")).map(drop), "the sum of 10 int32"),
        (|group| group.all_reduce(&mut [0; 44], DType::F32, ReduceOp::Sum, true, how("other.py:2")).map(drop), "the sum of 11 float32"),
        (|group| group.all_reduce(&mut [0; 40], DType::F32, ReduceOp::Max, true, how("other.py:2")).map(drop), "the max of 10 float32"),
        (
            |group| group.all_reduce(&mut vec![0; 4_000_000], DType::F32, ReduceOp::Sum, true, how("other.py:2")).map(drop),
            "1000000 float32",
        ),
        (|group| group.broadcast(&mut [0; 40], DType::F32, 0, how("other.py:2")), "broadcast"),
        (|group| group.all_gather(&[7; 100_000], how("other.py:2")).map(drop), "all_gather"),
        (|group| group.reduce_scatter(&[0; 40], DType::F32, ReduceOp::Sum, how("other.py:2")).map(drop), "reduce_scatter"),
        (|group| group.barrier(how("other.py:2")), "barrier"),
    ];
    for n in [2, 3, 5] {
        let told = job(n, "mismatch", |session| {
            let (group, me) = (all(session), session.rank());
            let tell = |(index, (other, words)): (usize, &(Other, &str))| {
                let odd_one = (index as u32 + 1) % n;
                let error = if me == odd_one { other(&group) } else { usual(&group) }.expect_err("the calls differ");
                assert_eq!(error.kind(), ErrorKind::ContractMismatch, "{error}");
                let text = error.to_string();
                assert!(["usual.py:1", "other.py:2", words].iter().all(|part| text.contains(part)), "{text}");
                assert!(text.contains(&format!("rank {odd_one} called")), "{text}");
                usual(&group).expect("all are in step again");
                text
            };
            others.iter().enumerate().map(tell).collect::<Vec<_>>()
        });
        assert!(told.windows(2).all(|pair| pair[0] == pair[1]), "all say the same");
    }
}

#[test]
fn operations_under_way_run_in_the_order_in_which_they_were_issued() {
    job(3, "async", |session| {
        let (group, me) = (all(session), session.rank() as i64);
        for round in 0..30_i64 {
            let start = |value: i64, count: usize| {
                let bytes: Vec<u8> = std::iter::repeat_n((me + value).to_ne_bytes(), count).flatten().collect();
                group.all_reduce_start(bytes, DType::I64, ReduceOp::Sum, true, how("start.py:1"))
            };
            let (first, second) = (start(round, 40_000), start(2 * round, 5));
            let mut between = [me * round];
            group.all_reduce(bytemuck::cast_slice_mut(&mut between), DType::I64, ReduceOp::Max, true, how("")).expect("all agree");
            assert_eq!(between, [2 * round]);
            let third = start(7, 1);
            for (pending, value) in [(first, 3 + 3 * round), (second, 3 + 6 * round), (third, 24)] {
                let (bytes, contributors) = pending.wait(by()).expect("all agree");
                assert_eq!(contributors, 3);
                assert!(bytes.chunks_exact(8).all(|sum| sum == value.to_ne_bytes()));
            }
        }
    });
}

#[test]
fn random_calls_of_random_sizes_follow_each_other() {
    for n in [2, 3, 4_usize] {
        job(n as u32, "random", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            let (mut plan, mut delays) = (Chance::new(11), Chance::new(me as u64)); // The plan is the same on all.
            for round in 0..150 {
                for _ in 0..delays.below(4) {
                    std::thread::yield_now();
                }
                let elements = [0, 1, 17, 1024, 2049, 30_000, 140_000, 300_000][plan.below(8) as usize];
                let root = plan.below(n as u64) as usize;
                let mine = contribution(me, DType::F32, elements);
                let theirs = || contribution(root, DType::F32, elements);
                match plan.below(5) {
                    0 => {
                        let mut bytes = mine;
                        group.broadcast(&mut bytes, DType::F32, root, how("")).expect("all agree");
                        assert!(bytes == theirs(), "round {round}");
                    }
                    1 => assert!(group.all_gather(&mine, how("")).expect("all agree")[root] == theirs(), "round {round}"),
                    2 => {
                        let mut bytes = mine;
                        group.reduce(&mut bytes, DType::F32, ReduceOp::Sum, root, how("")).expect("all agree");
                        assert!(me != root || bytes == folded(0..n, DType::F32, ReduceOp::Sum, elements), "round {round}");
                    }
                    _ => {
                        let mut bytes = mine;
                        group.all_reduce(&mut bytes, DType::F32, ReduceOp::Sum, true, how("")).expect("all agree");
                        assert!(bytes == folded(0..n, DType::F32, ReduceOp::Sum, elements), "round {round}");
                    }
                }
            }
        });
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anybody_hears_of_it() {
    job(2, "refused", |session| {
        let group = all(session);
        assert_eq!(group.broadcast(&mut [0; 4], DType::F32, 2, how("")).expect_err("no such root").kind(), ErrorKind::Configuration);
        let partial = group.all_reduce(&mut [0; 5], DType::F32, ReduceOp::Sum, true, how("")).expect_err("no whole number");
        assert_eq!(partial.kind(), ErrorKind::ShapeMismatch);
        assert_eq!(group.all_to_all(&[b"a"], how("")).expect_err("one part for two").kind(), ErrorKind::ShapeMismatch);
        group.barrier(how("")).expect("nobody is out of step");
    });
}

#[test]
fn typed_calls_name_their_own_lines() {
    let told = job(2, "typed", |session| {
        let (workers, me) = (session.among_workers().expect("a worker"), session.rank() as i32);
        let mut array = [me, 10];
        assert_eq!((workers.all_reduce(&mut array, ReduceOp::Max).expect("all agree"), array), (2, [1, 10]));
        assert_eq!(workers.all_gather(&vec![me; me as usize]).expect("all agree"), [vec![], vec![1]]);
        assert_eq!(
            workers.all_to_all(&[&[me], &[me, 2]]).expect("all agree"),
            if me == 0 { [vec![0], vec![1]] } else { [vec![0, 2], vec![1, 2]] }
        );
        assert_eq!(workers.reduce_scatter(&[1i64, 2, 3], ReduceOp::Sum).expect("all agree"), if me == 0 { vec![2, 4] } else { vec![6] });
        let parts: [&[f64]; 2] = [&[0.5], &[1.5]];
        let part = workers.scatter((me == 1).then_some(&parts[..]), 1).expect("all agree");
        assert_eq!(part, [if me == 0 { 0.5 } else { 1.5 }]);
        let differs = if me == 0 { workers.barrier() } else { workers.broadcast(&mut array, 0) };
        differs.expect_err("the calls differ").to_string()
    });
    assert!(told[0] == told[1] && told[0].matches("collectives.rs:").count() == 2, "{}", told[0]);
}

#[test]
fn without_shared_memory_the_same_calls_give_the_same_bits_over_links() {
    job_in(APART, 3, "apart", |session| {
        let (group, me) = (all(session), session.rank() as usize);
        for elements in [0, 5, 1000, 100_003] {
            let mut bytes = contribution(me, DType::F32, elements);
            assert_eq!(group.all_reduce(&mut bytes, DType::F32, ReduceOp::Sum, true, how("")).expect("all agree"), 3);
            assert!(bytes == folded(0..3, DType::F32, ReduceOp::Sum, elements), "{elements} numbers");
        }
    });
}

#[test]
fn user_functions_merge_messages_inside_a_host_too() {
    job(4, "fold", |session| {
        let (group, me) = (all(session), session.rank() as u8);
        let print = syncline_wire::Fingerprint::of("test").finish();
        let mut join = |mine: Vec<u8>, received: Vec<u8>| Ok([mine, received].concat());
        let (mut message, contributors) = group.fold(vec![me], "lists", print, me != 3, &mut join, how("")).expect("all agree");
        message.sort_unstable();
        assert_eq!((message, contributors), (vec![0, 1, 2, 3], 3));
        let differs = match me {
            0 => group.barrier(how("a.py:1")),
            _ => group.fold(vec![], "lists", print, true, &mut join, how("b.py:2")).map(drop),
        };
        assert_eq!(differs.expect_err("the calls differ").kind(), ErrorKind::ContractMismatch);
    });
}

#[test]
fn a_function_may_merge_messages_while_its_caller_does_something_else() {
    for manner in [TOGETHER, APART] {
        job_in(manner, 3, "fold-meanwhile", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            let print = syncline_wire::Fingerprint::of("letters").finish();
            let merge = |mine: Vec<u8>, received: Vec<u8>| Ok([mine, received].concat());
            let under_way = group.fold_start(vec![b'a' + me as u8], "joined".into(), print, true, merge, how("here"));
            let mut sum = vec![1_u8; 10];
            group.all_reduce(&mut sum, DType::U8, ReduceOp::Sum, true, how("")).expect("in its turn");
            let (mut joined, contributors) = under_way.wait(by()).expect("all agree");
            joined.sort_unstable();
            assert_eq!((joined, contributors, sum), (b"abc".to_vec(), 3, vec![3; 10]));
        });
    }
}

#[test]
fn letters_keep_their_order_by_tag_and_wait_for_whoever_asks() {
    for manner in [TOGETHER, APART] {
        job_in(manner, 3, "letters", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            let (next, before) = ((me + 1) % 3, (me + 2) % 3);
            // All send before anybody receives, more than a link holds, and receive in another order.
            let sent: Vec<_> = [(7, 3 << 20), (1, 0), (7, 5), (2, 70_000)]
                .into_iter()
                .map(|(tag, len)| group.send_start(vec![tag as u8 + me as u8; len], next, tag, by()))
                .collect();
            let came = |tag, len: usize| {
                let (bytes, from) = group.recv_start(Some(before), tag, by()).wait(by()).expect("it was sent");
                assert!(
                    from as usize == before && bytes == vec![tag as u8 + before as u8; len],
                    "tag {tag}: {} bytes of {from}",
                    bytes.len()
                );
            };
            came(2, 70_000);
            came(7, 3 << 20);
            came(1, 0);
            came(7, 5);
            sent.into_iter().for_each(|letter| drop(letter.wait(by()).expect("it was taken")));
            // From anybody, to one; those who answer are told apart.
            if me == 0 {
                let mut senders: Vec<u32> = (0..2).map(|_| group.recv_start(None, 9, by()).wait(by()).expect("two send").1).collect();
                senders.sort_unstable();
                assert_eq!(senders, [1, 2]);
            } else {
                group.send_start(vec![1, 2, 3], 0, 9, by()).wait(by()).expect("it is taken");
            }
            group.barrier(how("")).expect("still in step");
            assert!(group.send_start(vec![0; 1], me, 0, by()).wait(by()).is_err_and(|error| error.kind() == ErrorKind::Configuration));
            let late = group.recv_start(Some(next), 5, Deadline::after(Duration::from_millis(150))).wait(by());
            assert!(late.is_err_and(|error| error.who().is_some_and(|who| who.rank as usize == next)));
            group.barrier(how("")).expect("still in step");
        });
    }
}

#[test]
fn whoever_awaits_a_letter_of_the_dead_is_told() {
    for manner in [TOGETHER, APART] {
        let errors = mortal_job(manner, 3, "dead-letters", "20", |session| {
            let (group, me) = (all(session), session.rank() as usize);
            // Who is slow to leave a barrier may hear of a death there: the one that dies waits until both have left.
            if me == 2 {
                (0..2).for_each(|_| drop(group.recv_start(None, 0, by()).wait(by()).expect("both are there")));
                return None; // drops its session without a word
            }
            group.send_start(vec![1], 2, 0, by()).wait(by()).expect("it is there");
            let from = (me == 0).then_some(2); // the other one would take a letter of anybody
            Some(group.recv_start(from, 1, by()).wait(by()).expect_err("nobody sends"))
        });
        for error in errors.iter().flatten() {
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(2)), "{error}");
        }
        assert_eq!(errors.iter().flatten().count(), 2);
    }
}
