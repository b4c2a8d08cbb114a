//! A recursive lock between threads and processes, and a barrier.

use std::ffi::c_int;

use syncline::ipc::Mutex;

use super::family::{FAMILIES, syncline_family};
use crate::border::{guarded, until};
use crate::failure::syncline_status;
use crate::handles::Handles;
use crate::memory;
use crate::values::{VALUES, give as give_value, syncline_value};

/// A recursive lock between threads and processes, and a barrier.
pub struct syncline_mutex {
    _private: [u8; 0],
}

static MUTEXES: Handles<syncline_mutex, Mutex> = Handles::new("mutex", 14);

/// Makes a mutex.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_mutex_create(family: *mut syncline_family, out: *mut *mut syncline_mutex) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { MUTEXES.give(out, || Ok(Mutex::new(&*FAMILIES.get(family)?)?)) })
}

/// The mutex that a value of syncline_mutex_handle leads to.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_mutex_open(
    family: *mut syncline_family,
    handle: *const syncline_value,
    out: *mut *mut syncline_mutex,
) -> syncline_status {
    guarded(|| {
        let (family, handle) = (FAMILIES.get(family)?, VALUES.get(handle)?);
        // SAFETY: the caller's promise.
        unsafe { MUTEXES.give(out, || Ok(Mutex::open(&family, handle.value())?)) }
    })
}

/// A value that leads to the mutex, to be sent through anything else of its family.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_mutex_handle(mutex: *mut syncline_mutex, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_value(out, MUTEXES.get(mutex)?.handle()) })
}

/// Locks it for this thread, which may do so again; waits `timeout` seconds, 0 as long as it takes. `recovered` 1 tells that the last
/// holder died with it: what it guards may be half changed.
///
/// # Safety
/// `recovered` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_mutex_lock(mutex: *mut syncline_mutex, timeout: f64, recovered: *mut c_int) -> syncline_status {
    guarded(|| {
        let died = MUTEXES.get(mutex)?.acquire(until(timeout)?)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(recovered, "recovered", c_int::from(died)) }
    })
}

/// Unlocks it once; SYNCLINE_CONFIGURATION if this thread does not hold it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_mutex_unlock(mutex: *mut syncline_mutex) -> syncline_status {
    guarded(|| Ok(MUTEXES.get(mutex)?.release()?))
}

/// Waits until `count` threads, of whatever processes, have called it; then all pass, and it can be used again.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_mutex_barrier(mutex: *mut syncline_mutex, count: usize, timeout: f64) -> syncline_status {
    guarded(|| Ok(MUTEXES.get(mutex)?.barrier(count, until(timeout)?)?))
}

/// Frees the handle; the mutex ends with the last handle to it, in whatever process.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_mutex_free(mutex: *mut syncline_mutex) -> syncline_status {
    guarded(|| MUTEXES.take(mutex).map(drop))
}
