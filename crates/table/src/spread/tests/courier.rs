//! Adds that nobody waits for: they were taken over, so no call that comes by on its way to something else may lose them.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use syncline_cluster::{Deadline, ErrorKind};

use super::world::{Plan, bytes, numbers, soon};
use crate::share::Share;
use crate::{AddOptions, Consistency};

const PLAIN: AddOptions = AddOptions { learning_rate: None, momentum: None, rho: None, lambda: None };

#[test]
fn a_later_call_that_is_late_or_called_off_takes_no_add_with_it_that_waits_to_be_sent() {
    let late = Deadline::after(Duration::from_millis(20));
    for (by, kind) in [(late, ErrorKind::Timeout), (soon().with_interrupt(|| true), ErrorKind::Interrupted)] {
        let world = Plan::new(&[0..2, 2..4], 1, Consistency::Async).build();
        let (table, mood) = (world.open(0, None), &world.naive[1].moods.stages_wait);
        mood.store(true, SeqCst);
        let mut parts = table.table().parts.try_take().expect("nobody has them");
        for value in [1, 10] {
            table.add(&bytes(&[value; 12]), None, &PLAIN, false, soon()).expect("it is queued");
        }
        // What a get does first. The courier is awake too, and waits for the parts.
        let stopped = table.table().send_queued(&mut parts, by, false).expect_err("the second server is busy");
        assert_eq!(stopped.kind(), kind, "{stopped}");
        mood.store(false, SeqCst);
        drop(parts);
        let mut out = vec![0; 4 * 24];
        table.get(&mut out, None, soon()).expect("nothing went wrong with the adds");
        assert_eq!((numbers(&out), table.issued()), (vec![11; 12], 2));
        drop(table);
        world.end();
    }
}

#[test]
fn what_was_added_before_a_table_was_closed_is_there() {
    for sockets in [false, true] {
        let world = Plan { sockets, ..Plan::new(&[0..2], 1, Consistency::Async) }.build();
        let table = world.open(0, None);
        let mood = &world.naive[0].moods.stages_wait;
        mood.store(true, SeqCst); // the server takes the first add over when the table is being closed
        for _ in 0..10 {
            table.add(&bytes(&[1; 3]), Some(&[1]), &PLAIN, false, soon()).expect("on its way");
        }
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| drop(table));
            std::thread::park_timeout(Duration::from_millis(20));
            mood.store(false, SeqCst);
            closing.join().expect("no panic");
        });
        let naive = std::sync::Arc::clone(&world.naive[0]);
        assert_eq!(numbers(&naive.values()), [0, 0, 0, 10, 10, 10], "sockets: {sockets}");
        world.end(); // each server has read the goodbye
        assert!(naive.unfinished().is_empty());
    }
}
