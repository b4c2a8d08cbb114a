//! Workqueues: questions from one owner to any number of workers, and their answers.

use std::ffi::{c_char, c_int};

use syncline::ipc::{Side, Workqueue};

use super::channel::collected;
use super::family::{FAMILIES, syncline_family};
use super::item::{give_taken, syncline_item};
use crate::border::{guarded, until};
use crate::failure::syncline_status;
use crate::handles::Handles;
use crate::memory;
use crate::values::{VALUES, give as give_value, syncline_value};

/// Questions from one owner to any number of workers, and their answers. The thread that made it is the owner, all others are
/// workers, unless the handle says otherwise (syncline_workqueue_as_owner, syncline_workqueue_as_worker).
pub struct syncline_workqueue {
    _private: [u8; 0],
}

static WORKQUEUES: Handles<syncline_workqueue, Workqueue> = Handles::new("workqueue", 13);

/// The workqueue of this name in the family, which the first call makes; NULL makes one without a name. `made` tells whether this
/// call did, 1 or 0.
///
/// # Safety
/// `name` is NULL or a text; `out` may be written; `made` is NULL or may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_create(
    family: *mut syncline_family,
    name: *const c_char,
    out: *mut *mut syncline_workqueue,
    made: *mut c_int,
) -> syncline_status {
    guarded(|| {
        let family = FAMILIES.get(family)?;
        // SAFETY: the caller's promise.
        let name = unsafe { memory::text(name, "name") }?;
        let make = || {
            let (queue, new) = match name {
                Some(name) => Workqueue::named(&family, name)?,
                None => (Workqueue::new(&family)?, true),
            };
            // SAFETY: the caller's promise.
            unsafe { memory::give_if(made, "made", c_int::from(new)) }?;
            Ok(queue)
        };
        // SAFETY: the caller's promise.
        unsafe { WORKQUEUES.give(out, make) }
    })
}

/// The workqueue that a value of syncline_workqueue_handle leads to.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_open(
    family: *mut syncline_family,
    handle: *const syncline_value,
    out: *mut *mut syncline_workqueue,
) -> syncline_status {
    guarded(|| {
        let (family, handle) = (FAMILIES.get(family)?, VALUES.get(handle)?);
        // SAFETY: the caller's promise.
        unsafe { WORKQUEUES.give(out, || Ok(Workqueue::open(&family, handle.value())?)) }
    })
}

/// A value that leads to the workqueue, to be sent through anything else of its family.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_handle(queue: *mut syncline_workqueue, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_value(out, WORKQUEUES.get(queue)?.handle()) })
}

/// Another handle to the same queue that is its owner's, whichever thread uses it. Free both.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_as_owner(queue: *mut syncline_workqueue, out: *mut *mut syncline_workqueue) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { WORKQUEUES.give(out, || Ok(WORKQUEUES.get(queue)?.as_owner())) })
}

/// Another handle to the same queue that is a worker's, whichever thread uses it. Free both.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_as_worker(
    queue: *mut syncline_workqueue,
    out: *mut *mut syncline_workqueue,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { WORKQUEUES.give(out, || Ok(WORKQUEUES.get(queue)?.as_worker())) })
}

/// Writes a question (the owner) or an answer (anybody else).
#[unsafe(no_mangle)]
pub extern "C" fn syncline_workqueue_write(queue: *mut syncline_workqueue, value: *const syncline_value, timeout: f64) -> syncline_status {
    guarded(|| {
        let (queue, value) = (WORKQUEUES.get(queue)?, VALUES.get(value)?);
        Ok(queue.write(value.value(), until(timeout)?)?)
    })
}

/// Writes `count` questions or answers together.
///
/// # Safety
/// `values` has `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_write_all(
    queue: *mut syncline_workqueue,
    values: *const *const syncline_value,
    count: usize,
    timeout: f64,
) -> syncline_status {
    guarded(|| {
        let queue = WORKQUEUES.get(queue)?;
        // SAFETY: the caller's promise.
        let values = unsafe { collected(values, count) }?;
        Ok(queue.write_all(&values, until(timeout)?)?)
    })
}

/// Takes the oldest answer (the owner) or question (anybody else), which is leased: see syncline_item. Waits for one `timeout`
/// seconds, 0 as long as it takes. NULL and `over` 1 once the queue is closed and everything in it is finished.
///
/// # Safety
/// `item` may be written; `over` is NULL or may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_read(
    queue: *mut syncline_workqueue,
    timeout: f64,
    item: *mut *mut syncline_item,
    over: *mut c_int,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_taken(item, over, || Ok(WORKQUEUES.get(queue)?.read(until(timeout)?)?)) })
}

/// Takes the oldest answer or question if there is one, else NULL.
///
/// # Safety
/// As syncline_workqueue_read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_try_read(
    queue: *mut syncline_workqueue,
    item: *mut *mut syncline_item,
    over: *mut c_int,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_taken(item, over, || Ok(WORKQUEUES.get(queue)?.try_read()?)) })
}

/// Waits until every question that was written before is finished, those in progress too. For the owner.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_workqueue_drain(queue: *mut syncline_workqueue, timeout: f64) -> syncline_status {
    guarded(|| Ok(WORKQUEUES.get(queue)?.drain(until(timeout)?)?))
}

/// Takes no more questions and wakes whoever waits; what is in it can still be read and answered.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_workqueue_close(queue: *mut syncline_workqueue) -> syncline_status {
    guarded(|| Ok(WORKQUEUES.get(queue)?.close()?))
}

/// What a workqueue holds.
#[repr(C)]
pub struct syncline_workqueue_facts {
    /// 1 if the calling thread is its owner through this handle.
    owner: c_int,
    /// 1 if it was closed.
    closed: c_int,
    /// Questions that no worker has taken.
    questions: usize,
    /// Questions that are not finished, taken or not.
    unfinished: usize,
    /// Answers that the owner has not taken.
    answers: usize,
}

/// What the workqueue holds now.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_workqueue_look(queue: *mut syncline_workqueue, out: *mut syncline_workqueue_facts) -> syncline_status {
    guarded(|| {
        let queue = WORKQUEUES.get(queue)?;
        let facts = syncline_workqueue_facts {
            owner: c_int::from(queue.side() == Side::Owner),
            closed: c_int::from(queue.closed()),
            questions: queue.num_questions(),
            unfinished: queue.unfinished(),
            answers: queue.num_answers(),
        };
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", facts) }
    })
}

/// Frees the handle; the queue ends with the last handle to it, in whatever process.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_workqueue_free(queue: *mut syncline_workqueue) -> syncline_status {
    guarded(|| WORKQUEUES.take(queue).map(drop))
}
