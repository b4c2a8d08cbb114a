//! A worker that speaks for its host is killed while the others, on hosts of their own, are in an aggregate and the job goes on without its dead.
//!
//! The program starts itself as three workers without memory in common. Whoever meets the dead one first gives up; who waits for that one has to learn who is to blame.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use syncline::{Config, ReduceOp, Session};
use syncline_testkit::ranks::Process;

const LIMIT: Duration = Duration::from_secs(60);
/// What the job would wait for somebody who lives.
const TIMEOUT: &str = "20";
/// Far less than that.
const PROMPT: Duration = Duration::from_secs(6);

/// Not a test: what the three workers run. Without its variables it does nothing.
#[test]
fn worker() {
    let Ok(victim) = std::env::var("VICTIM") else { return };
    let earlier: u32 = std::env::var("EARLIER_CALLS").expect("set").parse().expect("a number");
    let session = Session::open(Config::from_env().expect("a sound environment")).expect("all come");
    let mut numbers = vec![1_i64; 300_000];
    for _ in 0..earlier {
        session.aggregate(&mut numbers, ReduceOp::Max).expect("all live");
    }
    session.barrier().expect("all live");
    if session.rank().to_string() == victim {
        // The others are in the call by then, or come to it: either way it never gets an answer.
        std::thread::sleep(Duration::from_millis(200));
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::KILL).expect("a signal to oneself");
        loop {
            std::thread::park();
        }
    }
    let mut out = std::io::stdout();
    for call in 0..2 {
        let started = Instant::now();
        let error = session.aggregate(&mut numbers, ReduceOp::Sum).expect_err("one is dead");
        let prompt = started.elapsed() < PROMPT;
        writeln!(out, "story {call} {:?} {:?} prompt {prompt}\n{error}", error.kind(), error.who().map(|who| who.rank)).expect("a pipe");
    }
    session.barrier().expect("the survivors live on, and stay until both have told");
    session.shutdown().expect("a polite end");
}

fn survivors_name(victim: u32, earlier: u32) {
    let rendezvous = format!("unix:@aggregate-apart-{}-{victim}-{earlier}", std::process::id());
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "worker", "--nocapture"])
            .env("VICTIM", victim.to_string())
            .env("EARLIER_CALLS", earlier.to_string())
            .env("SYNCLINE_RANK", rank.to_string())
            .env("SYNCLINE_WORLD_SIZE", "3")
            .env("SYNCLINE_RENDEZVOUS", &rendezvous)
            .env("SYNCLINE_TOKEN", "t")
            .env("SYNCLINE_TRANSPORT", "tcp")
            .env("SYNCLINE_TIMEOUT", TIMEOUT)
            .env("SYNCLINE_ON_PEER_LOSS", "continue");
        Process::start(format!("victim {victim} rank {rank}"), &mut command)
    };
    let ended: Vec<_> = (0..3).map(start).collect::<Vec<_>>().into_iter().map(|process| process.finish_within(LIMIT)).collect();
    for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| *rank != victim as usize) {
        let context = format!("rank {rank}, victim {victim}, {earlier} calls before\n{}{}", ended.stdout, ended.stderr);
        assert!(ended.status.success(), "{context}");
        for call in 0..2 {
            let told = format!("story {call} PeerLost Some({victim}) prompt true");
            assert!(ended.stdout.contains(&told), "{told}?\n{context}");
        }
    }
}

#[test]
fn every_survivor_names_the_dead_speaker_though_it_waits_for_another_survivor() {
    (0..3).for_each(|victim| survivors_name(victim, 1));
}

#[test]
fn a_speaker_that_dies_before_the_first_aggregate_is_named_by_all() {
    (0..3).for_each(|victim| survivors_name(victim, 0));
}
