//! Trees of jobs on several hosts, unevenly occupied, also in turn: every plan gives right sums, and those that keep the order its bits.
//! Messages pass once each way between hosts.
//!
//! Hosts are network namespaces that only a bridge joins. Needs root; elsewhere each test says `skipped`.

mod field;

use std::fs;
use std::path::Path;
use std::process::exit;

use field::LIMIT;
use field::hosts::{Addresses, Field, Plan, ready};
use field::program::{Program, fact};
use field::rank::{MARK, PLAY};
use field::sums;
use syncline::collective::How;
use syncline::{Config, Deadline, Error, Reduce, Session, Tree, TreeOptions, Value};

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
    let words: Vec<&str> = part.split(' ').collect();
    let played = match words[..] {
        ["messages"] => pass_messages(),
        ["fixed", own, root] => join_by_hand(|node, nodes, options| Tree::fixed(node, nodes, (own, 0), (root, 5010), options)),
        ["discovered", own, place] => join_by_hand(|node, nodes, options| discover(node, nodes, own, Path::new(place), options)),
        [order, kind] => add_up(order == "ordered", kind.parse().expect("a number")),
        _ => panic!("there is no part {part:?}"),
    };
    if let Err(error) = played {
        println!("\n{MARK}failed text={:?}", error.to_string());
        exit(3);
    }
    exit(0);
}

/// Sums of every length and type, the longest of type number `kind` only; says one number for the bits of each length.
fn add_up(in_order: bool, kind: usize) -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let tree = session.tree()?;
    let nodes = tree.nodes() as usize;
    let mut digests = Vec::new();
    for count in [0, 1, nodes - 1, nodes, nodes + 1, 1023, 70_001] {
        digests.push(sums::add_up(&tree, count, in_order)?.to_string());
    }
    let long = sums::add_up_type(&tree, kind, 1_000_003, in_order)?;
    println!("\n{MARK}summed hosts={} digests={} long={long}", session.topology().hosts().len(), digests.join(","));
    session.shutdown()
}

/// A tree without a launcher: what is known is which node this is, of how many.
fn join_by_hand(join: impl FnOnce(u32, u32, &TreeOptions) -> Result<Tree, Error>) -> Result<(), Error> {
    let number = |name: &str| -> u32 { std::env::var(name).expect("the test says it").parse().expect("a number") };
    let tree = join(number("SYNCLINE_RANK") + 1, number("SYNCLINE_WORLD_SIZE"), &TreeOptions::default())?;
    let digest = sums::add_up(&tree, 70_001, true)?;
    println!("\n{MARK}summed digest={digest}");
    tree.close()
}

/// A tree whose first node leaves its address in a file that all hosts see.
fn discover(node: u32, nodes: u32, own: &str, place: &Path, options: &TreeOptions) -> Result<Tree, Error> {
    let publish = |host: &str, port: u16| {
        let new = place.with_extension("new");
        fs::write(&new, format!("{host} {port}")).and_then(|()| fs::rename(&new, place)).map_err(|error| error.to_string())
    };
    let query = || {
        let text = fs::read_to_string(place).ok()?;
        let (host, port) = text.split_once(' ').expect("host and port");
        Some((host.to_owned(), port.parse().expect("a number")))
    };
    Tree::discovered(node, nodes, (own, 0), publish, query, options)
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
fn trees_that_are_made_by_hand_join_nodes_of_different_hosts() {
    if !ready() {
        return;
    }
    let (field, layout) = (Field::new(3, Addresses::V4), [1, 2, 2, 3]);
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("address");
    let ways = [("fixed", field.address(1)), ("discovered", place.display().to_string())];
    for (way, where_from) in ways {
        let plan = Plan::new(&field, &layout, &[("SYNCLINE_TIMEOUT", "15")]);
        let part = |rank: usize| format!("{way} {} {where_from}", field.address(layout[rank]));
        let mut ranks: Vec<Program> = (0..layout.len()).map(|rank| plan.start(rank, &part(rank))).collect();
        let mut said = Vec::new();
        for rank in &mut ranks {
            rank.succeed(LIMIT);
            said.extend(rank.said("summed").into_iter().map(|line| line.text));
        }
        assert!(said.len() == layout.len() && said.iter().all(|line| *line == said[0]), "{way}: {said:?}");
    }
}

#[test]
fn every_plan_sums_right_over_uneven_hosts() {
    if !ready() {
        return;
    }
    let layouts: [&[usize]; 4] = [&[1, 1, 2], &[1, 2, 2, 3], &[1, 2, 3, 3, 4], &[1, 2, 1, 2, 2]];
    let mut kinds = (0..sums::TYPES).cycle();
    for layout in layouts {
        let hosts = layout.iter().copied().max().expect("a host");
        let field = Field::new(hosts, Addresses::V4);
        let mut by_left_fold: Vec<(&str, String)> = Vec::new();
        for (plan, in_order) in PLANS {
            // Each type has its turn at the longest length, in two or three layouts and plans.
            let kind = kinds.next().expect("they go round");
            let forced = [("SYNCLINE_PLAN", plan), ("SYNCLINE_TIMEOUT", "15")];
            let job = Plan::new(&field, layout, &forced[usize::from(plan.is_empty())..]);
            let mut ranks = job.start_all(&format!("{} {kind}", if in_order { "ordered" } else { "unordered" }));
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
                by_left_fold.push((plan, fact(&said[0], "digests").to_owned()));
            }
        }
        assert!(by_left_fold.iter().all(|(_, bits)| *bits == by_left_fold[0].1), "hosts {layout:?}: {by_left_fold:#?}");
    }
}
