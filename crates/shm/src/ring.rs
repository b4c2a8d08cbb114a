//! A ring of records from one producer to one consumer.
//!
//! ```text
//!            head (consumer writes)               the producer's own position
//!              ▼                                    ▼
//!   ───────────┬───────────┬───────────┬────────────┬──────────
//!     free     │L record   │L record   │L record    │0  free       positions only grow; the place
//!   ───────────┴───────────┴───────────┴────────────┴──────────    in the ring is position % capacity
//!
//!   record = label u64 (stamp of its position · length) · bytes · padding to 8; it may wrap
//!   label 0 = nothing here yet: written behind each record before that record is shown
//! ```
//! A record becomes visible whole by one store of its label, so a producer that dies in the
//! middle of writing has written nothing. A consumer that dies leaves the ring full for ever,
//! which the producer's wait notices by asking whether it still lives.
//!
//! The consumer looks at the label itself and not at a counter elsewhere, so a small record
//! crosses between cores with one cache line. The producer keeps a copy of `head` and reads it
//! again only when the copy says "full".
//!
//! What the other side wrote is input: `head` must be aligned, never run backwards and never
//! overtake the producer; a label must carry the stamp of its position and a length that fits.

use crate::corrupt::Corrupt;
use crate::placed::{Line, Placed, Region, Shared};
use crate::sync::{AtomicU64, Ordering, publish};

/// Records start at multiples of this.
const ALIGN: usize = 8;
/// Bytes of a label.
const LABEL: usize = 8;

/// The word outside of the ring's own bytes.
#[repr(C)]
#[derive(Default)]
pub(crate) struct RingControl {
    head: Line<AtomicU64>,
}

// SAFETY: `repr(C)`, one atomic and padding, no drop glue, zero is an empty ring.
unsafe impl Placed for RingControl {}

/// Why a record was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// There is no room at the moment.
    #[error("the ring is full")]
    Full,
    /// There will never be room.
    #[error("a record of {len} bytes does not fit a ring that takes at most {most}")]
    TooLarge {
        /// Its length.
        len: usize,
        /// The longest record this ring takes.
        most: usize,
    },
    /// The consumer's position makes no sense.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

/// A ring in this process's own memory, for threads and tests.
///
/// ```
/// let (mut producer, mut consumer) = syncline_shm::ring::private(1024);
/// producer.try_push(&[b"hello, ", b"world"])?;
/// let mut record = Vec::new();
/// assert!(consumer.try_pop(&mut record)?);
/// assert_eq!(record, b"hello, world");
/// assert!(!consumer.try_pop(&mut record)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn private(capacity: usize) -> (Producer, Consumer) {
    let control = Shared::in_private_memory(RingControl::default());
    let data = Region::in_private_memory(capacity);
    (Producer::new(control.clone(), data.clone()), Consumer::new(control, data))
}

fn check_capacity(data: &Region) -> u64 {
    assert!(data.len().is_power_of_two() && data.len() >= 2 * LABEL, "a ring's capacity is a power of two");
    data.len() as u64
}

/// How much of the ring a record of `len` bytes takes.
fn footprint(len: usize) -> u64 {
    ((LABEL + len).next_multiple_of(ALIGN)) as u64
}

/// The longest record: its own label and the empty one behind it must fit too.
fn longest(capacity: u64) -> usize {
    (capacity as usize).min(u32::MAX as usize) - 2 * LABEL
}

/// What stands before a record of `len` bytes at `position`; never 0.
fn label(position: u64, len: usize) -> u64 {
    stamp(position) | len as u64
}

/// Tells a label from leftovers and from garbage: it belongs to this position, on this lap.
fn stamp(position: u64) -> u64 {
    (position / ALIGN as u64) << 32 | 1 << 63
}

/// The writing end.
pub struct Producer {
    control: Shared<RingControl>,
    data: Region,
    capacity: u64,
    /// Where the next record goes. Ours alone, and in no shared word.
    tail: u64,
    /// The last head that was seen and found sound.
    head_seen: u64,
}

impl Producer {
    pub(crate) fn new(control: Shared<RingControl>, data: Region) -> Self {
        let capacity = check_capacity(&data);
        Producer { control, data, capacity, tail: 0, head_seen: 0 }
    }

    /// The longest record that fits an empty ring.
    pub fn longest(&self) -> usize {
        longest(self.capacity)
    }

    /// Publishes one record made of `parts`, or nothing.
    pub fn try_push(&mut self, parts: &[&[u8]]) -> Result<(), PushError> {
        let len = parts.iter().map(|part| part.len()).sum();
        let mut record = self.begin(len)?;
        for part in parts {
            record.put(part);
        }
        record.publish();
        Ok(())
    }

    /// Whether a record of `len` bytes can be pushed now; once it can, it stays so.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> Result<(), PushError> {
        if len > self.longest() {
            return Err(PushError::TooLarge { len, most: self.longest() });
        }
        let needed = footprint(len) + LABEL as u64;
        if self.tail + needed - self.head_seen > self.capacity {
            // Acquire pairs with the Release in `Consumer::pop_front`: the consumer's copies
            // are done before its bytes are written again.
            let head = self.control.head.load(Ordering::Acquire);
            self.head_seen = check_position("ring head", head, self.head_seen, self.tail)?;
            if self.tail + needed - self.head_seen > self.capacity {
                return Err(PushError::Full);
            }
        }
        Ok(())
    }

    /// A record of exactly `len` bytes, invisible until it is published.
    #[inline]
    pub(crate) fn begin(&mut self, len: usize) -> Result<Record<'_>, PushError> {
        self.room(len)?;
        Ok(Record {
            len,
            written: self.tail + LABEL as u64,
            end: self.tail + (LABEL + len) as u64,
            next: self.tail + footprint(len),
            ring: self,
        })
    }

    /// Touches the lines of the next small record while nobody waits for it.
    ///
    /// The consumer has read them a lap ago and holds copies; taking them back takes a trip between the cores, which
    /// would otherwise stand between the next record and its label. The line of the label itself is left alone: the
    /// consumer polls it.
    #[inline]
    fn claim_ahead(&mut self) {
        const LINE: u64 = 64;
        let first = (self.tail + LABEL as u64).next_multiple_of(LINE);
        if first + 2 * LINE - self.head_seen <= self.capacity {
            for position in [first, first + LINE] {
                // Free bytes between the empty label and the consumer's head: nobody reads them before they are written.
                self.data.clear_word(self.place(position));
            }
        }
    }

    fn place(&self, position: u64) -> usize {
        (position & (self.capacity - 1)) as usize
    }
}

/// A record that is being written; dropped unpublished, it never was.
pub(crate) struct Record<'a> {
    ring: &'a mut Producer,
    len: usize,
    written: u64,
    end: u64,
    next: u64,
}

impl Record<'_> {
    /// Appends `bytes`; together they must not exceed what was asked for.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() as u64 <= self.end - self.written, "a record takes what it was begun for");
        let at = self.ring.place(self.written);
        let straight = bytes.len().min(self.ring.data.len() - at);
        self.ring.data.copy_in(at, &bytes[..straight]);
        if straight < bytes.len() {
            self.ring.data.copy_in(0, &bytes[straight..]);
        }
        self.written += bytes.len() as u64;
    }

    /// Shows the record to the consumer; look for sleepers with
    /// [`ring_if_waiting_for_published`](crate::bell::Bell::ring_if_waiting_for_published).
    #[inline]
    pub(crate) fn publish(self) {
        debug_assert_eq!(self.written, self.end, "a record is published whole");
        let Producer { data, tail, .. } = &*self.ring;
        // There is room for it: `room` counted it in.
        data.clear_word(self.ring.place(self.next));
        // Its Release pairs with the Acquire in `Consumer::front`: bytes and the empty label
        // first, then this one.
        publish(data.word(self.ring.place(*tail)), label(*tail, self.len));
        self.ring.tail = self.next;
        self.ring.claim_ahead();
    }
}

/// The reading end.
pub struct Consumer {
    control: Shared<RingControl>,
    data: Region,
    capacity: u64,
    /// Ours alone: the word in shared memory is only written from it.
    head: u64,
    /// Length of the record at `head`, once it has been read and found sound. It is kept here
    /// because the label in the ring could change after the check.
    front: Option<usize>,
    /// The head when we last looked for a sleeping producer.
    looked: u64,
}

impl Consumer {
    pub(crate) fn new(control: Shared<RingControl>, data: Region) -> Self {
        let capacity = check_capacity(&data);
        Consumer { control, data, capacity, head: 0, front: None, looked: 0 }
    }

    /// Moves the next record into `into` (replacing what it held); `false` when there is none.
    pub fn try_pop(&mut self, into: &mut Vec<u8>) -> Result<bool, Corrupt> {
        let Some(len) = self.front()? else {
            return Ok(false);
        };
        into.clear();
        self.append_front(0, len, into);
        self.pop_front();
        Ok(true)
    }

    /// Length of the next record, if there is one.
    #[inline]
    pub(crate) fn front(&mut self) -> Result<Option<usize>, Corrupt> {
        if self.front.is_some() {
            return Ok(self.front);
        }
        // Acquire pairs with the Release in `Record::publish`.
        let found = self.data.word(self.place(self.head)).load(Ordering::Acquire);
        if found == 0 {
            return Ok(None);
        }
        let least = stamp(self.head);
        let most = least | longest(self.capacity) as u64;
        let label = Corrupt::check("record label", found, least, most)?;
        let len = (label - least) as usize;
        for line in 1..=(len / 64).min(3) as u64 {
            self.data.prefetch(self.place(self.head + 64 * line));
        }
        self.front = Some(len);
        Ok(self.front)
    }

    /// Appends `len` bytes of the front record, from `from` on, to `into`.
    #[inline]
    pub(crate) fn append_front(&self, from: usize, len: usize, into: &mut Vec<u8>) {
        let (at, straight) = self.span(from, len);
        self.data.append_out(at, straight, into);
        if straight < len {
            self.data.append_out(0, len - straight, into);
        }
    }

    /// Copies bytes of the front record, from `from` on, until `into` is full.
    #[inline]
    pub(crate) fn copy_front(&self, from: usize, into: &mut [u8]) {
        let (at, straight) = self.span(from, into.len());
        let (first, rest) = into.split_at_mut(straight);
        self.data.copy_out(at, first);
        if !rest.is_empty() {
            self.data.copy_out(0, rest);
        }
    }

    /// Gives the room of the front record back to the producer.
    #[inline]
    pub(crate) fn pop_front(&mut self) {
        let len = self.front.take().expect("only a record that was looked at");
        self.head += footprint(len);
        // Its Release pairs with the Acquire in `Producer::room`: our copies first, then the room.
        publish(&self.control.head, self.head);
    }

    /// As [`try_pop`](Consumer::try_pop), for a producer whose records take at most half of the ring: it says when to look
    /// for a sleeping producer, `Some(true)`, which is once per quarter of the ring and saves the others a fence.
    ///
    /// Such a producer sleeps only with about half of the ring or more in front of us, so we look before it is empty.
    pub fn try_pop_and_look(&mut self, into: &mut Vec<u8>) -> Result<Option<bool>, Corrupt> {
        let Some(len) = self.front()? else {
            return Ok(None);
        };
        into.clear();
        self.append_front(0, len, into);
        Ok(Some(self.pop_front_and_look()))
    }

    /// The second half of [`try_pop_and_look`](Consumer::try_pop_and_look).
    #[inline]
    pub(crate) fn pop_front_and_look(&mut self) -> bool {
        let len = self.front.take().expect("only a record that was looked at");
        self.head += footprint(len);
        let look = self.head - self.looked >= self.capacity / 4;
        if look {
            self.looked = self.head;
            publish(&self.control.head, self.head);
        } else {
            // The same Release as in `pop_front`, without its fence: nobody is looked for.
            self.control.head.store(self.head, Ordering::Release);
        }
        look
    }

    /// Where `len` bytes of the front record begin, and how many come before the wrap.
    fn span(&self, from: usize, len: usize) -> (usize, usize) {
        let whole = self.front.expect("only a record that was looked at");
        assert!(from <= whole && len <= whole - from, "bytes {from}+{len} lie outside a record of {whole}");
        let at = self.place(self.head + (LABEL + from) as u64);
        (at, len.min(self.data.len() - at))
    }

    fn place(&self, position: u64) -> usize {
        (position & (self.capacity - 1)) as usize
    }
}

/// A position the other side wrote: it only grows, stays in bounds and is aligned.
#[inline]
fn check_position(word: &'static str, found: u64, least: u64, most: u64) -> Result<u64, Corrupt> {
    Corrupt::check(word, found, least, most)?;
    if !found.is_multiple_of(ALIGN as u64) {
        return Err(Corrupt { word, found, least, most });
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
