//! A worker that dies at a chosen moment of a gradient's way into the table: what its neighbour then finds is a whole number of steps.
//!
//! The program starts itself as two workers that share memory. Worker 1 is told to die at the n-th of the moments that
//! `syncline_shm::mortality` counts; worker 0 goes on without it and prints values and states. Whatever n is, they must be those of the model
//! after the gradients that were acknowledged, or one more, bit for bit.
#![cfg(debug_assertions)]

use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::bootstrap::{Arguments, Environment, find};
use syncline_cluster::{Job, OnPeerLoss, Settings};
use syncline_optimizer::{Key, Optimizer};
use syncline_shm::mortality;
use syncline_table::{AddOptions, Consistency, Spec, Tables, Updater};
use syncline_tensor::DType;
use syncline_testkit::ranks::Process;

use super::model::{Model, Push, bytes_of};
use crate::gathered::soon;

const LIMIT: Duration = Duration::from_secs(60);
const ROWS: [i64; 4] = [5, 0, 5, 29];

struct Case {
    spec: Spec,
    optimizer: Optimizer,
    by_rows: bool,
    /// Worker 1 pretends that others are always at the table: it adds its gradients up, all of them exact, and steps by the sum.
    crowded: bool,
    pushes: usize,
}

/// `async adam`, `sync lamb rows half`: consistency, optimizer, and how gradients look.
fn case(kind: &str) -> Case {
    let mut words = kind.split(' ');
    let consistency = if words.next() == Some("sync") { Consistency::Sync } else { Consistency::Async };
    let optimizer = Optimizer::create(words.next().expect("an optimizer"), &[("multi_precision", true.into())]).expect("known");
    let rest: Vec<&str> = words.collect();
    let (by_rows, small, half) = (rest.contains(&"rows"), rest.contains(&"small"), rest.contains(&"half"));
    // Two blocks and a bit, or so few that they are added without a detour; rows lie in one stripe.
    let spec = if by_rows { Spec::matrix(30, 70) } else { Spec::matrix(1, if small { 700 } else { 2100 }) };
    let spec = spec.with_consistency(consistency).with_dtype(if half { DType::F16 } else { DType::F32 }).with_updater(Updater::Gradient);
    let crowded = rest.contains(&"crowded");
    Case { spec: spec.named("w").with_family(1), optimizer, by_rows, crowded, pushes: if crowded { 18 } else { 3 } }
}

impl Case {
    /// What numbers are parts of: where they are added up in any order, one of which sums are exact.
    fn part(&self, usual: f64) -> f64 {
        if self.crowded { 64.0 } else { usual }
    }
}

fn push(case: &Case, number: usize) -> Push {
    let (rows, count) = if case.by_rows { (Some(ROWS.to_vec()), 4 * 70) } else { (None, case.spec.bytes() / case.spec.dtype().size()) };
    Push { rows, numbers: (0..count).map(|index| ((index * 13 + number * 7) % 200) as f64 / case.part(100.0) - 1.0).collect() }
}

fn initial(case: &Case) -> Vec<f64> {
    (0..case.spec.bytes() / case.spec.dtype().size()).map(|index| (index % 23) as f64 / case.part(10.0) - 1.0).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Not a test: what the two workers run. Without its variables it does nothing.
#[test]
fn mortal_worker() {
    let Ok(kind) = std::env::var("MORTAL_GRADIENT") else { return };
    let variable = |name: &str| std::env::var(name).expect("told");
    let (rank, rendezvous) = (variable("MORTAL_RANK"), variable("MORTAL_RENDEZVOUS"));
    let environment = Environment::from_variables([
        ("SYNCLINE_RANK", rank.as_str()),
        ("SYNCLINE_WORLD_SIZE", "2"),
        ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
        ("SYNCLINE_TOKEN", "t"),
    ]);
    let launch = find(&environment, &Arguments::default()).expect("a sound environment");
    let settings = Settings { on_peer_loss: OnPeerLoss::Continue, ..Settings::default() };
    let job = Arc::new(Job::join(&launch, &settings, soon()).expect("both come"));
    let tables = Tables::new(Arc::clone(&job));
    let case = case(&kind);
    let (dtype, sync) = (case.spec.dtype(), case.spec.consistency == Consistency::Sync);
    let start = bytes_of(dtype, &initial(&case));
    let table = tables.create(case.spec.clone(), Some(&start), "here", soon()).expect("made");
    let add = |push: &Push| {
        table.add(&bytes_of(dtype, &push.numbers), push.rows.as_deref(), &AddOptions::default(), false, soon()).expect("added");
    };
    let mut values = vec![0; case.spec.bytes()];
    if job.rank() == 1 {
        tables.set_rule(1, Some(case.optimizer.clone()), false, soon()).expect("set");
    }
    job.barrier(soon()).expect("both live");
    let mut out = std::io::stdout();
    if job.rank() == 1 {
        if case.crowded {
            mortality::pretend_a_crowd();
        }
        mortality::die_at(variable("MORTAL_STEP").parse().expect("a number"));
        for number in 0..case.pushes {
            add(&push(&case, number));
            writeln!(out, "published {number}").expect("a pipe");
            table.get(&mut values, None, soon()).expect("fetched"); // Applies what waits, and dies in the middle of it.
        }
        mortality::die_at(u64::MAX);
        writeln!(out, "survived").expect("a pipe");
        tables.finish(soon()).expect("finished");
        job.leave(soon()).expect("a polite end");
        return;
    }
    if sync {
        let nothing = Push { rows: Some(Vec::new()), numbers: Vec::new() };
        (0..case.pushes).for_each(|_| add(&nothing));
    }
    // What the dead one left is looked after by the first call that knows for certain of its death; values and states must be of one time.
    let mut last = None;
    let (values, states) = loop {
        table.get(&mut values, None, soon()).expect("fetched");
        let states = table.states(soon()).expect("states").lanes;
        let vigil = job.vigil();
        let over = vigil.is_over(1) && (vigil.has_ended(1) || vigil.has_left(1));
        let found = (values.clone(), states);
        if over && last.as_ref() == Some(&found) {
            break found;
        }
        last = Some(found);
        std::thread::park_timeout(Duration::from_millis(if over { 5 } else { 1 }));
    };
    writeln!(out, "values {}", hex(&values)).expect("a pipe");
    for lane in states {
        writeln!(out, "state {}", hex(&lane.bytes)).expect("a pipe");
    }
    tables.finish(soon()).expect("finished");
    job.leave(soon()).expect("a polite end");
}

/// What the survivor should print after so many gradients of the victim.
fn expected(case: &Case, pushes: usize) -> Vec<String> {
    let cols = case.spec.rows_and_cols().expect("rows").1 as usize;
    let mut model = Model::new(case.spec.dtype(), cols, &initial(case), Key::from("w"));
    model.set_rule(Some(case.optimizer.clone()), false);
    let nothing = Push { rows: Some(Vec::new()), numbers: Vec::new() };
    for number in 0..case.pushes {
        match (case.spec.consistency, number < pushes) {
            (_, true) if case.spec.consistency == Consistency::Sync => model.push(&[&nothing, &push(case, number)]),
            (_, true) => model.push(&[&push(case, number)]),
            (Consistency::Sync, false) => model.push(&[&nothing]),
            _ => {}
        }
    }
    std::iter::once(hex(&model.values)).chain(model.states.iter().map(|state| hex(state))).collect()
}

/// Lets worker 1 die at moment `step`; returns whether it survived, after judging what worker 0 found.
fn die_at(kind: &str, step: u64) -> bool {
    let rendezvous = format!("unix:@mortal-gradient-{}-{}-{step}", std::process::id(), kind.replace(' ', "-"));
    let start = |rank: &str| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "gradients::mortal::mortal_worker", "--nocapture"])
            .env("MORTAL_GRADIENT", kind)
            .env("MORTAL_STEP", step.to_string())
            .env("MORTAL_RANK", rank)
            .env("MORTAL_RENDEZVOUS", &rendezvous);
        Process::start(format!("{kind} {step} rank {rank}"), &mut command)
    };
    let (survivor, victim) = (start("0"), start("1"));
    let (victim, survivor) = (victim.finish_within(LIMIT), survivor.finish_within(LIMIT));
    let shown: String = survivor.stdout.lines().map(|line| line.chars().take(80).collect::<String>() + "\n").collect();
    let context = format!("{kind}, step {step}\n--- victim\n{}{}\n--- survivor\n{shown}{}", victim.stdout, victim.stderr, survivor.stderr);
    assert!(survivor.status.success(), "{context}");
    let published = victim.stdout.lines().filter(|line| line.contains("published ")).count();
    let found: Vec<&str> =
        survivor.stdout.lines().filter_map(|line| line.split_once("values ").or(line.split_once("state "))).map(|(_, hex)| hex).collect();
    let case = case(kind);
    let steps: Vec<usize> = (0..=case.pushes).filter(|pushes| expected(&case, *pushes) == found).collect();
    assert!(!steps.is_empty(), "the table holds no whole number of steps\n{context}");
    let right = steps.iter().any(|steps| (published..=published + 1).contains(steps));
    assert!(right, "{steps:?} gradients are in the table, {published} were acknowledged\n{context}");
    victim.stdout.contains("survived")
}

/// Every seventh moment, from another one on in each kind; all of them with `MORTAL_EVERY=1`.
fn moments(kind: &str) {
    let every = std::env::var("MORTAL_EVERY").ok().and_then(|every| every.parse().ok()).unwrap_or(7);
    let mut step = 1 + kind.len() as u64 % every;
    while !die_at(kind, step) {
        step += every;
        assert!(step < 2000, "{kind}: it never survives");
    }
    assert!(step > 5, "{kind}: only {step} moments were counted; are they still in the code?");
}

#[test]
fn a_death_in_an_async_gradient_leaves_whole_steps() {
    ["async adam", "async adam small", "async adam rows half", "async sgd small", "async sgd rows"].into_iter().for_each(moments);
}

#[test]
fn a_death_among_gradients_that_are_added_up_leaves_whole_gradients() {
    ["async test small crowded", "async test crowded"].into_iter().for_each(moments);
}

#[test]
fn a_death_in_a_round_of_gradients_leaves_whole_steps() {
    ["sync adam", "sync adam rows half", "sync dcasgd"].into_iter().for_each(moments);
}

#[test]
fn a_death_between_measuring_and_stepping_leaves_whole_steps() {
    ["async lamb", "sync lamb"].into_iter().for_each(moments);
}
