//! Jobs of threads that take each other for several hosts: any layout, the left fold host by host, one crossing each way.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, ErrorKind, Group, Job, OnPeerLoss, Settings, TransportChoice};
use syncline_tensor::DType;
use syncline_tensor::kernels::ReduceOp;

use super::*;
use crate::memory::Memory;
use crate::rehearsal::{folded, job, numbers, soon};

/// What joins the ranks of a host here: memory, or links in its place.
enum Near {
    Memory(Box<Memory>),
    Links(Mesh),
}

impl Neighbours for Near {
    fn roll_call(&mut self, call: &Call<'_>) -> Result<u32, Failure> {
        match self {
            Near::Memory(memory) => memory.roll_call(call),
            Near::Links(mesh) => mesh.roll_call(call),
        }
    }

    fn gather(&mut self, call: &Call<'_>, mine: &[u8], want: bool) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        match self {
            Near::Memory(memory) => memory.gather(call, mine, want),
            Near::Links(mesh) => mesh.gather(mine, 0, call),
        }
    }

    fn broadcast(&mut self, call: &Call<'_>, array: &mut [u8], root: usize) -> Result<(), Failure> {
        match self {
            Near::Memory(memory) => memory.broadcast(call, array, root),
            Near::Links(mesh) => mesh.broadcast(array, root, call),
        }
    }

    fn broadcast_message(&mut self, call: &Call<'_>, message: &[u8], root: usize) -> Result<Vec<u8>, Failure> {
        match self {
            Near::Memory(memory) => memory.broadcast_message(call, message, root),
            Near::Links(mesh) => mesh.broadcast_message((mesh.position() == root).then_some(message), root, call),
        }
    }

    fn tell(&mut self, setback: &Setback) {
        if let Near::Memory(memory) = self {
            memory.tell(setback);
        }
    }
}

struct Rank {
    job: Job,
    hosts: Hosts<Near>,
    me: usize,
    number: u64,
}

impl Rank {
    fn call<'a>(&mut self, what: What<'a>) -> Call<'a> {
        self.number += 1;
        Call { number: self.number, what, site: "hosts.rs:1", by: soon(), started: Instant::now(), contributes: true }
    }

    fn all_reduce(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp) -> Result<u32, Failure> {
        let call = self.call(What::AllReduce { dtype, op, count: array.len() / dtype.size() });
        self.hosts.all_reduce(array, dtype, op, &call)
    }
}

/// Runs `body` on ranks that sit on `hosts`.
fn on<T: Send>(name: &str, hosts: &[Vec<u32>], body: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
    on_by(TransportChoice::Tcp, name, hosts, body)
}

fn on_by<T: Send>(transport: TransportChoice, name: &str, hosts: &[Vec<u32>], body: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
    let name = format!("hosts-{name}-{hosts:?}").replace([' ', '[', ']', ','], "");
    let settings = Settings { transport, encrypt: false, ..Settings::default() };
    on_with(&settings, &name, hosts, body)
}

fn on_with<T: Send>(settings: &Settings, name: &str, hosts: &[Vec<u32>], body: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
    let (ranks, transport) = (hosts.iter().map(Vec::len).sum(), settings.transport);
    job(name, ranks, settings, |me, job| {
        let group = Group::world(ranks as u32, me as u32);
        let mut hosts = Hosts::new(&job.vigil(), &group, hosts, &PlanSettings::default());
        let joined = hosts.settle(|here| match transport {
            TransportChoice::Tcp => Ok(Near::Links(Mesh::new(job.vigil(), here.clone(), "near", PlanSettings::default()))),
            _ => Ok(Near::Memory(Box::new(Memory::open(&job, here, soon())?))),
        });
        joined.expect("neighbours");
        body(&mut Rank { job, hosts, me, number: 0 })
    })
}

#[test]
fn every_layout_has_the_bits_of_the_left_fold_host_by_host() {
    let layouts: [&[Vec<u32>]; 6] = [
        &[vec![0], vec![1]],
        &[vec![0, 1], vec![2, 3]],
        &[vec![0, 1, 2], vec![3]],
        &[vec![0], vec![1, 2], vec![3]],
        &[vec![0, 2], vec![1, 3, 4]],
        &[vec![0, 1], vec![2], vec![3], vec![4, 5]],
    ];
    for (hosts, transport) in layouts.into_iter().flat_map(|hosts| [(hosts, TransportChoice::Tcp), (hosts, TransportChoice::Auto)]) {
        // Which is the order of the group where hosts do not interleave; where they do, this way is not taken by what shows it.
        let order: Vec<usize> = hosts.concat().into_iter().map(|position| position as usize).collect();
        on_by(transport, "bits", hosts, |rank| {
            for (count, dtype, op) in [
                (0, DType::F32, ReduceOp::Sum),
                (5, DType::F32, ReduceOp::Sum),
                (3000, DType::F16, ReduceOp::Sum),
                (700_001, DType::F16, ReduceOp::Sum),
                (400_001, DType::F32, ReduceOp::Mean),
                (30_001, DType::I64, ReduceOp::Max),
            ] {
                let mut array = numbers(rank.me, count, dtype);
                assert_eq!(rank.all_reduce(&mut array, dtype, op).expect("a result"), order.len() as u32);
                assert!(array == folded(order.clone(), count, dtype, op), "{op} of {count} {dtype} on {hosts:?}");
            }
            for root in [0, order.len() - 1] {
                for count in [6, 200_003] {
                    let call = rank.call(What::Broadcast { dtype: DType::F32, count, root });
                    let mut array = numbers(rank.me, count, DType::F32);
                    rank.hosts.broadcast(&mut array, root, &call).expect("the root's array");
                    assert!(array == numbers(root, count, DType::F32), "from {root} on {hosts:?}");
                    let call = rank.call(What::Reduce { dtype: DType::F32, op: ReduceOp::Sum, count, root });
                    let mut array = numbers(rank.me, count, DType::F32);
                    rank.hosts.reduce(&mut array, DType::F32, ReduceOp::Sum, root, &call).expect("a sum at the root");
                    let sum = folded(order.clone(), count, DType::F32, ReduceOp::Sum);
                    assert!(array == if rank.me == root { sum } else { numbers(rank.me, count, DType::F32) });
                }
            }
            let call = rank.call(What::Barrier);
            rank.hosts.barrier(&call).expect("all come");
            rank.job.leave(soon()).expect("a polite end");
        });
    }
}

#[test]
fn an_array_crosses_between_two_hosts_once_each_way() {
    let count = 1 << 20;
    let reports = on("crossing", &[vec![0, 1], vec![2, 3]], |rank| {
        let mut array = numbers(rank.me, count, DType::F32);
        rank.all_reduce(&mut array, DType::F32, ReduceOp::Sum).expect("a sum");
        let reports: Vec<_> = rank.hosts.ledger().iter().flat_map(|ledger| ledger.reports()).collect();
        rank.job.leave(soon()).expect("a polite end");
        reports
    });
    let size = 4 * count as u64;
    for (leader, other) in [(0, 2), (2, 0)] {
        let [report] = &reports[leader][..] else { panic!("{:?}", reports[leader]) };
        assert_eq!(report.peer, other);
        assert!((size..size + 1000).contains(&report.bytes_sent) && (size..size + 1000).contains(&report.bytes_received), "{report:?}");
    }
    assert!(reports[1].is_empty() && reports[3].is_empty(), "only leaders speak between hosts");
}

#[test]
fn calls_that_differ_inside_a_host_or_between_hosts_are_one_error() {
    for (odd, transport) in (0..4).flat_map(|odd| [(odd, TransportChoice::Tcp), (odd, TransportChoice::Auto)]) {
        let errors = on_by(transport, &format!("odd{odd}"), &[vec![0, 1], vec![2, 3]], |rank| {
            let mut array = numbers(0, if rank.me == odd { 4 } else { 5 }, DType::F32);
            let error = match rank.all_reduce(&mut array, DType::F32, ReduceOp::Sum) {
                Err(Failure::Agreed(error)) => error,
                other => panic!("{other:?}"),
            };
            let call = rank.call(What::Barrier);
            rank.hosts.barrier(&call).expect("still in step");
            rank.job.leave(soon()).expect("a polite end");
            assert_eq!(error.kind(), ErrorKind::ContractMismatch, "{error}");
            error.to_string()
        });
        assert!(errors.iter().all(|error| *error == errors[0]), "{errors:#?}");
        assert!(["the sum of 4 float32", "the sum of 5 float32"].iter().all(|words| errors[0].contains(words)), "{}", errors[0]);
    }
}

#[test]
fn whoever_stays_away_is_named_on_every_host() {
    // Those who wait for the absent one itself give up after a second; the others would wait for twenty, and are told.
    for (absent, count) in [(0, 1 << 20), (1, 3), (1, 1 << 20), (2, 3), (3, 1 << 20)] {
        let over = Barrier::new(4);
        let errors = on_by(TransportChoice::Auto, &format!("absent{absent}-{count}"), &[vec![0, 1], vec![2, 3]], |rank| {
            let (dtype, op) = (DType::F32, ReduceOp::Sum);
            let mut array = numbers(rank.me, count, dtype);
            rank.all_reduce(&mut array, dtype, op).expect("all come");
            let mut error = None;
            if rank.me != absent {
                let near = rank.me / 2 == absent / 2 || (rank.me % 2 == 0 && absent % 2 == 0);
                let by = Deadline::after(Duration::from_secs(if near { 1 } else { 20 }));
                let call = Call { by, ..rank.call(What::AllReduce { dtype, op, count }) };
                let since = Instant::now();
                match rank.hosts.all_reduce(&mut array, dtype, op, &call) {
                    Err(Failure::Astray(late)) => error = Some(late),
                    other => panic!("rank {}: {other:?}", rank.me),
                }
                assert!(since.elapsed() < Duration::from_secs(10), "rank {} was not told: {:?}", rank.me, error);
            }
            over.wait();
            rank.job.abort("it failed");
            error
        });
        for error in errors.iter().flatten() {
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::Timeout, Some(absent as u32)), "{error}");
            assert!(!error.to_string().contains("broadcast"), "the operation is the caller's: {error}");
        }
        assert_eq!(errors.iter().flatten().count(), 3);
    }
}

#[test]
fn whoever_dies_is_named_on_every_host() {
    for (victim, transport) in
        [(0, TransportChoice::Auto), (1, TransportChoice::Auto), (1, TransportChoice::Tcp), (2, TransportChoice::Tcp)]
    {
        let errors = on_by(transport, &format!("dies{victim}"), &[vec![0, 1], vec![2, 3]], |rank| {
            let (dtype, op, count) = (DType::F32, ReduceOp::Sum, 1 << 20);
            let mut array = numbers(rank.me, count, dtype);
            rank.all_reduce(&mut array, dtype, op).expect("all live");
            if rank.me == victim {
                let call = rank.call(What::AllReduce { dtype, op, count });
                rank.hosts.roll_call(&call).expect("all come");
                return None;
            }
            let since = Instant::now();
            match rank.all_reduce(&mut array, dtype, op) {
                Err(Failure::Astray(error)) => {
                    assert!(since.elapsed() < Duration::from_secs(5), "after {:?}: {error}", since.elapsed());
                    rank.job.abort("it failed");
                    Some(error)
                }
                other => panic!("rank {}: {other:?}", rank.me),
            }
        });
        for error in errors.iter().flatten() {
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(victim as u32)), "{error}");
        }
        assert_eq!(errors.iter().flatten().count(), 3);
    }
}

#[test]
fn whoever_dies_before_it_spoke_is_named_on_every_host() {
    type Act = fn(&mut Rank, &Call<'_>) -> Result<(), Failure>;
    let (dtype, op, count) = (DType::F32, ReduceOp::Sum, 9);
    let acts: [(What<'static>, Act); 3] = [
        (What::BroadcastMessage { root: 1 }, |rank, call| rank.hosts.broadcast_message(&[], 1, call).map(drop)),
        (What::Broadcast { dtype, count, root: 1 }, |rank, call| rank.hosts.broadcast(&mut [0; 36], 1, call)),
        (What::AllReduce { dtype, op, count }, |rank, call| rank.hosts.all_reduce(&mut [0; 36], DType::F32, ReduceOp::Sum, call).map(drop)),
    ];
    for (what, act) in acts {
        let errors = on_by(TransportChoice::Auto, &format!("mute-{what}").replace(' ', ""), &[vec![0, 1], vec![2, 3]], |rank| {
            let call = rank.call(what);
            if rank.me == 1 {
                rank.hosts.roll_call(&call).expect("all come");
                return None;
            }
            let since = Instant::now();
            match act(rank, &call) {
                Err(Failure::Astray(error)) => {
                    assert!(since.elapsed() < Duration::from_secs(5), "after {:?}: {error}", since.elapsed());
                    rank.job.abort("it failed");
                    Some(error)
                }
                other => panic!("rank {}: {other:?}", rank.me),
            }
        });
        for error in errors.iter().flatten() {
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(1)), "{what}: {error}");
            assert!(error.to_string().starts_with(what.name()), "the operation is the caller's: {error}");
        }
        assert_eq!(errors.iter().flatten().count(), 3);
    }
}

/// Survivors that go on close nothing by leaving, so who waits for one of them has to find out about the dead one by itself.
#[test]
fn whoever_dies_is_named_on_every_host_by_survivors_who_stay() {
    let settings = Settings { encrypt: false, on_peer_loss: OnPeerLoss::Continue, ..Settings::default() };
    for (victim, earlier, count) in [(1, 1, 9), (1, 0, 9), (2, 1, 1 << 20), (3, 1, 1 << 20), (3, 0, 9)] {
        let told = Barrier::new(3);
        let errors = on_with(&settings, &format!("hosts-stay-{victim}-{earlier}-{count}"), &[vec![0, 1], vec![2, 3]], |rank| {
            let (dtype, op) = (DType::F32, ReduceOp::Sum);
            let mut array = numbers(rank.me, count, dtype);
            (0..earlier).for_each(|_| assert!(rank.all_reduce(&mut array, dtype, op).is_ok(), "all live"));
            if rank.me == victim {
                return None;
            }
            let since = Instant::now();
            let error = match rank.all_reduce(&mut array, dtype, op) {
                Err(Failure::Astray(error)) => error,
                other => panic!("rank {}: {other:?}", rank.me),
            };
            assert!(since.elapsed() < Duration::from_secs(5), "rank {} after {:?}: {error}", rank.me, since.elapsed());
            told.wait();
            rank.job.abort("it failed");
            Some(error)
        });
        for error in errors.iter().flatten() {
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(victim as u32)), "{error}");
        }
        assert_eq!(errors.iter().flatten().count(), 3);
    }
}
