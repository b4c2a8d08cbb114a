//! Jobs whose hosts are far apart: the same ranks over a cable with delay, loss and cuts (`syncline_testkit::relay`).

mod field;

use std::process::exit;
use std::time::{Duration, Instant};

use field::LIMIT;
use field::program::{Program, fact, rank_words};
use field::rank::{MARK, PLAY};
use syncline::{AddOptions, Config, Deadline, Error, ReduceOp, Session, Spec};
use syncline_testkit::enclosure::Enclosure;
use syncline_testkit::relay::{Relay, WIRE, Weather};

/// What a rank of these tests does, beside the parts of the field.
#[test]
fn as_a_rank() {
    let outcome = match std::env::var(PLAY).as_deref() {
        Ok("measure") => measure(),
        Ok("sum") => sum_until(Some(SUMS)),
        Ok("sum for ever") => sum_until(None),
        _ => return field::rank::play_if_asked(),
    };
    match outcome {
        Ok(words) => println!("\n{MARK}measured {words}"),
        Err(error) => {
            let rank = error.who().map_or("-".to_owned(), |who| who.rank.to_string());
            println!("\n{MARK}lost kind={:?} rank={rank} text={:?}", error.kind(), error.to_string());
        }
    }
    exit(0);
}

/// How often a tree adds up in bad weather. An even number: what a rank brings to its first sum is in what the other brings to
/// its second, so that so many sums take the way between them as often.
const SUMS: u32 = 20;

/// Small and large arrays of a tree, added up so many times or until something goes wrong; says `in` after the first. Returns what
/// each took.
fn sum_until(end: Option<u32>) -> Result<String, Error> {
    let session = Session::open(Config::from_env()?)?;
    let tree = session.tree()?;
    let mut wrong = 0;
    let began = Instant::now();
    for round in 0..end.unwrap_or(u32::MAX) {
        let number = |node: u32, index: usize| (node + round % 13) as f32 + (index % 31) as f32;
        let length = if round % 2 == 0 { 10 } else { 50_000 };
        let mut array: Vec<f32> = (0..length).map(|index| number(tree.node(), index)).collect();
        let contributors = tree.all_reduce(&mut array, ReduceOp::Sum)?;
        let right = |index: usize| (1..=tree.nodes()).map(|node| number(node, index)).sum::<f32>();
        wrong += array.iter().enumerate().filter(|(index, found)| **found != right(*index)).count();
        wrong += usize::from(contributors != tree.nodes());
        if round == 0 {
            println!("\n{MARK}in wrong={wrong}");
        }
        assert_eq!(wrong, 0, "round {round}");
    }
    let each = began.elapsed() / SUMS;
    session.shutdown()?;
    Ok(format!("wrong={wrong} micros={}", each.as_micros()))
}

/// A table and sums over both hosts, and what the quickest of some barriers took.
fn measure() -> Result<String, Error> {
    let session = Session::open(Config::from_env()?)?;
    let by = || Deadline::after(session.timeout());
    let table = session.create_table(Spec::array(100_000), None)?;
    let mine: Vec<u8> = (0..100_000u32).flat_map(|index| ((session.rank() + index % 97) as f32).to_le_bytes()).collect();
    let mut wrong = 0;
    for round in 1..=3u32 {
        table.add(&mine, None, &AddOptions::default(), false, by())?;
        session.barrier()?;
        let mut bytes = vec![0; 400_000];
        table.get(&mut bytes, None, by())?;
        let mut sums = mine.clone();
        session.aggregate_bytes(&mut sums, syncline::DType::F32, ReduceOp::Sum, by())?;
        let numbers = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
        };
        let right = |index: usize| (2 * (index as u32 % 97) + 1) as f32;
        wrong += numbers(&bytes).iter().enumerate().filter(|(index, value)| **value != right(*index) * round as f32).count();
        wrong += numbers(&sums).iter().enumerate().filter(|(index, value)| **value != right(*index)).count();
        session.barrier()?;
    }
    let barriers = (0..10).map(|_| {
        let started = Instant::now();
        session.barrier().map(|()| started.elapsed())
    });
    let quickest = barriers.collect::<Result<Vec<_>, _>>()?.into_iter().min().expect("ten of them");
    session.shutdown()?;
    Ok(format!("wrong={wrong} micros={}", quickest.as_micros()))
}

/// Two hosts and the cable between them, or a word why there are none.
fn far_apart() -> Option<(Enclosure, Relay)> {
    let joined = Enclosure::new(2).and_then(|place| Relay::between(&place, [1, 2], 11).map(|relay| (place, relay)));
    joined.inspect_err(|reason| println!("skipped: {reason}")).ok()
}

/// Rank 0 on the first host and rank 1 on the second, which know each other by the cable alone.
fn start(place: &Enclosure, part: &str, timeout: &str) -> Vec<Program> {
    let start = |rank: usize| {
        let mut command = place.command(&place.on_host(rank + 1, &rank_words()));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SYNCLINE_")) {
            command.env_remove(name);
        }
        command.env(PLAY, part).env("RUST_BACKTRACE", "0").env("SYNCLINE_RANK", rank.to_string()).env("SYNCLINE_WORLD_SIZE", "2");
        command.env("SYNCLINE_RENDEZVOUS", "tcp://10.78.0.1:5005").env("SYNCLINE_TOKEN", "of the weather").env("SYNCLINE_INTERFACE", WIRE);
        command.env("SYNCLINE_TIMEOUT", timeout);
        Program::start(format!("rank {rank}"), command)
    };
    vec![start(0), start(1)]
}

/// What the quickest barrier, or each sum of a tree, took on each rank, in microseconds; nothing they computed may be wrong.
fn measured(place: &Enclosure, part: &str) -> Vec<u64> {
    let mut ranks = start(place, part, "20");
    ranks.iter_mut().for_each(|rank| rank.succeed(LIMIT));
    let micros = |rank: &Program| {
        let text = rank.said("measured").first().map(|line| line.text.clone()).unwrap_or_else(|| panic!("{}", rank.transcript()));
        assert_eq!(fact(&text, "wrong"), "0", "{}", rank.transcript());
        fact(&text, "micros").parse().expect("a number")
    };
    ranks.iter().map(micros).collect()
}

#[test]
fn distance_and_loss_change_how_long_it_takes_and_nothing_else() {
    let Some((place, relay)) = far_apart() else { return };
    let near = measured(&place, "measure");
    relay.set(Weather { delay: Duration::from_millis(10), jitter: Duration::from_millis(1), ..Weather::default() });
    let far = measured(&place, "measure");
    // Nobody can know that the other has come in less than the way between them.
    assert!(far.iter().all(|micros| *micros >= 10_000), "{near:?} {far:?}");
    assert!(far.iter().all(|micros| *micros < 60_000), "a barrier of two takes one or two ways: {near:?} {far:?}");
    relay.set(Weather { delay: Duration::from_millis(1), loss: 0.02, ..Weather::default() });
    measured(&place, "measure");
}

#[test]
fn a_tree_adds_up_right_whatever_the_distance_and_loss() {
    let Some((place, relay)) = far_apart() else { return };
    relay.set(Weather { delay: Duration::from_millis(10), jitter: Duration::from_millis(2), ..Weather::default() });
    let far = measured(&place, "sum");
    assert!(far.iter().all(|micros| *micros >= 10_000), "nobody can have the other's numbers sooner: {far:?}");
    relay.set(Weather { delay: Duration::from_millis(1), loss: 0.02, ..Weather::default() });
    measured(&place, "sum");
}

#[test]
fn each_side_of_a_cut_cable_names_the_other_within_the_timeout() {
    each_names_the_other_after_a_cut("linger");
}

#[test]
fn each_side_of_a_cut_names_the_other_inside_of_an_all_reduce() {
    each_names_the_other_after_a_cut("sum for ever");
}

/// Cuts the cable while both ranks play `part`, which says `in` once both are at it.
fn each_names_the_other_after_a_cut(part: &str) {
    let Some((place, relay)) = far_apart() else { return };
    let mut ranks = start(&place, part, "3");
    ranks.iter_mut().for_each(|rank| drop(rank.wait_for("in", LIMIT)));
    let cut = Instant::now();
    relay.set(Weather { cut: true, ..Weather::default() });
    for (me, rank) in ranks.iter_mut().enumerate() {
        let lost = rank.wait_for("lost", LIMIT);
        assert!(["Timeout", "PeerLost"].contains(&fact(&lost.text, "kind")), "{}", lost.text);
        assert_eq!(fact(&lost.text, "rank"), (1 - me).to_string(), "{}", lost.text);
        assert!(lost.text.contains(&format!("(h{}, pid ", 2 - me)), "{}", lost.text);
        let after = lost.at - cut;
        assert!(after > Duration::from_secs(1) && after < Duration::from_secs(5), "after {after:?}: {}", lost.text);
    }
    for rank in &mut ranks {
        rank.end(LIMIT);
    }
}
