//! Groups of threads that take each other for several hosts: whichever way a call goes, its result is the same to the bit.

use syncline_cluster::Settings;
use syncline_tensor::Shape;

use super::*;
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

/// Members of a group in its order, and the ranks of each host.
type Layout<'a> = (&'a [u32], &'a [&'a [u32]]);

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
fn on<T: Send>(name: &str, by: By, (members, hosts): Layout<'_>, body: impl Fn(&Collectives) -> T + Sync) -> Vec<T> {
    let neighbourhoods: Vec<Vec<u32>> = match by {
        By::Memory => vec![(0..members.len() as u32).collect()],
        By::Hosts => hosts.iter().map(|ranks| ranks.to_vec()).collect(),
        By::Links | By::Chain => members.iter().map(|rank| vec![*rank]).collect(),
    };
    let plan = PlanSettings { forced: Some(PlanName::Chain).filter(|_| by == By::Chain), ..PlanSettings::default() };
    let name = format!("engine-{name}-{by:?}-{members:?}-{hosts:?}").replace([' ', '[', ']', ','], "");
    job(&name, members.len(), &Settings { encrypt: false, ..Settings::default() }, |me, job| {
        let (job, group) = (Arc::new(job), Group::new(members.to_vec(), me as u32).expect("all are members"));
        let result = body(&Collectives::among(Arc::clone(&job), group, plan.clone(), &neighbourhoods));
        job.leave(soon()).expect("a polite end");
        result
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
