//! A first-in-first-out queue of records for any number of writers and readers, of which any may die at any instruction.
//!
//! ```text
//!    writers' latch ─► tail                                     head ◄─ readers' latch
//!                       ▼                                         ▼
//!   … free │ free │ free │ record, 1 cell │ record, 3 cells … │ record │ free │ …        2^log cells of 32 bytes
//! ```
//! Two latches, one per end: writers and readers do not meet while the queue is neither empty nor full. A writer copies
//! its records behind the tail and moves the tail by one store; a reader copies them out and moves the head by one
//! store. Before that store nothing has happened, after it everything has, so a latch can be inherited from a dead
//! holder without repair. A side looks at the other's word only when it has used up what it saw last time: a stream
//! costs one transfer of that line per batch, and a lone item waits for nobody.
//!
//! **Growing.** A ring that is full doubles under both latches: cells whose place changes are copied to the new half,
//! which nobody reads before the one store that makes it count. An empty ring shrinks, and its memory goes back.
//!
//! **Leases.** In a leased queue the reader marks the record as taken, with its name, and leaves it where it is; when it is done it
//! marks it so, and the head moves over finished records. Whoever buries a member marks the records that it
//! had taken as free again: the oldest free record is always taken next.
//!
//! **Answers.** A question that is answered is finished and its answer published as one step ([`Queue::answer`]): the writer notes
//! under the answers' latch what it is about to publish where. Whoever inherits the latch knows by the tail whether it
//! was published, and finishes the question if so.
//!
//! What another process wrote is checked before it is used as a place or a length: [`Corrupt`].

mod lease;
mod read;
mod words;
mod write;

use std::sync::Arc;

pub use lease::Leased;
pub use read::{Record, WITH_BLOCK, WITH_OBJECTS};
pub use words::At;
use words::WriteSide;
pub(crate) use words::{CELL, QueueWords};
#[cfg(loom)]
pub use write::DeathOver;
pub use write::{Parcel, Pushed};

use crate::corrupt::Corrupt;
use crate::latch::Taken;
use crate::placed::{Region, Shared};
#[cfg(not(loom))]
use crate::segment::Segment;
use crate::segment::SegmentError;
use crate::sync::Ordering;
use crate::wait::{Deadline, WaitError};

/// Cells of a new ring: 64 KB.
const FIRST_LOG: u64 = 11;

/// A record lies inside of the ring up to this size; the rest belongs into blocks.
pub const MOST_INLINE: usize = 8 << 10;

/// Who calls, and how it learns of others' deaths.
#[derive(Clone, Copy)]
pub struct Hand<'a> {
    /// The caller's number as a member, never 0.
    pub me: u32,
    /// Whether a member is dead for certain.
    pub is_dead: &'a dyn Fn(u32) -> bool,
    /// Until when a latch may be waited for.
    pub by: Deadline,
}

/// Why a queue could not be used.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The time was over, or the wait was called off.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// Words that make no sense.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] SegmentError),
    /// The item was given to somebody else meanwhile, or is finished already.
    #[error("the item is not leased to this process any more")]
    LeaseOver,
}

/// Where the ring's memory comes from and goes to.
#[cfg(not(loom))]
pub(crate) struct Ground {
    pub(crate) segment: Arc<Segment>,
    pub(crate) at: usize,
}

/// A queue in memory that its users share.
pub struct Queue {
    words: Shared<QueueWords>,
    ring: Region,
    most_log: u64,
    #[cfg(not(loom))]
    ground: Option<Ground>,
    /// The questions, if this queue holds their answers.
    questions: Option<Arc<Queue>>,
}

impl Queue {
    /// A queue in this process's own memory, for tests and models.
    pub fn private(cells_log: u64, capacity: usize, leased: bool) -> Queue {
        Self::private_growing(cells_log, cells_log, capacity, leased)
    }

    /// The same with a ring that may grow.
    pub fn private_growing(cells_log: u64, most_log: u64, capacity: usize, leased: bool) -> Queue {
        let words = Shared::in_private_memory(QueueWords::default());
        let queue = Queue {
            words,
            ring: Region::in_private_memory(CELL << most_log),
            most_log,
            #[cfg(not(loom))]
            ground: None,
            questions: None,
        };
        queue.lay_out(capacity, leased, cells_log);
        queue
    }

    /// The same, for answers to the questions of another queue.
    pub fn answering(mut self, questions: Arc<Queue>) -> Queue {
        self.questions = Some(questions);
        self
    }

    /// The queue whose words and ring lie in shared memory.
    #[cfg(not(loom))]
    pub(crate) fn placed(words: Shared<QueueWords>, ring: Region, ground: Ground) -> Queue {
        let most_log = (ring.len() / CELL).ilog2().min(30).into();
        Queue { words, ring, most_log, ground: Some(ground), questions: None }
    }

    /// Fills the words of a new queue in; nobody else knows of it yet.
    #[cfg(not(loom))]
    pub(crate) fn create(&self, capacity: usize, leased: bool) -> Result<(), SegmentError> {
        let log = FIRST_LOG.min(self.most_log);
        if let Some(ground) = &self.ground {
            ground.segment.reserve(ground.at, CELL << log)?;
        }
        self.lay_out(capacity, leased, log);
        Ok(())
    }

    fn lay_out(&self, capacity: usize, leased: bool, log: u64) {
        self.words.form.capacity.store(capacity as u64, Ordering::Relaxed);
        self.words.form.leased.store(u64::from(leased), Ordering::Relaxed);
        self.words.form.log.store(log, Ordering::Release);
    }

    /// How many items it takes at most; 0 for any number.
    pub fn capacity(&self) -> usize {
        self.words.form.capacity.load(Ordering::Relaxed) as usize
    }

    /// Whether items are leased to their readers.
    pub fn is_leased(&self) -> bool {
        self.words.form.leased.load(Ordering::Relaxed) != 0
    }

    /// Whether nothing more can be written.
    pub fn is_closed(&self) -> bool {
        self.words.form.closed.load(Ordering::Acquire) != 0
    }

    /// Items that nobody has taken.
    pub fn len(&self) -> usize {
        // Head first: the tail that is loaded after it is never behind it.
        let head = At::load(&self.words.read.head, Ordering::Acquire);
        let taken = self.words.read.taken.load(Ordering::Acquire);
        let tail = At::load(&self.words.write.tail, Ordering::Acquire);
        (tail.since(head).0 as usize).saturating_sub(taken as usize)
    }

    /// Whether nobody could take one now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Items that are taken or waiting, together.
    pub fn unfinished(&self) -> usize {
        let head = At::load(&self.words.read.head, Ordering::Acquire);
        let tail = At::load(&self.words.write.tail, Ordering::Acquire);
        tail.since(head).0 as usize
    }

    /// Forbids further writing and wakes everybody; false when it was closed before.
    pub fn close(&self, hand: Hand<'_>) -> Result<bool, QueueError> {
        self.take_write(hand)?;
        let before = self.words.form.closed.swap(1, Ordering::AcqRel);
        self.words.write.latch.let_go();
        for bell in [&*self.words.items, &*self.words.room, &*self.words.done] {
            bell.ring();
        }
        Ok(before == 0)
    }

    /// Who holds one of its latches just now: whoever waits for one in vain waits for that member.
    pub fn latch_holder(&self) -> Option<u32> {
        [self.words.read.latch.holder(), self.words.write.latch.holder()].into_iter().find(|holder| *holder != 0)
    }

    /// Wakes all readers to look again.
    pub fn wake_readers(&self) {
        self.words.items.ring_if_waiting();
    }

    /// Makes the bells forget sleepers that died.
    #[cfg(not(loom))]
    pub(crate) fn forget_dead_sleepers(&self) {
        for bell in [&*self.words.items, &*self.words.room, &*self.words.done] {
            bell.forget_the_dead();
        }
    }

    /// Makes sure that what dead members were about to answer is settled, by the caller or by whoever inherited the writers' latch before
    /// it and may still be at it.
    pub fn settle_the_dead(&self, hand: Hand<'_>) -> Result<(), QueueError> {
        self.take_write(hand)?;
        self.words.write.latch.let_go();
        Ok(())
    }

    /// Takes the writers' latch, and finishes what a dead holder had begun.
    #[inline(always)]
    fn take_write(&self, hand: Hand<'_>) -> Result<(), QueueError> {
        match self.words.write.latch.take(hand.me, hand.by, hand.is_dead)? {
            Taken::Free => Ok(()),
            Taken::Inherited(dead) => self.settle_inherited(dead, hand),
        }
    }

    /// Settles what the dead holder of the writers' latch was about to do. What cannot be settled now stays its: the next taker tries again.
    #[cold]
    fn settle_inherited(&self, dead: u32, hand: Hand<'_>) -> Result<(), QueueError> {
        self.settle_intent(hand).inspect_err(|_| self.words.write.latch.bequeath(dead))
    }

    /// What the last holder of the writers' latch was about to answer: finished if the answer was published, else not.
    fn settle_intent(&self, hand: Hand<'_>) -> Result<(), QueueError> {
        let write: &WriteSide = &self.words.write;
        let question = write.intent_for.load(Ordering::Acquire);
        if question != 0 {
            let tail = At::load(&write.tail, Ordering::Acquire);
            let behind = tail.cells.wrapping_sub(write.intent_at.load(Ordering::Relaxed) as u32);
            if (1..1 << 31).contains(&behind)
                && let Some(questions) = &self.questions
            {
                match questions.finish_at(question as u32 - 1, None, hand) {
                    Ok(()) | Err(QueueError::LeaseOver) => {} // It may have died after the one and before it could say so.
                    Err(error) => return Err(error),
                }
            }
            write.intent_for.store(0, Ordering::Release);
        }
        Ok(())
    }

    /// Takes the readers' latch, and counts anew what a dead holder may have left half counted.
    #[inline(always)]
    fn take_read(&self, hand: Hand<'_>) -> Result<(), QueueError> {
        match self.words.read.latch.take(hand.me, hand.by, hand.is_dead)? {
            Taken::Free => Ok(()),
            Taken::Inherited(dead) => self.recount().inspect_err(|_| self.words.read.latch.bequeath(dead)),
        }
    }

    /// Cells in use as a mask, checked.
    #[inline(always)]
    fn mask(&self) -> Result<u32, Corrupt> {
        let log = self.words.form.log.load(Ordering::Acquire);
        let log = Corrupt::check("log of a queue's cells", log, 0, self.most_log)?;
        Ok(((1_u64 << log) - 1) as u32)
    }

    /// The place of a cell in the ring.
    #[inline(always)]
    fn place(cell: u32, mask: u32) -> usize {
        (cell & mask) as usize * CELL
    }

    /// Cells of a record with this many bytes behind its two words.
    #[inline(always)]
    fn cells_for(bytes: usize) -> u32 {
        (bytes + 2 * size_of::<u64>()).div_ceil(CELL) as u32
    }

    /// Both ends as they were loaded, if they can belong together.
    #[inline(always)]
    fn check_span(head: At, tail: At, mask: u32) -> Result<(u32, u32), Corrupt> {
        let (items, cells) = tail.since(head);
        Corrupt::check("cells between a queue's ends", cells.into(), items.into(), u64::from(mask) + 1)?;
        Ok((items, cells))
    }
}
