//! The reading end: copy out at the head, move the head by one store.

use super::words::{At, CELL};
use super::{FIRST_LOG, Hand, Queue, QueueError};
use crate::bell::Bell;
use crate::corrupt::Corrupt;
use crate::mortality::moment;
use crate::sync::Ordering;
use crate::wait::{Patience, wait_for};

/// A ring up to this size (1 MB) stays as it is when it is empty: the next burst would only have to grow it again.
const KEPT_LOG: u64 = 15;

/// From this capacity on, writers are woken for a quarter of it.
pub(super) const LARGE_CAPACITY: u64 = 16;

/// A record as it was written. Kept by the reader and filled again and again.
#[derive(Debug, Default)]
pub struct Record {
    /// What its writer said about the form of the bytes.
    pub flags: u8,
    /// Words of meta, as its writer said.
    pub meta_words: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Its number in the queue, modulo 2³².
    pub number: u32,
    /// The cell it stood at.
    pub cell: u32,
}

/// The record begins with the name of a block and how many bytes of it count.
pub const WITH_BLOCK: u8 = 1;
/// Behind that, it names objects: their number, then each.
pub const WITH_OBJECTS: u8 = 2;

impl Record {
    /// One that was not filled yet.
    pub const fn empty() -> Record {
        Record { flags: 0, meta_words: 0, bytes: Vec::new(), number: 0, cell: 0 }
    }

    /// The block it speaks of, and how many bytes of that.
    pub fn block(&self) -> Option<(u64, u64)> {
        (self.flags & WITH_BLOCK != 0).then(|| (self.word(0), self.word(8)))
    }

    /// The objects it names.
    pub fn objects(&self) -> impl Iterator<Item = u64> + '_ {
        let start = self.objects_at();
        (0..self.objects_len()).map(move |index| self.word(start + 8 + index * 8))
    }

    /// Where the bytes begin that are neither of the two.
    pub fn body(&self) -> &[u8] {
        let named = if self.flags & WITH_OBJECTS != 0 { 8 + 8 * self.objects_len() } else { 0 };
        self.bytes.get(self.objects_at() + named..).unwrap_or_default()
    }

    fn objects_at(&self) -> usize {
        if self.flags & WITH_BLOCK != 0 { 16 } else { 0 }
    }

    /// How many objects it names; no more than its bytes can.
    fn objects_len(&self) -> usize {
        if self.flags & WITH_OBJECTS == 0 {
            return 0;
        }
        let start = self.objects_at();
        (self.word(start) as usize).min(self.bytes.len().saturating_sub(start + 8) / 8)
    }

    fn word(&self, at: usize) -> u64 {
        self.bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight")))
    }
}

impl Queue {
    /// Takes the oldest record out, if there is one. `claim` sees it before it is gone: should the reader die right
    /// after that, the record is still there for the next one.
    #[inline]
    pub fn pop(&self, into: &mut Record, claim: &dyn Fn(&Record), hand: Hand<'_>) -> Result<bool, QueueError> {
        if !self.may_have_items() {
            return Ok(false);
        }
        self.take_read(hand)?;
        let popped = self.pop_held(into, claim);
        self.let_go_of_head(&popped, hand);
        popped
    }

    /// Takes up to `most` records under one latch; `each` gets one after the other, and all are gone when it returns.
    pub fn pop_many(
        &self,
        most: usize,
        record: &mut Record,
        claim: &dyn Fn(&Record),
        each: &mut dyn FnMut(&mut Record),
        hand: Hand<'_>,
    ) -> Result<usize, QueueError> {
        if !self.may_have_items() {
            return Ok(0);
        }
        self.take_read(hand)?;
        let mut taken = 0;
        let popped = loop {
            match self.pop_held(record, claim) {
                Ok(true) if taken + 1 < most => {
                    taken += 1;
                    each(record);
                }
                Ok(true) => {
                    taken += 1;
                    each(record);
                    break Ok(true);
                }
                Ok(false) => break Ok(taken > 0),
                Err(error) => break Err(error),
            }
        };
        self.let_go_of_head(&popped, hand);
        popped.map(|_| taken)
    }

    /// Waits until there is something to read or the queue is closed. `between` is asked now and then.
    pub fn wait_for_items(&self, hand: Hand<'_>, between: &dyn Fn() -> bool) -> Result<(), QueueError> {
        let ready = || (self.may_have_items() || self.is_closed()).then_some(());
        Ok(wait_for(ready, &self.words.items, Patience::streaming(), hand.by, between)?)
    }

    /// Waits on the readers' bell until `ready` says so. `between` is asked now and then.
    pub fn wait_until(&self, ready: &dyn Fn() -> bool, hand: Hand<'_>, between: &dyn Fn() -> bool) -> Result<(), QueueError> {
        Ok(wait_for(|| ready().then_some(()), &self.words.items, Patience::unknown(), hand.by, between)?)
    }

    /// What readers listen to: it rings when there is something to read, or the queue is closed.
    pub fn bell(&self) -> &Bell {
        &self.words.items
    }

    /// A look without the latch. What it says may be over at once.
    #[inline(always)]
    pub fn may_have_items(&self) -> bool {
        // Acquire pairs with the Release in `move_head`: the count of taken items is at least as new as the head.
        let head = self.words.read.head.load(Ordering::Acquire);
        // The reader's own line first: while it knows of items, the writers' line stays where it is.
        if !self.is_leased() && head != self.words.read.seen_tail.load(Ordering::Relaxed) {
            return true;
        }
        let head = At::of(head);
        let tail = At::load(&self.words.write.tail, Ordering::Acquire);
        u64::from(tail.since(head).0) != self.words.read.taken.load(Ordering::Relaxed)
    }

    /// Lets go of the readers' latch, and wakes a writer that waits for room.
    #[inline(always)]
    fn let_go_of_head(&self, popped: &Result<bool, QueueError>, hand: Hand<'_>) {
        let spare = self.words.form.log.load(Ordering::Relaxed) > KEPT_LOG;
        self.words.read.latch.let_go();
        if matches!(popped, Ok(true)) {
            if self.words.room.has_waiters() && self.is_worth_waking_writers() {
                self.words.room.ring();
            }
            if spare {
                self.shrink_if_empty(hand);
            }
        }
    }

    /// Whether a writer that sleeps should be woken for the room there is now. Where the capacity is large, a quarter of it has
    /// to be free: a writer that is woken for each item costs more than it brings, and while three quarters are full nobody
    /// lacks anything. Should readers stop before that, the writer finds the room by itself, within 10 ms.
    #[cold]
    fn is_worth_waking_writers(&self) -> bool {
        let capacity = self.words.form.capacity.load(Ordering::Relaxed);
        capacity < LARGE_CAPACITY || self.unfinished() as u64 <= capacity - capacity / 4
    }

    #[inline(always)]
    fn pop_held(&self, into: &mut Record, claim: &dyn Fn(&Record)) -> Result<bool, QueueError> {
        let read = &*self.words.read;
        let head = At::load(&read.head, Ordering::Relaxed);
        let mut tail = At::load(&read.seen_tail, Ordering::Relaxed);
        let mask = self.mask()?;
        if tail == head {
            // Acquire pairs with the Release of `commit`.
            tail = At::load(&self.words.write.tail, Ordering::Acquire);
            if tail == head {
                return Ok(false);
            }
            read.seen_tail.store(tail.word(), Ordering::Relaxed);
        }
        let (_, cells) = Self::check_span(head, tail, mask)?;
        let need = self.fetch(head, cells, mask, into)?;
        claim(into);
        moment();
        // Release pairs with the Acquire of writers: copied out first, then free.
        read.head.store(head.after(1, need).word(), Ordering::Release);
        moment();
        Ok(true)
    }

    /// Copies the record at `at` out, which has at most `cells` cells; returns how many it has.
    #[inline(always)]
    pub(super) fn fetch(&self, at: At, cells: u32, mask: u32, into: &mut Record) -> Result<u32, QueueError> {
        let place = Self::place(at.cells, mask);
        let form = self.ring.word(place + 8).load(Ordering::Relaxed);
        let most = (u64::from(cells) * CELL as u64).saturating_sub(16);
        let len = Corrupt::check("length of a record", form & 0xffff_ffff, 0, most)? as usize;
        into.flags = (form >> 56) as u8;
        into.meta_words = (form >> 32) as u32 & 0xff_ffff;
        into.number = at.items;
        into.cell = at.cells;
        into.bytes.clear();
        let size = (mask as usize + 1) * CELL;
        let first = len.min(size - place - 16);
        self.ring.append_out(place + 16, first, &mut into.bytes);
        if first < len {
            self.ring.append_out(0, len - first, &mut into.bytes);
        }
        Ok(Self::cells_for(len))
    }

    /// Gives the memory of a ring that had to grow back once it is empty. Nobody waits for it: who cannot have both
    /// latches at once leaves it to the next one.
    #[cold]
    fn shrink_if_empty(&self, hand: Hand<'_>) {
        #[cfg(not(loom))]
        {
            if At::load(&self.words.write.tail, Ordering::Relaxed) != At::load(&self.words.read.head, Ordering::Relaxed) {
                return;
            }
            if self.words.write.latch.try_take(hand.me).is_err() {
                return;
            }
            if self.words.read.latch.try_take(hand.me).is_ok() {
                let empty = self.words.write.tail.load(Ordering::Relaxed) == self.words.read.head.load(Ordering::Relaxed);
                let log = self.words.form.log.load(Ordering::Relaxed);
                if let Some(ground) = &self.ground
                    && empty
                    && (KEPT_LOG + 1..=self.most_log).contains(&log)
                {
                    self.words.form.log.store(FIRST_LOG, Ordering::Release);
                    moment();
                    ground.segment.give_back(ground.at + (CELL << FIRST_LOG), (CELL << log) - (CELL << FIRST_LOG));
                }
                self.words.read.latch.let_go_quietly();
            }
            self.words.write.latch.let_go();
        }
        #[cfg(loom)]
        let _ = hand;
    }
}
