//! Reductions that go on while the caller does something else.

use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use syncline::Error;
use syncline::collective::{OwnedLeaf, Pending};
use syncline::ipc::Shape;

use super::{TREES, syncline_tree};
use crate::border::{call_as, guarded, no_deadline, until};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::{facts, memory};

/// A reduction under way.
pub struct syncline_reduction {
    _private: [u8; 0],
}

struct Reduction {
    /// None in a tree of one, where there is nothing to do.
    pending: Option<Pending<Vec<OwnedLeaf<Borrowed>>>>,
    /// What came out, once it is known.
    outcome: Mutex<Option<Result<u32, Error>>>,
}

static REDUCTIONS: Handles<syncline_reduction, Reduction> = Handles::new("reduction", 9);

/// The caller's memory, which is the operation's until it is over.
struct Borrowed {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory, which the caller has promised to leave alone until the operation is over.
unsafe impl Send for Borrowed {}
// SAFETY: nothing is read or written through a shared reference.
unsafe impl Sync for Borrowed {}

impl AsMut<[u8]> for Borrowed {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: looked at by `memory::numbers_mut` when it was borrowed; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Reduction {
    fn wait(&self, timeout: Option<f64>) -> Result<u32, Failure> {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &*outcome {
            return known.clone().map_err(Failure::from);
        }
        let by = timeout.map_or_else(|| Ok(no_deadline()), until)?;
        let result = self.pending.as_ref().map_or(Ok(1), |pending| match pending.wait(by) {
            Err(error) if !pending.done() => Err((error, false)), // it goes on: wait again
            result => result.map(|(_, contributors)| contributors).map_err(|error| (error, true)),
        });
        match result {
            Err((error, false)) => return Err(Failure::from(Error::from(error))),
            Err((error, true)) => *outcome = Some(Err(Error::from(error))),
            Ok(contributors) => *outcome = Some(Ok(contributors)),
        }
        drop(outcome);
        self.wait(None)
    }
}

/// Begins a syncline_tree_all_reduce and returns at once; `data` belongs to the operation until syncline_reduction_wait has
/// succeeded or failed for good, or the reduction was freed.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, which nobody else uses until the operation is over; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_tree_all_reduce_start(
    tree: *mut syncline_tree,
    data: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
    out: *mut *mut syncline_reduction,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let (tree, dtype, op) = (TREES.get(tree)?, facts::dtype(dtype)?, facts::op(op)?);
        let shape = Shape::new(&[count]).map_err(|error| Failure::argument(error.to_string()))?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        let array = Borrowed { start: bytes.as_mut_ptr(), bytes: bytes.len() };
        let leaf = OwnedLeaf { name: String::new(), dtype, shape, array };
        let pending =
            tree.collectives().map(|below| call_as(tree.timeout(), |how| below.all_reduce_leaves_start(vec![leaf], op, true, how)));
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", REDUCTIONS.put(Reduction { pending, outcome: Mutex::new(None) })) }
    })
}

/// Whether syncline_reduction_wait would return at once, 1 or 0.
///
/// # Safety
/// `done` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_reduction_done(reduction: *mut syncline_reduction, done: *mut c_int) -> syncline_status {
    guarded(|| {
        let reduction = REDUCTIONS.get(reduction)?;
        let is_done = reduction.pending.as_ref().is_none_or(Pending::done);
        // SAFETY: the caller's promise.
        unsafe { memory::give(done, "done", c_int::from(is_done)) }
    })
}

/// Waits `timeout` seconds (0: as long as the tree waits) until the numbers are reduced, and tells how many nodes had data. After
/// SYNCLINE_TIMEOUT or SYNCLINE_INTERRUPTED with syncline_reduction_done still 0 it goes on: wait again.
///
/// # Safety
/// `contributors` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_reduction_wait(
    reduction: *mut syncline_reduction,
    timeout: f64,
    contributors: *mut u32,
) -> syncline_status {
    guarded(|| {
        let had = REDUCTIONS.get(reduction)?.wait(Some(timeout))?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(contributors, "contributors", had) }
    })
}

/// Frees a reduction; one that is under way is waited for, since it writes into the caller's memory.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_reduction_free(reduction: *mut syncline_reduction) -> syncline_status {
    guarded(|| {
        let reduction = REDUCTIONS.take(reduction)?;
        while reduction.pending.as_ref().is_some_and(|pending| !pending.done()) {
            // The operation has a deadline of its own. Whoever interrupts a wait has to wait all the same.
            let _ = reduction.wait(Some(Duration::from_millis(100).as_secs_f64()));
        }
        Ok(())
    })
}
