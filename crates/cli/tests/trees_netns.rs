//! Trees of jobs on several hosts, unevenly occupied, also in turn: every plan gives right sums, and those that keep the order its bits.
//! Messages pass once each way between hosts.
//!
//! Hosts are network namespaces that only a bridge joins. Needs root; elsewhere each test says `skipped`.

mod field;

use std::process::exit;

use field::LIMIT;
use field::hosts::{Addresses, Field, Plan, ready};
use field::program::{Program, fact};
use field::rank::{MARK, PLAY};
use field::sums;
use syncline::collective::How;
use syncline::{Config, Deadline, Error, Reduce, Session, Value};

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
    let played = match part.as_str() {
        "messages" => pass_messages(),
        part => add_up(part == "in order"),
    };
    if let Err(error) = played {
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

/// A function merges what all nodes bring, and a node on the last host that leads none tells all of them something.
fn pass_messages() -> Result<(), Error> {
    const LEN: usize = 300_000;
    // What may go over a link beside a message: who calls what, and the heads of the frames.
    let once = LEN as u64..LEN as u64 + (4 << 10);
    let session = Session::open(Config::from_env()?)?;
    let (tree, topology, me) = (session.tree()?, session.topology(), session.rank());
    let how = || How { site: "messages", by: Deadline::after(LIMIT) };
    let leads = |rank: u32| topology.hosts().iter().any(|host| host.ranks[0] == rank);
    // What went to and came from other hosts since it was asked before.
    let mut known = (0, 0);
    let mut crossed = || {
        let reports = tree.net_stats();
        let far: Vec<_> = reports.iter().filter(|link| topology.host_of(link.peer) != topology.host_of(me)).collect();
        assert!(far.iter().all(|link| leads(me) && leads(link.peer)), "rank {me}: {far:#?}");
        let now = far.iter().fold((0, 0), |(sent, received), link| (sent + link.bytes_sent, received + link.bytes_received));
        let before = std::mem::replace(&mut known, now);
        (now.0 - before.0, now.1 - before.1)
    };
    let text = |value: Value<'_>| if let Value::Str(text) = value { text.into_owned() } else { panic!("{value:?}") };
    let mut join = |mine: Value<'static>, received: Value<'static>| Ok(Value::Str(format!("{} {}", text(mine), text(received)).into()));
    let number = Value::Str(tree.node().to_string().into());
    let (joined, _) = tree.all_reduce_value(Some(number), Reduce::With(&mut join), None, how())?;
    let numbers: Vec<String> = (1..=tree.nodes()).map(|node| node.to_string()).collect();
    assert_eq!(text(joined), numbers.join(" "));
    crossed();
    let mut keep = |mine: Value<'static>, _: Value<'static>| Ok(mine);
    tree.all_reduce_value(Some(Value::Bytes(vec![1; LEN].into())), Reduce::With(&mut keep), None, how())?;
    let (sent, received) = crossed();
    assert_eq!((once.contains(&sent), once.contains(&received)), (leads(me), leads(me)), "rank {me} sent {sent} and received {received}");
    let root = tree.nodes();
    let value = tree.broadcast_value(&Value::Bytes(vec![tree.node() as u8; LEN].into()), root, how())?;
    assert!(value == Value::Bytes(vec![root as u8; LEN].into()));
    let (sent, received) = crossed();
    let at_home = topology.host_of(me) == topology.host_of(root - 1);
    let expected = (leads(me) && at_home, leads(me) && !at_home);
    assert_eq!((once.contains(&sent), once.contains(&received)), expected, "rank {me} sent {sent} and received {received}");
    println!("\n{MARK}passed");
    session.shutdown()
}

#[test]
fn a_message_crosses_between_hosts_once_each_way() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    let mut ranks = Plan::new(&field, &[1, 1, 1, 2, 2, 2], &[("SYNCLINE_TIMEOUT", "15")]).start_all("messages");
    for rank in &mut ranks {
        rank.succeed(LIMIT);
        assert_eq!(rank.said("passed").len(), 1, "{}", rank.transcript());
    }
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
