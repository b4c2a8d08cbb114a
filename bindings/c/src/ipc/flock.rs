//! Locks on files, which programs that know nothing of each other may agree on.

use std::ffi::{c_char, c_int};

use syncline::ipc::{Flock, FlockError};

use crate::border::{guarded, until};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;

/// A file that is locked.
pub struct syncline_flock {
    _private: [u8; 0],
}

static LOCKS: Handles<syncline_flock, Flock> = Handles::new("flock", 18);

/// Locks a file until the lock is freed or this process ends. Waits `timeout` seconds, 0 as long as it takes, and makes the file if it
/// is not there; with `no_block` not 0 it does neither, and the lock is NULL if somebody else holds it.
///
/// # Safety
/// `path` is a text; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_flock_lock(
    path: *const c_char,
    no_block: c_int,
    timeout: f64,
    out: *mut *mut syncline_flock,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { memory::needed_text(path, "path") }?;
        let lock = || match no_block {
            0 => Ok(Some(Flock::lock(path, until(timeout)?)?)),
            _ => Ok(Flock::try_lock(path)?),
        };
        // SAFETY: the caller's promise.
        unsafe { LOCKS.give_if_any(out, lock) }
    })
}

/// Lets go of the file.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_flock_free(lock: *mut syncline_flock) -> syncline_status {
    guarded(|| LOCKS.take(lock).map(drop))
}

impl From<FlockError> for Failure {
    fn from(error: FlockError) -> Failure {
        Failure::of_kind(error.kind(), &error)
    }
}
