//! The arrays that users keep in shared memory, and where each stands.
//!
//! An add of such an array need not be copied: its outbox says which array, and whoever applies it, the worker itself or
//! after its death a survivor, finds the numbers there. Arrays are numbered `rank << 32 | n`, and numbers are used again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use syncline_cluster::{Error, Job};
use syncline_shm::array::{Lent, SharedArray as Memory};
use syncline_shm::heap::Heap;
use syncline_shm::outbox::LentDelta;
use syncline_shm::segment::Segment;

/// Arrays are claimed under keys that no table has.
const KEY: u64 = u64::MAX - 2;

/// The shared arrays of this process, and the way to those of its neighbours.
pub(crate) struct Arrays {
    heap: Arc<Heap>,
    rank: u32,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By first address.
    arrays: BTreeMap<usize, Array>,
    /// Numbers of arrays that are gone.
    free: Vec<u32>,
    /// Numbers that were ever used.
    used: u32,
}

struct Array {
    len: usize,
    number: u32,
    segment: Weak<Segment>,
}

impl Arrays {
    pub(crate) fn of(job: &Job) -> Arc<Arrays> {
        Arc::new(Arrays { heap: Arc::clone(job.heap()), rank: job.rank(), known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn key(&self, number: u32) -> [u64; 2] {
        [KEY, self.name(number)]
    }

    fn name(&self, number: u32) -> u64 {
        u64::from(self.rank) << 32 | u64::from(number)
    }

    /// A new array of `bytes` zero bytes.
    pub(crate) fn make(self: &Arc<Self>, bytes: usize) -> Result<SharedArray, Error> {
        let mut known = self.known();
        let number = known.free.pop().unwrap_or_else(|| {
            known.used += 1;
            known.used - 1
        });
        let refused =
            |error: syncline_shm::segment::SegmentError| Error::System { operation: "empty_shared".into(), detail: error.to_string() };
        let memory = Memory::claim(&self.heap, self.key(number), bytes).map_err(refused)?;
        let address = memory.as_ptr().addr();
        known.arrays.insert(address, Array { len: bytes, number, segment: Arc::downgrade(memory.segment()) });
        Ok(SharedArray { memory: Some(memory), number, arrays: Arc::clone(self) })
    }

    /// Where `bytes` stand, if all of them lie in one of this process's arrays.
    pub(crate) fn locate(&self, bytes: &[u8]) -> Option<LentDelta> {
        let known = self.known();
        let first = bytes.as_ptr().addr();
        let (start, array) = known.arrays.range(..=first).next_back()?;
        let offset = first - start;
        (offset <= array.len && bytes.len() <= array.len - offset)
            .then(|| LentDelta { array: self.name(array.number), offset: offset as u64 })
    }

    /// The bytes that an outbox speaks of, in whichever process's array they stand.
    pub(crate) fn lent(&self, lent: LentDelta, len: usize) -> Option<Lent> {
        let segment = match lent.array >> 32 == u64::from(self.rank) {
            true => {
                let number = lent.array as u32;
                self.known().arrays.values().find(|array| array.number == number)?.segment.upgrade()?
            }
            false => self.heap.find([KEY, lent.array])?.ok()?,
        };
        Lent::of(segment, usize::try_from(lent.offset).ok()?, len)
    }
}

/// An array in memory that neighbours can read: tables take it as it is where others copy it first.
///
/// It stays usable after its session has ended, as memory like any other.
pub struct SharedArray {
    /// There until it is dropped.
    memory: Option<Memory>,
    number: u32,
    arrays: Arc<Arrays>,
}

impl SharedArray {
    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("there until it is dropped")
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.memory().bytes()
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().expect("there until it is dropped").bytes_mut()
    }

    /// Where it begins: on a page.
    pub fn as_ptr(&self) -> *const u8 {
        self.memory().as_ptr()
    }

    /// Where it begins, for whoever may write to it.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut().expect("there until it is dropped").as_mut_ptr()
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.memory().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Drop for SharedArray {
    fn drop(&mut self) {
        if !self.memory().is_owner() {
            return; // In a forked child nobody may ever let go of the lock below.
        }
        let mut known = self.arrays.known();
        known.arrays.remove(&self.memory().as_ptr().addr());
        self.memory = None; // gives the key back, so that its number may be used again
        known.free.push(self.number);
    }
}

impl std::fmt::Debug for SharedArray {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedArray({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_lies_inside_is_found_and_numbers_come_back() {
        let job = Job::alone(Duration::from_secs(5)).expect("a world of one");
        let arrays = Arrays::of(&job);
        let (first, second) = (arrays.make(10_000).unwrap(), arrays.make(5).unwrap());
        assert_eq!(arrays.locate(&first.bytes()[100..]), Some(LentDelta { array: 0, offset: 100 }));
        assert_eq!(arrays.locate(second.bytes()).map(|lent| lent.array), Some(1));
        assert_eq!(arrays.locate(&[0; 8]), None);
        assert!(arrays.lent(LentDelta { array: 0, offset: 9_000 }, 1_000).is_some());
        assert!(arrays.lent(LentDelta { array: 0, offset: 9_001 }, 1_000).is_none());
        assert!(arrays.lent(LentDelta { array: 7, offset: 0 }, 1).is_none());
        drop(first);
        assert!(arrays.lent(LentDelta { array: 0, offset: 0 }, 1).is_none());
        let mut third = arrays.make(20_000).unwrap();
        assert_eq!(arrays.locate(third.bytes()).map(|lent| lent.array), Some(0));
        assert!(third.bytes().iter().all(|byte| *byte == 0));
        drop((arrays, job));
        third.bytes_mut()[19_999] = 1;
        assert_eq!(third.bytes()[19_999], 1);
    }
}
