//! Small async tables that several workers add to in tight loops: adds wait in a tally, and no promise shows it.
//!
//! Workers pretend that others are always at the table, so that what happens under contention happens at every run.
#![cfg(debug_assertions)]

mod thread_jobs;

use std::time::Instant;

use syncline::{AddOptions, DType, Session, Spec, Table, Updater};
use syncline_shm::mortality;
use thread_jobs::{by, job};

const SIZE: usize = 700;

fn table(session: &Session, updater: Updater) -> Table {
    mortality::pretend_a_crowd();
    session.create_table(Spec::matrix(SIZE as u64 / 10, 10).with_dtype(DType::I64).with_updater(updater), None).unwrap()
}

fn add(table: &Table, value: i64, rows: Option<&[i64]>, wait: bool) {
    let delta = vec![value; rows.map_or(SIZE, |rows| rows.len() * 10)];
    table.add(bytemuck::cast_slice(&delta), rows, &AddOptions::default(), wait, by()).expect("added");
}

fn get(table: &Table) -> Vec<i64> {
    let mut out = vec![0; SIZE];
    table.get(bytemuck::cast_slice_mut(&mut out), None, by()).expect("fetched");
    out
}

#[test]
fn threads_of_several_workers_lose_nothing_and_see_nothing_go_back() {
    const THREADS: i64 = 3;
    const ADDS: i64 = 1500;
    for updater in [Updater::Add, Updater::Sgd] {
        let sign = if updater == Updater::Sgd { -1 } else { 1 };
        job(3, &format!("crowd-{updater}"), |session| {
            let table = table(session, updater);
            std::thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let mut seen = vec![0; SIZE];
                        for made in 1..=ADDS {
                            add(&table, 1, None, made % 3 == 0);
                            let now = get(&table).into_iter().map(|value| sign * value).collect::<Vec<_>>();
                            assert!(now.iter().all(|value| *value >= made), "own adds are there: {made} and {now:?}");
                            assert!(now.iter().zip(&seen).all(|(now, seen)| now >= seen), "{seen:?} became {now:?}");
                            seen = now;
                        }
                    });
                }
            });
            session.barrier().unwrap();
            assert_eq!(get(&table), [sign * 3 * THREADS * ADDS; SIZE]);
            session.barrier().unwrap();
        });
    }
}

#[test]
fn what_a_worker_leaves_in_its_tally_reaches_others_without_a_call_of_its_own() {
    job(2, "crowd-left", |session| {
        let table = table(session, Updater::Add);
        session.barrier().unwrap();
        if session.rank() == 0 {
            (0..5).for_each(|_| add(&table, 1, None, false));
        }
        let start = Instant::now();
        while get(&table) != [5; SIZE] {
            assert!(start.elapsed().as_secs() < 10, "{:?}", get(&table));
            std::thread::yield_now();
        }
        session.barrier().unwrap();
    });
}

#[test]
fn calls_that_are_no_whole_adds_find_everything_that_was_added_before() {
    job(2, "crowd-mixed", |session| {
        let table = table(session, Updater::Add);
        let mut mirror = vec![0_i64; SIZE];
        for turn in 1..=40 {
            add(&table, 1, None, false);
            add(&table, 100, Some(&[3, 3]), false);
            let mut row = vec![0_i64; 10];
            table.get(bytemuck::cast_slice_mut(&mut row), Some(&[3]), by()).unwrap();
            assert!(row.iter().all(|value| *value >= turn * 201 && *value % 201 <= 1 + 100), "{row:?}");
            add(&table, 1, None, turn % 7 == 0);
            add(&table, -1, None, false);
            table.get_changed(bytemuck::cast_slice_mut(&mut mirror), by()).unwrap();
        }
        session.barrier().unwrap();
        let mut wanted = [80; SIZE];
        wanted[30..40].fill(80 + 2 * 40 * 200);
        assert_eq!(get(&table), wanted);
        session.barrier().unwrap();
    });
}
