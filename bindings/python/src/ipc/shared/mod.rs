//! What the threads and processes of a family share, for Python: channels, workqueues, mutexes, tables.

mod channel;
mod family;
mod handle;
mod mutex;
mod parcel;
mod quick;
mod table;
mod workqueue;

use syncline::ipc::Value;

use super::{nothing, open_end, wait};
pub(crate) use channel::{Channel, ipc_select};
pub(crate) use family::ipc_family_stats;
pub(crate) use handle::ipc_open_handle;
pub(crate) use mutex::Mutex;
pub(crate) use parcel::ipc_handle_beside;
pub(crate) use table::SharedTable;
pub(crate) use workqueue::{Workqueue, WorkqueueItem, ipc_let_go, ipc_workqueue};

/// The number of the object behind a handle.
fn number(handle: &Value<'_>) -> u64 {
    if let Value::Handle(handle) = handle { handle.object } else { 0 }
}
