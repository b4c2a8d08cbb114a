//! A user's array in shared memory: plain memory to its owner, and readable by neighbours who are told its key.
//!
//! Only the owner writes. Neighbours read while the owner lends the bytes to an operation, or after its death.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

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
            self.heap.free(self.key);
        }
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
        drop(array);
        assert!(heap.find([5, 6]).is_none());
        assert!(SharedArray::claim(&heap, [5, 6], 0).unwrap().is_empty());
    }
}
