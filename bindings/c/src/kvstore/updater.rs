//! Functions of the caller's that decide what a push does to a local store.

use std::ffi::{CString, c_int, c_void};

use syncline::Error;
use syncline::kvstore::{DenseMut, Key, Value};

use super::arrays::{syncline_kv_array, syncline_kv_key};
use super::rows::Passing;
use super::{STORES, syncline_kvstore};
use crate::border::guarded;
use crate::failure::syncline_status;

/// Changes `stored` by what was pushed; both are lent for the time of the call. Not 0 fails the push with SYNCLINE_SYSTEM, and what the function
/// changed before stays changed. It must not call a store. It runs in the thread that pushes, or in one of the store's own when the push goes on
/// in the background.
pub type syncline_kv_updater = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        key: *const syncline_kv_key,
        pushed: *const syncline_kv_array,
        stored: *const syncline_kv_array,
    ) -> c_int,
>;

/// What the caller wants to get back with each call.
struct User(*mut c_void);

// SAFETY: it is handed back and never followed; the header says in which threads.
unsafe impl Send for User {}

impl User {
    fn address(&self) -> *mut c_void {
        self.0
    }
}

/// Lets a function decide what a push does, with the caller's own key; NULL lets pushes replace what is stored. Local stores only: functions
/// do not travel.
///
/// # Safety
/// `updater` can be called with `user` for as long as the store has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_set_updater(
    store: *mut syncline_kvstore,
    updater: syncline_kv_updater,
    user: *mut c_void,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        let Some(function) = updater else { return Ok(kept.store.raw().set_updater(None)?) };
        let user = User(user);
        Ok(kept.store.set_updater(move |key, pushed, stored| {
            let lend = |key: &syncline_kv_key, pushed: &syncline_kv_array, stored: &syncline_kv_array| {
                // SAFETY: all three are whole and live for the call; the rest is the caller's promise.
                unsafe { function(user.address(), key, pushed, stored) }
            };
            match with_lent(key, pushed, stored, lend) {
                0 => Ok(()),
                outcome => Err(Error::of_function("push", format!("key {key}: the updater returned {outcome}"))),
            }
        })?)
    })
}

fn with_lent(
    key: &Key,
    pushed: Value<'_>,
    mut stored: DenseMut<'_>,
    call: impl FnOnce(&syncline_kv_key, &syncline_kv_array, &syncline_kv_array) -> c_int,
) -> c_int {
    let name = match key {
        Key::Name(name) => Some(CString::new(name.as_str()).unwrap_or_default()),
        Key::Int(_) => None,
    };
    let lent_key = syncline_kv_key {
        name: name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()),
        number: if let Key::Int(number) = key { *number } else { 0 },
    };
    let shape = stored.shape();
    let like = |data: *mut c_void| syncline_kv_array {
        dtype: stored.dtype() as i32,
        axes: shape.len() as u32,
        dims: shape.as_ptr(),
        data,
        rows: std::ptr::null_mut(),
    };
    let (rows, lent_pushed) = match pushed {
        Value::Dense(dense) => (None, like(dense.bytes().as_ptr().cast_mut().cast())),
        Value::RowSparse(rows) => {
            let rows = Passing::of(rows.clone());
            let handle = rows.0;
            (Some(rows), syncline_kv_array { rows: handle, ..like(std::ptr::null_mut()) })
        }
    };
    let lent_stored = syncline_kv_array {
        dtype: stored.dtype() as i32,
        axes: shape.len() as u32,
        dims: shape.as_ptr(),
        data: stored.bytes().as_mut_ptr().cast(),
        rows: std::ptr::null_mut(),
    };
    let outcome = call(&lent_key, &lent_pushed, &lent_stored);
    drop(rows);
    outcome
}
