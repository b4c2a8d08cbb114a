//! A worker dies with an add that counts and is not applied; the neighbour that applies it dies in the middle of that, at every moment of it; a third finds
//! the add in the table once and whole.
//!
//! The program starts itself as three workers that share memory: worker 1 adds and dies, worker 2 finds that and dies at the n-th of the moments that
//! `syncline_shm::mortality` counts, worker 0 looks when both are gone.
#![cfg(debug_assertions)]

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use syncline::{AddOptions, Config, DType, Deadline, Session, Spec, Table};
use syncline_shm::mortality;
use syncline_testkit::ranks::Process;

const LIMIT: Duration = Duration::from_secs(60);
/// Six stripes of bytes: more than is applied at once, in blocks of 8 KB.
const SIZE: usize = 350_000;

fn by() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn add(table: &Table) {
    table.add(&vec![1; SIZE], None, &AddOptions::default(), false, by()).expect("added");
}

fn get(table: &Table) -> Vec<u8> {
    let mut values = vec![0; SIZE];
    table.get(&mut values, None, by()).expect("fetched");
    values
}

/// Not a test: what the three workers run. Without its variables it does nothing.
#[test]
fn worker() {
    let Ok(step) = std::env::var("MORTAL_STEP") else { return };
    let session = Session::open(Config::from_env().expect("a sound environment")).expect("all come");
    let table = session.create_table(Spec::array(SIZE as u64).with_dtype(DType::U8), None).expect("made");
    let mut out = std::io::stdout();
    match session.rank() {
        1 => {
            add(&table);
            mortality::die_at(1);
            add(&table); // It dies before this one counts.
        }
        2 => {
            mortality::die_at(step.parse().expect("a number"));
            while get(&table).contains(&0) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            mortality::die_at(u64::MAX);
            writeln!(out, "survived").expect("a pipe");
        }
        _ => {
            while !session.others_are_over() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            // What the dead left is looked for by a get that knows for certain of their deaths.
            let mut values = get(&table);
            for _ in 0..2_000 {
                if !values.contains(&0) {
                    break;
                }
                std::thread::park_timeout(Duration::from_millis(1));
                values = get(&table);
            }
            let wrong = values.iter().enumerate().find(|(_, value)| **value != 1);
            writeln!(out, "wrong {wrong:?}").expect("a pipe");
        }
    }
    session.shutdown().expect("a polite end");
}

/// Lets the rescuer die at moment `step`; whether it survived.
fn die_at(step: u64) -> bool {
    let rendezvous = format!("unix:@rescuer-{}-{step}", std::process::id());
    let start = |rank: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "worker", "--nocapture"])
            .env("MORTAL_STEP", step.to_string())
            .env("SYNCLINE_RANK", rank)
            .env("SYNCLINE_WORLD_SIZE", "3")
            .env("SYNCLINE_RENDEZVOUS", &rendezvous)
            .env("SYNCLINE_TOKEN", "t")
            .env("SYNCLINE_TIMEOUT", "20")
            .env("SYNCLINE_ON_PEER_LOSS", "continue");
        Process::start(format!("step {step} rank {rank}"), &mut command)
    };
    let [last, victim, rescuer] = ["0", "1", "2"].map(start).map(|process| process.finish_within(LIMIT));
    let context = format!("step {step}\n{}\n{}\n{}", victim.stderr, rescuer.stderr, last.stderr);
    assert!(last.status.success() && !victim.status.success(), "{context}");
    let told = last.stdout.lines().find(|line| line.contains("wrong ")).expect(&context);
    assert!(told.contains("wrong None"), "the add is not once in every number: {told}\n{context}");
    rescuer.stdout.contains("survived")
}

#[test]
fn who_applies_the_add_of_a_dead_worker_may_die_at_any_moment_of_it() {
    let mut step = 1;
    while !die_at(step) {
        step += if step < 24 { 1 } else { 11 }; // The first blocks in full; the others are like them.
        assert!(step < 2000, "it never survives");
    }
    assert!(step > 24, "only {step} moments were counted; are they still in the code?");
}
