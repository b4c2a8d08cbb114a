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
    if std::env::var(PLAY).as_deref() != Ok("measure") {
        return field::rank::play_if_asked();
    }
    match measure() {
        Ok(words) => println!("\n{MARK}measured {words}"),
        Err(error) => println!("\n{MARK}lost text={:?}", error.to_string()),
    }
    exit(0);
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

/// What the quickest barrier took on each rank, in microseconds; nothing they computed may be wrong.
fn quickest_barriers(place: &Enclosure) -> Vec<u64> {
    let mut ranks = start(place, "measure", "20");
    ranks.iter_mut().for_each(|rank| rank.succeed(LIMIT));
    let measured = |rank: &Program| {
        let text = rank.said("measured").first().map(|line| line.text.clone()).unwrap_or_else(|| panic!("{}", rank.transcript()));
        assert_eq!(fact(&text, "wrong"), "0", "{}", rank.transcript());
        fact(&text, "micros").parse().expect("a number")
    };
    ranks.iter().map(measured).collect()
}

#[test]
fn distance_and_loss_change_how_long_it_takes_and_nothing_else() {
    let Some((place, relay)) = far_apart() else { return };
    let near = quickest_barriers(&place);
    relay.set(Weather { delay: Duration::from_millis(10), jitter: Duration::from_millis(1), ..Weather::default() });
    let far = quickest_barriers(&place);
    // Nobody can know that the other has come in less than the way between them.
    assert!(far.iter().all(|micros| *micros >= 10_000), "{near:?} {far:?}");
    assert!(far.iter().all(|micros| *micros < 60_000), "a barrier of two takes one or two ways: {near:?} {far:?}");
    relay.set(Weather { delay: Duration::from_millis(1), loss: 0.02, ..Weather::default() });
    quickest_barriers(&place);
}

#[test]
fn each_side_of_a_cut_cable_names_the_other_within_the_timeout() {
    let Some((place, relay)) = far_apart() else { return };
    let mut ranks = start(&place, "linger", "3");
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
