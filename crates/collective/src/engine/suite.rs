//! Groups of threads that take each other for several hosts: whichever way a call goes, its result is the same to the bit.

use std::time::Duration;

use syncline_cluster::{ErrorKind, Settings};
use syncline_tensor::Shape;

use super::*;
use crate::plan::check::{self, Association};
use crate::rehearsal::{job, left_fold, numbers, soon};

/// How the members reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Memory,
    Links,
    /// Links, and a plan that was asked for.
    Chain,
    /// Memory inside each host.
    Hosts,
}

/// The ranks of each host.
type Sites<'a> = &'a [&'a [u32]];
/// Members of a group in its order, and where they sit.
type Layout<'a> = (&'a [u32], Sites<'a>);

/// Hosts in a row, and hosts whose members interleave: dealt out in turn, one inside another, or only in the order of the group.
const LAYOUTS: [Layout<'_>; 8] = [
    (&[0, 1, 2, 3, 4], &[&[0, 1], &[2, 3, 4]]),
    (&[0, 2, 1, 3], &[&[0, 2], &[1, 3]]),
    (&[0, 1, 2, 3], &[&[0, 2], &[1, 3]]),
    (&[0, 1, 2, 3, 4], &[&[0, 2], &[1, 3, 4]]),
    (&[0, 1, 2, 3, 4, 5], &[&[0, 3], &[1, 4], &[2, 5]]),
    (&[0, 1, 2, 3, 4], &[&[0, 4], &[1, 2, 3]]),
    (&[0, 1, 2, 3], &[&[0], &[1, 3], &[2]]),
    (&[3, 0, 2, 1], &[&[0, 1], &[2, 3]]),
];

/// Runs `body` on every member, by rank.
fn on<T: Send>(name: &str, by: By, layout: Layout<'_>, body: impl Fn(&Collectives) -> T + Sync) -> Vec<T> {
    on_mortals(name, by, layout, |group| {
        let result = body(group);
        group.shared.job.leave(soon()).expect("a polite end");
        result
    })
}

/// The same; who does not leave looks dead to the others when its thread ends.
fn on_mortals<T: Send>(name: &str, by: By, (members, hosts): Layout<'_>, body: impl Fn(&Collectives) -> T + Sync) -> Vec<T> {
    let hosts: Vec<Vec<u32>> = hosts.iter().map(|ranks| ranks.to_vec()).collect();
    let neighbourhoods: Vec<Vec<u32>> = match by {
        By::Memory => vec![(0..members.len() as u32).collect()],
        By::Hosts => hosts.clone(),
        By::Links | By::Chain => members.iter().map(|rank| vec![*rank]).collect(),
    };
    let plan = PlanSettings { forced: Some(PlanName::Chain).filter(|_| by == By::Chain), ..PlanSettings::default() };
    let name = format!("engine-{name}-{by:?}-{members:?}-{hosts:?}").replace("], [", "_").replace([' ', '[', ']', ','], "");
    job(&name, members.len(), &Settings { encrypt: false, ..Settings::default() }, |me, job| {
        let group = Group::new(members.to_vec(), me as u32).expect("all are members");
        body(&Collectives::among(Arc::new(job), group, plan.clone(), &hosts, &neighbourhoods))
    })
}

fn how() -> How<'static> {
    How { site: "suite.rs:1", by: soon() }
}

#[test]
fn every_way_gives_the_bits_of_the_left_fold_in_group_order_on_any_layout() {
    for (layout, by) in LAYOUTS.into_iter().flat_map(|layout| [By::Memory, By::Links, By::Chain, By::Hosts].map(|by| (layout, by))) {
        on("bits", by, layout, |group| {
            let (me, ranks) = (group.group().position(), group.group().len());
            for (count, dtype, op) in [
                (0, DType::F32, ReduceOp::Sum),
                (5, DType::F32, ReduceOp::Sum),
                (3000, DType::F16, ReduceOp::Mean),
                (20_001, DType::F64, ReduceOp::Sum),
                (40_001, DType::BF16, ReduceOp::Sum),
                (140_001, DType::F32, ReduceOp::Mean),
                (30_001, DType::I64, ReduceOp::Sum),
                (30_001, DType::F32, ReduceOp::Max),
            ] {
                let about = format!("{op} of {count} {dtype} by {by:?} on {layout:?}");
                let sum = left_fold(ranks, count, dtype, op);
                let mine = numbers(me, count, dtype);
                let mut array = mine.clone();
                assert_eq!(group.all_reduce(&mut array, dtype, op, true, how()).expect("a result"), ranks as u32);
                assert!(array == sum, "all_reduce: {about}");
                for root in [0, ranks - 1] {
                    let mut array = mine.clone();
                    group.reduce(&mut array, dtype, op, root, how()).expect("a result");
                    assert!(array == if me == root { &sum } else { &mine }[..], "reduce to {root}: {about}");
                }
                let part = group.reduce_scatter(&mine, dtype, op, how()).expect("a part");
                let begin = |position: usize| (count / ranks * position + position.min(count % ranks)) * dtype.size();
                assert!(part == sum[begin(me)..begin(me + 1)], "reduce_scatter: {about}");
            }
            // One leaf whose order shows takes the others along.
            let kinds = [("steps", DType::I64, 3), ("bias", DType::F16, 40), ("weight", DType::F32, 30_001)];
            let mut arrays: Vec<Vec<u8>> = kinds.iter().map(|(_, dtype, count)| numbers(me, *count, *dtype)).collect();
            let mut leaves: Vec<Leaf<'_>> = kinds
                .iter()
                .zip(&mut arrays)
                .map(|((name, dtype, count), bytes)| Leaf { name, dtype: *dtype, shape: Shape::new(&[*count]).expect("small"), bytes })
                .collect();
            group.all_reduce_leaves(&mut leaves, ReduceOp::Sum, true, how()).expect("sums");
            for ((name, dtype, count), array) in kinds.into_iter().zip(&arrays) {
                assert!(*array == left_fold(ranks, count, dtype, ReduceOp::Sum), "{name} by {by:?} on {layout:?}");
            }
            group.barrier(how()).expect("still in step");
        });
    }
}

#[test]
fn only_what_shows_the_order_leaves_the_way_of_leaders() {
    for (layout, interleaved) in [(LAYOUTS[0], false), (LAYOUTS[3], true)] {
        on("leaders", By::Hosts, layout, |group| {
            let me = group.group().position();
            let leads = layout.1.iter().any(|ranks| ranks[0] == me as u32);
            for (dtype, op, by_leaders) in
                [(DType::I64, ReduceOp::Sum, true), (DType::F32, ReduceOp::Min, true), (DType::F32, ReduceOp::Sum, !interleaved)]
            {
                group.all_reduce(&mut numbers(me, 50_000, dtype), dtype, op, true, how()).expect("a result");
                assert_eq!(group.stats().is_empty(), by_leaders && !leads, "{op} of {dtype} at {me} of {layout:?}");
            }
        });
    }
}

#[test]
fn calls_that_differ_in_whether_the_order_shows_are_one_error() {
    for odd in 0..5 {
        let errors = on(&format!("odd{odd}"), By::Hosts, LAYOUTS[3], |group| {
            let me = group.group().position();
            let dtype = if me == odd { DType::I32 } else { DType::F32 };
            let error = group.all_reduce(&mut numbers(me, 5, dtype), dtype, ReduceOp::Sum, true, how()).expect_err("they differ");
            group.barrier(how()).expect("still in step");
            error.to_string()
        });
        assert!(errors.iter().all(|error| *error == errors[0]) && errors[0].contains("the sum of 5 int32"), "{errors:#?}");
    }
}

/// Layouts of so many ranks: hosts in a row, even and uneven, and hosts to which the ranks were dealt out in turn.
fn layouts(ranks: u32) -> Vec<Vec<Vec<u32>>> {
    let all: Vec<u32> = (0..ranks).collect();
    let mut layouts: Vec<Vec<Vec<u32>>> = [1, 2, 3, 4].map(|size| all.chunks(size).map(<[u32]>::to_vec).collect()).to_vec();
    let (many, few) = all.split_at(2 * all.len() / 3);
    layouts.extend([vec![many.to_vec(), few.to_vec()], vec![all.clone()]]);
    layouts.extend([2, 3].map(|hosts| (0..hosts).map(|host| all.iter().copied().skip(host).step_by(hosts).collect()).collect()));
    layouts.iter_mut().for_each(|hosts| hosts.retain(|ranks: &Vec<u32>| !ranks.is_empty()));
    layouts.sort();
    layouts.dedup();
    layouts
}

#[test]
fn a_function_is_called_once_per_child_in_group_order_and_alike_by_every_way() {
    for (index, layout) in (1..=9).flat_map(layouts).enumerate() {
        let hosts: Vec<&[u32]> = layout.iter().map(Vec::as_slice).collect();
        let members: Vec<u32> = (0..layout.concat().len() as u32).collect();
        let positions = layout.iter().map(|ranks| ranks.iter().map(|rank| *rank as usize).collect()).collect();
        let rows = host_tree::rows(positions);
        let base = PlanSettings::default().base;
        let (outcome, association) = check::all_reduce(&host_tree::all_reduce(&rows, base)).expect("a sound plan");
        assert_ne!(association, Association::Shuffled, "{layout:?}");
        let expected = outcome.ends[0][0].to_string();
        // Whether hosts share memory or not does not change a parenthesis; every other layout is seen both ways.
        for by in [By::Hosts, By::Links].into_iter().take(1 + index % 2) {
            on("fold", by, (&members, &hosts), |group| {
                let (me, ranks) = (group.group().position(), members.len());
                let mut merges = 0;
                let mut join = |mine: Vec<u8>, received: Vec<u8>| {
                    merges += 1;
                    Ok([b"(", &mine[..], b" ", &received[..], b")"].concat())
                };
                let folded = group.fold(me.to_string().into_bytes(), "terms", Fingerprint::NONE, me != 1, &mut join, how());
                let (message, contributors) = folded.expect("a message");
                assert_eq!(String::from_utf8(message).expect("text"), expected, "by {by:?} on {layout:?}");
                assert_eq!(contributors as usize, if ranks > 1 { ranks - 1 } else { 1 });
                let children = host_tree::kin(&rows, base, me).children;
                assert_eq!(merges, children.len(), "at {me} by {by:?} on {layout:?}");
                // The last of those who merge fails, and so do all.
                let last = (0..ranks).rev().find(|position| !host_tree::kin(&rows, base, *position).children.is_empty());
                let mut fail = |mine: Vec<u8>, _: Vec<u8>| match last == Some(me) {
                    true => Err(Error::Configuration { detail: "no".into() }),
                    false => Ok(mine),
                };
                match group.fold(vec![], "failing", Fingerprint::NONE, true, &mut fail, how()) {
                    Ok(_) => assert_eq!(ranks, 1),
                    Err(error) => assert!(error.to_string().contains("no"), "{error}"),
                }
                for (root, len) in [0, ranks / 2, ranks - 1].into_iter().flat_map(|root| [0, 3, 70_000].map(|len| (root, len))) {
                    let message = numbers(me, len, DType::U8);
                    let came = group.broadcast_message((me == root).then_some(&message), root, how()).expect("a message");
                    assert!(came == numbers(root, len, DType::U8), "{len} bytes from {root} by {by:?} on {layout:?}");
                }
            });
        }
    }
}

/// What may go over a link beside a message: who calls what, and the heads of the frames.
const WORDS: u64 = 4 << 10;

/// What a call sent from rank to rank of another host, by sender and receiver; every byte that one sent the other received.
fn crossings(name: &str, hosts: Sites<'_>, call: impl Fn(&Collectives) + Sync) -> Vec<(u32, u32, u64)> {
    let members: Vec<u32> = (0..hosts.concat().len() as u32).collect();
    let reports = on(name, By::Hosts, (&members, hosts), |group| {
        group.barrier(how()).expect("all come");
        call(group);
        group.barrier(how()).expect("nothing is under way");
        group.stats()
    });
    let home = |rank: u32| hosts.iter().position(|ranks| ranks.contains(&rank));
    let mut sent = Vec::new();
    for (from, report) in reports.iter().enumerate().flat_map(|(from, reports)| reports.iter().map(move |report| (from as u32, report))) {
        if home(from) != home(report.peer) {
            let back = reports[report.peer as usize].iter().find(|back| back.peer == from).expect("links have two ends");
            assert_eq!(report.bytes_sent, back.bytes_received, "from {from} to {}", report.peer);
            sent.push((from, report.peer, report.bytes_sent));
        }
    }
    sent
}

#[test]
fn a_message_crosses_between_hosts_once_each_way_and_leaders_carry_it() {
    const LEN: usize = 300_000;
    let cases: [(Sites<'_>, &[(u32, u32)]); 3] = [
        (&[&[0, 1, 2], &[3, 4, 5]], &[(0, 3)]),
        (&[&[0, 1], &[2], &[3, 4, 5]], &[(0, 2), (0, 3)]),
        (&[&[0], &[1, 2, 3], &[4, 5], &[6, 7]], &[(0, 1), (0, 4), (4, 6)]),
    ];
    let carried = |bytes: u64| (LEN as u64..LEN as u64 + WORDS).contains(&bytes);
    for (hosts, links) in cases {
        let leads = |rank: u32| hosts.iter().any(|ranks| ranks[0] == rank);
        let sent = crossings("crossing-fold", hosts, |group| {
            let mut keep = |mine: Vec<u8>, _: Vec<u8>| Ok(mine);
            group.fold(vec![1; LEN], "kept", Fingerprint::NONE, true, &mut keep, how()).expect("a message");
        });
        for (from, to, bytes) in &sent {
            let linked = links.contains(&(*from, *to)) || links.contains(&(*to, *from));
            assert!(if linked { carried(*bytes) } else { *bytes < WORDS }, "{bytes} bytes from {from} to {to} of {hosts:?}");
            assert!(leads(*from) && leads(*to), "{from} to {to} of {hosts:?}");
        }
        assert_eq!(sent.iter().filter(|(_, _, bytes)| carried(*bytes)).count(), 2 * links.len(), "{hosts:?}: {sent:?}");
        for root in [0, hosts.concat().len() - 1] {
            let sent = crossings(&format!("crossing-value{root}"), hosts, |group| {
                let message = vec![1; LEN];
                group.broadcast_message((group.group().position() == root).then_some(&message), root, how()).expect("a message");
            });
            assert!(sent.iter().all(|(from, to, bytes)| leads(*from) && leads(*to) && (carried(*bytes) || *bytes < WORDS)), "{sent:?}");
            // Every host but the root's hears it once.
            assert_eq!(sent.iter().filter(|(_, _, bytes)| carried(*bytes)).count(), hosts.len() - 1, "from {root} of {hosts:?}: {sent:?}");
        }
    }
}

#[test]
fn the_calls_after_one_that_was_interrupted_are_refused_and_not_interrupted() {
    let over = std::sync::Barrier::new(2);
    on_mortals("interrupted", By::Memory, (&[0, 1], &[&[0, 1]]), |group| {
        group.barrier(how()).expect("all live");
        if group.group().position() == 0 {
            let pressed = How { by: soon().with_interrupt(|| true), ..how() };
            assert_eq!(group.barrier(pressed).map_err(|error| error.kind()), Err(ErrorKind::Interrupted));
            for _ in 0..2 {
                let error = group.barrier(how()).expect_err("the other does not know");
                assert!(error.kind() == ErrorKind::System && error.to_string().contains("was interrupted (barrier 1)"), "{error}");
            }
        }
        over.wait();
        group.shared.job.abort("it is out of step");
    });
}

#[test]
fn whoever_dies_while_a_function_merges_is_named_on_every_host() {
    let layout: Layout<'_> = (&[0, 1, 2, 3, 4], &[&[0, 1], &[2, 3, 4]]);
    let what = What::Fold { words: "kept", fingerprint: Fingerprint::NONE };
    for victim in [0, 1, 2, 4] {
        let errors = on_mortals(&format!("dies{victim}"), By::Hosts, layout, |group| {
            group.barrier(how()).expect("all live");
            if group.group().position() == victim {
                let call = Call { number: 1, what, site: "", by: soon(), started: Instant::now(), contributes: true };
                let mut state = group.shared.state.lock().expect("no panic while held");
                let Way::Hosts(hosts) = &mut state.way else { panic!("they sit on two hosts") };
                hosts.roll_call(&call).expect("all come");
                return None;
            }
            let (since, mut keep) = (Instant::now(), |mine: Vec<u8>, _: Vec<u8>| Ok(mine));
            let error = group.fold(vec![1; 100_000], "kept", Fingerprint::NONE, true, &mut keep, how()).expect_err("somebody died");
            assert!(since.elapsed() < Duration::from_secs(5), "after {:?}: {error}", since.elapsed());
            group.shared.job.abort("it failed");
            Some(error)
        });
        for error in errors.iter().flatten() {
            assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::PeerLost, Some(victim as u32)), "{error}");
        }
        assert_eq!(errors.iter().flatten().count(), 4);
    }
}
