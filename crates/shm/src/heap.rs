//! Memory that the processes of a host claim by name while they run: one sparse memfd, handed out range by range.
//!
//! ```text
//!   | header: magic · entries · size · top | directory: 65 536 entries | body, sparse, 16 TiB of addresses |
//!                                   entry  { tag · key · offset · len · state }
//!   state   free ──claimed──► busy ──filled in──► ready ──freed──► busy ──hole punched──► free
//! ```
//! A descriptor that was passed once thus carries everything the neighbours will ever share. Each claim maps its own
//! range and nothing else. The body is never handed out twice: a fresh range is zero without being cleared, and whoever
//! still maps a freed one reads zeros. An entry belongs to its key for good (the place follows from the key, with a
//! linear search behind it), so two claims of one key meet at one word and exactly one wins.
//!
//! A process that dies while its entry is busy leaks that entry and its pages, and nothing else. Whatever stands in an
//! entry is a neighbour's word: offset and length are read once and checked against the file before anything is mapped.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::process::{Resource, getrlimit};

use crate::array::Whereabouts;
use crate::placed::{Placed, Shared};
use crate::segment::{Segment, SegmentError};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"SLN-heap");

/// How many different keys a heap takes in its life.
pub const MOST_KEYS: usize = 1 << 16;

/// Addresses cost nothing: pages are taken only where something is stored.
const BODY: u64 = 1 << 44;

/// Ranges of at least this size begin at a multiple of it, so that the kernel may back them by huge pages.
const HUGE: u64 = crate::mapping::HUGE as u64;

const FREE: u32 = 0;
const BUSY: u32 = 1;
const READY: u32 = 2;

#[repr(C)]
struct Header {
    magic: AtomicU64,
    entries: AtomicU64,
    /// Where the whole file ends.
    end: AtomicU64,
    /// Where the next claim begins. Only grows.
    top: AtomicU64,
}

// SAFETY: `repr(C)`, atomics only, no drop glue; zero is a header nobody wrote, which is refused.
unsafe impl Placed for Header {}

#[repr(C, align(64))]
struct Entry {
    /// Which key this entry belongs to, as one word; zero for none yet.
    tag: AtomicU64,
    key: [AtomicU64; 2],
    offset: AtomicU64,
    len: AtomicU64,
    state: AtomicU32,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is an entry nobody took.
unsafe impl Placed for Entry {}

/// The shared memory of one neighbourhood, claimed and found by key.
///
/// ```
/// use syncline_shm::heap::Heap;
///
/// let heap = Heap::private("example")?;
/// let segment = heap.claim([1, 2], 100_000)?;
/// let same = heap.find([1, 2]).expect("it was just claimed")?; // in any process that has the heap
/// assert_eq!(same.len(), segment.len());
/// heap.free([1, 2]);
/// assert!(heap.find([1, 2]).is_none());
/// # Ok::<(), syncline_shm::segment::SegmentError>(())
/// ```
pub struct Heap {
    file: Arc<OwnedFd>,
    name: String,
    header: Shared<Header>,
    directory: Arc<Segment>,
    /// The directory's place in the file.
    directory_at: u64,
    /// The body's place and end in the file.
    body: std::ops::Range<u64>,
    /// The users' arrays of this process.
    arrays: Whereabouts,
}

impl Heap {
    /// A heap of this process alone, until it hands the descriptor to others.
    pub fn private(name: &str) -> Result<Heap, SegmentError> {
        let size = Self::file_size(0, name)?;
        let file = Segment::create_file(name, size)?;
        Self::create_in(Arc::new(file), 0, size, name)
    }

    /// Joins the heap behind the first `prefix` bytes of a file that a neighbour made, as [`descriptor`](Heap::descriptor) told.
    pub fn join(file: OwnedFd, prefix: u64) -> Result<Heap, SegmentError> {
        let size = Segment::check_file(&file, 1)?;
        if prefix > size {
            return Err(SegmentError::TooShort { found: size, needed: usize::try_from(prefix).unwrap_or(usize::MAX) });
        }
        Self::open_in(Arc::new(file), prefix, size, crate::segment::RECEIVED)
    }

    /// What a process needs to join: the descriptor, and how many bytes of the file come before the heap.
    pub fn descriptor(&self) -> (std::os::fd::BorrowedFd<'_>, u64) {
        (std::os::fd::AsFd::as_fd(&*self.file), self.directory_at - page())
    }

    /// Addresses that it has in all.
    pub(crate) fn addresses(&self) -> u64 {
        self.body.end - self.body.start
    }

    /// The size of a file that has a heap behind its first `prefix` bytes: as large as this process may make it.
    pub(crate) fn file_size(prefix: u64, name: &str) -> Result<u64, SegmentError> {
        let allowed = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX) / page() * page();
        let least = body_at(prefix) + page();
        if allowed < least {
            let source = std::io::Error::from(rustix::io::Errno::FBIG);
            return Err(SegmentError::Memory { what: "size", name: name.to_owned(), asked: least as usize, source });
        }
        Ok((body_at(prefix) + BODY).min(allowed))
    }

    /// Writes a new heap behind the first `prefix` bytes of a file of `size`.
    pub(crate) fn create_in(file: Arc<OwnedFd>, prefix: u64, size: u64, name: &str) -> Result<Heap, SegmentError> {
        let at = header_at(prefix);
        let header = Segment::window(Arc::clone(&file), at, page() as usize, name.to_owned())?;
        header.reserve(0, header.len())?;
        let words: Shared<Header> = header.place(0);
        words.entries.store(MOST_KEYS as u64, Ordering::Relaxed);
        words.end.store(size, Ordering::Relaxed);
        words.top.store(body_at(prefix), Ordering::Relaxed);
        words.magic.store(MAGIC, Ordering::Release);
        Self::open_in(file, prefix, size, name)
    }

    /// Joins the heap that lies behind the first `prefix` bytes of a sealed file of `size`.
    pub(crate) fn open_in(file: Arc<OwnedFd>, prefix: u64, size: u64, name: &str) -> Result<Heap, SegmentError> {
        let least = body_at(prefix);
        if size < least {
            return Err(SegmentError::TooShort { found: size, needed: least as usize });
        }
        let header: Shared<Header> = Segment::window(Arc::clone(&file), header_at(prefix), page() as usize, name.to_owned())?.place(0);
        let expect = |what: &str, found: u64, expected: u64| match found == expected {
            true => Ok(()),
            false => Err(SegmentError::NotASegment { why: format!("the heap's {what} is {found:#x}, not {expected:#x}") }),
        };
        expect("magic", header.magic.load(Ordering::Acquire), MAGIC)?;
        expect("number of entries", header.entries.load(Ordering::Relaxed), MOST_KEYS as u64)?;
        expect("end", header.end.load(Ordering::Relaxed), size)?;
        let directory_at = header_at(prefix) + page();
        let directory = Segment::window(Arc::clone(&file), directory_at, MOST_KEYS * size_of::<Entry>(), name.to_owned())?;
        Ok(Heap { file, name: name.to_owned(), header, directory, directory_at, body: least..size, arrays: Whereabouts::default() })
    }

    /// Claims `len` zero bytes under `key`. The pages are taken when they are first used, or by [`Segment::reserve`].
    ///
    /// [`SegmentError::AlreadyThere`] when the key is taken, in whichever process.
    pub fn claim(&self, key: [u64; 2], len: usize) -> Result<Arc<Segment>, SegmentError> {
        let entry = self.entry_for(key)?;
        if entry.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Err(SegmentError::AlreadyThere { key });
        }
        let claimed = self.fill(&entry, key, len.max(1));
        // Release: who sees the entry ready also sees its words (pairs with the Acquire in `find`).
        entry.state.store(if claimed.is_ok() { READY } else { FREE }, Ordering::Release);
        claimed
    }

    /// What `key` was claimed for, by whichever process; `None` if it is not (yet) claimed.
    pub fn find(&self, key: [u64; 2]) -> Option<Result<Arc<Segment>, SegmentError>> {
        let entry = self.existing(key)?;
        if entry.state.load(Ordering::Acquire) != READY {
            return None;
        }
        Some(self.range(&entry, key).and_then(|(offset, len)| self.window(offset, len)))
    }

    /// Where the users' arrays of this process stand.
    pub(crate) fn arrays(&self) -> &Whereabouts {
        &self.arrays
    }

    /// Maps a range of the body that a neighbour speaks of; none if it lies outside. A range is never handed out twice, so
    /// the same words always mean the same bytes, or zeros once they were given back.
    pub(crate) fn range_at(&self, at: u64, len: u64) -> Option<Result<Arc<Segment>, SegmentError>> {
        let inside = at >= self.body.start && at.is_multiple_of(page()) && len > 0 && at.checked_add(len)? <= self.body.end;
        let len = usize::try_from(len).ok().filter(|_| inside)?;
        Some(self.window(at, len))
    }

    /// Gives the pages of `key` back. Whoever still maps them reads zeros; the key may be claimed again.
    pub fn free(&self, key: [u64; 2]) {
        let Some(entry) = self.existing(key) else { return };
        if entry.state.compare_exchange(READY, BUSY, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        self.punch(&entry, key);
        entry.state.store(FREE, Ordering::Release);
    }

    /// Gives the pages of `key` back and leaves it claimed: whoever maps them reads zeros, also who finds the key only later.
    pub fn empty(&self, key: [u64; 2]) {
        if let Some(entry) = self.existing(key).filter(|entry| entry.state.load(Ordering::Acquire) == READY) {
            self.punch(&entry, key);
        }
    }

    fn punch(&self, entry: &Entry, key: [u64; 2]) {
        if let Ok((offset, len)) = self.range(entry, key) {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            while rustix::fs::fallocate(&self.file, flags, offset, len as u64) == Err(rustix::io::Errno::INTR) {}
        }
    }

    /// Writes a fresh range into an entry that this call holds.
    fn fill(&self, entry: &Entry, key: [u64; 2], len: usize) -> Result<Arc<Segment>, SegmentError> {
        let offset = self.take(len)?;
        let segment = self.window(offset, len)?;
        for (word, value) in entry.key.iter().zip(key) {
            word.store(value, Ordering::Relaxed);
        }
        entry.offset.store(offset, Ordering::Relaxed);
        entry.len.store(len as u64, Ordering::Relaxed);
        Ok(segment)
    }

    /// Moves the top of the body by `len`, rounded up to pages.
    fn take(&self, len: usize) -> Result<u64, SegmentError> {
        let full = || SegmentError::Full { name: self.name.clone(), asked: len, of: self.body.end - self.body.start };
        let align = if len as u64 >= HUGE { HUGE.max(page()) } else { page() };
        let mut top = self.header.top.load(Ordering::Relaxed);
        loop {
            // Another process may have written anything here; ranges that overlap harm only who trusts it.
            if !self.body.contains(&top) {
                return Err(full());
            }
            let offset = top.next_multiple_of(align);
            let next = offset.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(page()));
            let next = next.filter(|next| *next <= self.body.end).ok_or_else(full)?;
            match self.header.top.compare_exchange_weak(top, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Ok(offset),
                Err(moved) => top = moved,
            }
        }
    }

    /// The range an entry tells, if it makes sense.
    fn range(&self, entry: &Entry, key: [u64; 2]) -> Result<(u64, usize), SegmentError> {
        let found = entry.key.each_ref().map(|word| word.load(Ordering::Relaxed));
        let (offset, len) = (entry.offset.load(Ordering::Relaxed), entry.len.load(Ordering::Relaxed));
        let inside = offset >= self.body.start
            && offset.is_multiple_of(page())
            && len > 0
            && offset.checked_add(len).is_some_and(|end| end <= self.body.end);
        if found != key || !inside {
            let why = format!("its heap has key {found:x?} at {offset:#x}, {len} bytes, where {key:x?} was expected");
            return Err(SegmentError::NotASegment { why });
        }
        let len = usize::try_from(len).map_err(|_| SegmentError::NotASegment { why: format!("a range of {len} bytes") })?;
        Ok((offset, len))
    }

    fn window(&self, offset: u64, len: usize) -> Result<Arc<Segment>, SegmentError> {
        Segment::window(Arc::clone(&self.file), offset, len, self.name.clone())
    }

    /// The entry that belongs to `key`, if it ever was claimed.
    fn existing(&self, key: [u64; 2]) -> Option<Shared<Entry>> {
        let tag = tag_of(key);
        for index in probes(tag) {
            let entry = self.entry(index);
            match entry.tag.load(Ordering::Acquire) {
                0 => return None,
                found if found == tag => return Some(entry),
                _ => {}
            }
        }
        None
    }

    /// The entry that belongs to `key`, from now on if not before.
    fn entry_for(&self, key: [u64; 2]) -> Result<Shared<Entry>, SegmentError> {
        let tag = tag_of(key);
        for index in probes(tag) {
            self.directory.reserve(index * size_of::<Entry>(), size_of::<Entry>())?;
            let entry = self.entry(index);
            match entry.tag.compare_exchange(0, tag, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(entry),
                Err(found) if found == tag => return Ok(entry),
                Err(_) => {}
            }
        }
        Err(SegmentError::Full { name: self.name.clone(), asked: 0, of: MOST_KEYS as u64 })
    }

    fn entry(&self, index: usize) -> Shared<Entry> {
        self.directory.place(index * size_of::<Entry>())
    }
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Heap({}, directory at {:#x}, body {:#x?})", self.name, self.directory_at, self.body)
    }
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

fn header_at(prefix: u64) -> u64 {
    prefix.next_multiple_of(page())
}

fn body_at(prefix: u64) -> u64 {
    (header_at(prefix) + page() + (MOST_KEYS * size_of::<Entry>()) as u64).next_multiple_of(page())
}

/// The key as one word that is never zero. Two keys share one with a chance of 2⁻⁶³; the second then cannot be claimed.
fn tag_of(key: [u64; 2]) -> u64 {
    let mix = |word: u64| {
        let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    mix(mix(key[0].wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(key[1])) | 1
}

/// All places, beginning with the one that follows from the tag.
fn probes(tag: u64) -> impl Iterator<Item = usize> {
    let first = (tag >> 32) as usize;
    (0..MOST_KEYS).map(move |step| first.wrapping_add(step) % MOST_KEYS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same heap as another process would map it.
    fn again(heap: &Heap) -> Heap {
        let file = heap.file.try_clone().expect("a descriptor");
        Heap::open_in(Arc::new(file), 0, heap.body.end, "again").expect("the same heap")
    }

    fn read(segment: &Arc<Segment>, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        segment.region(offset & !7, len + (offset & 7)).copy_out(offset & 7, &mut bytes);
        bytes
    }

    #[test]
    fn what_one_claims_another_finds_with_its_bytes() {
        let here = Heap::private("test").unwrap();
        let there = again(&here);
        assert!(there.find([1, 2]).is_none());
        let claimed = here.claim([1, 2], 10_000).unwrap();
        claimed.reserve(0, 10_000).unwrap();
        claimed.region(9_992, 8).copy_in(0, b"the last");
        let found = there.find([1, 2]).unwrap().unwrap();
        assert_eq!(found.len(), 10_000);
        assert_eq!(read(&found, 9_992, 8), b"the last");
        assert!(matches!(there.claim([1, 2], 10), Err(SegmentError::AlreadyThere { key: [1, 2] })));
        assert!(there.find([2, 1]).is_none());
    }

    #[test]
    fn ranges_do_not_overlap_and_begin_as_zeros() {
        let heap = Heap::private("test").unwrap();
        let sizes = [1, 4096, 4097, 3 << 20, 100, (2 << 20) + 1];
        let segments: Vec<_> = (0..).zip(sizes).map(|(key, len)| heap.claim([key, 0], len).unwrap()).collect();
        for (index, segment) in segments.iter().enumerate() {
            assert!(read(segment, 0, segment.len()).iter().all(|byte| *byte == 0), "range {index} is fresh");
            segment.region(0, segment.len()).copy_in(0, &vec![index as u8 + 1; segment.len()]);
        }
        for (index, segment) in segments.iter().enumerate() {
            assert!(read(segment, 0, segment.len()).iter().all(|byte| *byte == index as u8 + 1), "range {index} is nobody else's");
        }
    }

    #[test]
    fn of_many_who_claim_one_key_exactly_one_wins() {
        let heap = Heap::private("test").unwrap();
        let heaps: Vec<Heap> = (0..4).map(|_| again(&heap)).collect();
        let wins: usize = std::thread::scope(|scope| {
            let claims = |heap: &Heap| (0..200).filter(|key| heap.claim([*key, 7], 64).is_ok()).count();
            let threads: Vec<_> = heaps.iter().map(|heap| scope.spawn(move || claims(heap))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(wins, 200);
        let mut offsets: Vec<u64> = (0..200).map(|key| heap.existing([key, 7]).unwrap().offset.load(Ordering::Relaxed)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), 200);
    }

    #[test]
    fn a_freed_key_reads_zeros_and_may_be_claimed_again() {
        let heap = Heap::private("test").unwrap();
        let old = heap.claim([5, 5], 8192).unwrap();
        old.region(0, 8).copy_in(0, b"gone now");
        again(&heap).free([5, 5]);
        assert!(heap.find([5, 5]).is_none());
        assert_eq!(read(&old, 0, 8), [0; 8]);
        let new = heap.claim([5, 5], 100).unwrap();
        new.region(0, 8).copy_in(0, b"new here");
        assert_eq!(read(&old, 0, 8), [0; 8], "the old range is not handed out again");
        heap.free([9, 9]); // Nobody has it, and nothing happens.
    }

    #[test]
    fn an_emptied_key_reads_zeros_and_is_found_by_those_who_come_late() {
        let heap = Heap::private("test").unwrap();
        heap.claim([5, 5], 8192).unwrap().region(0, 8).copy_in(0, b"gone now");
        again(&heap).empty([5, 5]);
        assert_eq!(read(&heap.find([5, 5]).unwrap().unwrap(), 0, 8), [0; 8]);
        assert!(matches!(heap.claim([5, 5], 10), Err(SegmentError::AlreadyThere { key: [5, 5] })));
        heap.empty([9, 9]); // Nobody has it, and nothing happens.
    }

    #[test]
    fn an_entry_that_points_outside_is_refused() {
        let heap = Heap::private("test").unwrap();
        heap.claim([3, 4], 4096).unwrap();
        let entry = heap.existing([3, 4]).unwrap();
        let (offset, len) = (entry.offset.load(Ordering::Relaxed), entry.len.load(Ordering::Relaxed));
        for (offset, len) in [
            (0, len),                        // the board or the header
            (offset + 1, len),               // not a page
            (heap.body.end - 4096, 8192),    // beyond the end
            (u64::MAX - 4095, 4096),         // wraps around
            (offset, 0),                     // nothing
            (offset, u64::MAX - offset + 1), // wraps around
        ] {
            entry.offset.store(offset, Ordering::Relaxed);
            entry.len.store(len, Ordering::Relaxed);
            assert!(matches!(heap.find([3, 4]), Some(Err(SegmentError::NotASegment { .. }))), "{offset:#x} + {len:#x}");
        }
        heap.free([3, 4]); // Punches no hole anywhere.
        assert!(heap.find([3, 4]).is_none());
    }

    #[test]
    fn a_top_that_makes_no_sense_is_an_error() {
        for top in [0, 1, u64::MAX, u64::MAX - 4095] {
            let heap = Heap::private("test").unwrap();
            heap.header.top.store(top, Ordering::Relaxed);
            assert!(matches!(heap.claim([1, 1], 64), Err(SegmentError::Full { .. })), "{top:#x}");
            assert!(heap.find([1, 1]).is_none());
        }
    }

    #[test]
    fn a_claim_beyond_all_addresses_says_so_and_leaves_the_key_free() {
        let heap = Heap::private("test").unwrap();
        let error = heap.claim([1, 1], usize::MAX / 2).unwrap_err();
        assert!(error.to_string().contains("no room for"), "{error}");
        assert!(heap.claim([1, 1], 64).is_ok());
    }

    #[test]
    fn something_else_is_not_taken_for_a_heap() {
        let file = Segment::create_file("other", 64 << 20).unwrap();
        let error = Heap::open_in(Arc::new(file), 0, 64 << 20, "other").unwrap_err();
        assert!(error.to_string().contains("magic"), "{error}");
    }

    #[test]
    fn keys_that_meet_at_one_place_are_kept_apart() {
        let heap = Heap::private("test").unwrap();
        let place = |key| probes(tag_of(key)).next();
        let first = [0, 0];
        let second = (1..).map(|word| [word, 0]).find(|key| place(*key) == place(first)).unwrap();
        heap.claim(first, 8).unwrap().region(0, 8).copy_in(0, b"first   ");
        heap.claim(second, 8).unwrap().region(0, 8).copy_in(0, b"second  ");
        assert_eq!(read(&heap.find(first).unwrap().unwrap(), 0, 8), b"first   ");
        assert_eq!(read(&heap.find(second).unwrap().unwrap(), 0, 8), b"second  ");
    }
}
