//! A recursive lock for threads and processes that outlives its holder, and a barrier beside it.
//!
//! ```text
//!   holder   0 ──lock──► member · thread ──unlock──► 0
//!                             └─ dead? ──► the next one's, who is told
//!   barrier  rounds (24) · how many (20) · arrived (20)     one exchange arrives; the last one's begins the next round
//! ```

use std::cell::Cell;
use std::sync::Arc;

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
    barrier: Line<AtomicU64>,
    passed: Line<Bell>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a free mutex.
unsafe impl Placed for MutexWords {}

/// Who calls an operation of a mutex: a thread of a member.
fn caller(estate: &Estate, thread: u64) -> u64 {
    u64::from(estate.me()) << 32 | (thread & 0xffff_ffff)
}

/// Why a barrier could not be passed.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// Others did not come, or the wait was called off.
    #[error("{arrived} of {of} have come: {cause}")]
    Wait {
        /// How many were there, the caller included.
        arrived: u64,
        /// How many are expected.
        of: u64,
        /// Why the wait ended.
        cause: WaitError,
    },
    /// Somebody waits at the same barrier for another number.
    #[error("the others wait for {theirs} at this barrier, not for {ours}")]
    Number {
        /// What they said.
        theirs: u64,
        /// What the caller said.
        ours: u64,
    },
}

/// The most that can meet at a barrier.
pub const MOST_AT_BARRIER: u64 = (1 << 20) - 1;

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
        let (estate, words) = (self.held.estate(), &*self.words);
        let parts = |word: u64| (word >> 40, word >> 20 & MOST_AT_BARRIER, word & MOST_AT_BARRIER);
        let word_of = |round: u64, of: u64, arrived: u64| (round & 0xff_ffff) << 40 | of << 20 | arrived;
        let round = loop {
            let seen = words.barrier.load(Ordering::Acquire);
            let (round, of, arrived) = parts(seen);
            if arrived > 0 && of != count {
                return Err(BarrierError::Number { theirs: of, ours: count });
            }
            let last = arrived + 1 >= count;
            let next = if last { word_of(round + 1, 0, 0) } else { word_of(round, count, arrived + 1) };
            if words.barrier.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                moment();
                if last {
                    words.passed.ring_if_waiting();
                    return Ok(());
                }
                break round;
            }
        };
        // The round is looked at, not the waking: who wakes for no reason waits on.
        let passed = || (parts(words.barrier.load(Ordering::Acquire)).0 != round).then_some(());
        let look = || {
            estate.look_around();
            true
        };
        match wait_for(passed, &words.passed, Patience::unknown(), by, &look) {
            Ok(()) => Ok(()),
            Err(cause) => loop {
                // Whoever gives up takes its arrival back, unless the others have gone on meanwhile.
                let seen = words.barrier.load(Ordering::Acquire);
                let (now, of, arrived) = parts(seen);
                if now != round {
                    return Ok(());
                }
                let next = word_of(round, of, arrived.saturating_sub(1));
                if words.barrier.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                    return Err(BarrierError::Wait { arrived, of: count, cause });
                }
            },
        }
    }
}
