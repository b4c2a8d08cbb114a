//! What the threads and processes of a family share, for Python: channels, workqueues, mutexes, tables.

mod channel;
mod family;
mod handle;
mod mutex;
mod parcel;
mod quick;
mod table;
mod workqueue;

use pyo3::prelude::*;
use syncline::ipc::{Error, Value};

use super::{nothing, open_end, wait};
use crate::errors;
pub(crate) use channel::{Channel, ipc_select};
pub(crate) use family::ipc_family_stats;
pub(crate) use handle::ipc_open_handle;
pub(crate) use mutex::Mutex;
pub(crate) use parcel::ipc_handle_beside;
pub(crate) use table::SharedTable;
pub(crate) use workqueue::{Workqueue, WorkqueueItem, ipc_let_go, ipc_workqueue};

/// What a quick call found that was made without letting the interpreter go; none when somebody was in its way, so that it has to be made
/// again by [`wait`].
fn at_once<T>(py: Python<'_>, quick: Result<T, Error>) -> PyResult<Option<T>> {
    match quick {
        Ok(found) => Ok(Some(found)),
        Err(Error::Interrupted { .. }) => Ok(None),
        Err(error) => Err(errors::of_ipc(py, &error)),
    }
}

/// The number of the object behind a handle.
fn number(handle: &Value<'_>) -> u64 {
    if let Value::Handle(handle) = handle { handle.object } else { 0 }
}
