//! `syncline.ipc` for Python: what threads and processes share, other programs, and servers and clients.

mod client;
mod flock;
mod server;
mod shared;
mod spawn;
mod target;
pub(crate) mod values;

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use syncline::Deadline;
use syncline::bootstrap::Token;
use syncline::ipc::{Error, NetStats, Options, Traffic};

use crate::{errors, interrupt, log};
pub(crate) use client::{Client, ipc_client};
pub(crate) use flock::{Flock, ipc_flock};
pub(crate) use server::{Server, ServerClient, ipc_server};
pub(crate) use shared::{
    Channel, Mutex, SharedTable, Workqueue, WorkqueueItem, ipc_family_stats, ipc_handle_beside, ipc_let_go, ipc_open_handle, ipc_select,
    ipc_workqueue,
};
pub(crate) use spawn::{Spawned, ipc_spawn};

/// Runs a call that may wait, without the interpreter.
fn wait<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    let result = py.detach(call);
    log::deliver(py);
    result.map_err(|error| errors::of_ipc(py, &error))
}

/// The settings that both sides take. `timeout` is in seconds and may be infinite.
fn options(py: Python<'_>, token: Option<&str>, encrypt: Option<bool>, timeout: f64) -> PyResult<Options> {
    log::follow_level(py);
    let token = token.map(|token| {
        let empty = || {
            errors::of_class(py, "ConfigurationError", "ipc: an empty token keeps nobody out\nhint: leave token= away, or give a secret")
        };
        Token::from_text(token).ok_or_else(empty)
    });
    Ok(Options { token: token.transpose()?, encrypt, timeout: patience(py, timeout)? })
}

/// A deadline of `timeout` seconds, or of as many as the handle was made with, that hears signals.
fn deadline(py: Python<'_>, timeout: Option<f64>, otherwise: Duration) -> PyResult<Deadline> {
    Ok(interrupt::deadline(timeout.map(|seconds| patience(py, seconds)).transpose()?.unwrap_or(otherwise)))
}

/// A deadline of `timeout` seconds, or none, that hears signals.
fn open_end(py: Python<'_>, timeout: Option<f64>) -> PyResult<Deadline> {
    match timeout {
        None => Ok(interrupt::no_deadline()),
        Some(seconds) => Ok(interrupt::deadline(patience(py, seconds)?)),
    }
}

fn patience(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        let text = format!("ipc: timeout={seconds} is not a time to wait\nhint: give seconds, for example timeout=30.0");
        errors::of_class(py, "ConfigurationError", text)
    })
}

/// Torch-ipc's netStats. There is no CUDA here, so what it counts is zero.
fn stats<'py>(py: Python<'py>, stats: &NetStats) -> PyResult<Bound<'py, PyDict>> {
    let direction = |traffic: &Traffic| -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        counts.set_item("num_bytes", traffic.num_bytes)?;
        counts.set_item("num_regions", traffic.num_regions)?;
        counts.set_item("num_calls", traffic.num_calls)?;
        counts.set_item("num_system_calls", traffic.num_system_calls)?;
        counts.set_item("total_seconds", traffic.total_seconds)?;
        counts.set_item("system_seconds", traffic.system_seconds)?;
        counts.set_item("network_mb_per_s", traffic.mb_per_s())?;
        for absent in ["cuda_sync_seconds", "cuda_ipc_seconds", "cuda_ipc_mb_per_s"] {
            counts.set_item(absent, 0.0)?;
        }
        counts.set_item("cuda_ipc_bytes", 0)?;
        Ok(counts)
    };
    let both = PyDict::new(py);
    both.set_item("tx", direction(&stats.tx)?)?;
    both.set_item("rx", direction(&stats.rx)?)?;
    Ok(both)
}

/// What `recv_async` answers when nothing is there: told apart from None, which is a message.
fn nothing(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static NOTHING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let found = NOTHING.get_or_try_init(py, || py.import("syncline.ipc._nothing")?.getattr("NOTHING").map(Bound::unbind))?;
    Ok(found.bind(py).clone())
}
