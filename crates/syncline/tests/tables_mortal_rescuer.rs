//! A worker dies with an add that counts and is not applied; the neighbour that applies it dies in the middle of that, at every moment of it; a third finds
//! the add in the table once and whole.
//!
//! The program starts itself as three workers that share memory: worker 1 adds and dies, worker 2 finds that and dies at the n-th of the moments that
//! `syncline_shm::mortality` counts, worker 0 looks when both are gone.
#![cfg(debug_assertions)]

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use syncline::{AddOptions, Config, DType, Deadline, Error, Session, Spec, Table};
use syncline_shm::mortality;
use syncline_testkit::ranks::{Process, eventually};

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

/// What a get ends with that knows for certain of the death, and how long it took.
fn vain_get(table: &Table, by: Deadline) -> (Error, Duration) {
    loop {
        let began = Instant::now();
        if let Err(error) = table.get(&mut vec![0; SIZE], None, by) {
            return (error.into(), began.elapsed());
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Not a test: what the three workers run. Without its variables it does nothing.
#[test]
fn worker() {
    let Ok(step) = std::env::var("MORTAL_STEP") else { return };
    let go = std::env::var("MORTAL_GO").ok();
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
            let step = step.parse().expect("a number");
            if go.is_some() {
                mortality::stop_at(step)
            } else {
                mortality::die_at(step)
            }
            while get(&table).contains(&0) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            mortality::die_at(u64::MAX);
            writeln!(out, "survived").expect("a pipe");
        }
        _ if go.is_some() => {
            while !Path::new(&go.clone().unwrap_or_default()).exists() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            for by in [by().with_interrupt(|| true), Deadline::after(Duration::from_millis(50))] {
                let (error, waited) = vain_get(&table, by);
                writeln!(out, "in vain {:?} {}: {error}", error.kind(), waited < Duration::from_secs(5)).expect("a pipe");
            }
            return; // The rescuer has stopped for good.
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

/// Starts the three; the rescuer dies at moment `step`, or waits for `go` where there is one.
fn start(step: u64, go: Option<&Path>) -> [Process; 3] {
    let rendezvous = format!("unix:@rescuer-{}-{step}-{}", std::process::id(), go.is_some());
    ["0", "1", "2"].map(|rank| {
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
        if let Some(go) = go {
            command.env("MORTAL_GO", go);
        }
        Process::start(format!("step {step} rank {rank}"), &mut command)
    })
}

/// Lets the rescuer die at moment `step`; whether it survived.
fn die_at(step: u64) -> bool {
    let [last, victim, rescuer] = start(step, None).map(|process| process.finish_within(LIMIT));
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

#[test]
fn who_waits_for_a_rescuer_that_was_stopped_hears_ctrl_c_and_has_its_own_deadline() {
    let go = std::env::temp_dir().join(format!("syncline-rescuer-stopped-{}", std::process::id()));
    let [last, victim, rescuer] = start(9, Some(&go));
    assert!(!victim.finish_within(LIMIT).status.success());
    let stat = format!("/proc/{}/stat", rescuer.pid());
    let is_stopped = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T")));
    eventually("the rescuer stops in the middle", LIMIT, is_stopped);
    std::fs::write(&go, "").expect("a folder for passing things");
    let last = last.finish_within(LIMIT);
    std::fs::remove_file(&go).expect("it was there");
    let told: Vec<&str> = last.stdout.lines().filter(|line| line.contains("in vain ")).collect();
    let [interrupted, late] = told[..] else { panic!("{}\n{}", last.stdout, last.stderr) };
    assert!(interrupted.contains("Interrupted true"), "{interrupted}");
    assert!(late.contains("Timeout true") && late.contains("rank 2"), "{late}");
}
