//! A few large slots for payloads that would be too much for the ring, in one direction.
//!
//! ```text
//!   writer:  Free ──claim──► Claimed ──index through the ring──► Filling ──► Filled
//!   reader:                              accept ─► copies behind `filled` ─► free ─► Free
//!
//!   filled u64   writer: bytes of this claim that may be read    (Release, pairs with `poll`)
//!   freed  u64   reader: how many claims of this slot are over   (Release, pairs with `try_claim`)
//! ```
//! A slot is free when its `freed` equals the number of times the writer claimed it, which the
//! writer knows by itself. Each word has one writer, so neither side can be left holding a lock:
//! a writer that dies leaves `filled` short, a reader that dies leaves `freed` behind, and the
//! other's wait asks whether it still lives.
//!
//! The index is published before the slot is filled, and `filled` advances in pieces that fit
//! the cache: the reader copies while the writer still writes. The lowest free slot is taken, so
//! a calm link uses one slot again and again, and it stays in cache. Pages are taken with the
//! first claim of a slot, never under a running copy.

use std::sync::Arc;

use crate::bell::Bell;
use crate::corrupt::Corrupt;
use crate::placed::{Line, Placed, Region, Shared};
use crate::segment::SegmentError;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// How much is written before the reader is told: small against L2, large against a line.
pub const PIECE: usize = 128 << 10;

/// The words of one slot, each alone on its lines.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SlotControl {
    filled: Line<AtomicU64>,
    freed: Line<AtomicU64>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a slot nobody claimed.
unsafe impl Placed for SlotControl {}

/// Takes the pages of a slot; called once for each, before its first use.
pub(crate) type Reserve = Box<dyn FnMut(usize) -> Result<(), SegmentError> + Send>;

/// Why no slot could be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The reader's words make no sense.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Not even one slot could be backed by memory.
    #[error(transparent)]
    Memory(#[from] SegmentError),
}

/// An arena in this process's own memory, for threads and tests. `freed` is rung when a slot
/// comes back.
pub fn private(slots: usize, slot_size: usize, freed: Shared<Bell>) -> (Writer, Reader) {
    let controls: Vec<_> = (0..slots).map(|_| Shared::in_private_memory(SlotControl::default())).collect();
    let data = Region::in_private_memory(slots * slot_size);
    (Writer::new(controls.clone(), data.clone(), Box::new(|_| Ok(()))), Reader::new(controls, data, freed))
}

/// The filling end.
pub struct Writer {
    slots: Vec<WriterSlot>,
    data: Region,
    slot_size: usize,
    reserve: Reserve,
    /// Slots whose pages are there; they are taken from the lowest up.
    reserved: usize,
    /// Slots that may be used: fewer than there are once memory was refused.
    usable: usize,
}

struct WriterSlot {
    control: Shared<SlotControl>,
    claims: u64,
}

/// A slot that is being filled.
#[derive(Debug)]
pub struct Filling {
    slot: usize,
    written: usize,
}

impl Filling {
    /// Which slot: what the reader needs to be told.
    pub fn slot(&self) -> u32 {
        self.slot as u32
    }

    /// How many bytes were put so far.
    pub fn written(&self) -> usize {
        self.written
    }
}

impl Writer {
    pub(crate) fn new(controls: Vec<Shared<SlotControl>>, data: Region, reserve: Reserve) -> Self {
        let slot_size = data.len() / controls.len();
        Writer {
            usable: controls.len(),
            slots: controls.into_iter().map(|control| WriterSlot { control, claims: 0 }).collect(),
            data,
            slot_size,
            reserve,
            reserved: 0,
        }
    }

    /// Bytes a slot takes.
    pub fn slot_size(&self) -> usize {
        self.slot_size
    }

    /// Makes sure that at least one slot has memory.
    pub(crate) fn ensure_memory(&mut self) -> Result<(), SegmentError> {
        if self.reserved == 0 {
            (self.reserve)(0)?;
            self.reserved = 1;
        }
        Ok(())
    }

    /// Takes the lowest free slot; `None` while all are in use.
    ///
    /// When memory for a further slot is refused, the arena goes on with those it has.
    pub fn try_claim(&mut self) -> Result<Option<Filling>, ClaimError> {
        self.ensure_memory()?;
        for (index, slot) in self.slots.iter_mut().enumerate().take(self.usable) {
            // Acquire pairs with the Release in `Arrival::drop`: the reader's copies are done
            // before its bytes are written again.
            let freed = slot.control.freed.load(Ordering::Acquire);
            let least = slot.claims.saturating_sub(1);
            Corrupt::check("slot freed", freed, least, slot.claims)?;
            if freed != slot.claims {
                continue;
            }
            if index >= self.reserved {
                if (self.reserve)(index).is_err() {
                    self.usable = index;
                    return Ok(None);
                }
                self.reserved = index + 1;
            }
            slot.claims += 1;
            // Relaxed is enough: the ring record that announces the slot is published later,
            // with Release, so the reader cannot see the old fill.
            slot.control.filled.store(0, Ordering::Relaxed);
            return Ok(Some(Filling { slot: index, written: 0 }));
        }
        Ok(None)
    }

    /// Appends `bytes` to the slot; the reader sees them after [`Writer::show`].
    ///
    /// # Panics
    /// When the slot would overflow.
    pub fn put(&mut self, filling: &mut Filling, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.slot_size - filling.written,
            "a slot of {} bytes cannot take {} more after {}",
            self.slot_size,
            bytes.len(),
            filling.written
        );
        let at = filling.slot * self.slot_size + filling.written;
        self.data.copy_in(at, bytes);
        filling.written += bytes.len();
    }

    /// Shows the reader everything that was put so far.
    pub fn show(&mut self, filling: &Filling) {
        // Release pairs with the Acquire in `Arrival::poll`: bytes first, then the count.
        self.slots[filling.slot].control.filled.store(filling.written as u64, Ordering::Release);
    }
}

/// The emptying end.
pub struct Reader {
    core: Arc<ReaderCore>,
}

struct ReaderCore {
    slots: Vec<ReaderSlot>,
    data: Region,
    slot_size: usize,
    /// The writer's bell: it may sleep until a slot is free.
    freed: Shared<Bell>,
    process: u32,
}

struct ReaderSlot {
    control: Shared<SlotControl>,
    /// Private: how many claims of this slot were accepted.
    accepted: AtomicU64,
    /// Private: whether an `Arrival` for it lives.
    held: AtomicBool,
}

impl Reader {
    pub(crate) fn new(controls: Vec<Shared<SlotControl>>, data: Region, freed: Shared<Bell>) -> Self {
        let slot_size = data.len() / controls.len();
        let slots =
            controls.into_iter().map(|control| ReaderSlot { control, accepted: AtomicU64::new(0), held: AtomicBool::new(false) }).collect();
        Reader { core: Arc::new(ReaderCore { slots, data, slot_size, freed, process: std::process::id() }) }
    }

    /// Bytes a slot takes.
    pub fn slot_size(&self) -> usize {
        self.core.slot_size
    }

    /// Takes over a slot the writer announced, holding `len` bytes once it is filled.
    pub fn accept(&mut self, slot: u32, len: u32) -> Result<Arrival, Corrupt> {
        let last = self.core.slots.len() as u64 - 1;
        let index = Corrupt::check("slot index", slot.into(), 0, last)? as usize;
        let most = self.core.slot_size as u64;
        let len = Corrupt::check("slot length", len.into(), 0, most)? as usize;
        let slot = &self.core.slots[index];
        // Acquire pairs with the Release in `Arrival::drop`, which may run on another thread.
        if slot.held.load(Ordering::Acquire) {
            return Err(Corrupt { word: "slot index of a slot that is still held", found: index as u64, least: 0, most: last });
        }
        slot.held.store(true, Ordering::Relaxed);
        slot.accepted.store(slot.accepted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Ok(Arrival { core: Arc::clone(&self.core), slot: index, len, filled: 0, taken: 0 })
    }
}

/// A slot on its way to us; dropping it gives the slot back to the writer.
pub struct Arrival {
    core: Arc<ReaderCore>,
    slot: usize,
    len: usize,
    /// The last fill that was seen and found sound.
    filled: usize,
    /// How much of it the caller has copied.
    taken: usize,
}

impl Arrival {
    /// Bytes it holds once it is filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that were copied out so far.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// How many bytes can be copied now; looks at the writer's progress when there are none.
    pub fn poll(&mut self) -> Result<usize, Corrupt> {
        if self.filled == self.taken {
            self.look()?;
        }
        Ok(self.filled - self.taken)
    }

    fn look(&mut self) -> Result<(), Corrupt> {
        // Acquire pairs with the Release in `Writer::show`.
        let filled = self.core.slots[self.slot].control.filled.load(Ordering::Acquire);
        let least = self.filled as u64;
        self.filled = Corrupt::check("slot filled", filled, least, self.len as u64)? as usize;
        Ok(())
    }

    /// Copies the next `into.len()` bytes, which [`Arrival::poll`] said are there.
    ///
    /// # Panics
    /// When it said less.
    pub fn copy_to(&mut self, into: &mut [u8]) {
        assert!(into.len() <= self.filled - self.taken, "only what is there");
        self.core.data.copy_out(self.at(self.taken), into);
        self.taken += into.len();
    }

    /// Appends the next `len` bytes, which [`Arrival::poll`] said are there, to `into`.
    ///
    /// # Panics
    /// When it said less.
    pub fn append_to(&mut self, len: usize, into: &mut Vec<u8>) {
        assert!(len <= self.filled - self.taken, "only what is there");
        self.core.data.append_out(self.at(self.taken), len, into);
        self.taken += len;
    }

    /// Whether everything has arrived, copied or not.
    pub fn is_filled(&mut self) -> Result<bool, Corrupt> {
        self.look()?;
        Ok(self.filled == self.len)
    }

    /// Keeps the slot, to be read in place later.
    ///
    /// # Panics
    /// Unless [`Arrival::is_filled`] said that everything has arrived.
    pub fn hold(self) -> Held {
        assert!(self.filled == self.len, "only what has arrived is held");
        Held { arrival: self }
    }

    fn at(&self, offset: usize) -> usize {
        self.slot * self.core.slot_size + offset
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        // A forked child drops copies of what its parent still uses.
        if self.core.process != std::process::id() {
            return;
        }
        let slot = &self.core.slots[self.slot];
        let over = slot.accepted.load(Ordering::Relaxed);
        // Before `freed`: once that is visible, the slot may be announced and accepted again.
        slot.held.store(false, Ordering::Release);
        // Release pairs with the Acquire in `Writer::try_claim`.
        slot.control.freed.store(over, Ordering::Release);
        self.core.freed.ring_if_waiting();
    }
}

/// A filled slot that is kept; dropping it gives the slot back to the writer.
pub struct Held {
    arrival: Arrival,
}

impl Held {
    /// Bytes it holds.
    pub fn len(&self) -> usize {
        self.arrival.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes from `offset` on until `into` is full.
    ///
    /// # Panics
    /// When it does not hold that many.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        assert!(
            offset <= self.len() && into.len() <= self.len() - offset,
            "bytes {offset}+{} lie outside of {} held",
            into.len(),
            self.len()
        );
        self.arrival.core.data.copy_out(self.arrival.at(offset), into);
    }
}
