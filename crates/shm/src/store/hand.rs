//! What one process needs to change stripes: a redo record and room for one block of new contents.
//!
//! ```text
//!   1. new contents are computed in the scratch            dies here: nothing has changed
//!   2. the record says: scratch → there, then word = value
//!   3. armed = stripe + 1                                   from here on the change happens, whoever dies
//!   4. scratch → there
//!   5. word = value        (how far the add has come)
//!   6. armed = 0
//! ```
//! Whoever inherits the stripe of a dead hand repeats 4 to 6; all three can be repeated without harm while the stripe
//! is held. Only the order of the stores within the dying process matters: the kernel reports its end after all of them.

use crate::placed::Placed;
use crate::sync::{AtomicU64, Ordering};

/// The most lanes one change touches: the values, their master copy, and eight states.
pub const MOST_LANES: usize = 10;

/// Bytes of scratch of a hand: a block of values and states, the widest and the most there are.
pub(super) const SCRATCH: usize = 96 << 10;

/// A record that says how many rounds the whole store has seen.
pub(super) const OF_ROUNDS: u64 = u64::MAX;

/// The words of a hand.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Record {
    /// The stripe the record is about, plus one; 0 is no change under way.
    pub(super) armed: AtomicU64,
    /// Which word tells the progress: 0 is the stripe's own, w + 1 the outbox of worker w, [`OF_ROUNDS`] the store's rounds.
    pub(super) progress_of: AtomicU64,
    /// What it will say.
    pub(super) progress: AtomicU64,
    /// How many copies are to be made.
    pub(super) copies: AtomicU64,
    pub(super) copy: [RecordedCopy; MOST_LANES],
}

/// Parts of a round for each hand: enough that the last to finish keeps nobody long.
pub(super) const PARTS: usize = 4;

/// One part of the work of a round, which somebody claims and says to be done. Both only ever grow.
#[repr(C)]
#[derive(Default)]
pub struct Part {
    claimed: AtomicU64,
    done: AtomicU64,
}

impl Part {
    /// Whether this call is the first to claim the part for `round`.
    pub fn claim(&self, round: u64) -> bool {
        self.claimed.load(Ordering::Relaxed) < round && self.claimed.fetch_max(round, Ordering::Relaxed) < round
    }

    /// Says that the part is done in `round`.
    pub fn set_done(&self, round: u64) {
        self.done.fetch_max(round, Ordering::Release); // pairs with `is_done`: who sees it sees the work
    }

    /// Whether it is.
    pub fn is_done(&self, round: u64) -> bool {
        self.done.load(Ordering::Acquire) >= round
    }
}

/// The parts that stand behind the record of each hand.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct HandParts(pub(super) [Part; PARTS]);

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a part that nobody has claimed.
unsafe impl Placed for HandParts {}

/// Scratch bytes and where they go.
#[repr(C)]
#[derive(Default)]
pub(super) struct RecordedCopy {
    /// Offset in the store's segment.
    pub(super) to: AtomicU64,
    pub(super) len: AtomicU64,
    /// Offset in the scratch.
    pub(super) from: AtomicU64,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a hand at rest.
unsafe impl Placed for Record {}
