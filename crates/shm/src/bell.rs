//! An event count: how a process is woken, and how it is left alone when it does not sleep.
//!
//! ```text
//!   waiter                                  ringer
//!   waiters += 1, seen = sequence           publish something
//!   ── fence ──                             ── fence ──
//!   poll again; found → leave               waiters == 0 ?  done, no system call
//!   sleep while sequence == seen            sequence += 1, waiters -= those that are woken
//!   left unwoken: waiters -= 1              wake them
//! ```
//! Of the two fences one comes first: either the ringer sees the waiter, or the waiter's poll
//! sees what was published. Count and sequence are one word. So whoever rings also takes the woken ones off the count, at
//! once: until they get a core, which may take long where cores are few, further rings cost no system call. A waiter takes itself
//! off only while the sequence is the one it came with: nobody has rung since, so nobody did it for it. The count is
//! never too low. It may be too high (a waiter that was not among those woken gives up, or dies): one useless system
//! call later that is over.

use std::time::Duration;

use crate::placed::{Placed, Shared};
use crate::sync::{Futex, Ordering, fence};

/// One waiter, in the upper half of the word.
const WAITER: u64 = 1 << 32;

/// A word in shared memory on which threads sleep: how many there are, and how often it was rung (modulo 2³²).
///
/// Neither is ever used as an index or a length, so garbage in them costs time at most: a waiter still looks
/// again at the end of each slice of its sleep.
#[repr(C)]
#[derive(Default)]
pub struct Bell {
    word: Futex,
}

// SAFETY: `repr(C)`, one atomic, no drop glue, zero is the initial state. (Under loom nothing
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
        if self.has_waiters() {
            self.ring();
        }
    }

    /// Whether somebody sleeps or is about to.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.word.load(Ordering::Relaxed) >= WAITER
    }

    /// Wakes everyone who sleeps on this bell, now.
    #[cold]
    pub fn ring(&self) {
        self.count_ring(u32::MAX);
        self.word.wake_all();
    }

    /// The same as [`ring_if_waiting_for_published`](Bell::ring_if_waiting_for_published), for something that `most` sleepers
    /// can use: no more are woken. Each of them must look again before it sleeps, and so must whoever came too late.
    ///
    /// A lock serves as well as a fence where waiters look once more under the lock that the ringer had: one of the two comes first.
    #[inline]
    pub fn ring_some_if_waiting_for_published(&self, most: u32) {
        if self.has_waiters() {
            self.ring_some(most);
        }
    }

    #[cold]
    fn ring_some(&self, most: u32) {
        self.count_ring(most);
        self.word.wake(most);
    }

    /// One ring more, and `most` waiters less.
    fn count_ring(&self, most: u32) {
        let rung = |word: u64| {
            let left = ((word >> 32) as u32).saturating_sub(most);
            Some(u64::from(left) << 32 | u64::from((word as u32).wrapping_add(1)))
        };
        // Release: a waiter that reads the new sequence also sees what was published before.
        let _ = self.word.fetch_update(Ordering::Release, Ordering::Relaxed, rung);
    }

    /// Forgets the sleepers that have died: wakes all, and the living count themselves again.
    #[cfg(not(loom))]
    pub(crate) fn forget_the_dead(&self) {
        if self.has_waiters() {
            self.ring();
        }
    }

    /// Counts the caller as a waiter until the guard is dropped, or somebody rings.
    pub(crate) fn register(&self) -> Registered<'_> {
        // Acquire pairs with the Release of a ring: what was published before the last one is seen by the next poll.
        let heard = self.word.fetch_add(WAITER, Ordering::Acquire) as u32;
        // Pairs with the fence in `ring_if_waiting` and the one in `publish`.
        fence(Ordering::SeqCst);
        Registered { bell: self, heard }
    }
}

/// A waiter that ringers see. Poll after it was made, then sleep.
pub(crate) struct Registered<'a> {
    bell: &'a Bell,
    heard: u32,
}

impl Registered<'_> {
    /// Sleeps until the bell rings after this waiter registered, or `at_most`, or for no reason.
    pub(crate) fn sleep(&self, at_most: Duration) {
        self.bell.word.wait(self.heard, at_most);
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let unwoken = |word: u64| (word as u32 == self.heard && word >= WAITER).then(|| word - WAITER);
        let _ = self.bell.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, unwoken);
    }
}

/// Sleeps until any of the bells rings after its waiter registered, or `at_most`, or for no reason.
#[cfg(not(loom))]
pub(crate) fn sleep_on_any(waiters: &[Registered<'_>], at_most: Duration) {
    let words: Vec<(&Futex, u32)> = waiters.iter().map(|waiter| (&waiter.bell.word, waiter.heard)).collect();
    crate::sync::wait_any(&words, at_most);
}
