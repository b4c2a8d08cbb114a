//! Trees of jobs on several hosts, unevenly occupied, also in turn: every plan gives right sums, and those that keep the order its bits.
//!
//! Hosts are network namespaces that only a bridge joins. Needs root; elsewhere each test says `skipped`.

mod field;

use std::process::exit;

use field::LIMIT;
use field::hosts::{Addresses, Field, Plan, ready};
use field::program::{Program, fact};
use field::rank::{MARK, PLAY};
use field::sums;
use syncline::{Config, Error, Session};

/// Plans, and whether they fold in order of node. Without a name the cheapest one is taken.
const PLANS: [(&str, bool); 8] = [
    ("", true),
    ("tree", false),
    ("tree:4", false),
    ("ring", false),
    ("halving", false),
    ("chain", true),
    ("doubling", true),
    ("hosts", true),
];

#[test]
fn as_a_rank() {
    let Ok(part) = std::env::var(PLAY) else { return };
    if let Err(error) = add_up(part == "in order") {
        println!("\n{MARK}failed text={:?}", error.to_string());
        exit(3);
    }
    exit(0);
}

/// Sums of several lengths and types; says one number for the bits of all of them.
fn add_up(in_order: bool) -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let tree = session.tree()?;
    let nodes = tree.nodes() as usize;
    let mut digests = Vec::new();
    for count in [0, 1, nodes - 1, nodes, nodes + 1, 1023, 70_001] {
        digests.push(sums::add_up(&tree, count, in_order)?.to_string());
    }
    println!("\n{MARK}summed hosts={} digests={}", session.topology().hosts().len(), digests.join(","));
    session.shutdown()
}

#[test]
fn every_plan_sums_right_over_uneven_hosts() {
    if !ready() {
        return;
    }
    let layouts: [&[usize]; 4] = [&[1, 1, 2], &[1, 2, 2, 3], &[1, 2, 3, 3, 4], &[1, 2, 1, 2, 2]];
    for layout in layouts {
        let hosts = layout.iter().copied().max().expect("a host");
        let field = Field::new(hosts, Addresses::V4);
        let mut by_left_fold: Vec<(&str, String)> = Vec::new();
        for (plan, in_order) in PLANS {
            let forced = [("SYNCLINE_PLAN", plan), ("SYNCLINE_TIMEOUT", "15")];
            let job = Plan::new(&field, layout, &forced[usize::from(plan.is_empty())..]);
            let mut ranks = job.start_all(if in_order { "in order" } else { "in any order" });
            ranks.iter_mut().for_each(|rank| _ = rank.end(LIMIT));
            let words: String = ranks.iter().map(Program::transcript).collect();
            let mut said = Vec::new();
            for rank in &mut ranks {
                rank.succeed(LIMIT);
                said.extend(rank.said("summed").into_iter().map(|line| line.text));
            }
            assert_eq!(said.len(), layout.len(), "plan {plan:?}, hosts {layout:?}{words}");
            for line in &said {
                assert_eq!(fact(line, "hosts"), hosts.to_string(), "{line}");
                assert_eq!(line, &said[0], "plan {plan:?}, hosts {layout:?}: nodes got different bits");
            }
            if in_order {
                by_left_fold.push((plan, said.swap_remove(0)));
            }
        }
        assert!(by_left_fold.iter().all(|(_, bits)| *bits == by_left_fold[0].1), "hosts {layout:?}: {by_left_fold:#?}");
    }
}
