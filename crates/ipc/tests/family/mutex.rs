//! Mutexes between threads; `processes` has the same between processes.

use std::time::Duration;

use syncline_ipc::{Channel, Deadline, Error, Family, Mutex, Value};

use crate::soon;

/// T6: two barriers of four, then a locked fill.
#[test]
fn four_threads_meet_twice_and_fill_under_the_lock() {
    let mutex = Mutex::new(&Family::alone().unwrap()).unwrap();
    let cells = std::sync::Mutex::new(vec![0_u64; 10_000]);
    std::thread::scope(|scope| {
        for id in 1..=4 {
            let (mutex, cells) = (&mutex, &cells);
            scope.spawn(move || {
                (0..2).for_each(|_| mutex.barrier(4, soon()).unwrap());
                let _held = mutex.lock(soon()).unwrap();
                let mut cells = cells.try_lock().expect("only one thread is here");
                cells.fill(id);
            });
        }
    });
    let cells = cells.into_inner().unwrap();
    assert!(cells.iter().all(|cell| *cell == cells[0]));
}

#[test]
fn a_thread_may_lock_again_what_it_holds_and_nobody_else_may_unlock_it() {
    let mutex = Mutex::new(&Family::alone().unwrap()).unwrap();
    assert!(!mutex.acquire(soon()).unwrap());
    assert!(!mutex.acquire(soon()).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(matches!(mutex.release(), Err(Error::Configuration { .. })));
            assert!(matches!(mutex.acquire(Deadline::after(Duration::from_millis(5))), Err(Error::Timeout { .. })));
        });
    });
    mutex.release().unwrap();
    mutex.release().unwrap();
    assert!(mutex.release().is_err());
    std::thread::scope(|scope| drop(scope.spawn(|| mutex.lock(soon()).map(drop).unwrap())));
}

#[test]
fn a_barrier_that_is_given_up_can_be_used_again() {
    let mutex = Mutex::new(&Family::alone().unwrap()).unwrap();
    let error = mutex.barrier(3, Deadline::after(Duration::from_millis(5))).unwrap_err();
    assert!(error.to_string().contains("2 more of 3"), "{error}");
    assert!(mutex.barrier(0, soon()).is_err());
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(|| (0..200).for_each(|_| mutex.barrier(3, soon()).unwrap()))));
    });
    mutex.barrier(1, soon()).unwrap();
}

#[test]
fn those_who_give_up_and_come_again_are_counted_as_often_as_they_wait() {
    let mutex = Mutex::new(&Family::alone().unwrap()).unwrap();
    for round in 0..30 {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let mutex = &mutex;
                scope.spawn(move || {
                    for step in 0..40 {
                        let passed = mutex.barrier(3, Deadline::after(Duration::from_micros((thread * 37 + step * 11) % 90)));
                        assert!(matches!(passed, Ok(()) | Err(Error::Timeout { .. })), "{passed:?}");
                    }
                });
            }
        });
        // Nobody is there: a barrier of another number begins anew.
        let alone = mutex.barrier(2, Deadline::after(Duration::ZERO));
        assert!(matches!(alone, Err(Error::Timeout { .. })), "round {round}: {alone:?}");
    }
}

#[test]
fn a_mutex_travels_through_a_channel() {
    let family = Family::alone().unwrap();
    let (mutex, channel) = (Mutex::new(&family).unwrap(), Channel::new(&family).unwrap());
    channel.write(&mutex.handle(), soon()).unwrap();
    let same = Mutex::open(&family, &channel.read(soon()).unwrap().item.unwrap()).unwrap();
    let _held = mutex.lock(soon()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(same.lock(Deadline::after(Duration::ZERO)).is_err()));
    });
    assert!(Mutex::open(&family, &channel.handle().unwrap()).is_err());
    assert!(Mutex::open(&family, &Value::Nil).is_err());
}
