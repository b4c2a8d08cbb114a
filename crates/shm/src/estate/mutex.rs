//! A recursive lock for threads and processes that outlives its holder; its barrier is told of beside it (`barrier.rs`).
//!
//! ```text
//!   holder   0 ──lock──► member · thread ──unlock──► 0
//!                             └─ dead? ──► the next one's, who is told
//! ```

use std::cell::Cell;
use std::sync::Arc;

use super::barrier::{Barrier, BarrierError, BarrierWords};
use super::{Estate, EstateError, Held, KIND_MUTEX};
use crate::bell::Bell;
use crate::mortality::moment;
use crate::placed::{Line, Placed, Shared};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::wait::{Deadline, Patience, WaitError, wait_for};

/// The words of a mutex.
#[repr(C)]
#[derive(Default)]
pub(crate) struct MutexWords {
    holder: Line<AtomicU64>,
    /// How often the holder has it; only the holder writes this.
    depth: AtomicU64,
    freed: Line<Bell>,
    barrier: BarrierWords,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a free mutex.
unsafe impl Placed for MutexWords {}

/// Who calls an operation of a mutex: a thread of a member.
fn caller(estate: &Estate, thread: u64) -> u64 {
    u64::from(estate.me()) << 32 | (thread & 0xffff_ffff)
}

/// A mutex that lies in an estate.
pub struct SharedMutex {
    held: Arc<Held>,
    words: Shared<MutexWords>,
}

impl SharedMutex {
    /// A new one.
    pub fn make(estate: &Arc<Estate>, thread: u64) -> Result<SharedMutex, EstateError> {
        Ok(Self::over(estate.make(KIND_MUTEX, None, thread, &|_, _| Ok(()))?.0))
    }

    /// The one that is held.
    pub fn over(held: Arc<Held>) -> SharedMutex {
        let words = held.estate().own_words(held.slot());
        SharedMutex { words, held }
    }

    /// The object that it is.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// Locks it for a thread, which may have it already. True says that its last holder died with it.
    pub fn lock(&self, thread: u64, by: Deadline) -> Result<bool, WaitError> {
        let (estate, words) = (self.held.estate(), &*self.words);
        let me = caller(estate, thread);
        if words.holder.load(Ordering::Relaxed) == me {
            words.depth.fetch_add(1, Ordering::Relaxed);
            return Ok(false);
        }
        let inherited = Cell::new(false);
        let poll = || {
            let free = words.holder.load(Ordering::Relaxed) == 0;
            let taken = free && words.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok();
            (taken || inherited.get()).then_some(())
        };
        let look = || {
            estate.look_around();
            let holder = words.holder.load(Ordering::Relaxed);
            if holder != 0 && estate.is_dead((holder >> 32) as u32) {
                inherited.set(words.holder.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok());
            }
            !inherited.get()
        };
        wait_for(poll, &words.freed, Patience::unknown(), by, &look)?;
        moment();
        words.depth.store(1, Ordering::Relaxed);
        Ok(inherited.get())
    }

    /// The process of who holds it.
    pub fn holder_pid(&self) -> Option<u32> {
        let holder = self.words.holder.load(Ordering::Relaxed);
        self.held.estate().pid_of((holder >> 32) as u32).filter(|_| holder != 0)
    }

    /// Unlocks it once; false when the thread does not have it.
    pub fn unlock(&self, thread: u64) -> bool {
        let words = &*self.words;
        if words.holder.load(Ordering::Relaxed) != caller(self.held.estate(), thread) {
            return false;
        }
        if words.depth.fetch_sub(1, Ordering::Relaxed) <= 1 {
            moment();
            words.holder.store(0, Ordering::Release);
            fence(Ordering::SeqCst); // The ringer's, see `bell`.
            words.freed.ring_some_if_waiting_for_published(1);
        }
        true
    }

    /// Waits until `count` threads have come here, whoever they are; then all pass, and it begins anew.
    pub fn barrier(&self, count: u64, by: Deadline) -> Result<(), BarrierError> {
        let (estate, slot) = (self.held.estate(), self.held.slot());
        Barrier { estate, slot, words: &self.words.barrier }.pass(count, by)
    }
}

/// Takes the arrivals of a dead member off the barrier of the mutex in a slot.
pub(super) fn forget_at_barrier(estate: &Arc<Estate>, slot: usize, dead: u32) {
    let words: Shared<MutexWords> = estate.own_words(slot);
    Barrier { estate, slot, words: &words.barrier }.forget(dead);
}
