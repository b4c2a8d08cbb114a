//! Calls that go on in the background, the most urgent first.

use std::ffi::c_int;

use syncline::kvstore::{Key, Output, Pending, Tensor};

use super::arrays::{keys, syncline_kv_array, syncline_kv_key, targets};
use super::calls::{listed, with_pushes};
use super::{STORES, syncline_kvstore};
use crate::border::{guarded, no_deadline};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;

/// A call of a store that is under way.
pub struct syncline_kv_future {
    _private: [u8; 0],
}

enum Coming {
    Nothing(Pending<()>),
    Arrays(Pending<Tensor>),
}

static COMING: Handles<syncline_kv_future, Coming> = Handles::new("future of a store", 42);

/// Pushes as syncline_kvstore_push, but returns at once; values are copied first. Calls of one key keep their order; among keys the larger
/// `priority` goes first. The error of such a push is that of its future, and of the next pull of its key. `out` may be NULL.
///
/// # Safety
/// As syncline_kvstore_push; `out` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_push_async(
    store: *mut syncline_kvstore,
    keys: *const syncline_kv_key,
    values: *const syncline_kv_array,
    count: usize,
    priority: i32,
    out: *mut *mut syncline_kv_future,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let (keys, values) = unsafe { listed(keys, values, count) }?;
        let pending = with_pushes(&keys, &values, |pushes| Ok(kept.store.raw().push_async(pushes, priority, kept.by())?))?;
        if out.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", COMING.put(Coming::Nothing(pending))) }
    })
}

/// Begins to pull `count` keys and returns at once; syncline_kv_future_read has the values.
///
/// # Safety
/// `keys` has `count` keys; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_pull_async(
    store: *mut syncline_kvstore,
    keys: *const syncline_kv_key,
    count: usize,
    priority: i32,
    out: *mut *mut syncline_kv_future,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let keys = unsafe { self::keys(keys, count) }?;
        let keys: Vec<&Key> = keys.iter().collect();
        let pending = kept.store.raw().pull_async(&keys, priority, kept.by())?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", COMING.put(Coming::Arrays(pending))) }
    })
}

/// Whether syncline_kv_future_wait would return at once: 1 or 0.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kv_future_done(future: *mut syncline_kv_future, out: *mut c_int) -> syncline_status {
    guarded(|| {
        let done = match &*COMING.get(future)? {
            Coming::Nothing(pending) => pending.done(),
            Coming::Arrays(pending) => pending.done(),
        };
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", c_int::from(done)) }
    })
}

/// Waits until the call has ended, and tells how. `timeout` is in seconds; 0 waits as long as the call itself does. After SYNCLINE_TIMEOUT it may be
/// waited for again.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_kv_future_wait(future: *mut syncline_kv_future, timeout: f64) -> syncline_status {
    guarded(|| {
        let patience = memory::patience(timeout)?;
        match &*COMING.get(future)? {
            Coming::Nothing(pending) => pending.wait(patience, no_deadline()).map(drop)?,
            Coming::Arrays(pending) => pending.wait(patience, no_deadline()).map(drop)?,
        }
        Ok(())
    })
}

/// Waits for a pull and copies its values into `count` arrays, in the order of the keys.
///
/// # Safety
/// `outs` has `count` arrays with room for what is written; nobody else uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kv_future_read(
    future: *mut syncline_kv_future,
    timeout: f64,
    outs: *const syncline_kv_array,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let (patience, coming) = (memory::patience(timeout)?, COMING.get(future)?);
        let Coming::Arrays(pending) = &*coming else { return Err(Failure::argument("a push brings nothing back")) };
        // SAFETY: the caller's promise.
        let mut outs = unsafe { targets(outs, count) }?;
        let tensors = pending.wait(patience, no_deadline())?;
        if tensors.len() != count {
            return Err(Failure::shape(format!("{} keys were pulled, and there are {count} outputs", tensors.len())));
        }
        for (out, tensor) in outs.iter_mut().zip(&tensors) {
            let Output::Dense(mut out) = out.output()? else { return Err(Failure::argument("a pull fills dense arrays")) };
            if (out.dtype(), out.shape()) != (tensor.dtype(), tensor.shape().dims()) {
                let (dtype, dims) = (tensor.dtype(), tensor.shape().dims());
                return Err(Failure::shape(format!(
                    "the value is {dtype} of shape {dims:?}, the output {} of {:?}",
                    out.dtype(),
                    out.shape()
                )));
            }
            out.bytes().copy_from_slice(tensor.bytes());
        }
        Ok(())
    })
}

/// Frees a future; the call goes on unseen if it is still under way.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_kv_future_free(future: *mut syncline_kv_future) -> syncline_status {
    guarded(|| COMING.take(future).map(drop))
}
