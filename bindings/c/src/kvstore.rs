//! The key-value store: push gradients, pull weights.
//!
//! ```text
//! kvstore.rs      the handle, what a store is, what it does with pushes
//! arrays.rs       keys and arrays as callers describe them
//! rows.rs         arrays of which only some rows are there
//! calls.rs        init, push, pull and their relatives
//! background.rs   the same, going on meanwhile
//! optimizer.rs    optimizers by name and options
//! updater.rs      functions of the caller's that decide what a push does
//! ```
//! All rules are in the crate `syncline-kvstore`; here is what becomes slices and back.

pub mod arrays;
pub mod background;
pub mod calls;
pub mod optimizer;
pub mod rows;
pub mod updater;

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use syncline::kvstore::{Kind, KvStore};
use syncline::{Config, Deadline};

use crate::border::{deadline, guarded, with_site};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::session::{SESSIONS, syncline_session};

/// A key-value store in the manner of MXNet's. May be used from many threads.
pub struct syncline_kvstore {
    _private: [u8; 0],
}

/// A store and how patient its calls are.
pub(crate) struct Patient {
    pub(crate) store: KvStore,
    timeout: Duration,
}

pub(crate) static STORES: Handles<syncline_kvstore, Patient> = Handles::new("store", 40);

impl Patient {
    pub(crate) fn by(&self) -> Deadline {
        deadline(self.timeout)
    }
}

/// Makes a store of this type: "local", "device", "dist_sync", "dist_async" or one of their other names, in any case. A distributed one belongs
/// to `session`, and every worker makes the same ones in the same order; a local one needs none (NULL).
///
/// # Safety
/// `type_name` is a text; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_create(
    session: *mut syncline_session,
    type_name: *const c_char,
    out: *mut *mut syncline_kvstore,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        // SAFETY: the caller's promise.
        let name = unsafe { memory::needed_text(type_name, "type_name") }?;
        let kind = Kind::from_name(name)?;
        let kept = if kind.is_distributed() {
            let session = SESSIONS.get(session)?;
            let timeout = session.timeout();
            Patient { store: with_site(|site| session.kvstore_at(name, site, deadline(timeout)))?, timeout }
        } else {
            Patient { store: KvStore::local(name)?, timeout: Config::from_env()?.settings().timeout }
        };
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", STORES.put(kept)) }
    })
}

/// Frees the handle. Keys of a local store end with its last handle, those of a distributed one with the session.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_kvstore_free(store: *mut syncline_kvstore) -> syncline_status {
    guarded(|| STORES.take(store).map(drop))
}

/// Copies the type, in lower case, into `out`, cut short where there is less room.
///
/// # Safety
/// `out` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_type(store: *mut syncline_kvstore, out: *mut c_char, room: usize) -> syncline_status {
    guarded(|| {
        let kind = STORES.get(store)?.store.kind();
        // SAFETY: the caller's promise.
        unsafe { memory::give_text(out, room, kind.name()) }
    })
}

/// This process's number among the workers, and how many there are: 0 and 1 in a local store.
///
/// # Safety
/// `rank` and `num_workers` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_where(store: *mut syncline_kvstore, rank: *mut i32, num_workers: *mut i32) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(rank, "rank", kept.store.rank() as i32)?;
            memory::give_if(num_workers, "num_workers", kept.store.num_workers() as i32)
        }
    })
}

/// How many processes of the job died; 0 in a local store.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_num_dead_node(store: *mut syncline_kvstore, out: *mut i32) -> syncline_status {
    guarded(|| {
        let dead = STORES.get(store)?.store.raw().num_dead_node() as i32;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", dead) }
    })
}

/// Whether the store can do something, 1 or 0; "optimizer" is all that is ever asked.
///
/// # Safety
/// `capability` is a text; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_is_capable(
    store: *mut syncline_kvstore,
    capability: *const c_char,
    out: *mut c_int,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let capable = kept.store.raw().is_capable(unsafe { memory::needed_text(capability, "capability") }?)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", c_int::from(capable)) }
    })
}

/// Returns when every worker has called it, after what they queued before.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_kvstore_barrier(store: *mut syncline_kvstore) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        Ok(kept.store.raw().barrier(kept.by())?)
    })
}

/// Returns when all calls of this process that go on in the background have ended.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_kvstore_flush(store: *mut syncline_kvstore) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        Ok(kept.store.raw().flush(kept.by())?)
    })
}

/// Makes pushes smaller: `words` are `count` names and values in turn, such as "type" "2bit" "threshold" "0.5". Types are 2bit, 1bit, fp16, bf16,
/// int8 and topk (with "ratio"); "pull" "true" makes pulls smaller too (fp16, bf16, int8). Every worker sets it, before its first push.
///
/// # Safety
/// `words` has 2 · `count` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_set_gradient_compression(
    store: *mut syncline_kvstore,
    words: *const *const c_char,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        let places = count.checked_mul(2).ok_or_else(|| Failure::argument(format!("{count} pairs of words are more than memory holds")))?;
        // SAFETY: the caller's promise.
        let words = unsafe { memory::values(words, places, "words") }?;
        let mut pairs = Vec::with_capacity(count);
        for pair in words.chunks_exact(2) {
            // SAFETY: the caller's promise.
            pairs.push(unsafe { (memory::needed_text(pair[0], "words")?, memory::needed_text(pair[1], "words")?) });
        }
        Ok(kept.store.set_gradient_compression(&pairs)?)
    })
}

/// Writes what the optimizer keeps of all keys, residuals of compression, and with `with_optimizer` not 0 the optimizer, to one file. Every worker
/// of a distributed store calls it.
///
/// # Safety
/// `path` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_save_optimizer_states(
    store: *mut syncline_kvstore,
    path: *const c_char,
    with_optimizer: c_int,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let path = unsafe { memory::needed_text(path, "path") }?;
        Ok(kept.store.raw().save_optimizer_states(path.as_ref(), with_optimizer != 0, kept.by())?)
    })
}

/// Reads such a file, written by any number of workers and servers. Every worker of a distributed store calls it.
///
/// # Safety
/// `path` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_load_optimizer_states(store: *mut syncline_kvstore, path: *const c_char) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let path = unsafe { memory::needed_text(path, "path") }?;
        Ok(kept.store.raw().load_optimizer_states(path.as_ref(), kept.by())?)
    })
}

/// Sends a command by the numbers that MXNet gives them, and copies what became of it, in words, into `answer`, cut short where there is less
/// room. Nothing that is sent is ever executed.
///
/// # Safety
/// `body` has `size` bytes; `answer` is NULL or has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_kvstore_send_command_to_servers(
    store: *mut syncline_kvstore,
    head: i64,
    body: *const c_void,
    size: usize,
    answer: *mut c_char,
    room: usize,
) -> syncline_status {
    guarded(|| {
        let kept = STORES.get(store)?;
        // SAFETY: the caller's promise.
        let body = unsafe { memory::values(body.cast::<u8>(), size, "body") }?;
        let said = kept.store.raw().send_command_to_servers(head, body, kept.by())?;
        // SAFETY: the caller's promise.
        if answer.is_null() { Ok(()) } else { unsafe { memory::give_text(answer, room, &said) } }
    })
}
