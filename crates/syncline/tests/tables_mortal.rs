//! A worker that dies at every single moment of an add, and what its neighbour then finds in the table.
//!
//! The program starts itself as two workers that share memory. Worker 1 is told to die at the n-th of the moments that
//! `syncline_shm::mortality` counts; worker 0 goes on without it and prints what the table holds. Whatever n is, every
//! number must show the same whole count of adds: those that were acknowledged, or one more.
#![cfg(debug_assertions)]

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use syncline::{AddOptions, Config, Consistency, DType, Deadline, Session, Spec, Table, Updater};
use syncline_shm::mortality;
use syncline_testkit::ranks::Process;

const LIMIT: Duration = Duration::from_secs(60);
const ROWS: [i64; 4] = [5, 0, 5, 29];

/// Numbers of an array, i64: two blocks and a bit, or so few that they are added without a detour (and each worker of a sync table adds them up itself), or
/// more than are ever added so.
fn size(kind: &str) -> usize {
    match kind {
        "async" | "async-minus-tally" => 9000,
        _ if kind.ends_with("small") => 700,
        _ => 2100,
    }
}

/// How many adds worker 1 makes, if it lives.
fn adds(kind: &str) -> u64 {
    // With so many, worker 1 has to bring the store up to date where worker 0 does not, or brings its tally to the table twice.
    if kind.contains("late") || kind.contains("tally") { 18 } else { 3 }
}

fn by() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn add(session: &Session, table: &Table, kind: &str) {
    if kind.ends_with("lent") {
        let mut delta = session.empty_shared(size(kind) * 8).expect("memory");
        bytemuck::cast_slice_mut(delta.bytes_mut()).fill(1_i64);
        table.add(delta.bytes(), None, &AddOptions::default(), false, by()).expect("added");
        bytemuck::cast_slice_mut(delta.bytes_mut()).fill(-77_i64); // nobody looks at it any more
        return;
    }
    let (delta, rows) = if kind.ends_with("rows") { (vec![1_i64; 4 * 70], Some(&ROWS[..])) } else { (vec![1; size(kind)], None) };
    table.add(bytemuck::cast_slice(&delta), rows, &AddOptions::default(), false, by()).expect("added");
}

fn spec(kind: &str) -> Spec {
    let consistency = match kind {
        _ if kind.starts_with("sync") => Consistency::Sync,
        _ if kind.starts_with("bounded") => Consistency::Bounded(1000),
        _ => Consistency::Async,
    };
    let spec = if kind.ends_with("rows") { Spec::matrix(30, 70) } else { Spec::array(size(kind) as u64) };
    let updater = if kind.contains("minus") { Updater::Sgd } else { Updater::Add };
    spec.with_dtype(DType::I64).with_consistency(consistency).with_updater(updater)
}

/// Not a test: what the two workers run. Without its variables it does nothing.
#[test]
fn worker() {
    let Ok(kind) = std::env::var("MORTAL_KIND") else { return };
    let session = Session::open(Config::from_env().expect("a sound environment")).expect("both come");
    let table = session.create_table(spec(&kind), None).expect("made");
    let mut out = std::io::stdout();
    if session.rank() == 1 {
        if kind.contains("tally") {
            mortality::pretend_a_crowd();
        }
        mortality::die_at(std::env::var("MORTAL_STEP").expect("told").parse().expect("a number"));
        for number in 1..=adds(&kind) {
            add(&session, &table, &kind);
            if kind.starts_with("sync") {
                // Fetching makes this worker apply rounds, and die in the middle of them.
                writeln!(out, "published {number}").expect("a pipe");
                table.get(&mut vec![0; size(&kind) * 8], None, by()).expect("fetched");
            }
            if kind.contains("tally") {
                let mut values = vec![0_i64; size(&kind)];
                table.get(bytemuck::cast_slice_mut(&mut values), None, by()).expect("fetched");
                let sum = if kind.contains("minus") { -(number as i64) } else { number as i64 };
                assert!(values.iter().all(|value| *value == sum), "a worker reads its own adds: {sum} and not {values:?}");
            }
            writeln!(out, "added {number}").expect("a pipe");
        }
        let left = mortality::left();
        writeln!(out, "survived with {left} moments left").expect("a pipe");
        mortality::die_at(u64::MAX);
        session.shutdown().expect("a polite end");
        return;
    }
    // In sync mode this worker's own rounds carry nothing, so that only the other's adds show.
    if kind.starts_with("sync") {
        for _ in 0..adds(&kind) {
            let (delta, rows) = if kind.ends_with("rows") { (Vec::new(), Some(&[][..])) } else { (vec![0_u8; size(&kind) * 8], None) };
            table.add(&delta, rows, &AddOptions::default(), false, by()).expect("added");
        }
    }
    // The barrier flushes, and with continue it waits for the other's end or arrival.
    let mut values = vec![0_i64; size(&kind)];
    let mut last = None;
    while kind.contains("late") && !session.others_are_over() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    loop {
        // Asked first, and twice: what the dead one left to be applied is looked for by a get that knows for certain of its death.
        let over = session.others_are_over();
        table.get(bytemuck::cast_slice_mut(&mut values), None, by()).expect("fetched");
        if last.as_ref() == Some(&values) {
            break;
        }
        last = over.then(|| values.clone());
        std::thread::park_timeout(Duration::from_millis(if over { 20 } else { 1 }));
    }
    writeln!(out, "values {values:?}").expect("a pipe");
    session.shutdown().expect("a polite end");
}

/// Lets worker 1 die at moment `step`; returns whether it survived, after judging what worker 0 found.
fn die_at(kind: &str, step: u64) -> bool {
    let rendezvous = format!("unix:@mortal-{}-{kind}-{step}", std::process::id());
    let start = |rank: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "worker", "--nocapture"])
            .env("MORTAL_KIND", kind)
            .env("MORTAL_STEP", step.to_string())
            .env("SYNCLINE_RANK", rank)
            .env("SYNCLINE_WORLD_SIZE", "2")
            .env("SYNCLINE_RENDEZVOUS", &rendezvous)
            .env("SYNCLINE_TOKEN", "t")
            .env("SYNCLINE_TIMEOUT", "20")
            .env("SYNCLINE_ON_PEER_LOSS", "continue");
        Process::start(format!("{kind} {step} rank {rank}"), &mut command)
    };
    let (survivor, victim) = (start("0"), start("1"));
    let (victim, survivor) = (victim.finish_within(LIMIT), survivor.finish_within(LIMIT));
    let context = format!(
        "{kind}, step {step}\n--- victim\n{}{}\n--- survivor\n{}{}",
        victim.stdout, victim.stderr, survivor.stdout, survivor.stderr
    );
    assert!(survivor.status.success(), "{context}");
    let added = victim.stdout.lines().filter(|line| line.contains("added ")).count() as i64;
    let published = victim.stdout.lines().filter(|line| line.contains("published ")).count() as i64;
    let values = survivor.stdout.lines().find_map(|line| line.split_once("values [")).expect(&context).1;
    let values: Vec<i64> = values.trim_end_matches(']').split(", ").map(|value| value.parse().expect("a number")).collect();
    let sign = if kind.contains("minus") { -1 } else { 1 };
    let times = |index: usize| match kind.ends_with("rows") {
        true => ROWS.iter().filter(|row| **row as usize == index / 70).count() as i64,
        false => 1,
    };
    let first =
        values.iter().enumerate().find(|(index, _)| times(*index) > 0).map(|(index, value)| sign * value / times(index)).expect("a row");
    for (index, value) in values.iter().enumerate() {
        assert_eq!(*value, sign * first * times(index), "number {index} does not fit the others: half of an add\n{context}");
    }
    let acknowledged = added.max(published);
    assert!(
        (acknowledged..=acknowledged + 1).contains(&first),
        "{first} adds are in the table, {acknowledged} were acknowledged\n{context}"
    );
    victim.stdout.contains("survived")
}

fn every_moment(kind: &str) {
    let mut step = 1;
    while !die_at(kind, step) {
        // Every moment of the first two adds, or of the first merge of a tally, then every seventh of the rest, which are like them.
        step += if step < 60 || kind.contains("late") { 1 } else { 7 };
        assert!(step < 2000, "{kind}: it never survives");
    }
    assert!(step > 5, "{kind}: only {step} moments were counted; are they still in the code?");
}

#[test]
fn async_arrays() {
    every_moment("async");
}

#[test]
fn small_async_arrays() {
    every_moment("async-small");
}

#[test]
fn small_async_arrays_in_a_crowd() {
    every_moment("async-tally-small");
}

#[test]
fn async_arrays_of_several_stripes_in_a_crowd() {
    every_moment("async-minus-tally");
}

#[test]
fn async_rows() {
    every_moment("async-minus-rows");
}

#[test]
fn bounded_arrays() {
    every_moment("bounded-minus");
}

#[test]
fn async_arrays_that_are_lent() {
    every_moment("async-lent");
}

#[test]
fn bounded_arrays_that_are_lent() {
    every_moment("bounded-minus-lent");
}

#[test]
fn sync_arrays() {
    every_moment("sync");
}

#[test]
fn small_sync_arrays() {
    every_moment("sync-small");
}

#[test]
fn small_sync_arrays_that_the_survivor_looks_at_late() {
    every_moment("sync-minus-late-small");
}

#[test]
fn sync_rows() {
    every_moment("sync-rows");
}
