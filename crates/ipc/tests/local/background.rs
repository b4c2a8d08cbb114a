//! Tasks behind the caller's back.

use std::sync::mpsc::channel;

use syncline_ipc::{BackgroundTask, BackgroundTaskPool, Deadline, ErrorKind, TaskError};

use crate::{at_once, soon};

/// T14: the call is get_result, as documented.
#[test]
fn a_task_gives_its_results_once() {
    let task = BackgroundTask::start(|| Ok::<_, TaskError>(("done!", 42, true))).expect("started");
    assert_eq!(task.get_result(soon()).expect("no error"), Some(("done!", 42, true)));
    assert_eq!(task.get_result(soon()).expect("no error"), None);
    assert!(task.is_done());
}

#[test]
fn a_task_is_not_done_while_it_runs() {
    let (open, gate) = channel();
    let task = BackgroundTask::start(move || gate.recv().map(|()| 1)).expect("started");
    assert!(!task.is_done());
    assert!(matches!(task.get_result(at_once()), Err(TaskError::Timeout { id: 1, .. })));
    let interrupted = task.get_result(Deadline::never().with_interrupt(|| true)).expect_err("called off");
    assert_eq!(interrupted.kind(), ErrorKind::Interrupted);
    open.send(()).expect("it waits");
    assert_eq!(task.get_result(soon()).expect("no error"), Some(1));
}

#[test]
fn an_error_and_a_panic_are_raised_by_get_result() {
    let task = BackgroundTask::start(|| Err::<(), _>("it went wrong")).expect("started");
    assert!(task.get_result(soon()).expect_err("it failed").to_string().contains("it went wrong"));
    let task = BackgroundTask::start(|| -> Result<(), &str> { panic!("it fell over") }).expect("started");
    assert!(matches!(task.get_result(soon()), Err(TaskError::Failed { panicked: true, .. })));
}

#[test]
fn a_thousand_tasks_on_twenty_threads() {
    let pool = BackgroundTaskPool::new(20).expect("started");
    for i in 1..=1000u64 {
        assert_eq!(pool.add_task(move || Ok::<_, TaskError>(i * i)).expect("open"), i);
    }
    for i in (1..=1000).rev() {
        assert_eq!(pool.get_result(Some(i), soon()).expect("no error"), Some(i * i));
    }
    assert!(pool.is_done(None).expect("no number") && !pool.has_task());
    assert_eq!(pool.get_result(None, soon()).expect("no error"), None);
}

#[test]
fn without_a_number_results_come_in_order_and_errors_in_their_place() {
    let pool = BackgroundTaskPool::new(4).expect("started");
    for i in 1..=42 {
        pool.add_task(move || if i % 8 == 1 { Err(format!("{i} is wrong")) } else { Ok(i) }).expect("open");
    }
    for i in 1..=42 {
        assert!(pool.has_task());
        match pool.get_result(None, soon()) {
            Ok(result) => assert_eq!(result, Some(i)),
            Err(error) => assert_eq!((i % 8, error.to_string()), (1, format!("task {i}: {i} is wrong"))),
        }
    }
    assert!(!pool.has_task());
}

#[test]
fn a_pool_that_closes_with_its_last_task_takes_no_more() {
    let pool = BackgroundTaskPool::closing_on_last_task(2).expect("started");
    let (open, gate) = channel();
    pool.add_task(move || gate.recv().map(|()| 1)).expect("open");
    pool.add_task(|| Ok::<_, TaskError>(2)).expect("open");
    open.send(()).expect("it waits");
    assert_eq!(pool.get_result(Some(1), soon()).expect("no error"), Some(1));
    assert_eq!(pool.get_result(Some(2), soon()).expect("no error"), Some(2));
    assert!(matches!(pool.add_task(|| Ok::<_, TaskError>(3)), Err(TaskError::Closed)));
    assert!(matches!(pool.is_done(Some(3)), Err(TaskError::Unknown { id: 3, last: 2 })));
}

#[test]
fn a_dropped_pool_forgets_what_nobody_has_begun() {
    let pool = BackgroundTaskPool::new(1).expect("started");
    let (open, gate) = channel::<()>();
    let (told, ear) = channel();
    pool.add_task(move || gate.recv().or(Ok::<_, TaskError>(()))).expect("open");
    pool.add_task(move || told.send(()).map_err(|_| TaskError::Closed)).expect("open");
    drop(pool);
    drop(open);
    ear.recv().expect_err("the second task was dropped, not run");
}
