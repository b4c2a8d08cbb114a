//! Recursive locks, and barriers.

use mlua::{Lua, UserData, UserDataRef};
use syncline::ipc::Mutex;

use super::family;
use crate::arguments::Whole;
use crate::interrupt::no_deadline;
use crate::reply::Failure;

pub(crate) struct Handle(pub(super) Mutex);

impl UserData for Handle {}

type Given = UserDataRef<Handle>;

pub(crate) fn open(_: &Lua, (): ()) -> Result<Handle, Failure> {
    Ok(Handle(Mutex::new(&family()?)?))
}

pub(crate) fn lock(_: &Lua, mutex: Given) -> Result<(), Failure> {
    Ok(mutex.0.acquire(no_deadline()).map(drop)?)
}

pub(crate) fn unlock(_: &Lua, mutex: Given) -> Result<(), Failure> {
    Ok(mutex.0.release()?)
}

/// Waits until `n` threads have called it.
pub(crate) fn barrier(_: &Lua, (mutex, Whole(n)): (Given, Whole)) -> Result<(), Failure> {
    let n = usize::try_from(n).map_err(|_| Failure::argument(format!("barrier: {n} is no number of threads")))?;
    Ok(mutex.0.barrier(n, no_deadline())?)
}
