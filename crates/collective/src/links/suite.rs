//! Meshes of real jobs whose ranks are threads: every plan, number of ranks and type, calls that differ, ranks that die.

use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, ErrorKind, Group, Job, Settings, TransportChoice};
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, cast, reduce_into};
use syncline_wire::Fingerprint;

use super::Mesh;
use super::run::part;
use crate::call::{Call, Failure, What};
use crate::plan::check::{self, Term};
use crate::plan::{PlanName, PlanSettings};
use crate::rehearsal::{job, left_fold, numbers, soon};

/// A rank of a job, with its mesh and the number of its next call.
pub(super) struct Rank {
    pub(super) job: Job,
    pub(super) mesh: Mesh,
    number: u64,
}

impl Rank {
    pub(super) fn call<'a>(&mut self, what: What<'a>) -> Call<'a> {
        self.number += 1;
        Call { number: self.number, what, site: "suite.rs:1", by: soon(), started: Instant::now(), contributes: true }
    }

    pub(super) fn all_reduce(&mut self, array: &mut [u8], dtype: DType, op: ReduceOp) -> Result<u32, Failure> {
        let call = self.call(What::AllReduce { dtype, op, count: array.len() / dtype.size() });
        self.mesh.all_reduce(array, dtype, op, &call)
    }
}

pub(super) fn in_tcp<T: Send>(name: &str, ranks: usize, body: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
    among(name, ranks, TransportChoice::Tcp, |rank| {
        let result = body(rank);
        rank.job.leave(soon()).expect("a polite end");
        result
    })
}

/// Runs `body` on every rank of a job; who does not leave looks dead to the others when its thread ends.
pub(super) fn among<T: Send>(name: &str, ranks: usize, transport: TransportChoice, body: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
    among_with(name, ranks, &Settings { transport, encrypt: false, ..Settings::default() }, body)
}

fn among_with<T: Send>(name: &str, ranks: usize, settings: &Settings, body: impl Fn(&mut Rank) -> T + Sync) -> Vec<T> {
    job(&format!("links-{name}"), ranks, settings, |rank, job| {
        let group = Group::world(ranks as u32, rank as u32);
        let mesh = Mesh::new(job.vigil(), group, "group", PlanSettings::default());
        body(&mut Rank { job, mesh, number: 0 })
    })
}

const PLANS: [&str; 6] = ["tree", "tree:3", "ring", "halving", "chain", "doubling"];

/// What a plan promises: its folds, in the widest type that it may use.
fn promised(mesh: &Mesh, name: PlanName, count: usize, dtype: DType, op: ReduceOp) -> Vec<u8> {
    let ranks = mesh.ranks();
    let Some(plan) = mesh.plan(name) else { return left_fold(ranks, count, dtype, op) };
    let wide = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    fn fold(term: &Term, all: &[Vec<u8>], wide: DType, op: ReduceOp) -> Vec<u8> {
        match term {
            Term::One(position) => all[*position].clone(),
            Term::Fold(left, right) => {
                let mut sum = fold(left, all, wide, op);
                reduce_into(op, wide, &mut sum, &fold(right, all, wide, op)).expect("of one length");
                sum
            }
        }
    }
    let (outcome, _) = check::all_reduce(&plan).expect("a sound plan");
    let mut out = Vec::new();
    for (piece, term) in outcome.ends[0].iter().enumerate() {
        let range = part(count, plan.pieces, piece, dtype.size());
        let widened = |position: usize| {
            let narrow = &numbers(position, count, dtype)[range.clone()];
            let mut bytes = vec![0; narrow.len() / dtype.size() * wide.size()];
            cast(dtype, narrow, wide, &mut bytes).expect("as many");
            bytes
        };
        let all: Vec<Vec<u8>> = (0..ranks).map(widened).collect();
        let sum = fold(term, &all, wide, op);
        let mut narrow = vec![0; range.len()];
        cast(wide, &sum, dtype, &mut narrow).expect("as many");
        out.extend(narrow);
    }
    out
}

#[test]
fn every_number_of_ranks_sums_small_arrays_by_every_plan() {
    let (dtype, op) = (DType::F32, ReduceOp::Sum);
    for ranks in 1..=33 {
        let counts: Vec<usize> = if ranks <= 9 { vec![0, 1, ranks - 1, ranks, ranks + 1, 1023] } else { vec![ranks - 1, 1023] };
        in_tcp("small", ranks, |rank| {
            let me = rank.mesh.position();
            for count in &counts {
                let expected = left_fold(ranks, *count, dtype, op);
                let mut array = numbers(me, *count, dtype);
                assert_eq!(rank.all_reduce(&mut array, dtype, op).expect("a sum"), ranks as u32);
                assert!(array == expected, "{count} numbers on {ranks} ranks");
                // With many ranks a lap of the ring is long, so they share the plans among them.
                for name in PLANS.iter().enumerate().filter(|(index, _)| ranks <= 9 || ranks % 6 == *index).map(|(_, name)| *name) {
                    let name = PlanName::parse(name).expect("a plan");
                    rank.mesh.settings.forced = Some(name);
                    let mut array = numbers(me, *count, dtype);
                    rank.all_reduce(&mut array, dtype, op).expect("a sum");
                    assert!(array == promised(&rank.mesh, name, *count, dtype, op), "{count} numbers on {ranks} ranks by {name}");
                }
                rank.mesh.settings.forced = None;
            }
        });
    }
}

#[test]
fn every_type_and_operation_gives_the_bits_of_its_plan() {
    for ranks in [2, 3, 5] {
        in_tcp("types", ranks, |rank| {
            let me = rank.mesh.position();
            for dtype in DType::ALL {
                for op in ReduceOp::ALL.into_iter().filter(|op| *op != ReduceOp::Mean) {
                    for name in PLANS {
                        let name = PlanName::parse(name).expect("a plan");
                        rank.mesh.settings.forced = Some(name);
                        let count = ranks + 8;
                        let mut array = numbers(me, count, dtype);
                        rank.all_reduce(&mut array, dtype, op).expect("a result");
                        assert!(array == promised(&rank.mesh, name, count, dtype, op), "{op} of {dtype} on {ranks} ranks by {name}");
                    }
                }
            }
        });
    }
}

#[test]
fn large_arrays_are_summed_in_segments_without_changing_a_bit() {
    for (ranks, dtype, plans) in [
        (2, DType::F32, &["", "halving", "ring", "doubling"][..]),
        (3, DType::F16, &["", "tree", "halving"]),
        (4, DType::F32, &["", "tree:4", "ring"]),
        (5, DType::BF16, &["", "tree", "ring", "halving"]),
    ] {
        let count = if dtype == DType::F32 { 1_000_003 } else { 300_007 };
        in_tcp("large", ranks, |rank| {
            let me = rank.mesh.position();
            for name in plans {
                let forced = PlanName::parse(name).ok();
                rank.mesh.settings.forced = forced;
                let mut array = numbers(me, count, dtype);
                rank.all_reduce(&mut array, dtype, ReduceOp::Sum).expect("a sum");
                let expected = match forced {
                    None => left_fold(ranks, count, dtype, ReduceOp::Sum),
                    Some(name) => promised(&rank.mesh, name, count, dtype, ReduceOp::Sum),
                };
                assert!(array == expected, "{dtype} on {ranks} ranks by `{name}`");
            }
        });
    }
}

#[test]
fn shared_rings_unix_sockets_and_sealed_streams_carry_the_same_bits() {
    for (transport, encrypt) in [(TransportChoice::Auto, false), (TransportChoice::Unix, false), (TransportChoice::Tcp, true)] {
        let settings = Settings { transport, encrypt, ..Settings::default() };
        among_with("carriers", 3, &settings, |rank| {
            let me = rank.mesh.position();
            for name in ["", "tree", "ring", "doubling"] {
                rank.mesh.settings.forced = PlanName::parse(name).ok();
                for count in [7, 300_001] {
                    let mut array = numbers(me, count, DType::F32);
                    rank.all_reduce(&mut array, DType::F32, ReduceOp::Sum).expect("a sum");
                    let name = PlanName::parse(name).unwrap_or(PlanName::Chain);
                    assert!(array == promised(&rank.mesh, name, count, DType::F32, ReduceOp::Sum), "{count} by {name} over {transport}");
                }
            }
            rank.job.leave(soon()).expect("a polite end");
        });
    }
}

#[test]
fn means_divide_by_those_who_contribute() {
    in_tcp("means", 3, |rank| {
        let me = rank.mesh.position();
        for count in [4, 20_000] {
            let mut array: Vec<u8> = (0..count).flat_map(|_| [3.0f32, 6.0, 0.0][me].to_le_bytes()).collect();
            let mut call = rank.call(What::AllReduce { dtype: DType::F32, op: ReduceOp::Mean, count });
            call.contributes = me != 2;
            assert_eq!(rank.mesh.all_reduce(&mut array, DType::F32, ReduceOp::Mean, &call).expect("a mean"), 2);
            assert!(array.chunks(4).all(|number| number == 4.5f32.to_le_bytes()));
        }
    });
}

#[test]
fn everything_else_arrives_where_it_should() {
    for ranks in [1, 2, 3, 4, 7] {
        in_tcp("others", ranks, |rank| {
            let me = rank.mesh.position();
            for size in [3, 5000, 400_000] {
                let bytes = |position: usize| numbers(position, size + position, DType::U8);
                let (dtype, op) = (DType::F32, ReduceOp::Sum);
                let expected = left_fold(ranks, size, dtype, op);
                for root in [0, ranks - 1] {
                    let call = rank.call(What::Reduce { dtype, op, count: size, root });
                    let mut array = numbers(me, size, dtype);
                    rank.mesh.reduce(&mut array, dtype, op, root, &call).expect("a sum at the root");
                    assert!(array == if me == root { expected.clone() } else { numbers(me, size, dtype) });

                    let call = rank.call(What::Broadcast { dtype, count: size, root });
                    let mut array = numbers(me, size, dtype);
                    rank.mesh.broadcast(&mut array, root, &call).expect("the root's array");
                    assert!(array == numbers(root, size, dtype));

                    let call = rank.call(What::BroadcastMessage { root });
                    let mine = bytes(me);
                    let message = rank.mesh.broadcast_message((me == root).then_some(mine.as_slice()), root, &call).expect("a message");
                    assert!(message == bytes(root));

                    let call = rank.call(What::Gather { root });
                    let all = rank.mesh.gather(&mine, root, &call).expect("all at the root");
                    assert!(all == (me == root).then(|| (0..ranks).map(bytes).collect()));

                    let call = rank.call(What::Scatter { root });
                    let parts: Vec<Vec<u8>> = (0..ranks).map(bytes).collect();
                    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                    let part = rank.mesh.scatter((me == root).then_some(&parts[..]), root, &call).expect("a part");
                    assert!(part == mine);
                }
                let call = rank.call(What::AllGather);
                assert!(rank.mesh.all_gather(&bytes(me), &call).expect("all") == (0..ranks).map(bytes).collect::<Vec<_>>());

                let call = rank.call(What::ReduceScatter { dtype, op, count: size });
                let mine = rank.mesh.reduce_scatter(&numbers(me, size, dtype), dtype, op, &call).expect("a part of the sum");
                assert!(mine == expected[part(size, ranks, me, 4)]);

                let call = rank.call(What::AllToAll);
                let parts: Vec<Vec<u8>> = (0..ranks).map(|to| bytes(me * 10 + to)).collect();
                let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                let came = rank.mesh.all_to_all(&parts, &call).expect("all parts");
                assert!(came == (0..ranks).map(|from| bytes(from * 10 + me)).collect::<Vec<_>>());

                let call = rank.call(What::Barrier);
                rank.mesh.barrier(&call).expect("all come");
            }
        });
    }
}

#[test]
fn a_function_folds_in_order_and_its_failure_reaches_everybody() {
    for ranks in [1, 2, 5, 8, 9] {
        for base in [2, 4] {
            in_tcp("fold", ranks, |rank| {
                rank.mesh.settings.base = base;
                let me = rank.mesh.position();
                let what = What::Fold { words: "joined", fingerprint: Fingerprint::NONE };
                let call = rank.call(what);
                let hosts = [(0..ranks).collect()];
                let mut merges = 0;
                let joined = rank.mesh.fold(
                    vec![me as u8],
                    &mut |mut mine, received| {
                        merges += 1;
                        mine.extend(received);
                        Ok(mine)
                    },
                    &hosts,
                    &call,
                );
                assert_eq!(joined.expect("a message"), (0..ranks as u8).collect::<Vec<u8>>());
                assert_eq!(merges, crate::plan::tree::children(me, ranks, base).len());

                let call = rank.call(what);
                let failed = rank.mesh.fold(vec![me as u8], &mut |_, _| Err(Error::Configuration { detail: "no".into() }), &hosts, &call);
                match failed {
                    Ok(_) => assert_eq!(ranks, 1),
                    Err(Failure::Agreed(error)) => assert!(error.to_string().contains("no"), "{error}"),
                    Err(Failure::Astray(error)) => panic!("out of step: {error}"),
                }
                let call = rank.call(What::Barrier);
                rank.mesh.barrier(&call).expect("still in step");
            });
        }
    }
}

#[test]
fn calls_that_differ_are_the_same_error_everywhere_and_the_next_call_works() {
    for ranks in [2, 3, 8] {
        for odd in [0, ranks - 1] {
            let errors = in_tcp(&format!("odd{odd}"), ranks, |rank| {
                let count = if rank.mesh.position() == odd { 4 } else { 5 };
                let mut array = numbers(0, count, DType::F32);
                let error = match rank.all_reduce(&mut array, DType::F32, ReduceOp::Sum) {
                    Err(Failure::Agreed(error)) => error,
                    other => panic!("{other:?}"),
                };
                assert!(array == numbers(0, count, DType::F32), "a refused call changes nothing");
                let call = rank.call(What::Barrier);
                rank.mesh.barrier(&call).expect("still in step");
                assert_eq!(error.kind(), ErrorKind::ContractMismatch);
                error.to_string()
            });
            assert!(errors.iter().all(|error| *error == errors[0]), "{errors:?}");
            let both = ["4 float32, at suite.rs:1", "5 float32, at suite.rs:1", &format!("rank {odd} called")];
            assert!(both.iter().all(|words| errors[0].contains(words)), "{}", errors[0]);
        }
    }
}

#[test]
fn parts_that_do_not_fit_are_refused_by_all() {
    in_tcp("refused", 3, |rank| {
        let me = rank.mesh.position();
        let call = rank.call(What::Scatter { root: 1 });
        let parts: &[&[u8]] = &[b"a", b"b"];
        match rank.mesh.scatter((me == 1).then_some(parts), 1, &call) {
            Err(Failure::Agreed(error)) => assert!(error.to_string().contains("rank 1: 2 parts for 3 ranks"), "{error}"),
            other => panic!("{other:?}"),
        }
        let call = rank.call(What::Barrier);
        rank.mesh.barrier(&call).expect("still in step");
    });
}

#[test]
fn whoever_dies_in_the_middle_is_named_by_all_survivors_at_once() {
    let (few, more) = ([(2, 1), (5, 0)], [(4, 2)]);
    for (name, deaths) in [("", &few[..]), ("tree", &more), ("ring", &more), ("halving", &few[1..]), ("doubling", &more)] {
        for (ranks, victim) in deaths.iter().copied() {
            let errors = among(&format!("dies-{name}-{victim}"), ranks, TransportChoice::Tcp, |rank| {
                let me = rank.mesh.position();
                rank.mesh.settings.forced = PlanName::parse(name).ok();
                let (dtype, op, count) = (DType::F32, ReduceOp::Sum, 400_000);
                let mut array = numbers(me, count, dtype);
                rank.all_reduce(&mut array, dtype, op).expect("all live");
                if me == victim {
                    // It takes part in the roll call and goes before the array has travelled.
                    let call = rank.call(What::AllReduce { dtype, op, count });
                    rank.mesh.roll(&call, super::roll::Bring::later(&array)).expect("all come");
                    return None;
                }
                let since = Instant::now();
                match rank.all_reduce(&mut array, dtype, op) {
                    Err(Failure::Astray(error)) => {
                        // A thread that ends is heard of when its sockets close.
                        assert!(since.elapsed() < Duration::from_secs(5), "after {:?}: {error}", since.elapsed());
                        rank.job.abort("it failed");
                        Some(error)
                    }
                    other => panic!("rank {me} of {ranks} by {name}: {other:?}"),
                }
            });
            for error in errors.iter().flatten() {
                assert_eq!(
                    (error.kind(), error.who().map(|who| who.rank)),
                    (ErrorKind::PeerLost, Some(victim as u32)),
                    "by {name}: {error}"
                );
            }
            assert_eq!(errors.iter().flatten().count(), ranks - 1);
        }
    }
}

#[test]
fn whoever_does_not_come_is_named_when_the_time_is_up() {
    let results = in_tcp("late", 3, |rank| {
        let me = rank.mesh.position();
        let call = rank.call(What::Barrier);
        rank.mesh.barrier(&call).expect("all come");
        let mut call = rank.call(What::Barrier);
        if me == 1 {
            return None;
        }
        call.by = Deadline::after(Duration::from_millis(300));
        Some(rank.mesh.barrier(&call))
    });
    for result in results.into_iter().flatten() {
        let Err(Failure::Astray(error)) = result else { panic!("{result:?}") };
        assert!(matches!(error.kind(), ErrorKind::Timeout | ErrorKind::PeerLost) && error.to_string().contains("rank"), "{error}");
    }
}

#[test]
fn every_byte_of_a_chain_is_counted_once_each_way() {
    let count = 1 << 20;
    let reports = in_tcp("stats", 3, |rank| {
        let mut array = numbers(rank.mesh.position(), count, DType::F32);
        rank.all_reduce(&mut array, DType::F32, ReduceOp::Sum).expect("a sum");
        rank.mesh.ledger().reports()
    });
    let size = 4 * count as u64;
    let middle = &reports[1];
    assert_eq!(middle.iter().map(|report| report.peer).collect::<Vec<_>>(), [0, 2]);
    for report in middle {
        assert!((size..size + 1000).contains(&report.bytes_sent) && (size..size + 1000).contains(&report.bytes_received), "{report:?}");
    }
    let away = reports[0].iter().find(|report| report.peer == 2).expect("met at the roll call");
    assert!(away.bytes_sent + away.bytes_received < 2000, "{away:?}");
}
