//! Tables that several threads of one worker use at once, in an order that each test forces.
//!
//! A wait asks its deadline now and then whether it was called off. The tests answer no, and make that question the moment at which
//! another thread does its part: who is asked is known to wait.

mod thread_jobs;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use syncline::{AddOptions, Consistency, Deadline, ErrorKind, Spec, Table};
use syncline_testkit::ranks::eventually;
use thread_jobs::{MANNERS, by, job, job_in};

const NUMBERS: usize = 4;

/// A table so small that each worker keeps a copy of it.
fn small_sync_array() -> Spec {
    Spec::array(NUMBERS as u64).with_consistency(Consistency::Sync)
}

fn add(table: &Table, value: f32, wait: bool) {
    table.add(bytemuck::cast_slice(&[value; NUMBERS]), None, &AddOptions::default(), wait, by()).expect("added");
}

fn get(table: &Table, by: Deadline) -> Result<f32, syncline::Error> {
    let mut out = [0.0_f32; NUMBERS];
    table.get(bytemuck::cast_slice_mut(&mut out), None, by)?;
    assert!(out.iter().all(|value| *value == out[0]), "{out:?}");
    Ok(out[0])
}

fn until(what: &str, flag: &AtomicBool) {
    eventually(what, Duration::from_secs(20), || flag.load(SeqCst));
}

/// Worker 0 gets after its first add. While that waits, everybody's second round goes into the table: what the get then reads is a round
/// further than it asked for, and must not be taken for the first.
#[test]
fn a_get_beside_the_next_add_of_its_worker_does_not_count_that_round_twice() {
    static WAITS: AtomicBool = AtomicBool::new(false);
    static ADDED_AGAIN: AtomicBool = AtomicBool::new(false);
    static SECOND_ROUND_IS_IN: AtomicBool = AtomicBool::new(false);
    fn hold_on() -> bool {
        WAITS.store(true, SeqCst);
        until("the second round is in the table", &SECOND_ROUND_IS_IN);
        false
    }
    job(2, "beside-an-add", |session| {
        let table = session.create_table(small_sync_array(), None).unwrap();
        if session.rank() == 0 {
            add(&table, 1.0, false);
            std::thread::scope(|scope| {
                let first = scope.spawn(|| get(&table, by().with_interrupt(hold_on)));
                until("the first get waits", &WAITS);
                add(&table, 1.0, false);
                ADDED_AGAIN.store(true, SeqCst);
                let seen = first.join().expect("no panic").expect("both rounds are there");
                assert!([11.0, 22.0].contains(&seen), "{seen} is no state after a round");
            });
        } else {
            until("worker 0 made its second add", &ADDED_AGAIN);
            add(&table, 10.0, false);
            add(&table, 10.0, true);
            SECOND_ROUND_IS_IN.store(true, SeqCst);
        }
        assert_eq!(get(&table, by()).expect("all rounds are there"), 22.0);
        add(&table, 100.0, false);
        assert_eq!(get(&table, by()).expect("the third round comes"), 222.0);
    });
}

#[test]
fn a_get_beside_one_that_waits_can_be_called_off() {
    static FIRST_WAITS: AtomicBool = AtomicBool::new(false);
    static SECOND_IS_BACK: AtomicBool = AtomicBool::new(false);
    fn first_waits() -> bool {
        FIRST_WAITS.store(true, SeqCst);
        false
    }
    job(2, "beside-a-get", |session| {
        let table = session.create_table(small_sync_array(), None).unwrap();
        if session.rank() == 0 {
            add(&table, 1.0, false);
            let patient = Deadline::after(Duration::from_secs(5)).with_interrupt(first_waits);
            std::thread::scope(|scope| {
                let first = scope.spawn(|| get(&table, patient));
                until("the first get waits", &FIRST_WAITS);
                let second = get(&table, by().with_interrupt(|| true)).expect_err("worker 1 has not added");
                assert_eq!(second.kind(), ErrorKind::Interrupted, "{second}");
                SECOND_IS_BACK.store(true, SeqCst); // and only now can the first one be over
                assert_eq!(first.join().expect("no panic").expect("the second was back in time"), 11.0);
            });
        } else {
            until("the second get was called off", &SECOND_IS_BACK);
            add(&table, 10.0, false);
        }
    });
}

/// Worker 1 waits for an add that worker 0 makes behind the barrier to which worker 1 comes meanwhile.
#[test]
fn a_barrier_is_passed_while_a_get_waits_for_an_add_behind_it() {
    static WAITS: AtomicBool = AtomicBool::new(false);
    fn waits() -> bool {
        WAITS.store(true, SeqCst);
        false
    }
    for (consistency, manner) in
        [Consistency::Sync, Consistency::Bounded(0)].into_iter().flat_map(|kind| MANNERS.map(|manner| (kind, manner)))
    {
        WAITS.store(false, SeqCst);
        job_in(manner, 2, &format!("barrier-beside-a-get-{consistency:?}"), |session| {
            let table = session.create_table(Spec::array(NUMBERS as u64).with_consistency(consistency), None).unwrap();
            if session.rank() == 0 {
                session.barrier().expect("worker 1 comes");
                add(&table, 1.0, false);
            } else {
                add(&table, 1.0, false);
                std::thread::scope(|scope| {
                    let got = scope.spawn(|| get(&table, by().with_interrupt(waits)));
                    until("the get waits", &WAITS);
                    session.barrier().expect("the get waits, this thread does not");
                    assert_eq!(got.join().expect("no panic").expect("worker 0 adds behind the barrier"), 2.0, "{manner:?}");
                });
            }
        });
    }
}

/// What a get in the background contains is known when it is begun, not when its thread comes to it.
#[test]
fn a_get_in_the_background_waits_for_no_more_than_was_added_before_it() {
    static FETCHED: AtomicU64 = AtomicU64::new(0);
    const TIMES: u64 = 50;
    for manner in MANNERS {
        FETCHED.store(0, SeqCst);
        job_in(manner, 2, "begun-before", |session| {
            let table = session.create_table(Spec::array(NUMBERS as u64).with_consistency(Consistency::Bounded(0)), None).unwrap();
            for time in 0..TIMES {
                add(&table, 1.0, false);
                if session.rank() == 0 {
                    let begun = table.get_async(None).expect("begun");
                    add(&table, 1.0, false);
                    begun.wait(None, by()).expect("worker 1 has added once, which is enough");
                    FETCHED.store(time + 1, SeqCst);
                } else {
                    eventually("worker 0 has its result", Duration::from_secs(20), || FETCHED.load(SeqCst) > time);
                    add(&table, 1.0, false);
                }
            }
        });
    }
}

#[test]
fn six_threads_of_each_worker_at_two_sync_tables_come_through() {
    const PASSES: usize = 10;
    for manner in MANNERS {
        job_in(manner, 2, "six-threads", |session| {
            let tables = [0, 1].map(|_| session.create_table(small_sync_array(), None).unwrap());
            // A get waits for as many adds as its worker has made, so all threads come to the end of a pass before the next one begins.
            for _ in 0..PASSES {
                std::thread::scope(|scope| {
                    for _ in 0..6 {
                        scope.spawn(|| {
                            for table in &tables {
                                add(table, 1.0, false);
                                let mut out = [0.0_f32; NUMBERS];
                                table.get(bytemuck::cast_slice_mut(&mut out), None, by()).expect("the other worker adds as often");
                            }
                        });
                    }
                });
            }
            for table in &tables {
                assert_eq!(get(table, by()).expect("all rounds are there"), (2 * 6 * PASSES) as f32, "{manner:?}");
            }
        });
    }
}
