//! Something that one thread at a time may use for long: a lock that is waited for with a deadline.
//!
//! A thread may hold half a connection for minutes while it waits for the peer. Whoever wants it meanwhile must
//! still hear its own deadline and Ctrl-C, which a mutex would not.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use syncline_transport::Deadline;

use super::Fault;

pub(crate) struct Turn<T> {
    state: Mutex<State<T>>,
    free: Condvar,
}

struct State<T> {
    /// `None` while somebody has it.
    inside: Option<T>,
    waiting: usize,
}

impl<T> Turn<T> {
    pub(crate) fn new(inside: T) -> Turn<T> {
        Turn { state: Mutex::new(State { inside: Some(inside), waiting: 0 }), free: Condvar::new() }
    }

    /// Takes it if it is free and nobody waits for it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_, T>> {
        let mut state = self.lock();
        if state.waiting > 0 {
            return None;
        }
        let inside = state.inside.take()?;
        Some(Taken { turn: self, inside: Some(inside) })
    }

    /// Takes it as soon as it is free.
    pub(crate) fn take(&self, by: Deadline) -> Result<Taken<'_, T>, Fault> {
        const LONGEST: Duration = Duration::from_secs(60);
        let mut state = self.lock();
        state.waiting += 1;
        loop {
            if let Some(inside) = state.inside.take() {
                state.waiting -= 1;
                return Ok(Taken { turn: self, inside: Some(inside) });
            }
            if by.expired() {
                state.waiting -= 1;
                return Err(Fault::Late { gone: 0, whole: 0 });
            }
            let waited = self.free.wait_timeout(state, by.slice(LONGEST));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.inside.is_none() && by.interrupted() {
                state.waiting -= 1;
                return Err(Fault::Interrupted);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Only assignments happen under the lock: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The use of it, given back when dropped.
pub(crate) struct Taken<'a, T> {
    turn: &'a Turn<T>,
    inside: Option<T>,
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inside.as_ref().expect("it is given back only by drop")
    }
}

impl<T> DerefMut for Taken<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inside.as_mut().expect("it is given back only by drop")
    }
}

impl<T> Drop for Taken<'_, T> {
    fn drop(&mut self) {
        self.turn.lock().inside = self.inside.take();
        self.turn.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nobody_waits_longer_than_its_deadline() {
        let turn = Turn::new(1);
        let mut taken = turn.try_take().expect("free");
        assert!(turn.try_take().is_none());
        let late = turn.take(Deadline::after(Duration::from_millis(5))).err();
        assert!(matches!(late, Some(Fault::Late { .. })));
        let interrupted = turn.take(Deadline::never().with_interrupt(|| true)).err();
        assert!(matches!(interrupted, Some(Fault::Interrupted)));
        *taken += 1;
        std::thread::scope(|scope| {
            let next = scope.spawn(|| *turn.take(Deadline::never()).expect("given back"));
            drop(taken);
            assert_eq!(next.join().expect("no panic"), 2);
        });
    }
}
