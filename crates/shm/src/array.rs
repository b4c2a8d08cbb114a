//! A user's array in shared memory: plain memory to its owner, and readable by neighbours who are told its key.
//!
//! Only the owner writes. Neighbours read while the owner lends the bytes to an operation, or after its death; and they
//! write while it brings them to an operation in which all write into all arrays ([`Common`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::heap::Heap;
use crate::segment::{Segment, SegmentError};

/// Zero bytes of a heap that belong to whoever claimed them, until this is dropped.
///
/// ```
/// use std::sync::Arc;
/// use syncline_shm::{array::SharedArray, heap::Heap};
///
/// let heap = Arc::new(Heap::private("example")?);
/// let mut array = SharedArray::claim(&heap, [1, 1], 100)?;
/// array.bytes_mut()[99] = 7;
/// assert_eq!(array.bytes()[98..], [0, 7]);
/// # Ok::<(), syncline_shm::segment::SegmentError>(())
/// ```
#[derive(Debug)]
pub struct SharedArray {
    heap: Arc<Heap>,
    key: [u64; 2],
    start: NonNull<u8>,
    len: usize,
    segment: Arc<Segment>,
    owner: u32,
}

// SAFETY: the pointer leads into the segment, which is mapped while it is held here; bytes are reached by the rules of
// borrowing, as those of a boxed slice.
unsafe impl Send for SharedArray {}
// SAFETY: as above.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// Claims `len` zero bytes under `key` and takes their pages.
    pub fn claim(heap: &Arc<Heap>, key: [u64; 2], len: usize) -> Result<SharedArray, SegmentError> {
        let segment = heap.claim(key, len)?;
        let start = segment.address(0, len);
        let array = SharedArray { heap: Arc::clone(heap), key, start, len, segment, owner: std::process::id() };
        array.segment.reserve(0, len)?;
        heap.arrays().add(&array);
        Ok(array)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, and only the owner of `&mut self` writes: a neighbour that maps
        // the same pages through `Lent` reads.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above. A neighbour reads only while the owner lends the bytes, and that is a borrow too.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Where it begins: on a page.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Where it begins, for whoever may write to it.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether this is the process that claimed it, and not a forked child, which shares the bytes and nothing else.
    pub fn is_owner(&self) -> bool {
        std::process::id() == self.owner
    }

    /// The memory it lies in.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        // A forked child that drops its copy must not take the pages from its parent.
        if self.is_owner() {
            self.heap.arrays().remove(self);
            self.heap.free(self.key);
        }
    }
}

/// Where bytes of a user's array stand, in words that mean the same to all neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whereabout {
    /// Where the array's memory begins.
    pub at: u64,
    /// How many bytes it has.
    pub len: u64,
    /// Where in it the bytes begin.
    pub offset: u64,
}

/// The arrays of this process by first address, each with its end.
#[derive(Default)]
pub(crate) struct Whereabouts(Mutex<BTreeMap<usize, (usize, u64)>>);

impl Whereabouts {
    fn known(&self) -> MutexGuard<'_, BTreeMap<usize, (usize, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, array: &SharedArray) {
        self.known().insert(array.start.as_ptr().addr(), (array.len, array.segment.place_in_file()));
    }

    fn remove(&self, array: &SharedArray) {
        self.known().remove(&array.start.as_ptr().addr());
    }
}

impl Heap {
    /// Where `bytes` stand, if all of them lie in one array of this process.
    pub fn whereabout(&self, bytes: &[u8]) -> Option<Whereabout> {
        let known = self.arrays().known();
        let first = bytes.as_ptr().addr();
        let (start, (len, at)) = known.range(..=first).next_back()?;
        let offset = first - start;
        let inside = offset <= *len && bytes.len() <= len - offset;
        inside.then_some(Whereabout { at: *at, len: *len as u64, offset: offset as u64 })
    }

    /// The array that a neighbour speaks of; none if what it says makes no sense.
    pub fn common(&self, place: Whereabout) -> Option<Common> {
        let segment = self.range_at(place.at, place.len)?.ok()?;
        Some(Common { start: segment.address(0, segment.len()), len: segment.len(), _segment: segment })
    }
}

/// A neighbour's array in an operation in which all write into all arrays, each its own part.
///
/// The neighbour has said where it stands when it came to the operation's first meeting, and uses it again after the last.
#[derive(Debug)]
pub struct Common {
    start: NonNull<u8>,
    len: usize,
    _segment: Arc<Segment>,
}

// SAFETY: the pointer leads into the segment, which is mapped while it is held here; who may touch which bytes when is
// ordered by the meetings of the operation.
unsafe impl Send for Common {}
// SAFETY: as above.
unsafe impl Sync for Common {}

impl Common {
    /// Some of its bytes; none if they lie outside.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let inside = range.start <= range.end && range.end <= self.len;
        // SAFETY: inside the mapping (checked). Between the meetings only whoever this part belongs to writes here; they
        // are numbers, so a neighbour that breaks the rule makes wrong ones, no more.
        inside.then(|| unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) })
    }

    /// Copies `bytes` to `offset`; false if they do not fit.
    #[inline]
    pub fn write(&mut self, offset: usize, bytes: &[u8]) -> bool {
        if offset > self.len || bytes.len() > self.len - offset {
            return false;
        }
        // SAFETY: inside the mapping (checked). The array's owner has it borrowed for the operation and neither reads nor
        // writes this part before the last meeting; `bytes` is memory of another kind, so the two do not overlap (and if a
        // caller brought the same array, `copy` allows for it).
        unsafe { std::ptr::copy(bytes.as_ptr(), self.start.as_ptr().add(offset), bytes.len()) };
        true
    }
}

/// A part of an array that its owner lends to an operation.
pub struct Lent {
    start: NonNull<u8>,
    len: usize,
    _segment: Arc<Segment>,
}

// SAFETY: the pointer leads into the segment, which is mapped while it is held here; nobody writes through it.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// The bytes `range` of an array in `segment`; none if they lie outside.
    pub fn of(segment: Arc<Segment>, offset: usize, len: usize) -> Option<Lent> {
        let inside = offset <= segment.len() && len <= segment.len() - offset;
        inside.then(|| Lent { start: segment.address(offset, len), len, _segment: segment })
    }

    /// Some of them, for as long as they are lent.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.len, "inside of what was lent");
        // SAFETY: inside the mapping (checked here and in `of`). The owner changes nothing while it lends, and callers
        // use the bytes only until then; they are numbers, so one that breaks the rule makes wrong sums, no more.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_reads_what_is_lent_and_no_more() {
        let heap = Arc::new(Heap::private("test").unwrap());
        let mut array = SharedArray::claim(&heap, [5, 6], 10_000).unwrap();
        assert!(array.as_ptr().addr().is_multiple_of(4096) && array.bytes().iter().all(|byte| *byte == 0));
        array.bytes_mut()[5000..5004].copy_from_slice(b"lent");
        let there = || heap.find([5, 6]).unwrap().unwrap();
        assert_eq!(Lent::of(there(), 5000, 4).unwrap().bytes(1..4), b"ent");
        assert!(Lent::of(there(), 9_998, 4).is_none() && Lent::of(there(), usize::MAX, 4).is_none());
        let place = heap.whereabout(&array.bytes()[5000..5004]).expect("it lies in the array");
        let mut common = heap.common(place).expect("it is there");
        assert!(common.bytes(5000..5004) == Some(b"lent") && common.write(5001, b"is") && !common.write(9_999, b"no"));
        assert_eq!((&array.bytes()[5000..5004], common.bytes(0..10_001)), (&b"list"[..], None));
        assert!(heap.whereabout(&[0; 4]).is_none());
        assert!(heap.common(Whereabout { len: u64::MAX, ..place }).is_none() && heap.common(Whereabout { at: 0, ..place }).is_none());
        drop(array);
        assert!(heap.find([5, 6]).is_none());
        assert!(SharedArray::claim(&heap, [5, 6], 0).unwrap().is_empty());
    }
}
