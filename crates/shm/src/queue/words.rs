//! The words of a queue, and how a position is written.

use crate::bell::Bell;
use crate::latch::Latch;
use crate::placed::{Line, Placed};
use crate::sync::{AtomicU64, Ordering};

/// Bytes of a cell: records begin at cells. Half a line: what a small item fills decides how many lines it takes to the reader.
pub(crate) const CELL: usize = 32;

/// Where a record begins, or the queue ends: how many items and cells came before, both modulo 2³². One word holds
/// both, so one store moves a queue's end or its beginning, and everybody sees items and cells that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct At {
    /// Items before it.
    pub items: u32,
    /// Cells before it.
    pub cells: u32,
}

impl At {
    pub(crate) fn of(word: u64) -> At {
        At { items: (word >> 32) as u32, cells: word as u32 }
    }

    pub(crate) fn word(self) -> u64 {
        u64::from(self.items) << 32 | u64::from(self.cells)
    }

    pub(crate) fn load(word: &AtomicU64, order: Ordering) -> At {
        At::of(word.load(order))
    }

    /// How far it lies behind `start`: items, cells.
    pub(crate) fn since(self, start: At) -> (u32, u32) {
        (self.items.wrapping_sub(start.items), self.cells.wrapping_sub(start.cells))
    }

    pub(crate) fn after(self, items: u32, cells: u32) -> At {
        At { items: self.items.wrapping_add(items), cells: self.cells.wrapping_add(cells) }
    }
}

/// What writers change, all under their latch but `tail`, which readers load.
#[repr(C)]
#[derive(Default)]
pub(crate) struct WriteSide {
    pub(crate) latch: Latch,
    pub(crate) tail: AtomicU64,
    /// `head` as a writer last saw it.
    pub(crate) seen_head: AtomicU64,
    /// The cell before which an answer is about to be published, and the cell of its question, plus 1; 0 for none.
    pub(crate) intent_at: AtomicU64,
    pub(crate) intent_for: AtomicU64,
}

/// What readers change, all under their latch but `head`, which writers load.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ReadSide {
    pub(crate) latch: Latch,
    pub(crate) head: AtomicU64,
    /// `tail` as a reader last saw it.
    pub(crate) seen_tail: AtomicU64,
    /// Leased queues: where the search for the next free record begins; a hint that is checked.
    pub(crate) next: AtomicU64,
    /// Leased queues: records between head and tail that are taken or finished.
    pub(crate) taken: AtomicU64,
}

/// What seldom changes.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Form {
    /// Log2 of the cells in use. Grown under both latches.
    pub(crate) log: AtomicU64,
    /// The most items; 0 for any number.
    pub(crate) capacity: AtomicU64,
    /// 1 when a taken item stays until its taker is done.
    pub(crate) leased: AtomicU64,
    /// 1 when nothing more may be written. Set under the writers' latch, and kept away from their line: readers look at it
    /// with every item.
    pub(crate) closed: AtomicU64,
}

/// All words of one queue. Zero is a queue that was not laid out yet.
#[repr(C)]
#[derive(Default)]
pub(crate) struct QueueWords {
    pub(crate) write: Line<WriteSide>,
    pub(crate) read: Line<ReadSide>,
    pub(crate) form: Line<Form>,
    /// Readers sleep here.
    pub(crate) items: Line<Bell>,
    /// Writers sleep here.
    pub(crate) room: Line<Bell>,
    /// Whoever waits for items to be finished sleeps here.
    pub(crate) done: Line<Bell>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is the initial state.
unsafe impl Placed for QueueWords {}

/// The head of a record, two words at the beginning of its first cell.
///
/// ```text
///   state   63..56 stage │ 55..32 times it was given back │ 31..0 who took it       leased queues; else 0
///   form    63..56 flags │ 55..32 words of meta           │ 31..0 bytes behind these two words
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State(pub(crate) u64);

impl State {
    pub(crate) const READY: u64 = 0;
    pub(crate) const TAKEN: u64 = 1;
    pub(crate) const DONE: u64 = 2;

    pub(crate) fn new(stage: u64, returns: u32, holder: u32) -> State {
        State(stage << 56 | u64::from(returns & 0xff_ffff) << 32 | u64::from(holder))
    }

    pub(crate) fn stage(self) -> u64 {
        self.0 >> 56
    }

    pub(crate) fn returns(self) -> u32 {
        (self.0 >> 32) as u32 & 0xff_ffff
    }

    pub(crate) fn holder(self) -> u32 {
        self.0 as u32
    }
}
