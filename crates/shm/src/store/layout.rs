//! Where everything lies in a store's segment, and the words of its parts.

use super::hand::SCRATCH;
use crate::placed::{AtomicWord, Line, Placed};
use crate::stripe::StripeWord;

/// How a store is laid out; every process that maps it must come to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many processes may change it.
    pub hands: usize,
    /// How many elements each lane has.
    pub elements: u64,
    /// Bytes of an element of each lane; lane 0 holds the values.
    pub lanes: Vec<usize>,
    /// Elements of one stripe.
    pub stripe: u64,
    /// Rows that carry a stamp of their last change; 0 for none.
    pub stamps: u64,
    /// Lanes whose memory is taken when the store is made; the others take theirs when they are used.
    pub ahead: usize,
    /// Rooms for what was measured of the values; 0 for none.
    pub measures: usize,
}

pub(super) const PAGE: usize = 4096;
pub(super) const RECORD: usize = 512;
/// Where in the room of a record its parts stand.
pub(super) const PARTS_AT: usize = 448;
/// The most lanes of [`Hold::change`](super::Hold::change): the values and two of the updater's states.
pub const LANES_OF_A_CHANGE: usize = 3;
pub(super) const HAND: usize = RECORD + SCRATCH;

impl Layout {
    /// How many stripes there are.
    pub fn stripes(&self) -> usize {
        self.elements.div_ceil(self.stripe) as usize
    }

    /// The segment's size.
    pub fn bytes(&self) -> usize {
        self.measures_at() + (self.measures * size_of::<Measure>()).next_multiple_of(PAGE)
    }

    pub(super) fn stripes_at(&self) -> usize {
        (PAGE + self.hands * HAND).next_multiple_of(PAGE)
    }

    pub(super) fn lane_at(&self, lane: usize) -> usize {
        let before: usize = self.lanes[..lane].iter().map(|size| (self.elements as usize * size).next_multiple_of(PAGE)).sum();
        (self.stripes_at() + self.stripes() * size_of::<Stripe>()).next_multiple_of(PAGE) + before
    }

    pub(super) fn stamps_at(&self) -> usize {
        self.lane_at(self.lanes.len())
    }

    pub(super) fn measures_at(&self) -> usize {
        self.stamps_at() + (self.stamps as usize * size_of::<Stamp>()).next_multiple_of(PAGE)
    }
}

/// The words of one stripe, alone on a line.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Stripe {
    /// Who changes it.
    pub word: StripeWord,
    /// How far its rounds have come, in the terms of whoever uses the store.
    pub progress: AtomicWord,
    /// Which generation its states belong to, in the same terms.
    pub generation: AtomicWord,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is an untouched stripe.
unsafe impl Placed for Stripe {}

/// When a row was last changed, and by whom: two words so that each worker can tell others' changes from its own.
#[repr(C)]
#[derive(Default)]
pub struct Stamp {
    /// `epoch << 16 | worker + 1` of the last change.
    pub last: AtomicWord,
    /// The epoch of the last change by somebody other than that worker.
    pub other: AtomicWord,
}

/// What was measured of some of the values, and when: the words stand once the tag does.
#[repr(C, align(64))]
pub struct Measure {
    /// In which round.
    pub tag: AtomicWord,
    /// What, in the terms of whoever uses the store.
    pub words: [AtomicWord; MEASURE_WORDS],
}

/// Words of one [`Measure`].
pub const MEASURE_WORDS: usize = 71;

/// Words that belong to the store as a whole, each on a line of its own.
#[repr(C)]
#[derive(Default)]
pub struct Header {
    pub(super) ready: Line<AtomicWord>,
    rounds: Line<AtomicWord>,
    epoch: Line<AtomicWord>,
    count: Line<AtomicWord>,
    reserved: Line<AtomicWord>,
    rewrites: Line<AtomicWord>,
    notes: [Line<[AtomicWord; 8]>; 2],
}

impl Header {
    /// Rounds that are applied on every stripe.
    pub fn rounds(&self) -> &AtomicWord {
        &self.rounds
    }

    /// Moves on with every reader of changed rows; 0 while nobody asked for any, and then no row is stamped.
    pub fn epoch(&self) -> &AtomicWord {
        &self.epoch
    }

    /// Updates so far, in the terms of whoever uses the store.
    pub fn count(&self) -> &AtomicWord {
        &self.count
    }

    /// How many lanes have taken their memory after the store was made.
    pub fn reserved(&self) -> &AtomicWord {
        &self.reserved
    }

    /// How often values were written that no change brought about, so that copies of them are known to be old.
    pub fn rewrites(&self) -> &AtomicWord {
        &self.rewrites
    }

    /// What is to be remembered from round to round: even rounds write the one, odd rounds the other.
    pub fn notes(&self, round: u64) -> &[AtomicWord; 8] {
        &self.notes[(round % 2) as usize].0
    }
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a store that is not ready.
unsafe impl Placed for Header {}
