//! Several threads of one worker at a table whose gets wait for others: who waits holds up nobody else.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use syncline_cluster::{Deadline, ErrorKind};
use syncline_testkit::ranks::{eventually, threads};

use super::world::{Plan, World, bytes, numbers, soon};
use crate::spread::Spread;
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };
const ROWS: u64 = 6;

fn ones(table: &Spread, by: Deadline) {
    table.add(&bytes(&[1; 3 * ROWS as usize]), None, &PLAIN, false, by).expect("added");
}

fn rows(table: &Spread, by: Deadline) -> Result<Vec<i64>, syncline_cluster::Error> {
    let mut out = vec![0; 24 * ROWS as usize];
    table.get(&mut out, None, by).map(|()| numbers(&out))
}

/// Where rows are: in one part or two, elsewhere or half in memory, behind queues or sockets.
fn worlds(consistency: Consistency) -> Vec<(World, Option<usize>)> {
    let plan = |ranges: &[std::ops::Range<u64>], here: Option<usize>, sockets: bool| {
        let plan = Plan { here: vec![here, None], sockets, ..Plan::new(ranges, 2, consistency) };
        (plan.build(), here)
    };
    vec![plan(&[0..ROWS], None, false), plan(&[0..2, 2..ROWS], None, true), plan(&[0..2, 2..ROWS], Some(1), false)]
}

/// Set when a get is known to wait: it asks its deadline whether it was called off.
static WAITS: AtomicBool = AtomicBool::new(false);

fn goes_on() -> bool {
    WAITS.store(true, SeqCst);
    false
}

#[test]
fn a_get_that_waits_for_another_worker_keeps_no_thread_of_its_own_from_the_table() {
    for consistency in [Consistency::Sync, Consistency::Bounded(0)] {
        for (world, here) in worlds(consistency) {
            let (one, two) = (world.open(0, here), world.open(1, None));
            std::thread::scope(|scope| {
                ones(&one, soon());
                WAITS.store(false, SeqCst);
                let waiting = scope.spawn(|| rows(&one, soon().with_interrupt(goes_on)));
                eventually("the get waits", Duration::from_secs(20), || WAITS.load(SeqCst));
                // All of this comes to its end while the get waits: an add, what a barrier does, and a look at the clocks.
                for adds in 2..=100 {
                    ones(&one, soon());
                    one.deliver(soon()).expect("what was added counts");
                    assert_eq!(one.clocks(soon()).expect("the clocks"), [adds, 0]);
                }
                assert!(!waiting.is_finished(), "worker 1 has not added");
                for _ in 0..100 {
                    ones(&two, soon());
                    two.deliver(soon()).expect("what was added counts"); // queues in memory hold few replies
                }
                // Other adds of its own worker may have come in before it reads, but whole rounds only.
                let seen = waiting.join().expect("no panic").expect("everybody has added");
                assert!(seen.iter().all(|value| *value >= 2), "{seen:?}");
            });
            one.settle(soon()).expect("all rounds are there");
            assert_eq!(rows(&one, soon()).unwrap(), vec![200; 18]);
            drop((one, two));
            world.end();
        }
    }
}

#[test]
fn answers_find_those_who_asked_in_whichever_order_they_come() {
    for (world, here) in worlds(Consistency::Sync) {
        let (one, two) = (world.open(0, here), world.open(1, None));
        std::thread::scope(|scope| {
            ones(&one, soon());
            // Each of them waits for worker 1, who adds only when all have asked; meanwhile rows that nobody waits for are fetched.
            let first: Vec<_> = (0..4).map(|_| scope.spawn(|| rows(&one, soon()))).collect();
            let settled = scope.spawn(|| one.add(&bytes(&[1; 18]), None, &PLAIN, true, soon()));
            eventually("the second add is there", Duration::from_secs(20), || one.clocks(soon()).unwrap() == [2, 0]);
            let mut lane = vec![0; 24];
            for _ in 0..50 {
                one.read_lane(0, 1, &mut lane, soon()).expect("a copy waits for nobody");
            }
            ones(&two, soon());
            ones(&two, soon());
            settled.join().expect("no panic").expect("both rounds are there");
            for get in first {
                let seen = get.join().expect("no panic").expect("a round");
                assert!(seen.iter().all(|value| [2, 4].contains(value)), "{seen:?}");
            }
        });
        drop((one, two));
        world.end();
    }
}

#[test]
fn many_threads_at_two_sync_tables_come_through() {
    for (first, second) in worlds(Consistency::Sync).into_iter().zip(worlds(Consistency::Sync)) {
        let (worlds, here) = ([first.0, second.0], [first.1, None]);
        threads(2, |worker| {
            let tables = [0, 1].map(|table| worlds[table].open(worker as u32, here[worker]));
            // A get waits for as many adds as its worker has made, so all threads come to the end of a pass before the next one begins.
            for _ in 0..20 {
                std::thread::scope(|scope| {
                    for _ in 0..6 {
                        scope.spawn(|| {
                            for table in &tables {
                                ones(table, soon());
                                rows(table, soon()).expect("it works in shared memory");
                            }
                        });
                    }
                });
            }
            for table in &tables {
                assert_eq!(rows(table, soon()).expect("all rounds are there"), vec![240; 18]);
                table.finish(soon()).expect("finished");
            }
        });
        worlds.into_iter().for_each(World::end);
    }
}

/// The server answers a get that was given up while its worker closes the table. A server that misses the goodbye goes on waiting for the worker, which lives.
#[test]
fn a_server_that_answers_a_get_that_was_given_up_hears_goodbye_all_the_same() {
    for _ in 0..30 {
        for (world, here) in worlds(Consistency::Sync) {
            let (one, two) = (world.open(0, here), world.open(1, None));
            ones(&one, soon());
            rows(&one, Deadline::after(Duration::from_millis(1))).expect_err("worker 1 has not added");
            std::thread::scope(|scope| {
                scope.spawn(|| ones(&two, soon()));
                drop(one);
            });
            drop(two);
            world.end();
        }
    }
}

#[test]
fn a_get_that_gives_up_leaves_the_line_to_the_others() {
    for (world, here) in worlds(Consistency::Sync) {
        let (one, two) = (world.open(0, here), world.open(1, None));
        ones(&one, soon());
        std::thread::scope(|scope| {
            let patient = scope.spawn(|| rows(&one, soon()));
            for _ in 0..3 {
                let late = rows(&one, Deadline::after(Duration::from_millis(5))).expect_err("worker 1 has not added");
                assert_eq!(late.kind(), ErrorKind::Timeout, "{late}");
            }
            let called_off = rows(&one, soon().with_interrupt(|| true)).expect_err("worker 1 has not added");
            assert_eq!(called_off.kind(), ErrorKind::Interrupted, "{called_off}");
            ones(&two, soon());
            assert_eq!(patient.join().expect("no panic").expect("the round is there"), vec![2; 18]);
        });
        assert_eq!(rows(&one, soon()).unwrap(), vec![2; 18]);
        drop((one, two));
        world.end();
    }
}
