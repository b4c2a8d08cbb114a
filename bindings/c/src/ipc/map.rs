//! A function of the caller's on many threads at once.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use syncline::Value;
use syncline::ipc::{Map, MapError, map_extended};

use crate::border::{guarded, until};
use crate::failure::{Failure, syncline_status, words_of_caller};
use crate::handles::Handles;
use crate::memory;
use crate::values::{give as give_value, left_at, syncline_value};

/// Threads that each run a function.
pub struct syncline_map {
    _private: [u8; 0],
}

static MAPS: Handles<syncline_map, Map<Value<'static>>> = Handles::new("map", 16);

/// Makes what the function gets as its `state`; not 0 fails this worker before the function is called.
pub type syncline_init = Option<unsafe extern "C" fn(user: *mut c_void, state: *mut *mut c_void) -> c_int>;

/// What a worker runs; `id` is 1 … n. What it leaves at `result` is taken over; NULL is nil. Not 0 fails this worker, with the words
/// of its thread's last error.
pub type syncline_work =
    Option<unsafe extern "C" fn(state: *mut c_void, user: *mut c_void, id: usize, result: *mut *mut syncline_value) -> c_int>;

/// A pointer of the caller's on its way to other threads, which the caller has promised to be fine.
#[derive(Clone, Copy)]
pub(super) struct Users(pub(super) *mut c_void);

// SAFETY: only the caller's functions look at it, and the header says that they run in other threads.
unsafe impl Send for Users {}
// SAFETY: as above.
unsafe impl Sync for Users {}

impl Users {
    /// As a method, so that closures capture the whole and not the bare pointer.
    pub(super) fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// What a function that ran on a thread of ours has made, or its words.
pub(super) fn made(result: *mut syncline_value, code: c_int) -> Result<Value<'static>, String> {
    let words = (code != 0).then(|| words_of_caller(code));
    let left = left_at(result, "the function", code);
    left.map(Option::unwrap_or_default).map_err(|failure| words.unwrap_or_else(|| failure.text().to_owned()))
}

/// Starts `n` threads, each of which runs `work(state, user, id, &result)`, and returns at once. With `init` each thread first makes a
/// state of its own by it; NULL: the state is NULL. `user` is for all of them.
///
/// # Safety
/// `init` and `work` can be called with `user` from other threads until they have ended; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_map_start(
    n: usize,
    init: syncline_init,
    work: syncline_work,
    user: *mut c_void,
    out: *mut *mut syncline_map,
) -> syncline_status {
    const MOST: usize = 100_000;
    guarded(|| {
        let work = work.ok_or_else(|| Failure::argument("work is NULL"))?;
        if n > MOST {
            return Err(Failure::argument(format!("{n} threads are too many; at most {MOST} can be started")));
        }
        let user = Users(user);
        let init = move || {
            let mut state = null_mut();
            // SAFETY: the caller's promise.
            let code = init.map_or(0, |init| unsafe { init(user.pointer(), &raw mut state) });
            if code == 0 { Ok(state) } else { Err(words_of_caller(code)) }
        };
        let work = move |state: &mut *mut c_void, id: usize| {
            let mut result = null_mut();
            // SAFETY: the caller's promise.
            let code = unsafe { work(*state, user.pointer(), id, &raw mut result) };
            made(result, code)
        };
        // SAFETY: the caller's promise.
        unsafe { MAPS.give(out, || Ok(map_extended(n, init, work))) }
    })
}

/// Waits until all have ended and gives their results, a list by id. If any has failed it is SYNCLINE_CALLER with the words of each. At
/// the end of `timeout` seconds (0: as long as it takes) it may be called again. A second list is empty.
///
/// # Safety
/// `results` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_map_join(map: *mut syncline_map, timeout: f64, results: *mut *mut syncline_value) -> syncline_status {
    guarded(|| {
        memory::check_out(results, "results")?;
        let made = MAPS.get(map)?.join(until(timeout)?)?;
        // SAFETY: the caller's promise.
        unsafe { give_value(results, Value::List(made)) }
    })
}

/// SYNCLINE_CALLER if some have failed so far, with the words of each, while others may still run. They no longer count in
/// syncline_map_join.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_map_check_errors(map: *mut syncline_map) -> syncline_status {
    guarded(|| Ok(MAPS.get(map)?.check_errors()?))
}

/// How many have ended, and how many there are.
///
/// # Safety
/// Both are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_map_progress(map: *mut syncline_map, ended: *mut usize, of: *mut usize) -> syncline_status {
    guarded(|| {
        let (over, all) = MAPS.get(map)?.progress();
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(ended, "ended", over)?;
            memory::give_if(of, "of", all)
        }
    })
}

/// Frees the handle. Threads that still run do so until they end.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_map_free(map: *mut syncline_map) -> syncline_status {
    guarded(|| MAPS.take(map).map(drop))
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Failure {
        match &error {
            MapError::Failed { .. } => Failure::new(syncline_status::SYNCLINE_CALLER, error.to_string()),
            _ => Failure::of_kind(error.kind(), &error),
        }
    }
}
