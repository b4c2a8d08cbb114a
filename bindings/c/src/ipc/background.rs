//! Functions of the caller's that run while it does something else.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use syncline::Value;
use syncline::ipc::{BackgroundTaskPool, TaskError};

use super::map::{Users, made};
use crate::border::{guarded, until};
use crate::failure::{Failure, forget, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::values::{give_if_any, syncline_value};

/// Some threads that work off tasks.
pub struct syncline_pool {
    _private: [u8; 0],
}

static POOLS: Handles<syncline_pool, BackgroundTaskPool<Value<'static>>> = Handles::new("pool", 17);

/// What runs in the background. What it leaves at `result` is taken over; NULL is nil. Not 0 fails it, with the words of its
/// thread's last error.
pub type syncline_task = Option<unsafe extern "C" fn(user: *mut c_void, result: *mut *mut syncline_value) -> c_int>;

/// Makes a pool of `n` threads. With `close_on_last_task` not 0 they end once every task that was added has; otherwise when the pool is
/// freed.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_pool_create(n: usize, close_on_last_task: c_int, out: *mut *mut syncline_pool) -> syncline_status {
    const MOST: usize = 100_000;
    guarded(|| {
        if n == 0 || n > MOST {
            return Err(Failure::argument(format!("a pool of {n} threads; 1 to {MOST} can be")));
        }
        let make = || match close_on_last_task {
            0 => Ok(BackgroundTaskPool::new(n)?),
            _ => Ok(BackgroundTaskPool::closing_on_last_task(n)?),
        };
        // SAFETY: the caller's promise.
        unsafe { POOLS.give(out, make) }
    })
}

/// Runs one task on a thread of its own: a pool of one that ends with it. Its number is 1.
///
/// # Safety
/// `task` can be called with `user` from another thread; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_task_start(task: syncline_task, user: *mut c_void, out: *mut *mut syncline_pool) -> syncline_status {
    guarded(|| {
        let work = wrapped(task, user)?;
        let make = || {
            let pool = BackgroundTaskPool::closing_on_last_task(1)?;
            pool.add_task(work)?;
            Ok(pool)
        };
        // SAFETY: the caller's promise.
        unsafe { POOLS.give(out, make) }
    })
}

fn wrapped(task: syncline_task, user: *mut c_void) -> Result<impl FnOnce() -> Result<Value<'static>, String> + Send, Failure> {
    let task = task.ok_or_else(|| Failure::argument("task is NULL"))?;
    let user = Users(user);
    Ok(move || {
        forget(); // what an earlier task of this thread has failed with
        let mut result = null_mut();
        // SAFETY: the caller of `add` promised that it can be called so.
        let code = unsafe { task(user.pointer(), &raw mut result) };
        made(result, code)
    })
}

/// Adds a task and tells its number: 1, 2, …
///
/// # Safety
/// `task` can be called with `user` from another thread; `id` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_pool_add(
    pool: *mut syncline_pool,
    task: syncline_task,
    user: *mut c_void,
    id: *mut u64,
) -> syncline_status {
    guarded(|| {
        let number = POOLS.get(pool)?.add_task(wrapped(task, user)?)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(id, "id", number) }
    })
}

/// Whether task `id` has ended (0: all of them), and whether there is one whose result nobody has taken; 1 or 0.
///
/// # Safety
/// Both are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_pool_look(pool: *mut syncline_pool, id: u64, done: *mut c_int, has_task: *mut c_int) -> syncline_status {
    guarded(|| {
        let pool = POOLS.get(pool)?;
        let over = pool.is_done(Some(id).filter(|id| *id != 0))?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(done, "done", c_int::from(over))?;
            memory::give_if(has_task, "has_task", c_int::from(pool.has_task()))
        }
    })
}

/// Waits `timeout` seconds (0: as long as it takes) for task `id` (0: the first whose result was not taken) and gives its result,
/// once: NULL if it was taken before. SYNCLINE_CALLER, once, if the task failed.
///
/// # Safety
/// `result` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_pool_result(
    pool: *mut syncline_pool,
    id: u64,
    timeout: f64,
    result: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        let pool = POOLS.get(pool)?;
        let take = || Ok(pool.get_result(Some(id).filter(|id| *id != 0), until(timeout)?)?);
        // SAFETY: the caller's promise.
        unsafe { give_if_any(result, take) }
    })
}

/// Frees the pool. Tasks that nobody has begun are forgotten, those that run go on until they end.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_pool_free(pool: *mut syncline_pool) -> syncline_status {
    guarded(|| POOLS.take(pool).map(drop))
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Failure {
        match &error {
            TaskError::Failed { .. } => Failure::new(syncline_status::SYNCLINE_CALLER, error.to_string()),
            _ => Failure::of_kind(error.kind(), &error),
        }
    }
}
