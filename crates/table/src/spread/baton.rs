//! One thing that several threads use in turn, with waits that end.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use syncline_cluster::Deadline;

/// Something that is in one thread's hands at a time.
#[derive(Debug)]
pub(crate) struct Baton<T> {
    slot: Mutex<Option<T>>,
    freed: Condvar,
}

/// The thing, until dropped.
#[derive(Debug)]
pub(crate) struct Held<'a, T> {
    baton: &'a Baton<T>,
    thing: Option<T>,
}

/// Why the turn did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Another thread kept it until the deadline.
    Late,
    /// The user called it off.
    Interrupted,
}

impl<T> Baton<T> {
    pub(crate) fn new(thing: T) -> Baton<T> {
        Baton { slot: Mutex::new(Some(thing)), freed: Condvar::new() }
    }

    /// Takes it if nobody else has it.
    pub(crate) fn try_take(&self) -> Option<Held<'_, T>> {
        let thing = self.lock().take()?;
        Some(Held { baton: self, thing: Some(thing) })
    }

    /// Waits for the turn.
    pub(crate) fn take(&self, by: Deadline) -> Result<Held<'_, T>, NoTurn> {
        const NAP: Duration = Duration::from_millis(200);
        let mut slot = self.lock();
        loop {
            if let Some(thing) = slot.take() {
                return Ok(Held { baton: self, thing: Some(thing) });
            }
            if by.interrupted() {
                return Err(NoTurn::Interrupted);
            }
            if by.expired() {
                return Err(NoTurn::Late);
            }
            slot = self.freed.wait_timeout(slot, by.slice(NAP)).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // nobody panics while holding it
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.thing.as_ref().expect("there until dropped")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("there until dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        *self.baton.lock() = self.thing.take();
        self.baton.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_the_others_wait_no_longer_than_they_want() {
        let baton = Baton::new(5);
        let held = baton.try_take().expect("free");
        assert!(baton.try_take().is_none());
        assert_eq!(baton.take(Deadline::after(Duration::from_millis(5))).err(), Some(NoTurn::Late));
        assert_eq!(baton.take(Deadline::never().with_interrupt(|| true)).err(), Some(NoTurn::Interrupted));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| *baton.take(Deadline::never()).expect("it comes"));
            drop(held);
            assert_eq!(waiting.join().expect("no panic"), 5);
        });
    }
}
