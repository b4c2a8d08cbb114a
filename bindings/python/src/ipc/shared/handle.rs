//! Handles as Python objects: how they are pickled, sent through each other, and opened again.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::ipc::{self, Family, HandleKind, Value};

use super::channel::Channel;
use super::family;
use super::mutex::Mutex;
use super::parcel::beside_pickle;
use super::table::SharedTable;
use super::workqueue::Workqueue;
use crate::errors;

/// What handles have in common.
pub(super) trait Handled {
    /// Other processes may reach the object from now on.
    fn handle(&self) -> Result<Value<'static>, ipc::Error>;
    fn family(&self) -> &Family;
}

/// The handle of an object that is one of the four.
pub(super) fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Value<'static>>> {
    let handle = if let Ok(channel) = object.cast_exact::<Channel>() {
        channel.get().handle()
    } else if let Ok(queue) = object.cast_exact::<Workqueue>() {
        queue.get().handle()
    } else if let Ok(mutex) = object.cast_exact::<Mutex>() {
        mutex.get().handle()
    } else if let Ok(table) = object.cast_exact::<SharedTable>() {
        table.get().handle()
    } else {
        return Ok(None);
    };
    handle.map(Some).map_err(|error| errors::of_ipc(object.py(), &error))
}

/// How a handle is pickled: beside the pickle when a channel carries it, else with an invitation into its family.
pub(super) fn reduce<'py>(py: Python<'py>, object: &dyn Handled) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
    let native = py.import("syncline._native")?;
    let handle = object.handle().map_err(|error| errors::of_ipc(py, &error))?;
    let Value::Handle(words) = &handle else { unreachable!("a handle is a handle") };
    let (kind, family, number) = (words.kind as u8, words.family, words.object);
    if let Some(place) = beside_pickle(handle) {
        return Ok((native.getattr("ipc_handle_beside")?, PyTuple::new(py, [place])?));
    }
    let line = object.family().invitation().map_err(|error| errors::of_ipc(py, &error))?;
    Ok((native.getattr("ipc_open_handle")?, (kind, family, number, line).into_pyobject(py)?))
}

/// Opens a handle that came with an invitation.
#[pyfunction]
pub(crate) fn ipc_open_handle<'py>(py: Python<'py>, kind: u8, family: u64, number: u64, line: &str) -> PyResult<Bound<'py, PyAny>> {
    let kind = HandleKind::from_code(kind).ok_or_else(|| errors::of_class(py, "SynclineError", "there is no such handle"))?;
    let joined = family::joined(py, family, line)?;
    open(py, &joined, &Value::Handle(Box::new(ipc::Handle { kind, family, object: number, keeper: None })))
}

/// Opens a handle that came through a channel of its family.
pub(super) fn of_value<'py>(py: Python<'py>, value: &Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    let Value::Handle(handle) = value else {
        return Err(errors::of_class(py, "SynclineError", format!("a {} is no handle", value.type_name())));
    };
    let family = family::known(handle.family)
        .ok_or_else(|| errors::of_class(py, "SynclineError", "the handle is of a family that this process does not belong to"))?;
    open(py, &family, value)
}

fn open<'py>(py: Python<'py>, family: &Family, value: &Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    let Value::Handle(handle) = value else { unreachable!("looked at before") };
    let failed = |error: ipc::Error| errors::of_ipc(py, &error);
    Ok(match handle.kind {
        HandleKind::Channel => Bound::new(py, Channel::over(family, ipc::Channel::open(family, value).map_err(failed)?))?.into_any(),
        HandleKind::Workqueue => Bound::new(py, Workqueue::over(family, ipc::Workqueue::open(family, value).map_err(failed)?))?.into_any(),
        HandleKind::Mutex => Bound::new(py, Mutex::over(family, ipc::Mutex::open(family, value).map_err(failed)?))?.into_any(),
        HandleKind::SharedTable => {
            Bound::new(py, SharedTable::over(family, ipc::SharedTable::open(family, value).map_err(failed)?))?.into_any()
        }
        kind => return Err(errors::of_class(py, "SynclineError", format!("a {} has no object in Python", kind.name()))),
    })
}
