//! One function on many threads.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use syncline_ipc::{DType, Deadline, ErrorKind, Map, MapError, Outcome, Shape, Value, map, map_extended};

use crate::{at_once, soon};

type Infallible = std::convert::Infallible;

/// Lets threads wait for a word of the test.
fn gate() -> (Sender<()>, Arc<Mutex<Receiver<()>>>) {
    let (open, gate) = channel();
    (open, Arc::new(Mutex::new(gate)))
}

#[test]
fn results_come_in_order_of_number_whatever_the_order_of_ending() {
    let all = Arc::new(Barrier::new(4));
    let ids = map(4, move |id| {
        all.wait();
        std::thread::sleep(Duration::from_millis(4 * (4 - id as u64)));
        Ok::<_, Infallible>(id)
    });
    assert_eq!(ids.join(soon()).expect("no errors"), [1, 2, 3, 4]);
    assert_eq!(ids.join(soon()).expect("no errors"), [0; 0], "a second join returns nothing");
}

#[test]
fn what_is_captured_arrives_as_sent_and_nothing_is_a_result_too() {
    let (word, number) = ("hi".to_owned(), 42);
    let table = Value::Map(vec![(Value::from("k"), Value::Int(2))]);
    let sent = map(3, move |_| Ok::<_, Infallible>((word.clone(), number, table.clone(), None::<i64>)));
    for (word, number, table, nothing) in sent.join(soon()).expect("no errors") {
        assert_eq!((word.as_str(), number, nothing), ("hi", 42, None));
        assert_eq!(table, Value::Map(vec![(Value::from("k"), Value::Int(2))]));
    }
}

#[test]
fn a_thousand_workers_of_one_sum_to_a_thousand() {
    let ones = map(1000, |_| Ok::<_, Infallible>(1));
    assert_eq!(ones.join(soon()).expect("no errors").into_iter().sum::<i32>(), 1000);
    assert!(map(0, |_| Ok::<(), Infallible>(())).join(soon()).expect("no errors").is_empty());
}

#[test]
fn check_errors_raises_while_others_run_and_join_returns_the_others() {
    let (open, gate) = gate();
    let two = map(2, move |id| {
        if id == 1 {
            return Err("the first one fails");
        }
        gate.lock().expect("unpoisoned").recv().expect("the test lets us go");
        Ok(42)
    });
    assert_eq!(two.wait_for_more(0, soon()).expect("one ends"), 1);
    let error = two.check_errors().expect_err("one has failed");
    assert_eq!((error.failures().len(), error.failures()[0].id), (1, 1));
    assert!(error.to_string().contains("the first one fails"), "{error}");
    two.check_errors().expect("reported once");
    assert!(matches!(two.join(at_once()), Err(MapError::Timeout { running, .. }) if running == [2]));
    open.send(()).expect("it waits");
    assert_eq!(two.join(soon()).expect("the failure was reported"), [42]);
}

/// T13: not only the last one.
#[test]
fn join_reports_every_error_and_panics_among_them() {
    let eight = map(8, |id| match id % 3 {
        1 => Err(format!("number {id} is wrong")),
        2 => panic!("number {id} is worse"),
        _ => Ok(id),
    });
    let error = eight.join(soon()).expect_err("six of eight");
    let failed: Vec<_> = error.failures().iter().map(|failure| (failure.id, failure.panicked)).collect();
    assert_eq!(failed, [(1, false), (2, true), (4, false), (5, true), (7, false), (8, true)]);
    let text = error.to_string();
    assert!(text.contains("6 of 8 workers") && text.contains("worker 7: number 7 is wrong"), "{text}");
    assert!(text.contains("worker 8 panicked: number 8 is worse"), "{text}");
    let outcomes: Vec<_> = eight.statistics().iter().map(|stats| stats.outcome).collect();
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Failed).count(), 6);
}

#[test]
fn init_runs_first_in_each_thread_and_its_failure_skips_the_function() {
    let each = map_extended(
        3,
        || Ok::<_, String>(vec![56]),
        |seen: &mut Vec<usize>, id| {
            seen.push(id);
            Ok(seen.clone())
        },
    );
    assert_eq!(each.join(soon()).expect("no errors"), [[56, 1], [56, 2], [56, 3]]);
    let none = map_extended(2, || Err::<(), _>("no state"), |(), _| -> Result<(), &str> { panic!("not called") });
    let error = none.join(soon()).expect_err("init failed");
    assert!(error.failures().iter().all(|failure| !failure.panicked && failure.cause.to_string() == "no state"));
}

/// T13: a map that nobody joins leaks nothing.
#[test]
fn a_map_that_is_dropped_keeps_no_thread_and_no_memory() {
    let (open, gate) = gate();
    let held = Arc::new(());
    let watched = Arc::downgrade(&held);
    let forgotten: Map<()> = map(4, move |_| {
        let _kept = &held;
        let _ = gate.lock().expect("unpoisoned").recv(); // until the sender is gone
        Ok::<_, Infallible>(())
    });
    drop(forgotten);
    drop(open);
    let patience = soon();
    while watched.strong_count() > 0 {
        assert!(!patience.expired(), "a thread of a dropped map is still there");
        std::thread::yield_now();
    }
}

#[test]
fn an_interrupt_ends_the_wait_and_not_the_workers() {
    let (open, gate) = gate();
    let one = map(1, move |id| {
        gate.lock().expect("unpoisoned").recv().expect("the test lets us go");
        Ok::<_, Infallible>(id)
    });
    let interrupted = one.join(Deadline::never().with_interrupt(|| true)).expect_err("called off");
    assert_eq!(interrupted.kind(), ErrorKind::Interrupted);
    open.send(()).expect("it waits");
    assert_eq!(one.join(soon()).expect("no errors"), [1]);
    let stats = one.statistics();
    assert_eq!((stats.len(), stats[0].id, stats[0].outcome), (1, 1, Outcome::Done));
}

#[test]
fn tensors_are_handed_over_and_not_copied() {
    let tensors = map(2, |id| Value::tensor(DType::U8, Shape::new(&[10]).expect("small"), vec![id as u8; 10]));
    let sums: Vec<u32> = tensors.join(soon()).expect("no errors").iter().map(total).collect();
    assert_eq!(sums, [10, 20]);
}

fn total(value: &Value<'_>) -> u32 {
    let Value::Tensor(tensor) = value else { panic!("a tensor was sent") };
    tensor.data().iter().map(|byte| u32::from(*byte)).sum()
}
