//! A worker is killed while the others, who have no memory in common, are in a call that needs all of them, and the job goes on without its dead.
//!
//! The program starts itself as four workers. Whoever meets the dead one first gives up and closes its links; who waits for that one has to name the dead one too, and
//! not the survivor.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use syncline::{Config, Error, ReduceOp, Session};
use syncline_testkit::ranks::Process;

const LIMIT: Duration = Duration::from_secs(60);
const WORKERS: u32 = 4;
/// What the job would wait for somebody who lives.
const TIMEOUT: &str = "20";
/// Far less than that.
const PROMPT: Duration = Duration::from_secs(6);

fn call(session: &Session, operation: &str) -> Result<(), Error> {
    let mut numbers = vec![1_i64; 300_000];
    let parts: Vec<&[i64]> = numbers.chunks(numbers.len() / WORKERS as usize).collect();
    let tree = || session.tree();
    match operation {
        "aggregate" => session.aggregate(&mut numbers, ReduceOp::Max),
        "all_reduce" => tree()?.all_reduce(&mut numbers, ReduceOp::Sum).map(drop),
        "a small all_reduce" => tree()?.all_reduce(&mut numbers[..10], ReduceOp::Sum).map(drop),
        "reduce" => tree()?.reduce(&mut numbers, ReduceOp::Sum, 1),
        "broadcast" => tree()?.broadcast(&mut numbers, 1),
        "gather" => tree()?.gather(&numbers, 1).map(drop),
        "all_gather" => tree()?.all_gather(&numbers[..1000]).map(drop),
        "reduce_scatter" => tree()?.reduce_scatter(&numbers, ReduceOp::Sum).map(drop),
        "all_to_all" => tree()?.all_to_all(&parts).map(drop),
        other => panic!("no operation is called {other}"),
    }
}

/// Not a test: what the workers run. Without its variables it does nothing.
#[test]
fn worker() {
    let Ok(victim) = std::env::var("VICTIM") else { return };
    let operation = std::env::var("OPERATION").expect("set");
    let earlier: u32 = std::env::var("EARLIER_CALLS").expect("set").parse().expect("a number");
    let session = Session::open(Config::from_env().expect("a sound environment")).expect("all come");
    for _ in 0..earlier {
        call(&session, &operation).expect("all live");
    }
    session.barrier().expect("all live");
    if session.rank().to_string() == victim {
        // The others are in the call by then, or come to it: either way it never gets an answer.
        std::thread::sleep(Duration::from_millis(100));
        let me = rustix::process::getpid();
        rustix::process::kill_process(me, rustix::process::Signal::KILL).expect("a signal to oneself");
        loop {
            std::thread::park();
        }
    }
    let started = Instant::now();
    // A part of some calls is done without the dead one, and the next is not.
    let error = (0..20).find_map(|_| call(&session, &operation).err()).expect("one is dead");
    let prompt = started.elapsed() < PROMPT;
    let mut out = std::io::stdout();
    writeln!(out, "story {:?} {:?} prompt {prompt}\n{error}", error.kind(), error.who().map(|who| who.rank)).expect("a pipe");
    session.barrier().expect("the survivors live on, and stay until all have told");
    session.shutdown().expect("a polite end");
}

fn survivors_name(operation: &str, victim: u32, earlier: u32) {
    let rendezvous = format!("unix:@survivors-{}-{}-{victim}-{earlier}", std::process::id(), operation.replace(' ', "-"));
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "worker", "--nocapture"])
            .env("VICTIM", victim.to_string())
            .env("OPERATION", operation)
            .env("EARLIER_CALLS", earlier.to_string())
            .env("SYNCLINE_RANK", rank.to_string())
            .env("SYNCLINE_WORLD_SIZE", WORKERS.to_string())
            .env("SYNCLINE_RENDEZVOUS", &rendezvous)
            .env("SYNCLINE_TOKEN", "t")
            .env("SYNCLINE_TRANSPORT", "tcp")
            .env("SYNCLINE_TIMEOUT", TIMEOUT)
            .env("SYNCLINE_ON_PEER_LOSS", "continue");
        Process::start(format!("victim {victim} rank {rank}"), &mut command)
    };
    let running: Vec<_> = (0..WORKERS).map(start).collect();
    for (rank, process) in running.into_iter().enumerate() {
        let ended = process.finish_within(LIMIT);
        let told = format!("story PeerLost Some({victim}) prompt true");
        let fine = rank == victim as usize || ended.status.success() && ended.stdout.contains(&told);
        assert!(fine, "{operation}, rank {rank}, victim {victim}, {earlier} calls before: {told}?\n{}{}", ended.stdout, ended.stderr);
    }
}

#[test]
fn every_survivor_of_an_aggregate_names_the_dead_one_though_it_waits_for_another_survivor() {
    (0..WORKERS).for_each(|victim| survivors_name("aggregate", victim, 1));
}

#[test]
fn a_worker_that_dies_before_the_first_aggregate_is_named_by_all() {
    (0..WORKERS).for_each(|victim| survivors_name("aggregate", victim, 0));
}

#[test]
fn every_survivor_of_a_collective_names_the_dead_one_and_not_who_gave_up_because_of_it() {
    for operation in ["all_reduce", "a small all_reduce", "reduce", "broadcast", "gather", "all_gather", "reduce_scatter", "all_to_all"] {
        for (victim, earlier) in [(1, 1), (3, 1), (2, 0)] {
            survivors_name(operation, victim, earlier);
        }
    }
}
