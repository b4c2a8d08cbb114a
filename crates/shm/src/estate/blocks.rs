//! Memory for what is too large for a queue: blocks in sizes of powers of two, each with the name of its owner.
//!
//! ```text
//!   owner   0 ──claimed by one exchange──► writer ──about to take the record──► reader ──freed──► 0
//! ```
//! The owner word is the truth; the bitmap of free blocks is a hint that lets the lowest one be found, so that few blocks go
//! round and stay in cache. A block that stands in a queue belongs to the queue, whatever its owner word says: the
//! record is the truth. So a death costs nothing that was written, and whoever buries the dead frees exactly the
//! blocks that no record speaks of.
//!
//! Pages are taken with the first use of a block and kept for the next one, up to [`MOST_IDLE`] bytes in all.

use std::ptr::NonNull;
use std::sync::Arc;

use super::Estate;
use super::layout::{CLASSES, FIRST_CLASS, Layout, MOST_BLOCKS};
use crate::placed::{Line, Placed, Shared};
use crate::segment::{Segment, SegmentError};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Free blocks keep their pages while they are this much together.
const MOST_IDLE: u64 = 128 << 20;

/// The counters of a class.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Counters {
    /// Blocks that were ever used.
    high: Line<AtomicU64>,
    /// Bytes of free blocks that kept their pages; counted for all classes in the first one's.
    idle: Line<AtomicU64>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is the initial state.
unsafe impl Placed for Counters {}

#[repr(C)]
struct Bits([AtomicU64; MOST_BLOCKS / 64]);

// SAFETY: `repr(C)`, atomics only, no drop glue, any bits are valid.
unsafe impl Placed for Bits {}

#[repr(C)]
struct Titles([AtomicU64; MOST_BLOCKS]);

// SAFETY: `repr(C)`, atomics only, no drop glue, zero is a free block.
unsafe impl Placed for Titles {}

/// The books of one class.
struct Class {
    counters: Shared<Counters>,
    free: Shared<Bits>,
    resident: Shared<Bits>,
    titles: Shared<Titles>,
    size: usize,
    count: usize,
}

/// All blocks of an estate.
pub(crate) struct Blocks {
    classes: Vec<Class>,
    segment: Arc<Segment>,
    layout: Layout,
}

/// A block's name: class and number, never 0.
pub(crate) type BlockId = u64;

fn id_of(class: usize, index: usize) -> BlockId {
    (class as u64 + 1) << 32 | index as u64
}

impl Blocks {
    pub(crate) fn new(segment: &Arc<Segment>, layout: Layout) -> Blocks {
        let class = |class: usize| {
            let books = layout.books(class);
            Class {
                counters: segment.place(books),
                free: segment.place(books + Layout::FREE_BITS),
                resident: segment.place(books + Layout::RESIDENT_BITS),
                titles: segment.place(books + Layout::TITLES),
                size: 1 << (FIRST_CLASS as usize + class),
                count: layout.blocks_of(class),
            }
        };
        Blocks { classes: (0..CLASSES).map(class).collect(), segment: Arc::clone(segment), layout }
    }

    /// The largest block there can be.
    pub(crate) fn largest(&self) -> usize {
        self.classes.iter().filter(|class| class.count > 0).map(|class| class.size).max().unwrap_or(0)
    }

    /// Claims a block of at least `len` bytes for `me`, with its pages.
    pub(crate) fn claim(&self, len: usize, me: u32) -> Result<BlockId, SegmentError> {
        let first = (len.max(1).next_power_of_two().trailing_zeros().max(FIRST_CLASS) - FIRST_CLASS) as usize;
        // A class that is used up lends from the next larger ones.
        for class in first..CLASSES.min(first + 4) {
            if let Some(index) = self.find(class, me)? {
                if let Err(error) = self.back(class, index) {
                    self.release(class, index);
                    return Err(error);
                }
                return Ok(id_of(class, index));
            }
        }
        Err(SegmentError::Full { name: "blocks of a family".to_owned(), asked: len, of: self.largest() as u64 })
    }

    fn find(&self, number: usize, me: u32) -> Result<Option<usize>, SegmentError> {
        let class = &self.classes[number];
        let high = (class.counters.high.load(Ordering::Acquire) as usize).min(class.count);
        for (word, bits) in class.free.0[..high.div_ceil(64)].iter().enumerate() {
            let mut seen = bits.load(Ordering::Relaxed);
            while seen != 0 {
                let bit = seen.trailing_zeros();
                let before = bits.fetch_and(!(1 << bit), Ordering::AcqRel);
                let index = word * 64 + bit as usize;
                if before & 1 << bit != 0 && index < class.count && self.own(class, index, me) {
                    return Ok(Some(index));
                }
                seen = bits.load(Ordering::Relaxed);
            }
        }
        loop {
            let high = class.counters.high.load(Ordering::Acquire);
            if high >= class.count as u64 {
                return Ok(None);
            }
            // The pages of the books, before anything is stored there.
            let (books, index) = (self.layout.books(number), high as usize);
            self.segment.reserve(books, 4096)?;
            self.segment.reserve(books + Layout::FREE_BITS, 2 * MOST_BLOCKS / 8)?;
            self.segment.reserve(books + Layout::TITLES + index * 8, 8)?;
            let next = class.counters.high.compare_exchange(high, high + 1, Ordering::AcqRel, Ordering::Relaxed);
            if next.is_ok() && self.own(class, index, me) {
                return Ok(Some(index));
            }
        }
    }

    fn own(&self, class: &Class, index: usize, me: u32) -> bool {
        class.titles.0[index].compare_exchange(0, me.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Makes sure that the block has pages.
    fn back(&self, number: usize, index: usize) -> Result<(), SegmentError> {
        let class = &self.classes[number];
        let (bits, bit) = (&class.resident.0[index / 64], 1 << (index % 64));
        if bits.load(Ordering::Relaxed) & bit != 0 {
            self.classes[0].counters.idle.fetch_sub(class.size as u64, Ordering::Relaxed);
            return Ok(());
        }
        self.segment.reserve(self.layout.block(number, index), class.size)?;
        bits.fetch_or(bit, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, number: usize, index: usize) {
        let class = &self.classes[number];
        let (word, bit) = (index / 64, 1 << (index % 64));
        let idle = &self.classes[0].counters.idle;
        if class.resident.0[word].load(Ordering::Relaxed) & bit != 0 {
            let now = idle.fetch_add(class.size as u64, Ordering::Relaxed).wrapping_add(class.size as u64);
            // What died half counted makes this a little wrong; a count that wrapped around begins anew.
            if now > MOST_IDLE && now < 1 << 62 {
                idle.fetch_sub(class.size as u64, Ordering::Relaxed);
                class.resident.0[word].fetch_and(!bit, Ordering::Relaxed);
                self.segment.give_back(self.layout.block(number, index), class.size);
            } else if now >= 1 << 62 {
                idle.store(0, Ordering::Relaxed);
            }
        }
        class.titles.0[index].store(0, Ordering::Release);
        class.free.0[word].fetch_or(bit, Ordering::Release);
    }

    fn split(&self, block: BlockId) -> Option<(usize, usize)> {
        let class = (block >> 32).checked_sub(1)? as usize;
        let index = block as u32 as usize;
        (class < CLASSES && index < self.classes[class].count).then_some((class, index))
    }

    /// Frees a block of the caller's.
    pub(crate) fn free(&self, block: BlockId) {
        if let Some((class, index)) = self.split(block) {
            self.release(class, index);
        }
    }

    /// Says that from now on `me` owns the block that a record speaks of; false if there is no such block.
    pub(crate) fn adopt(&self, block: BlockId, me: u32) -> bool {
        let Some((class, index)) = self.split(block) else { return false };
        self.classes[class].titles.0[index].store(me.into(), Ordering::Release);
        true
    }

    /// The bytes of a block, as an address.
    pub(crate) fn address(&self, block: BlockId, len: usize) -> Option<NonNull<u8>> {
        let (class, index) = self.split(block)?;
        (len <= self.classes[class].size).then(|| self.segment.address(self.layout.block(class, index), len))
    }

    /// Frees what a dead (or leaving) member owns, unless a record speaks of it; and finds free blocks again that it had
    /// begun to claim.
    pub(crate) fn bury(&self, dead: u32, heir: u32, spoken_of: &dyn Fn(BlockId) -> bool) {
        for (number, class) in self.classes.iter().enumerate() {
            let high = (class.counters.high.load(Ordering::Acquire) as usize).min(class.count);
            for index in 0..high {
                let title = &class.titles.0[index];
                let owner = title.load(Ordering::Acquire);
                let (word, bit) = (index / 64, 1 << (index % 64));
                if owner == 0 && class.free.0[word].load(Ordering::Relaxed) & bit == 0 {
                    class.free.0[word].fetch_or(bit, Ordering::Release);
                }
                // A reader that takes the record meanwhile writes its own name first: then the exchange fails.
                if owner == u64::from(dead)
                    && !spoken_of(id_of(number, index))
                    && title.compare_exchange(owner, heir.into(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
                {
                    self.release(number, index);
                }
            }
        }
    }

    /// Blocks in use, for tests and statistics.
    pub(crate) fn in_use(&self) -> usize {
        let used = |class: &Class| {
            let high = (class.counters.high.load(Ordering::Acquire) as usize).min(class.count);
            class.titles.0[..high].iter().filter(|title| title.load(Ordering::Relaxed) != 0).count()
        };
        self.classes.iter().map(used).sum()
    }
}

/// A block that this process owns, until it is dropped.
///
/// A block that was received is read only: its bytes are those that its writer had put there.
pub struct Block {
    estate: Arc<Estate>,
    id: BlockId,
    start: NonNull<u8>,
    len: usize,
    /// Cleared when the block belongs to a queue (again).
    mine: AtomicBool,
}

// SAFETY: the pointer leads into the estate's segment, which is mapped while `estate` lives; bytes are reached by the rules
// of borrowing, as those of a boxed slice.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(crate) fn new(estate: &Arc<Estate>, id: BlockId, len: usize) -> Option<Block> {
        let start = estate.blocks().address(id, len)?;
        Some(Block { estate: Arc::clone(estate), id, start, len, mine: AtomicBool::new(true) })
    }

    /// Its name in the estate.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its bytes, to be filled before it is sent.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped while `estate` lives; the owner word names this process, which has one `Block` for it, so nobody
        // else writes these bytes. (A member that breaks the protocol can: any byte is a valid `u8`, and what is read from
        // them is checked by whoever decodes it.)
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Leaves the block to the queue that speaks of it.
    pub fn leave(&self) {
        self.mine.store(false, Ordering::Relaxed);
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`; between the arrival of a block and its end nobody writes it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A forked child holds a copy of what is still its parent's.
        if self.mine.load(Ordering::Relaxed) && self.estate.is_original() {
            self.estate.blocks().free(self.id);
        }
    }
}
