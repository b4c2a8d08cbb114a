//! The one job of this process, which `multiverso` and what else stands on it share.
//!
//! Rust's sessions are values; Lua's users expect `mv.init()` and module functions, so one session is kept here.

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use mlua::{Lua, Table, Value};
use syncline::{Config, Deadline, Session};

use crate::arguments::kind;
use crate::interrupt;
use crate::reply::Failure;
use crate::tables::op_of;
use crate::values::opened;

static JOB: Mutex<State> = Mutex::new(State::Idle { ended: false });

enum State {
    Idle { ended: bool },
    Opening,
    Open(Arc<Session>),
}

fn state() -> MutexGuard<'static, State> {
    // The lock guards one assignment at a time: a panic elsewhere leaves nothing half done.
    JOB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Joins the job that this process was started in, or a world of one.
pub(crate) fn open(_: &Lua, (sync, timeout): (bool, Option<f64>)) -> Result<(), Failure> {
    let ended = {
        let mut state = state(); // one look: of two threads that open at the same time one is refused
        let State::Idle { ended } = *state else {
            let text = "init: this process is already in a job\nhint: call init once, at the start; shutdown leaves the job";
            return Err(Failure::new("ConfigurationError", text));
        };
        *state = State::Opening;
        ended
    };
    let opened = || -> Result<Session, Failure> {
        let mut config = Config::from_env()?.sync(sync);
        if let Some(seconds) = timeout {
            config = config.timeout(seconds_from(seconds)?);
        }
        let by = interrupt::deadline(config.settings().timeout);
        Ok(Session::open_by(config, by)?)
    };
    match opened() {
        Ok(session) => {
            *state() = State::Open(Arc::new(session));
            watch_exit();
            Ok(())
        }
        Err(failure) => {
            *state() = State::Idle { ended };
            Err(failure)
        }
    }
}

/// A time to wait.
pub(crate) fn seconds_from(seconds: f64) -> Result<std::time::Duration, Failure> {
    let patience = std::time::Duration::try_from_secs_f64(seconds).ok().filter(|patience| !patience.is_zero());
    patience.ok_or_else(|| Failure::argument(format!("timeout {seconds} is not a time to wait; give seconds")))
}

/// Leaves the job; does nothing when none is open.
pub(crate) fn shutdown(_: &Lua, (): ()) -> Result<(), Failure> {
    match take() {
        Some(session) => Ok(session.shutdown_by(interrupt::no_deadline())?),
        None => Ok(()),
    }
}

/// Leaves the job because this process failed; the others are told why.
pub(crate) fn abort(_: &Lua, reason: String) -> Result<(), Failure> {
    if let Some(session) = take() {
        session.abort(&reason);
    }
    Ok(())
}

fn take() -> Option<Arc<Session>> {
    let mut state = state();
    let State::Open(session) = &*state else { return None };
    let session = Arc::clone(session);
    *state = State::Idle { ended: true };
    Some(session)
}

/// The session that is open.
pub(crate) fn current(operation: &str) -> Result<Arc<Session>, Failure> {
    match &*state() {
        State::Open(session) => Ok(Arc::clone(session)),
        State::Idle { ended: true } => Err(Failure::new("Closed", format!("{operation}: this process has left its job"))),
        _ => Err(Failure::new("Closed", format!("{operation}: this process is in no job yet\nhint: call init() first"))),
    }
}

pub(crate) fn barrier(_: &Lua, (): ()) -> Result<(), Failure> {
    let session = current("barrier")?;
    Ok(session.barrier_by(interrupt::deadline(session.timeout()))?)
}

/// Who this process is in its job.
pub(crate) fn place(lua: &Lua, (): ()) -> Result<Table, Failure> {
    let session = current("place")?;
    let place = lua.create_table()?;
    place.set("rank", session.rank())?;
    place.set("size", session.size())?;
    place.set("num_workers", session.num_workers())?;
    place.set("worker_id", session.worker_id().map_or(-1, i64::from))?;
    place.set("num_servers", session.num_servers())?;
    place.set("server_id", session.server_id().map_or(-1, i64::from))?;
    Ok(place)
}

pub(crate) fn num_workers(_: &Lua, (): ()) -> Result<u32, Failure> {
    Ok(current("num_workers")?.num_workers())
}

pub(crate) fn worker_id(_: &Lua, (): ()) -> Result<i64, Failure> {
    Ok(current("worker_id")?.worker_id().map_or(-1, i64::from))
}

pub(crate) fn server_id(_: &Lua, (): ()) -> Result<i64, Failure> {
    Ok(current("server_id")?.server_id().map_or(-1, i64::from))
}

/// Combines a tensor over all workers, in place.
pub(crate) fn aggregate(lua: &Lua, (tensor, op): (Value, String)) -> Result<(), Failure> {
    let (session, op) = (current("aggregate")?, op_of(&op)?);
    let numbers = opened(lua, &tensor)?.ok_or_else(|| Failure::argument(format!("aggregate: a {} is no tensor", kind(&tensor))))?;
    numbers.write(|bytes| Ok(session.aggregate_bytes(bytes, numbers.dtype, op, interrupt::deadline(session.timeout()))?))
}

pub(crate) fn save(_: &Lua, path: String) -> Result<(), Failure> {
    let session = current("save")?;
    Ok(session.save_by(path, interrupt::deadline(session.timeout()))?)
}

pub(crate) fn load(_: &Lua, path: String) -> Result<(), Failure> {
    let session = current("load")?;
    Ok(session.load_by(path, interrupt::deadline(session.timeout()))?)
}

/// Makes sure that the open session ends with the process. Lua closes its state before, but not in every case, and it does
/// not know the exit status; the C library does.
fn watch_exit() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: `end` is a function of this library, which is never unloaded (see build.rs), and it ignores its argument.
        unsafe { on_exit(end, null_mut()) };
    });
}

extern "C" fn end(status: c_int, _: *mut c_void) {
    // A panic may not unwind into the C library; there is nobody left to tell.
    let _ = catch_unwind(|| {
        // A thread that still holds the lock while the process ends will never give it back.
        let Ok(mut state) = JOB.try_lock() else { return };
        if let State::Open(session) = &*state {
            match status {
                0 => drop(session.shutdown_by(Deadline::never())),
                _ => session.abort(&format!("exited with status {status}")),
            }
            *state = State::Idle { ended: true };
        }
    });
}

unsafe extern "C" {
    /// glibc: calls `function` with the exit status when the process ends by `exit` or by returning from `main`.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}
