//! torch-ipc's tests of trees with their numbers, nodes as threads: shared memory and TCP, every plan, trees of their own.

mod thread_jobs;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use syncline::collective::{How, LinkReport, PlanName, PlanSettings};
use syncline::{ErrorKind, Reduce, ReduceOp, Session, Tree, TreeOptions, Value};
use syncline_testkit::ranks::threads;
use thread_jobs::{APART, TOGETHER, by, job, job_in};

/// A number that no other tree of this machine uses: process and count.
fn key() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    std::process::id().wrapping_mul(64).wrapping_add(COUNT.fetch_add(1, Relaxed))
}

/// Nodes of a tree of their own, with a plan.
fn trees<T: Send>(nodes: u32, plan: Option<&str>, base: u32, body: impl Fn(&Tree) -> T + Sync) -> Vec<T> {
    let key = key();
    let mut settings = PlanSettings::default();
    settings.forced = plan.map(|plan| PlanName::parse(plan).expect("a plan"));
    settings.base = base;
    let options = TreeOptions { plan: settings, ..TreeOptions::default() };
    threads(nodes as usize, |rank| {
        let tree = Tree::localhost(rank as u32 + 1, nodes, Some(key), &options).expect("all nodes come");
        body(&tree)
    })
}

fn how(site: &str) -> How<'_> {
    How { site, by: by() }
}

fn add(mine: Value<'static>, received: Value<'static>) -> Result<Value<'static>, syncline::Error> {
    match (mine, received) {
        (Value::Int(one), Value::Int(other)) => Ok(Value::Int(one + other)),
        (one, other) => panic!("{one:?} and {other:?} are no numbers"),
    }
}

#[test]
fn numbers_and_lists_add_up_on_all_nodes() {
    for (nodes, base) in [(8, 2), (4, 2), (9, 3), (16, 4)] {
        let sum = i64::from(nodes * (nodes + 1) / 2);
        let results = trees(nodes, None, base, |tree| {
            let node = i64::from(tree.node());
            let number = tree.all_reduce_value(Some(Value::Int(node)), Reduce::With(&mut add), None, how("a")).expect("a sum");
            assert_eq!(number, (Value::Int(sum), nodes));
            let list = Value::List(vec![Value::Int(node), Value::Int(2 * node)]);
            let (list, _) = tree.all_reduce_value(Some(list), Reduce::With(&mut add), None, how("b")).expect("sums");
            assert_eq!(list, Value::List(vec![Value::Int(sum), Value::Int(2 * sum)]));
            tree.scatter_value(&Value::Int(node), how("c")).expect("node 1's")
        });
        assert_eq!(results, vec![Value::Int(1); nodes as usize]);
    }
}

#[test]
fn tensors_add_up_in_place_by_every_plan() {
    for (nodes, plan, base) in [
        (2, None, 2),
        (8, None, 4),
        (8, Some("tree"), 4),
        (8, Some("tree"), 8),
        (8, Some("ring"), 2),
        (8, Some("halving"), 2),
        (8, Some("chain"), 2),
    ] {
        let sum = (nodes * (nodes + 1) / 2) as f32;
        trees(nodes, plan, base, |tree| {
            let (mut one, mut two) = ([tree.node() as f32; 10], [tree.node() as f32 - 1.0; 10]);
            assert_eq!(tree.all_reduce(&mut one, ReduceOp::Sum).expect("a sum"), nodes);
            tree.all_reduce(&mut two, ReduceOp::Sum).expect("a sum");
            assert_eq!((one.iter().sum::<f32>(), two.iter().sum::<f32>()), (10.0 * sum, 10.0 * (sum - nodes as f32)), "{plan:?}");
        });
    }
}

#[test]
fn nodes_that_run_out_of_data_take_part_until_nobody_has_any() {
    for manner in [TOGETHER, APART] {
        let totals = job_in(manner, 4, "uneven", |session: &Session| {
            let tree = session.tree().expect("a worker");
            let mut total = 0.0;
            for step in 0..tree.node() {
                let mut value = [tree.node() as f32];
                assert_eq!(tree.all_reduce(&mut value, ReduceOp::Sum).expect("a sum"), 4 - step);
                total += value[0];
            }
            assert_eq!(tree.all_reduce_rest(&mut [0f32], ReduceOp::Sum).expect("an end"), 0);
            total
        });
        assert_eq!(totals, [10.0, 19.0, 26.0, 30.0], "{manner:?}");
    }
}

#[test]
fn the_same_with_a_function_and_the_last_value() {
    let totals = job(4, "uneven-function", |session: &Session| {
        let tree = session.tree().expect("a worker");
        let mut total = 0;
        for _ in 0..tree.node() {
            let value = Some(Value::Int(tree.node().into()));
            match tree.all_reduce_value(value, Reduce::With(&mut add), None, how("step")).expect("a sum") {
                (Value::Int(sum), _) => total += sum,
                other => panic!("{other:?}"),
            }
        }
        let mut zero = |_: Value<'static>, _: usize| Ok(Value::Int(0));
        let (_, contributors) = tree.all_reduce_value(None, Reduce::With(&mut add), Some(&mut zero), how("rest")).expect("an end");
        assert_eq!(contributors, 0);
        total
    });
    assert_eq!(totals, [10, 19, 26, 30]);
}

#[test]
fn slices_go_all_ways() {
    for manner in [TOGETHER, APART] {
        job_in(manner, 3, "ways", |session: &Session| {
            let tree = session.tree().expect("a worker");
            let node = tree.node();
            let mut array = [node; 5].map(|node| node as i32);
            tree.broadcast(&mut array, 3).expect("node 3's");
            assert_eq!(array, [3; 5]);
            let mut array = [node as i32; 5];
            tree.reduce(&mut array, ReduceOp::Max, 2).expect("a maximum");
            assert_eq!(array, [if node == 2 { 3 } else { node as i32 }; 5]);
            let mine = vec![node as u8; node as usize];
            assert_eq!(tree.all_gather(&mine).expect("all"), [vec![1u8], vec![2, 2], vec![3, 3, 3]]);
            assert_eq!(tree.gather(&mine, 1).expect("all").is_some(), node == 1);
            let part = tree.reduce_scatter(&[0i64, 1, 2, 3, 4, 5, 6], ReduceOp::Sum).expect("a part");
            assert_eq!(part, [vec![0, 3, 6], vec![9, 12], vec![15, 18]][node as usize - 1]);
            let node = node as i32;
            let parts: Vec<[i32; 1]> = (1..=3).map(|other| [10 * node + other]).collect();
            let parts: Vec<&[i32]> = parts.iter().map(|part| &part[..]).collect();
            assert_eq!(tree.all_to_all(&parts).expect("all").concat(), [10 + node, 20 + node, 30 + node]);
            let pending = tree.all_reduce_start(vec![f64::from(node); 3], ReduceOp::Mean);
            assert_eq!(pending.wait(&tree).expect("a mean"), (vec![2.0; 3], 3));
            tree.barrier().expect("all are here");
        });
    }
}

#[test]
fn different_calls_are_an_error_on_all_nodes_with_both_places() {
    for manner in [TOGETHER, APART] {
        let texts = job_in(manner, 3, "differ", |session: &Session| {
            let tree = session.tree().expect("a worker");
            let error = match tree.node() {
                2 => tree.all_reduce(&mut [0f32; 4], ReduceOp::Sum).expect_err("they differ"),
                _ => tree.all_reduce(&mut [0f32; 3], ReduceOp::Sum).expect_err("they differ"),
            };
            assert_eq!(error.kind(), ErrorKind::ContractMismatch, "{error}");
            let map = |key: &'static str| Some(Value::Map(vec![(key.into(), Value::Float(1.0))]));
            let name = if tree.node() == 3 { "bias" } else { "weight" };
            let nested = tree.all_reduce_value(map(name), Reduce::By(ReduceOp::Sum), None, how("nested.rs:7")).expect_err("they differ");
            assert_eq!(nested.kind(), ErrorKind::ContractMismatch, "{nested}");
            tree.barrier().expect("still in step");
            error.to_string()
        });
        assert!(texts.iter().all(|text| text == &texts[0] && text.matches("trees.rs").count() == 2), "{texts:?}");
    }
}

#[test]
fn a_tree_of_one_needs_nobody() {
    let tree = Tree::localhost(1, 1, None, &TreeOptions::default()).expect("nobody to wait for");
    let mut array = [1.5f32];
    assert_eq!(tree.all_reduce(&mut array, ReduceOp::Mean).expect("alone"), 1);
    assert_eq!(tree.all_reduce_start(vec![2i32], ReduceOp::Sum).wait(&tree).expect("alone"), (vec![2], 1));
    assert_eq!(tree.all_reduce_rest(&mut array, ReduceOp::Sum).expect("alone"), 0);
    assert_eq!(tree.all_gather(&[7u8]).expect("alone"), [[7]]);
    assert!(tree.broadcast(&mut array, 2).is_err());
}

#[test]
fn what_went_over_each_link_is_counted_alike_at_both_ends() {
    const COUNT: usize = 100_000;
    const CALLS: u64 = 3;
    let reports = job_in(APART, 3, "net_stats", |session| {
        let tree = session.tree().expect("all nodes come");
        assert!(tree.net_stats().iter().all(|link| link.bytes_sent == 0 && link.calls_sent == 0), "nothing went yet");
        let began = std::time::Instant::now();
        for _ in 0..CALLS {
            let mut array = vec![tree.node() as f32; COUNT];
            assert_eq!(tree.all_reduce(&mut array, ReduceOp::Sum).expect("a sum"), 3);
            assert_eq!(array[COUNT - 1], 6.0);
        }
        (tree.net_stats(), began.elapsed())
    });
    let size = 4 * COUNT as u64 * CALLS;
    for (rank, (links, took)) in reports.iter().enumerate() {
        assert!(!links.is_empty(), "rank {rank} reached nobody");
        // Whatever the plan, everybody hands on about its own numbers and takes the result.
        let all = |bytes: fn(&LinkReport) -> u64| links.iter().map(bytes).sum::<u64>();
        assert!(all(|link| link.bytes_sent) >= size / 2 && all(|link| link.bytes_received) >= size / 2, "rank {rank}: {links:?}");
        for link in links {
            assert_ne!(link.peer as usize, rank, "{links:?}");
            for (calls, bytes, time) in
                [(link.calls_sent, link.bytes_sent, link.sending), (link.calls_received, link.bytes_received, link.receiving)]
            {
                assert!(calls <= bytes, "a message has a head at least: {link:?}");
                assert_eq!(calls == 0, bytes == 0, "{link:?}");
                assert!(bytes < 1000 || calls >= CALLS && !time.is_zero(), "numbers in every call, and in some time: {link:?}");
                assert!(time <= *took, "rank {rank} spent more than all the time there was, {took:?}: {link:?}");
            }
            let back = reports[link.peer as usize].0.iter().find(|back| back.peer as usize == rank).expect("a link has two ends");
            assert_eq!((link.bytes_sent, link.calls_sent), (back.bytes_received, back.calls_received), "{link:?} {back:?}");
        }
    }
    let together = job(2, "net_stats", |session| {
        let tree = session.tree().expect("all nodes come");
        tree.all_reduce(&mut [1.0f32; 1000], ReduceOp::Sum).expect("a sum");
        tree.net_stats()
    });
    assert!(together.iter().flatten().all(|link| link.bytes_sent + link.bytes_received == 0), "memory is no link: {together:?}");
}
