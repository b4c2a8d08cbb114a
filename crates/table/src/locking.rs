//! Locks of this process that another thread may have in hand while it waits for other processes: whoever wants one has a deadline and a Ctrl-C of its own.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

/// Looks that only give the core away: as a rule a lock is held for microseconds.
const BRIEF: u32 = 50;

/// Takes a lock by a deadline. `meanwhile` says for the error what the other thread is doing. Who panicked with it left what it guards sound.
#[inline]
pub(crate) fn lock_by<'a, T>(
    lock: &'a Mutex<T>,
    operation: impl Fn() -> String,
    meanwhile: &str,
    by: Deadline,
) -> Result<MutexGuard<'a, T>, Error> {
    lock.try_lock().or_else(|_| lock_later(lock, &operation, meanwhile, by))
}

#[cold]
fn lock_later<'a, T>(
    lock: &'a Mutex<T>,
    operation: &dyn Fn() -> String,
    meanwhile: &str,
    by: Deadline,
) -> Result<MutexGuard<'a, T>, Error> {
    let mut looks = 0;
    loop {
        match lock.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(guard)) => return Ok(guard.into_inner()),
            Err(TryLockError::WouldBlock) => looks += 1,
        }
        if looks < BRIEF {
            std::thread::yield_now();
            continue;
        }
        if by.interrupted() {
            return Err(Error::Interrupted { operation: operation(), waited: by.waited() });
        }
        if by.expired() {
            return Err(Error::Timeout {
                operation: operation(),
                missing: Vec::new(),
                detail: format!(": another thread of this process {meanwhile}"),
                waited: by.waited(),
                hint: "that thread waits for others; its own error names them".into(),
            });
        }
        std::thread::park_timeout(by.slice(Duration::from_micros(50)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_another_thread_keeps_is_waited_for_until_the_deadline() {
        let lock = Mutex::new(5);
        let take = |by| lock_by(&lock, || "table `w`: get".into(), "is in the middle of an add", by).map(|guard| *guard);
        assert_eq!(take(Deadline::never()).unwrap(), 5);
        let held = lock.lock().unwrap();
        let late = take(Deadline::after(Duration::from_millis(5))).unwrap_err().to_string();
        assert!(late.contains("table `w`: get") && late.contains("in the middle of an add"), "{late}");
        assert!(matches!(take(Deadline::never().with_interrupt(|| true)), Err(Error::Interrupted { .. })));
        drop(held);
        assert_eq!(take(Deadline::after(Duration::ZERO)).unwrap(), 5, "a free one is taken in any case");
    }
}
