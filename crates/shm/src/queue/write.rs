//! The writing end: copy behind the tail, move the tail by one store, wake as many readers as there are items.

use super::read::LARGE_CAPACITY;
use super::words::{At, CELL};
use super::{Hand, Queue, QueueError};
use crate::corrupt::Corrupt;
use crate::mortality::moment;
use crate::sync::Ordering;
use crate::wait::{Patience, WaitError, look_for, wait_for, wait_watchfully};

/// Looks of a waiting writer that are only content with room for many.
const PATIENT_LOOKS: u32 = 60;

/// How many cells ahead of the tail lines are asked for: a kilobyte.
const AHEAD: u32 = 1024 / CELL as u32;

/// Cells of a line.
const CELL_LINE: u32 = 64 / CELL as u32;

/// A record to write.
pub struct Parcel<'a> {
    /// What the reader is told about the form of the bytes.
    pub flags: u8,
    /// Words of meta, which the reader is told too; at most 2²⁴ - 1.
    pub meta_words: u32,
    /// The bytes, in pieces; together at most [`MOST_INLINE`](super::MOST_INLINE).
    pub pieces: &'a [&'a [u8]],
}

impl Parcel<'_> {
    fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }
}

/// How far a worker came that died over its answer.
#[cfg(loom)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathOver {
    /// It had said what it is about to do.
    Intent,
    /// The answer was published.
    Published,
    /// The question was finished, too.
    Finished,
}

/// What became of parcels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// So many were written; fewer than given when there was no room for the rest.
    Some(usize),
    /// The queue is closed, and nothing was written.
    Closed,
}

impl Queue {
    /// Writes as many of the parcels as there is room for, in order.
    #[inline]
    pub fn push(&self, parcels: &[Parcel<'_>], hand: Hand<'_>) -> Result<Pushed, QueueError> {
        self.take_write(hand)?;
        let pushed = self.push_held(parcels, hand);
        self.words.write.latch.let_go();
        if let Ok(Pushed::Some(count @ 1..)) = pushed {
            self.words.items.ring_some_if_waiting_for_published(count as u32);
        }
        pushed
    }

    /// The same, waiting for room until all are written. `between` is asked now and then while it waits.
    pub fn push_all(&self, mut parcels: &[Parcel<'_>], hand: Hand<'_>, between: &dyn Fn() -> bool) -> Result<Pushed, QueueError> {
        let mut written = 0;
        loop {
            match self.push(parcels, hand) {
                Ok(Pushed::Closed) if written == 0 => return Ok(Pushed::Closed),
                Ok(Pushed::Closed) => return Ok(Pushed::Some(written)),
                // A latch is not waited for without end; who has time asks again.
                Err(QueueError::Wait(WaitError::Timeout)) if !hand.by.expired() => continue,
                Err(error) if written == 0 => return Err(error),
                Err(_) => return Ok(Pushed::Some(written)),
                Ok(Pushed::Some(count)) => {
                    written += count;
                    parcels = &parcels[count..];
                    if parcels.is_empty() {
                        return Ok(Pushed::Some(written));
                    }
                }
            }
            let need = Self::cells_for(parcels[0].len());
            let mut looks = 0;
            let much = || {
                looks += 1;
                (self.is_closed() || self.has_room(need, looks < PATIENT_LOOKS)).then_some(())
            };
            if look_for(much, Patience::streaming()).is_some() {
                continue;
            }
            // Who has slept takes what there is: it may be all that comes.
            let some = || (self.is_closed() || self.has_room(need, false)).then_some(());
            if let Err(error) = self.sleep_until(some, Patience::none(), hand, between) {
                return if written > 0 { Ok(Pushed::Some(written)) } else { Err(error.into()) };
            }
        }
    }

    /// Publishes the answer to the question that was leased at cell `question`, and finishes that question: both or
    /// neither, whoever dies. [`QueueError::LeaseOver`] when the question is not leased to the caller any more.
    pub fn answer(&self, question: u32, parcel: &Parcel<'_>, hand: Hand<'_>) -> Result<Pushed, QueueError> {
        let questions = self.questions.as_ref().expect("only a queue of answers is asked");
        self.take_write(hand)?;
        let publish = || {
            self.intend(question);
            let pushed = self.push_held(std::slice::from_ref(parcel), hand);
            moment();
            pushed
        };
        let answered = questions.finish_with(question, publish, hand);
        moment();
        self.words.write.intent_for.store(0, Ordering::Release);
        self.words.write.latch.let_go();
        if let Ok(Pushed::Some(1)) = answered {
            self.words.items.ring_some_if_waiting_for_published(1);
        }
        answered
    }

    /// Notes what is about to be answered where, before it is.
    fn intend(&self, question: u32) {
        let tail = At::load(&self.words.write.tail, Ordering::Relaxed);
        self.words.write.intent_at.store(tail.cells.into(), Ordering::Relaxed);
        // Release: who sees the intent sees where.
        self.words.write.intent_for.store(u64::from(question) + 1, Ordering::Release);
        moment();
    }

    /// What a worker leaves that dies over its answer, for models.
    #[cfg(loom)]
    pub fn die_over_answer(&self, question: u32, parcel: &Parcel<'_>, hand: Hand<'_>, death: DeathOver) {
        let questions = self.questions.as_ref().expect("only a queue of answers is asked");
        self.take_write(hand).unwrap();
        questions.take_read(hand).unwrap();
        self.intend(question);
        if death != DeathOver::Intent {
            self.push_held(std::slice::from_ref(parcel), hand).unwrap();
        }
        if death == DeathOver::Finished {
            questions.words.read.latch.let_go();
            questions.finish(question, hand).unwrap();
        }
    }

    /// Waits until there may be room for a record of so many bytes, or the queue is closed.
    pub fn wait_for_room(&self, bytes: usize, hand: Hand<'_>, between: &dyn Fn() -> bool) -> Result<(), QueueError> {
        let need = Self::cells_for(bytes);
        let room = || (self.is_closed() || self.has_room(need, false)).then_some(());
        Ok(self.sleep_until(room, Patience::unknown(), hand, between)?)
    }

    /// Where the capacity is large, readers do not ring for every item: see `is_worth_waking_writers`.
    fn sleep_until(
        &self,
        room: impl FnMut() -> Option<()>,
        patience: Patience,
        hand: Hand<'_>,
        between: &dyn Fn() -> bool,
    ) -> Result<(), WaitError> {
        if self.words.form.capacity.load(Ordering::Relaxed) < LARGE_CAPACITY {
            wait_for(room, &self.words.room, patience, hand.by, between)
        } else {
            wait_watchfully(room, &self.words.room, patience, hand.by, between)
        }
    }

    /// Whether a record of `need` cells fits. With `much`, whether there is room for a batch: a writer that keeps its core
    /// while it waits lets readers make some, instead of taking their line away for every item they free.
    fn has_room(&self, need: u32, much: bool) -> bool {
        let Ok(mask) = self.mask() else { return true }; // The next push says what is wrong.
        let head = At::load(&self.words.read.head, Ordering::Acquire);
        let (items, cells) = At::load(&self.words.write.tail, Ordering::Acquire).since(head);
        let capacity = self.words.form.capacity.load(Ordering::Relaxed);
        let fits = u64::from(cells) + u64::from(need) <= u64::from(mask) + 1 || u64::from(mask) + 1 < 1 << self.most_log;
        let most = if much { capacity - capacity / 4 } else { capacity };
        (capacity == 0 || u64::from(items) < most.max(1)) && fits
    }

    #[inline(always)]
    fn push_held(&self, parcels: &[Parcel<'_>], hand: Hand<'_>) -> Result<Pushed, QueueError> {
        let write = &*self.words.write;
        if self.words.form.closed.load(Ordering::Relaxed) != 0 {
            return Ok(Pushed::Closed);
        }
        let mut mask = self.mask()?;
        let capacity = match self.words.form.capacity.load(Ordering::Relaxed) {
            0 => u64::from(u32::MAX),
            capacity => capacity,
        };
        let mut head = At::load(&write.seen_head, Ordering::Relaxed);
        let mut tail = At::load(&write.tail, Ordering::Relaxed);
        let mut written = 0;
        for parcel in parcels {
            let len = parcel.len();
            Corrupt::check("bytes of a record", len as u64, 0, u32::MAX.into())?;
            let need = Self::cells_for(len);
            loop {
                let (items, cells) = tail.since(head);
                let room = u64::from(mask) + 1;
                if u64::from(items) < capacity && u64::from(cells) + u64::from(need) <= room {
                    break;
                }
                // Acquire pairs with the Release of `pop`: the cells were copied out before they are written again.
                let fresh = At::load(&self.words.read.head, Ordering::Acquire);
                let (items, cells) = Self::check_span(fresh, tail, mask)?;
                write.seen_head.store(fresh.word(), Ordering::Relaxed);
                if fresh != head && u64::from(items) < capacity && u64::from(cells) + u64::from(need) <= room {
                    head = fresh;
                    break;
                }
                head = fresh;
                if u64::from(items) >= capacity || room >= 1 << self.most_log {
                    return self.commit(tail, written);
                }
                // What was written so far moves with the rest: it is published first.
                let so_far = self.commit(tail, written)?;
                mask = match self.grow(mask, hand) {
                    Ok(mask) => mask,
                    Err(_) if written > 0 => return Ok(so_far), // The next call says what is wrong.
                    Err(error) => return Err(error),
                };
            }
            self.put(tail.cells, mask, parcel, len);
            // The exchange that lets the latch go waits for every line that was written, and a reader had these last. Those that
            // records like this one will need soon are asked for now.
            for cell in [AHEAD, AHEAD + CELL_LINE.min(need)] {
                self.ring.prefetch_to_write(Self::place(tail.cells.wrapping_add(cell), mask));
            }
            tail = tail.after(1, need);
            written += 1;
        }
        self.commit(tail, written)
    }

    #[inline(always)]
    fn commit(&self, tail: At, written: usize) -> Result<Pushed, QueueError> {
        moment();
        // Release pairs with the Acquire of readers: records first, then the tail.
        self.words.write.tail.store(tail.word(), Ordering::Release);
        moment();
        Ok(Pushed::Some(written))
    }

    /// Writes a record's words and bytes, in two parts where the ring ends in between.
    #[inline(always)]
    fn put(&self, cell: u32, mask: u32, parcel: &Parcel<'_>, len: usize) {
        let at = Self::place(cell, mask);
        self.ring.word(at).store(0, Ordering::Relaxed);
        let form = u64::from(parcel.flags) << 56 | u64::from(parcel.meta_words & 0xff_ffff) << 32 | len as u64;
        self.ring.word(at + 8).store(form, Ordering::Relaxed);
        let size = (mask as usize + 1) * CELL;
        let mut to = at + 16;
        for piece in parcel.pieces {
            if to >= size {
                to -= size;
            }
            let (first, rest) = piece.split_at(piece.len().min(size - to));
            self.ring.copy_in(to, first);
            to += first.len();
            if !rest.is_empty() {
                self.ring.copy_in(0, rest);
                to = rest.len();
            }
        }
    }

    /// Doubles the ring while both ends are held; returns the new mask.
    #[cold]
    fn grow(&self, mask: u32, hand: Hand<'_>) -> Result<u32, QueueError> {
        #[cfg(not(loom))]
        if let Some(ground) = &self.ground {
            let size = (mask as usize + 1) * CELL;
            ground.segment.reserve(ground.at + size, size)?;
        }
        self.take_read(hand)?;
        let head = At::load(&self.words.read.head, Ordering::Relaxed);
        let tail = At::load(&self.words.write.tail, Ordering::Relaxed);
        let grown = Self::check_span(head, tail, mask).map(|(_, cells)| {
            let wide = mask << 1 | 1;
            let mut cell_bytes = [0; CELL];
            for cell in (0..cells).map(|step| head.cells.wrapping_add(step)) {
                let (from, to) = (Self::place(cell, mask), Self::place(cell, wide));
                if from != to {
                    self.ring.copy_out(from, &mut cell_bytes);
                    self.ring.copy_in(to, &cell_bytes);
                    // Under loom words and bytes are two things; elsewhere this repeats what was just copied.
                    for word in (0..CELL).step_by(8) {
                        self.ring.word(to + word).store(self.ring.word(from + word).load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                }
            }
            moment();
            self.words.form.log.store(u64::from(wide.count_ones()), Ordering::Release);
            moment();
            wide
        });
        self.words.read.latch.let_go();
        Ok(grown?)
    }
}
