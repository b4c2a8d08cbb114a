//! A worker that dies at every single moment of a few aggregates, where the others go on without it.
//!
//! The program starts itself as three workers that share memory. Worker 1 dies at the n-th of the moments that
//! `syncline_shm::mortality` counts; the others print what each call gave. Whatever n is, both must tell the same story:
//! the dead one counts wholly, then perhaps one call fails in the middle and names it, and then it is left out.
#![cfg(debug_assertions)]

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use syncline::{Config, ReduceOp, Session};
use syncline_shm::mortality;
use syncline_testkit::ranks::Process;

const LIMIT: Duration = Duration::from_secs(60);
/// Elements of each call: one meeting, two, three chunks of two, and again.
const CALLS: [usize; 5] = [1, 5_000, 300_000, 10, 5_000];
const LONG: usize = 2;

/// Not a test: what the three workers run. Without its variables it does nothing.
#[test]
fn worker() {
    let Ok(step) = std::env::var("MORTAL_STEP") else { return };
    let session = Session::open(Config::from_env().expect("a sound environment")).expect("all come");
    session.barrier().expect("all come");
    if session.rank() == 1 {
        mortality::die_at(step.parse().expect("a number"));
    }
    let mut out = std::io::stdout();
    for (call, elements) in CALLS.into_iter().enumerate() {
        let mut numbers = vec![1_i64 << session.rank(); elements];
        match session.aggregate(&mut numbers, ReduceOp::Sum) {
            Ok(()) => {
                assert!(numbers.iter().all(|number| *number == numbers[0]), "call {call}: a mixture");
                writeln!(out, "story {call} gives {}", numbers[0]).expect("a pipe");
            }
            Err(error) => writeln!(out, "story {call} loses {:?} {:?}", error.kind(), error.who().map(|who| who.rank)).expect("a pipe"),
        }
    }
    let left = mortality::left();
    if session.rank() == 1 {
        writeln!(out, "survived with {left} moments left").expect("a pipe");
    }
    mortality::die_at(u64::MAX);
    session.shutdown().expect("a polite end");
}

/// Lets worker 1 die at moment `step`; returns whether it survived, after judging what the others saw.
fn die_at(step: u64) -> bool {
    let rendezvous = format!("unix:@aggregate-mortal-{}-{step}", std::process::id());
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "worker", "--nocapture"])
            .env("MORTAL_STEP", step.to_string())
            .env("SYNCLINE_RANK", rank.to_string())
            .env("SYNCLINE_WORLD_SIZE", "3")
            .env("SYNCLINE_RENDEZVOUS", &rendezvous)
            .env("SYNCLINE_TOKEN", "t")
            .env("SYNCLINE_TIMEOUT", "20")
            .env("SYNCLINE_ON_PEER_LOSS", "continue");
        Process::start(format!("step {step} rank {rank}"), &mut command)
    };
    let running = [0, 1, 2].map(start);
    let [first, victim, last] = running.map(|process| process.finish_within(LIMIT));
    let context = format!("step {step}\n--- rank 0\n{}{}\n--- rank 2\n{}{}", first.stdout, first.stderr, last.stdout, last.stderr);
    assert!(first.status.success() && last.status.success(), "{context}");
    // The harness writes to the same line as the first word of a test.
    let story = |text: &str| text.lines().filter_map(|line| line.split_once("story ")).map(|(_, told)| told.to_owned()).collect::<Vec<_>>();
    let told = story(&first.stdout);
    assert_eq!(told, story(&last.stdout), "{context}");
    let mut dead = false;
    assert_eq!(told.len(), CALLS.len(), "{context}");
    for (call, line) in told.iter().enumerate() {
        let outcome = line.split_once(' ').expect("a number comes first").1;
        match outcome {
            "gives 7" => assert!(!dead, "{context}"),
            "gives 5" => dead = true,
            "loses PeerLost Some(1)" => {
                assert!(!dead && call == LONG, "{context}");
                dead = true;
            }
            other => panic!("{other}\n{context}"),
        }
    }
    victim.stdout.contains("survived")
}

#[test]
fn the_survivors_agree_whenever_a_worker_dies() {
    let mut step = 1;
    while !die_at(step) {
        step += 1;
        assert!(step < 200, "it never survives");
    }
    assert!(step > 30, "only {step} moments were counted; are they still in the code?");
}
