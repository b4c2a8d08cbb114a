//! A ring of records from one producer to one consumer.
//!
//! ```text
//!            head (consumer writes)        tail (producer writes)
//!              ▼                             ▼
//!   ───────────┬──────┬─────────┬────────────┬──────────
//!     free     │ rec  │ record  │ record     │   free          positions only grow; the place in
//!   ───────────┴──────┴─────────┴────────────┴──────────       the ring is position % capacity
//!
//!   record = length u32 · bytes · padding to 8; it may wrap around the end
//! ```
//! A record becomes visible whole by one Release store of `tail`, so a producer that dies in the
//! middle of writing has written nothing. A consumer that dies leaves the ring full for ever,
//! which the producer's wait notices by asking whether it still lives.
//!
//! Each side keeps its own position in private memory and a copy of the other's, which it reads
//! again only when the copy says "full" or "empty": one line travels per batch, not per record.
//! What it reads there is input: positions must be aligned, never run backwards, and never be
//! further apart than the capacity; lengths must stay inside what was published.

use crate::corrupt::Corrupt;
use crate::placed::{Line, Placed, Region, Shared};
use crate::sync::{AtomicU64, Ordering};

/// Records start at multiples of this.
const ALIGN: usize = 8;
/// Bytes before the payload of a record.
const PREFIX: usize = 4;

/// The two words both sides see.
#[repr(C)]
#[derive(Default)]
pub(crate) struct RingControl {
    tail: Line<AtomicU64>,
    head: Line<AtomicU64>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is an empty ring.
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
    (
        Producer::new(control.clone(), data.clone()),
        Consumer::new(control, data),
    )
}

fn check_capacity(data: &Region) -> u64 {
    assert!(
        data.len().is_power_of_two() && data.len() >= ALIGN,
        "a ring's capacity is a power of two"
    );
    data.len() as u64
}

/// How much of the ring a record of `len` bytes takes.
fn footprint(len: usize) -> u64 {
    ((PREFIX + len).next_multiple_of(ALIGN)) as u64
}

/// The writing end.
pub struct Producer {
    control: Shared<RingControl>,
    data: Region,
    capacity: u64,
    /// Ours alone: the word in shared memory is only written from it.
    tail: u64,
    /// The last head that was seen and found sound.
    head_seen: u64,
}

impl Producer {
    pub(crate) fn new(control: Shared<RingControl>, data: Region) -> Self {
        let capacity = check_capacity(&data);
        Producer {
            control,
            data,
            capacity,
            tail: 0,
            head_seen: 0,
        }
    }

    /// The longest record that fits an empty ring.
    pub fn longest(&self) -> usize {
        self.data.len().min(u32::MAX as usize) - PREFIX
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
            return Err(PushError::TooLarge {
                len,
                most: self.longest(),
            });
        }
        let footprint = footprint(len);
        if self.tail + footprint - self.head_seen > self.capacity {
            // Acquire pairs with the Release in `Consumer::pop_front`: the consumer's copies
            // are done before its bytes are written again.
            let head = self.control.head.load(Ordering::Acquire);
            self.head_seen = check_position("ring head", head, self.head_seen, self.tail)?;
            if self.tail + footprint - self.head_seen > self.capacity {
                return Err(PushError::Full);
            }
        }
        Ok(())
    }

    /// A record of exactly `len` bytes, invisible until it is published.
    #[inline]
    pub(crate) fn begin(&mut self, len: usize) -> Result<Record<'_>, PushError> {
        self.room(len)?;
        let at = self.place(self.tail);
        self.data.copy_in(at, &(len as u32).to_ne_bytes());
        Ok(Record {
            written: self.tail + PREFIX as u64,
            end: self.tail + PREFIX as u64 + len as u64,
            next: self.tail + footprint(len),
            ring: self,
        })
    }

    fn place(&self, position: u64) -> usize {
        (position & (self.capacity - 1)) as usize
    }
}

/// A record that is being written; dropped unpublished, it never was.
pub(crate) struct Record<'a> {
    ring: &'a mut Producer,
    written: u64,
    end: u64,
    next: u64,
}

impl Record<'_> {
    /// Appends `bytes`; together they must not exceed what was asked for.
    #[inline]
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() as u64 <= self.end - self.written,
            "a record takes what it was begun for"
        );
        let at = self.ring.place(self.written);
        let straight = bytes.len().min(self.ring.data.len() - at);
        self.ring.data.copy_in(at, &bytes[..straight]);
        if straight < bytes.len() {
            self.ring.data.copy_in(0, &bytes[straight..]);
        }
        self.written += bytes.len() as u64;
    }

    /// Shows the record to the consumer.
    #[inline]
    pub(crate) fn publish(self) {
        debug_assert_eq!(self.written, self.end, "a record is published whole");
        self.ring.tail = self.next;
        // Release pairs with the Acquire in `Consumer::front`: bytes first, then the position.
        self.ring.control.tail.store(self.next, Ordering::Release);
    }
}

/// The reading end.
pub struct Consumer {
    control: Shared<RingControl>,
    data: Region,
    capacity: u64,
    /// Ours alone: the word in shared memory is only written from it.
    head: u64,
    /// The last tail that was seen and found sound.
    tail_seen: u64,
    /// Length of the record at `head`, once it has been read and found sound. It is kept here
    /// because the word in the ring could change after the check.
    front: Option<usize>,
}

impl Consumer {
    pub(crate) fn new(control: Shared<RingControl>, data: Region) -> Self {
        let capacity = check_capacity(&data);
        Consumer {
            control,
            data,
            capacity,
            head: 0,
            tail_seen: 0,
            front: None,
        }
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
        if self.tail_seen == self.head {
            // Acquire pairs with the Release in `Record::publish`.
            let tail = self.control.tail.load(Ordering::Acquire);
            let most = self.head + self.capacity;
            self.tail_seen = check_position("ring tail", tail, self.tail_seen, most)?;
            if self.tail_seen == self.head {
                return Ok(None);
            }
        }
        let mut len = [0; PREFIX];
        self.data.copy_out(self.place(self.head), &mut len);
        let len = u32::from_ne_bytes(len);
        let most = self.tail_seen - self.head - PREFIX as u64;
        Corrupt::check("record length", len.into(), 0, most)?;
        self.front = Some(len as usize);
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
        // Release pairs with the Acquire in `Producer::room`: our copies first, then the room.
        self.control.head.store(self.head, Ordering::Release);
    }

    /// Where `len` bytes of the front record begin, and how many come before the wrap.
    fn span(&self, from: usize, len: usize) -> (usize, usize) {
        let whole = self.front.expect("only a record that was looked at");
        assert!(
            from <= whole && len <= whole - from,
            "bytes {from}+{len} lie outside a record of {whole}"
        );
        let at = self.place(self.head + (PREFIX + from) as u64);
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
        return Err(Corrupt {
            word,
            found,
            least,
            most,
        });
    }
    Ok(found)
}
