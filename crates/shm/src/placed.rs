//! Control words and payload bytes that live somewhere both sides can see.
//!
//! [`Shared`] is one control structure (nothing but atomics) together with whatever keeps its
//! memory mapped; [`Region`] is a run of payload bytes with the same guarantee. Bytes are copied
//! in and out through raw addresses and never lent as slices: another process may write them at
//! any moment, and a Rust reference would promise that nobody does.

use std::any::Any;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(not(loom))]
use crate::prefetch;
use crate::sync::{AtomicU64, Ordering};

/// What keeps the memory behind a [`Shared`] or a [`Region`] alive.
pub(crate) type Keeper = Arc<dyn Any + Send + Sync>;

/// A structure that may lie in memory another process writes.
///
/// # Safety
/// The type is `repr(C)`, made only of atomics (so every bit pattern is valid and every change
/// goes through a shared reference), has no drop glue, and all-zero bytes are its initial state.
pub(crate) unsafe trait Placed: Send + Sync + 'static {}

/// One control structure and what keeps it mapped. Cloning gives another handle to the same words.
pub struct Shared<T> {
    at: NonNull<T>,
    keeper: Keeper,
}

// SAFETY: a `Shared<T>` only ever gives out `&T`, the memory lives as long as `keeper`, which is
// itself `Send + Sync`, and `T: Sync` is asked for wherever one is built (`Placed` or the bound
// on `in_private_memory`).
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above: sharing a `Shared<T>` shares `&T` and a `Sync` keeper.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T: Send + Sync + 'static> Shared<T> {
    /// Puts `value` into this process's own memory: for threads, tests and loom.
    pub(crate) fn in_private_memory(value: T) -> Self {
        let keeper = Arc::new(value);
        Shared { at: NonNull::from(&*keeper), keeper }
    }
}

impl<T> Shared<T> {
    /// The structure at `at`, which stays valid as long as `keeper` lives.
    ///
    /// # Safety
    /// `at` is aligned for `T` and points to `size_of::<T>()` mapped, writable bytes that stay
    /// mapped while `keeper` lives; they are only ever reached as a `T` or by other processes.
    #[cfg(not(loom))]
    pub(crate) unsafe fn from_raw(at: NonNull<T>, keeper: Keeper) -> Self
    where
        T: Placed,
    {
        Shared { at, keeper }
    }

    /// A handle to one field of the structure.
    pub(crate) fn part<U>(&self, pick: impl FnOnce(&T) -> &U) -> Shared<U> {
        Shared { at: NonNull::from(pick(self)), keeper: Arc::clone(&self.keeper) }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { at: self.at, keeper: Arc::clone(&self.keeper) }
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `at` is aligned and valid for as long as `keeper` lives (constructors), and
        // `self` owns a share of `keeper`. A `T` placed in foreign memory holds only atomics,
        // so writes by other processes are no aliasing violation.
        unsafe { self.at.as_ref() }
    }
}

/// A run of payload bytes and what keeps it mapped.
#[cfg(not(loom))]
#[derive(Clone)]
pub(crate) struct Region {
    at: NonNull<u8>,
    len: usize,
    _keeper: Keeper,
}

// SAFETY: the bytes are only reached through the copies below, which take raw addresses, so no
// reference is shared between threads; who may copy when is the business of ring and arena.
#[cfg(not(loom))]
unsafe impl Send for Region {}
// SAFETY: as above.
#[cfg(not(loom))]
unsafe impl Sync for Region {}

#[cfg(not(loom))]
impl Region {
    /// The `len` bytes at `at`.
    ///
    /// # Safety
    /// `at..at+len` is mapped and writable while `keeper` lives, and the only references into it
    /// are those that [`Region::word`] gives out. `at` is aligned to 8.
    pub(crate) unsafe fn from_raw(at: NonNull<u8>, len: usize, keeper: Keeper) -> Self {
        debug_assert!(at.cast::<u64>().is_aligned());
        Region { at, len, _keeper: keeper }
    }

    /// `len` zero bytes of this process's own memory: for threads and tests.
    pub(crate) fn in_private_memory(len: usize) -> Self {
        struct Words(Box<[std::cell::UnsafeCell<u64>]>);
        // SAFETY: nobody reads or writes through this box; it only owns the memory.
        unsafe impl Sync for Words {}
        let words = (0..len.div_ceil(8)).map(|_| std::cell::UnsafeCell::new(0));
        let words = Words(words.collect());
        let at = NonNull::from(&*words.0).cast();
        // SAFETY: the box keeps its bytes, at least `len` and aligned to 8, at one address while
        // the keeper lives, and `UnsafeCell` allows writing them without a unique reference.
        unsafe { Region::from_raw(at, len, Arc::new(words)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The eight bytes at `offset`, which is a multiple of 8, as an atomic word.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, 8);
        assert!(offset.is_multiple_of(8), "words are aligned");
        // SAFETY: inside the region (`check`) and aligned, as the region and the offset are. An
        // atomic may change under a shared reference. Within this process the same bytes are
        // only copied while nobody uses them as a word: the ring orders that by its positions.
        unsafe { &*self.at.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Asks for the line at `offset` ahead of its use; a hint that changes nothing.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        self.check(offset, 1);
        prefetch::to_read(self.at.as_ptr().wrapping_add(offset));
    }

    /// The same for a line that is going to be written: others' copies of it go meanwhile, not when the writer waits for it.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, offset: usize) {
        self.check(offset, 1);
        prefetch::to_write(self.at.as_ptr().wrapping_add(offset));
    }

    /// Makes the word at `offset` zero before its record is shown.
    #[inline]
    pub(crate) fn clear_word(&self, offset: usize) {
        self.word(offset).store(0, Ordering::Relaxed);
    }

    /// Stores `bytes` at `offset`.
    #[inline]
    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: `check` keeps the target inside the mapped region; `bytes` is private memory,
        // so the two cannot overlap. If a hostile process writes the same bytes meanwhile, they
        // end up as some mixture: any byte is a valid `u8`, and nothing here depends on them.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.as_ptr().add(offset), bytes.len());
        }
    }

    /// Fetches `into.len()` bytes from `offset`.
    #[inline]
    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: as in `copy_in`, with the directions exchanged.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at.as_ptr().add(offset), into.as_mut_ptr(), into.len());
        }
    }

    /// Appends `len` bytes from `offset` to `into`, without zeroing the room first.
    #[inline]
    pub(crate) fn append_out(&self, offset: usize, len: usize, into: &mut Vec<u8>) {
        self.check(offset, len);
        into.reserve(len);
        let old = into.len();
        // SAFETY: the source is inside the region (`check`); `reserve` made room for `len` more
        // bytes, which the copy initialises before `set_len` counts them.
        unsafe {
            std::ptr::copy_nonoverlapping(self.at.as_ptr().add(offset), into.as_mut_ptr().add(old), len);
            into.set_len(old + len);
        }
    }

    /// Ring and arena bound every index by what they mapped before they come here, so a failure
    /// is a bug in them and not something a peer can cause.
    #[inline]
    fn check(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "bytes {offset}+{len} lie outside a region of {}", self.len);
    }
}

/// Under loom every byte is a tracked cell, so a copy that races with another is reported.
#[cfg(loom)]
#[derive(Clone)]
pub(crate) struct Region {
    cells: Arc<Vec<loom::cell::UnsafeCell<u8>>>,
    words: Arc<Vec<AtomicU64>>,
}

#[cfg(loom)]
impl Region {
    pub(crate) fn in_private_memory(len: usize) -> Self {
        Region {
            cells: Arc::new((0..len).map(|_| loom::cell::UnsafeCell::new(0)).collect()),
            words: Arc::new((0..len.div_ceil(8)).map(|_| AtomicU64::new(0)).collect()),
        }
    }

    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        &self.words[offset / 8]
    }

    pub(crate) fn prefetch(&self, _offset: usize) {}

    pub(crate) fn prefetch_to_write(&self, _offset: usize) {}

    /// The word overlays payload of an earlier lap, which must have been copied out by now.
    pub(crate) fn clear_word(&self, offset: usize) {
        self.copy_in(offset, &[0; 8]);
        self.word(offset).store(0, Ordering::Relaxed);
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(crate) fn copy_in(&self, offset: usize, bytes: &[u8]) {
        for (cell, byte) in self.cells[offset..][..bytes.len()].iter().zip(bytes) {
            // SAFETY: loom runs one thread at a time and fails the model if this write races.
            cell.with_mut(|at| unsafe { *at = *byte });
        }
    }

    pub(crate) fn copy_out(&self, offset: usize, into: &mut [u8]) {
        for (cell, byte) in self.cells[offset..][..into.len()].iter().zip(into) {
            // SAFETY: loom runs one thread at a time and fails the model if this read races.
            *byte = cell.with(|at| unsafe { *at });
        }
    }

    pub(crate) fn append_out(&self, offset: usize, len: usize, into: &mut Vec<u8>) {
        let old = into.len();
        into.resize(old + len, 0);
        self.copy_out(offset, &mut into[old..]);
    }
}

/// A word of shared memory.
#[repr(transparent)]
#[derive(Default)]
pub struct AtomicWord(AtomicU64);

impl AtomicWord {
    /// What it says; everything stored before it was set is visible.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Makes it say `value`.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Makes it say `value`, and keeps later loads behind that: what one does before looking for sleepers.
    #[inline]
    pub fn publish(&self, value: u64) {
        crate::sync::publish(&self.0, value);
    }

    /// Makes it say at least `value`.
    #[inline]
    pub fn raise(&self, value: u64) {
        self.0.fetch_max(value, Ordering::AcqRel);
    }

    /// Counts one up and returns what it said before; ordered with all other such operations.
    #[inline]
    pub fn advance(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// What it says, ordered with [`advance`](AtomicWord::advance).
    #[inline]
    pub fn get_ordered(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Changes it from `old` to `new`; false when it said something else.
    #[inline]
    pub fn exchange(&self, old: u64, new: u64) -> bool {
        self.0.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A value alone on its pair of cache lines (two, because processors fetch lines in pairs), so
/// that writing it disturbs nobody who reads its neighbours.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct Line<T>(pub(crate) T);

impl<T> Deref for Line<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
