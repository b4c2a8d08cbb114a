//! Nodes with unequal amounts of data average what they learn, and those that run out early take part until all are done.
//!
//! `cargo run -q -p syncline --example tree_average` starts four nodes as threads of this process. Under a launcher
//! each process is one node: `syncline run -n 4 target/debug/examples/tree_average`.

use syncline::{Config, Error, ReduceOp, Session, Tree, TreeOptions};

fn main() -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    if session.size() > 1 {
        learn(&session.tree()?)?;
        return session.shutdown();
    }
    std::thread::scope(|scope| {
        let key = std::process::id(); // any number that the nodes share
        let nodes: Vec<_> =
            (1..=4).map(|node| scope.spawn(move || learn(&Tree::localhost(node, 4, Some(key), &TreeOptions::default())?))).collect();
        nodes.into_iter().try_for_each(|node| node.join().expect("no panic"))
    })
}

/// Node k makes k steps towards the mean of all data that is left, then one call without data.
fn learn(tree: &Tree) -> Result<(), Error> {
    let mut total = 0.0;
    for _ in 0..tree.node() {
        let mut gradient = [tree.node() as f32; 8];
        let contributors = tree.all_reduce(&mut gradient, ReduceOp::Sum)?;
        total += gradient[0];
        if tree.node() == tree.nodes() {
            println!("{contributors} nodes have data, mean {}", gradient[0] / contributors as f32);
        }
    }
    tree.all_reduce_rest(&mut [0f32; 8], ReduceOp::Sum)?;
    let totals = tree.all_gather(&[total])?.concat();
    if tree.node() == 1 {
        println!("sums seen by each node: {totals:?}");
    }
    tree.barrier()
}
