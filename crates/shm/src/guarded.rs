//! A value that threads of one process take turns at, for a few copies at a time.
//!
//! The lock is a [`Latch`]: letting go is one plain store, half of what a lock costs that has to wake sleepers. Who finds it taken looks a
//! few times, gives its core away, then naps; a holder that never lets go is noticed by the deadline.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::latch::Latch;
use crate::wait::{Deadline, WaitError};

/// A value behind a latch.
///
/// ```
/// use syncline_shm::guarded::Guarded;
/// use syncline_shm::wait::Deadline;
///
/// let sum = Guarded::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| (0..100).for_each(|_| *sum.lock(Deadline::never()).unwrap() += 1));
///     }
/// });
/// assert_eq!(*sum.lock(Deadline::never()).unwrap(), 400);
/// ```
#[derive(Default)]
pub struct Guarded<T> {
    latch: Latch,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and there is one at a time: it passes from thread to thread, which is what Send is for.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// The name that holders write into the latch: all of them live as long as the latch does.
const SOMEBODY: u32 = 1;

impl<T> Guarded<T> {
    /// A value that nobody holds.
    pub fn new(value: T) -> Guarded<T> {
        Guarded { latch: Latch::default(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock; waits for it as [`Latch::take`] does: until `by`, but for 2 s at least and 20 s at most, and not asleep where `by` is
    /// [brief](Deadline::brief).
    #[inline(always)]
    pub fn lock(&self, by: Deadline) -> Result<Guard<'_, T>, WaitError> {
        self.latch.take(SOMEBODY, by, &|_| false)?;
        Ok(Guard { of: self })
    }
}

/// The right to use a guarded value, until it is dropped.
pub struct Guard<'a, T> {
    of: &'a Guarded<T>,
}

// SAFETY: whoever shares a guard shares a reference to the value, no more.
unsafe impl<T: Sync> Sync for Guard<'_, T> {}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: this guard took the latch, nobody else has it before it is dropped, and its Acquire pairs with the Release of the last holder:
        // the value is this thread's to look at.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; and `&mut self` says that nobody has a reference from this guard.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.of.latch.let_go_quietly();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_sleep_is_called_off_and_who_may_gets_it_in_the_end() {
        let guarded = Guarded::new(7);
        let held = guarded.lock(Deadline::never()).unwrap();
        assert_eq!(guarded.lock(Deadline::brief()).err(), Some(WaitError::Interrupted));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| *guarded.lock(Deadline::never()).unwrap());
            drop(held);
            assert_eq!(waiter.join().unwrap(), 7);
        });
    }

    #[test]
    fn a_panic_lets_go() {
        let guarded = Guarded::new(7);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = guarded.lock(Deadline::never()).unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(*guarded.lock(Deadline::brief()).unwrap(), 7);
    }
}
