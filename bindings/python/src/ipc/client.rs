//! The side that connects.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use syncline::ipc::{self, Place};

use super::target::Target;
use super::values::{Draft, to_python};
use super::{deadline, nothing, options, stats, wait};
use crate::errors;

/// A connection to a server; `syncline.ipc.client()` makes it.
///
/// Calls wait `timeout` seconds, or as long as the client was told when it was made. A server that dies raises PeerLost
/// at once. A client is a context manager that closes itself.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct Client {
    inner: ipc::Client,
    timeout: Duration,
}

/// Connects to the server at `host` and `port`; see `syncline.ipc.client`.
#[pyfunction]
#[pyo3(signature = (host, port, token, encrypt, timeout))]
pub(crate) fn ipc_client(
    py: Python<'_>,
    host: &str,
    port: u16,
    token: Option<&str>,
    encrypt: Option<bool>,
    timeout: f64,
) -> PyResult<Client> {
    let options = options(py, token, encrypt, timeout)?;
    let place = Place::new(host, port).map_err(|error| errors::of_ipc(py, &error))?;
    let by = deadline(py, None, options.timeout)?;
    let inner = wait(py, || ipc::Client::connect_by(&place, &options, by))?;
    Ok(Client { inner, timeout: options.timeout })
}

#[pymethods]
impl Client {
    /// Sends a message: None, bool, int, float, str, bytes, lists and dicts of these, and arrays of any size.
    ///
    /// It returns when the system has taken all of it, which is not when the server has read it.
    #[pyo3(signature = (value, *, timeout = None))]
    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let draft = Draft::of(value, "send")?;
        let by = deadline(py, timeout, self.timeout)?;
        let value = draft.value(py, "send")?;
        wait(py, || self.inner.send_by(&value, by))
    }

    /// The next message; an array goes into `out` if that is given, which must have its dtype and shape.
    ///
    /// A message that does not fit raises ShapeMismatch and stays, to be received otherwise.
    #[pyo3(signature = (out = None, *, timeout = None))]
    fn recv<'py>(&self, py: Python<'py>, out: Option<&Bound<'py, PyAny>>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let by = deadline(py, timeout, self.timeout)?;
        match out {
            None => to_python(py, wait(py, || self.inner.recv_by(by))?),
            Some(out) => Target::of(out)?.fill(|target| wait(py, || self.inner.recv_into_by(target, by))),
        }
    }

    /// The next message if it is completely here, else `syncline.ipc.NOTHING`; never waits.
    fn recv_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match wait(py, || self.inner.try_recv())? {
            Some(value) => to_python(py, value),
            None => nothing(py),
        }
    }

    /// Where the server is: its IP address, or the name of its Unix socket.
    fn address(&self) -> &str {
        self.inner.address()
    }

    /// Whether what travels is encrypted.
    #[getter]
    fn encrypted(&self) -> bool {
        self.inner.encrypted()
    }

    /// Bytes, calls, seconds and MB/s, sent (`tx`) and received (`rx`).
    fn net_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats(py, &self.inner.net_stats())
    }

    /// Closes the connection; the server hears that it was on purpose. Threads that wait on it are woken.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}
