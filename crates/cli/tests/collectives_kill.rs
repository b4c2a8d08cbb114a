//! Ranks killed at random moments while all of them add up arrays: nobody returns a wrong sum, and every survivor is told
//! within a second who died, the same rank on all.
//!
//! Each run is decided by its seed, which a failure prints. There are seven settings and [`KILLS`] kills in each of them, over a
//! hundred in all; `SYNCLINE_KILL_RUNS` asks for more.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, exit};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Signal, getpid, kill_process};
use syncline::collective::{Collectives, How, Leaf, OwnedLeaf};
use syncline::{Config, DType, Deadline, Error, ReduceOp, Session};
use syncline_tensor::Shape;
use syncline_testkit::ranks::Process;
use syncline_testkit::sim::Chance;

/// What a rank is told: `folder;bytes;form;victim;microseconds`.
const ORDER: &str = "COLLECTIVES_ORDER";
const RANKS: u32 = 4;
/// Kills in each setting.
const KILLS: u64 = 15;

/// One word per rank and call that no other sum of words gives.
fn unit(rank: u32, call: i64) -> i64 {
    (1 << (12 * rank)) * (1 + call % 1000)
}

#[test]
fn as_a_rank() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let words: Vec<&str> = order.split(';').collect();
    let number = |index: usize| words[index].parse::<u64>().expect("the test wrote it");
    let rank: u32 = std::env::var("SYNCLINE_RANK").expect("the launcher sets it").parse().expect("a number");
    let path = Path::new(words[0]).join(format!("diary-{rank}"));
    let mut diary = OpenOptions::new().append(true).create(true).open(path).expect("the test's folder can be written");
    let delay = (number(3) == u64::from(rank)).then(|| Duration::from_micros(number(4)));
    let mut dying = diary.try_clone().expect("a file can be shared");
    let die = move || {
        let Some(delay) = delay else { return };
        thread::spawn(move || {
            thread::sleep(delay);
            let _ = dying.write_all(format!("dies {}\n", micros()).as_bytes());
            let _ = kill_process(getpid(), Signal::KILL);
        });
    };
    let error = work(number(1) as usize, words[2], die).expect_err("it goes on until somebody dies");
    let who = error.who().map_or("nobody".to_owned(), |who| who.rank.to_string());
    let line = format!("error {:?} {who} {} {}\n", error.kind(), micros(), error.to_string().replace('\n', " | "));
    diary.write_all(line.as_bytes()).expect("the test's folder can be written");
    exit(3);
}

fn work(bytes: usize, form: &str, die: impl FnOnce()) -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let (group, rank) = (session.collectives()?, session.rank());
    let (mut own, mut common) = (vec![0; bytes], session.empty_shared(bytes)?);
    group.barrier(How { site: "", by: Deadline::after(session.timeout()) })?;
    die();
    for call in 0.. {
        let array = if form == "shared" { common.bytes_mut() } else { &mut own[..] };
        array.as_chunks_mut::<8>().0.fill(unit(rank, call).to_ne_bytes());
        let how = How { site: "kill.rs:1", by: Deadline::after(session.timeout()) };
        match form {
            "leaves" => add_leaves(&group, &mut own, how)?,
            "started" => own = add_meanwhile(&group, own, how)?,
            _ => drop(group.all_reduce(array, DType::I64, ReduceOp::Sum, true, how)?),
        }
        let array = if form == "shared" { common.bytes_mut() } else { &mut own[..] };
        let sum = (0..RANKS).map(|rank| unit(rank, call)).sum::<i64>();
        let wrong = array.as_chunks::<8>().0.iter().position(|found| *found != sum.to_ne_bytes());
        assert_eq!(wrong, None, "rank {rank}, call {call}: a wrong sum");
    }
    Ok(())
}

/// Where a structure is cut: two leaves that travel together, and one that travels alone.
fn cut(bytes: usize) -> [usize; 2] {
    [8, (bytes / 16) & !7]
}

fn words(bytes: usize) -> Shape {
    Shape::new(&[bytes / 8]).expect("a small shape")
}

fn add_leaves(group: &Collectives, array: &mut [u8], how: How<'_>) -> Result<(), Error> {
    let [first, second] = cut(array.len());
    let (one, rest) = array.split_at_mut(first);
    let (two, three) = rest.split_at_mut(second);
    let mut leaves = Vec::new();
    for (name, bytes) in [("one", one), ("two", two), ("three", three)] {
        leaves.push(Leaf { name, dtype: DType::I64, shape: words(bytes.len()), bytes });
    }
    group.all_reduce_leaves(&mut leaves, ReduceOp::Sum, true, how)?;
    Ok(())
}

/// Two operations under way at once, each of a part of the array.
fn add_meanwhile(group: &Collectives, mut array: Vec<u8>, how: How<'_>) -> Result<Vec<u8>, Error> {
    let [first, second] = cut(array.len());
    let mut rest = array.split_off(first);
    let last = rest.split_off(second);
    let leaf = |name: &str, array: Vec<u8>| OwnedLeaf { name: name.into(), dtype: DType::I64, shape: words(array.len()), array };
    let one = group.all_reduce_leaves_start(vec![leaf("one", array), leaf("two", rest)], ReduceOp::Sum, true, how);
    let two = group.all_reduce_start(last, DType::I64, ReduceOp::Sum, true, how);
    let parts = one.wait(how.by)?.0.into_iter().map(|leaf| leaf.array);
    Ok(parts.chain([two.wait(how.by)?.0]).flatten().collect())
}

fn micros() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_micros()
}

#[test]
fn a_kill_in_a_small_all_reduce_is_told_to_all() {
    kills("small", 4 << 10, "own", "auto");
}

#[test]
fn a_kill_in_a_large_all_reduce_is_told_to_all() {
    kills("large", 1 << 20, "own", "auto");
}

#[test]
fn a_kill_in_an_all_reduce_of_shared_arrays_is_told_to_all() {
    kills("shared", 1 << 20, "shared", "auto");
}

#[test]
fn a_kill_in_an_all_reduce_of_a_structure_is_told_to_all() {
    kills("leaves", 1 << 20, "leaves", "auto");
}

#[test]
fn a_kill_while_all_reduces_are_under_way_is_told_to_all() {
    kills("started", 1 << 20, "started", "auto");
}

#[test]
fn a_kill_in_an_all_reduce_over_links_is_told_to_all() {
    kills("links", 1 << 20, "own", "tcp");
    kills("links, under way", 1 << 20, "started", "tcp");
}

fn kills(name: &str, bytes: usize, form: &str, transport: &str) {
    let runs = std::env::var("SYNCLINE_KILL_RUNS").ok().and_then(|text| text.parse::<u64>().ok()).map_or(KILLS, |runs| runs.div_ceil(3));
    for seed in 0..runs {
        let mut chance = Chance::new(seed * 3 + bytes as u64);
        let (victim, delay) = (chance.below(RANKS.into()) as u32, chance.below(30_000));
        let folder = tempfile::tempdir().expect("a scratch folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
        // The launcher must not end the survivors before they have ended themselves.
        command.args(["run", "-n", &RANKS.to_string(), "--grace", "40", "--timeout", "20", "--"]);
        command.arg(std::env::current_exe().expect("this binary")).args(["--exact", "as_a_rank", "--nocapture"]);
        command.env("SYNCLINE_TRANSPORT", transport).env_remove("SYNCLINE_ON_PEER_LOSS").env_remove("SYNCLINE_PLAN");
        command.env(ORDER, format!("{};{bytes};{form};{victim};{delay}", folder.path().display()));
        let started = Instant::now();
        let ending = Process::start("syncline run", &mut command).finish_within(Duration::from_secs(60));
        let what = format!(
            "{name}, seed {seed}: rank {victim} dies {delay} µs after the start, over after {:?}\n{}",
            started.elapsed(),
            ending.stderr
        );
        let line = |rank: u32, first: &str| {
            let diary = std::fs::read_to_string(folder.path().join(format!("diary-{rank}"))).unwrap_or_default();
            diary.lines().find_map(|line| line.strip_prefix(first).map(str::to_owned))
        };
        let died: u128 = line(victim, "dies ").unwrap_or_else(|| panic!("{what}: the victim lives")).parse().expect("a number");
        for rank in (0..RANKS).filter(|rank| *rank != victim) {
            let error = line(rank, "error ").unwrap_or_else(|| panic!("{what}: rank {rank} was told nothing, or got a wrong sum"));
            let words: Vec<&str> = error.splitn(4, ' ').collect();
            assert_eq!((words[0], words[1]), ("PeerLost", victim.to_string().as_str()), "{what}: rank {rank}: {error}");
            let late = words[2].parse::<u128>().expect("a number").saturating_sub(died);
            assert!(late <= 1_000_000, "{what}: rank {rank} noticed only after {late} µs: {error}");
        }
    }
}
