//! An event count: how a process is woken, and how it is left alone when it does not sleep.
//!
//! ```text
//!   waiter                                  ringer
//!   waiters += 1                            publish something
//!   ── fence ──                             ── fence ──
//!   seen = sequence                         waiters == 0 ?  done, no system call
//!   poll again; found → leave               sequence += 1
//!   sleep while sequence == seen            wake all sleepers
//! ```
//! Of the two fences one comes first: either the ringer sees the waiter, or the waiter's poll
//! sees what was published. A waiter that dies stays counted; from then on each ring costs a
//! useless system call, and nothing else.

use std::time::Duration;

use crate::placed::{Placed, Shared};
use crate::sync::{AtomicU32, Futex, Ordering, fence};

/// Two words in shared memory on which the threads of one process sleep.
///
/// `sequence` is written by whoever rings, `waiters` by whoever goes to sleep. Neither value is
/// ever used as an index or a length, so garbage in them costs time at most: a waiter still looks
/// again at the end of each slice of its sleep.
#[repr(C)]
#[derive(Default)]
pub struct Bell {
    sequence: Futex,
    waiters: AtomicU32,
}

// SAFETY: `repr(C)`, two atomics, no drop glue, zero is the initial state. (Under loom nothing
// is ever placed into foreign memory.)
unsafe impl Placed for Bell {}

impl Bell {
    /// A bell for the threads of this process only.
    pub fn private() -> Shared<Bell> {
        Shared::in_private_memory(Bell::default())
    }

    /// Wakes the waiters, if there are any, to look at what was stored before this call.
    ///
    /// Costs a fence and a load when nobody sleeps.
    #[inline]
    pub fn ring_if_waiting(&self) {
        // Pairs with the fence in `register`: see the picture above.
        fence(Ordering::SeqCst);
        self.ring_if_waiting_for_published();
    }

    /// The same after [`AtomicWord::publish`](crate::store::AtomicWord::publish), which has fenced already: one load.
    #[inline]
    pub fn ring_if_waiting_for_published(&self) {
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.ring();
        }
    }

    /// Wakes everyone who sleeps on this bell, now.
    #[cold]
    pub fn ring(&self) {
        // Release: a waiter that reads the new sequence also sees what was published before.
        self.sequence.fetch_add(1, Ordering::Release);
        self.sequence.wake_all();
    }

    /// The same as [`ring_if_waiting_for_published`](Bell::ring_if_waiting_for_published), for something that `most` sleepers
    /// can use: no more are woken. Each of them must look again before it sleeps, and so must whoever came too late.
    #[inline]
    pub(crate) fn ring_some_if_waiting_for_published(&self, most: u32) {
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.ring_some(most);
        }
    }

    #[cold]
    fn ring_some(&self, most: u32) {
        self.sequence.fetch_add(1, Ordering::Release);
        self.sequence.wake(most);
    }

    /// Forgets the sleepers that have died, and wakes the others so that they count themselves again. One that counted
    /// itself a moment ago may be forgotten too: it looks again at the end of its slice.
    #[cfg(not(loom))]
    pub(crate) fn forget_the_dead(&self) {
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.waiters.store(0, Ordering::SeqCst);
            self.ring();
        }
    }

    /// Counts the caller as a waiter until the guard is dropped.
    pub(crate) fn register(&self) -> Registered<'_> {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        // Pairs with the fence in `ring_if_waiting` and the one in `publish`.
        fence(Ordering::SeqCst);
        Registered { bell: self }
    }
}

/// A waiter that ringers see. Poll after `listen`, then sleep with what it returned.
pub(crate) struct Registered<'a> {
    bell: &'a Bell,
}

impl Registered<'_> {
    /// The state of the bell, to be taken before the poll that decides about sleeping.
    pub(crate) fn listen(&self) -> u32 {
        // Acquire pairs with the Release in `ring`.
        self.bell.sequence.load(Ordering::Acquire)
    }

    /// Sleeps until the bell rings after `heard`, or `at_most`, or for no reason.
    pub(crate) fn sleep(&self, heard: u32, at_most: Duration) {
        self.bell.sequence.wait(heard, at_most);
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // Never below zero: `forget_the_dead` may have forgotten this one too.
        let _ = self.bell.waiters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    }
}

/// Sleeps until any of the bells rings after what was heard of it, or `at_most`, or for no reason.
#[cfg(not(loom))]
pub(crate) fn sleep_on_any(waiters: &[Registered<'_>], heard: &[u32], at_most: Duration) {
    let words: Vec<(&Futex, u32)> = waiters.iter().zip(heard).map(|(waiter, heard)| (&waiter.bell.sequence, *heard)).collect();
    crate::sync::wait_any(&words, at_most);
}
