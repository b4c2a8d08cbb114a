//! What gradients cost beside plain adds, and beside the memory they move. Run by hand, in a release build:
//! `cargo test --release -p syncline-table --test jobs speed -- --ignored --nocapture`

use std::time::{Duration, Instant};

use syncline_cluster::TransportChoice;
use syncline_optimizer::Optimizer;
use syncline_table::{AddOptions, Consistency, Spec, Tables, Updater};

use crate::gathered::{job, soon};

const SECONDS: Duration = Duration::from_millis(400);

fn optimizer(name: &str) -> Option<Optimizer> {
    (name != "assign").then(|| Optimizer::create(name, &[]).expect(name))
}

/// Calls per second of one worker, the slowest.
fn rate(name: &str, workers: usize, family: u32, rule: &str, spec: &Spec, body: impl Fn(&syncline_table::Table, usize, u64) + Sync) -> f64 {
    let rates = job(&format!("{name}{rule}{workers}"), &vec!["both"; workers], TransportChoice::Auto, |job, tables: &Tables, worker| {
        let spec = match rule {
            "add" => spec.clone().with_updater(Updater::Add),
            "minus" => spec.clone().with_updater(Updater::Sgd),
            _ => spec.clone().with_updater(Updater::Gradient).with_family(family),
        };
        let table = tables.create(spec.clone(), None, "here", soon()).expect("made");
        if worker == 0 && spec.updater == Updater::Gradient {
            tables.set_rule(family, optimizer(rule), false, soon()).expect("set");
        }
        job.barrier(soon()).expect("all live");
        let fixed = spec.consistency == Consistency::Sync;
        let mut turns = if fixed { 2000 } else { 1 };
        (0..20).for_each(|turn| body(&table, worker, turn));
        job.barrier(soon()).expect("all live");
        let start = Instant::now();
        let mut done = 0;
        if fixed && spec.bytes() > 1 << 20 {
            turns = 20;
        }
        while if fixed { done < turns } else { start.elapsed() < SECONDS } {
            (0..turns.min(20)).for_each(|turn| body(&table, worker, done + turn));
            done += turns.min(20);
        }
        let rate = done as f64 / start.elapsed().as_secs_f64();
        job.barrier(soon()).expect("all live");
        rate
    });
    rates.into_iter().flatten().fold(f64::INFINITY, f64::min)
}

fn dense(bytes: usize, workers: usize, consistency: Consistency, rules: &[&str]) {
    for rule in rules {
        let spec = Spec::array(bytes as u64 / 4).with_consistency(consistency);
        let delta: Vec<u8> = (0..bytes / 4).flat_map(|index| (index as f32 * 1e-6).to_ne_bytes()).collect();
        let rate = rate(&format!("dense{bytes}{consistency:?}"), workers, 9, rule, &spec, |table, _, _| {
            thread_local!(static OUT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
            OUT.with_borrow_mut(|out| {
                out.resize(delta.len(), 0);
                table.add_get(&delta, out, None, &AddOptions::default(), soon()).expect("added");
            });
        });
        println!("{bytes:>9} B {consistency:?} n={workers} {rule:>8}: {:>10.1} µs  {:>10.0} /s", 1e6 / rate, rate);
    }
}

fn rows(workers: usize, consistency: Consistency, rules: &[&str], sorted: bool) {
    const ROWS: u64 = 1_000_000;
    for rule in rules {
        let spec = Spec::matrix(ROWS, 64).with_consistency(consistency);
        let delta: Vec<u8> = (0..64_000).flat_map(|index| (index as f32 * 1e-6).to_ne_bytes()).collect();
        let lists: Vec<Vec<i64>> = (0..64u64)
            .map(|list| {
                let mut ids: Vec<i64> = (0..1000u64).map(|row| ((row * 7919 + list * 104_729) * 2_654_435_761 % ROWS) as i64).collect();
                if sorted {
                    ids.sort_unstable();
                    ids.dedup();
                    let mut next = 0;
                    while ids.len() < 1000 {
                        if !ids.contains(&next) {
                            ids.push(next);
                        }
                        next += 1;
                    }
                    ids.sort_unstable();
                }
                ids
            })
            .collect();
        let rate = rate(&format!("rows{consistency:?}{sorted}"), workers, 9, rule, &spec, |table, worker, turn| {
            thread_local!(static OUT: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) });
            OUT.with_borrow_mut(|out| {
                out.resize(delta.len(), 0);
                let ids = &lists[(turn as usize * 3 + worker * 17) % 64];
                table.add_get(&delta, out, Some(ids), &AddOptions::default(), soon()).expect("added");
            });
        });
        println!("rows {consistency:?} n={workers} sorted={sorted} {rule:>8}: {:>8.1} µs  {:>8.2} M rows/s", 1e6 / rate, rate / 1000.0);
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_small() {
    for workers in [1, 2] {
        dense(4096, workers, Consistency::Async, &["add", "minus", "sgd", "adam"]);
    }
    dense(4096, 2, Consistency::Sync, &["add", "assign", "sgd", "adam"]);
}

#[test]
#[ignore = "a measurement"]
fn speed_rows() {
    for workers in [1, 2] {
        rows(workers, Consistency::Async, &["minus", "sgd"], true);
        rows(workers, Consistency::Async, &["minus", "sgd"], false);
    }
    rows(2, Consistency::Sync, &["minus", "sgd"], true);
}

#[test]
#[ignore = "a measurement"]
fn speed_large() {
    let bytes = 64 << 20;
    let (source, mut target) = (vec![1u8; bytes], vec![0u8; bytes]);
    target.copy_from_slice(&source);
    let start = Instant::now();
    (0..8).for_each(|_| std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source)));
    let per_byte = start.elapsed().as_secs_f64() / (16 * bytes) as f64;
    println!(
        "memory {:.2} GB/s read and written; Adam moves 28 B per number: {:.1} ms at the least",
        1e-9 / per_byte,
        per_byte * 28e3 * bytes as f64 / 4.0
    );
    dense(bytes, 1, Consistency::Async, &["minus", "sgd", "adam"]);
    dense(bytes, 2, Consistency::Async, &["minus", "sgd", "adam"]);
    dense(bytes, 2, Consistency::Sync, &["minus", "assign", "sgd", "adam"]);
}

#[test]
#[ignore = "a measurement"]
fn speed_pull() {
    for rule in ["add", "sgd"] {
        let rate = rate("pull", 1, 9, rule, &Spec::array(16), |table, _, _| table.get(&mut [0; 64], None, soon()).expect("got"));
        println!("pull of 16 {rule:>8}: {:.3} µs", 1e6 / rate);
    }
}
