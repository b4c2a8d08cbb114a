//! The side that listens, and its clients.

use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use syncline::ipc::{self, Error, Order, Peer, Place};

use super::target::Target;
use super::values::{Draft, to_python};
use super::{deadline, nothing, options, stats, wait};
use crate::{errors, log};

/// Listens for clients; `syncline.ipc.server()` makes it.
///
/// Calls wait `timeout` seconds, or as long as the server was told when it was made. A client that dies raises PeerLost in
/// the call that needs it; after that the server has forgotten it. A server is a context manager that closes itself.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct Server {
    inner: ipc::Server,
    timeout: Duration,
}

/// Begins to listen at `host` and `port`; see `syncline.ipc.server`.
#[pyfunction]
#[pyo3(signature = (host, port, token, encrypt, timeout))]
pub(crate) fn ipc_server(
    py: Python<'_>,
    host: &str,
    port: u16,
    token: Option<&str>,
    encrypt: Option<bool>,
    timeout: f64,
) -> PyResult<(Server, u16)> {
    let options = options(py, token, encrypt, timeout)?;
    let place = Place::new(host, port).map_err(|error| errors::of_ipc(py, &error))?;
    let inner = wait(py, || ipc::Server::open(&place, &options))?;
    let port = inner.port();
    Ok((Server { inner, timeout: options.timeout }, port))
}

/// What ends a round of a user's function over the clients.
enum Ended {
    Here(Error),
    InPython(PyErr),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Here(error)
    }
}

#[pymethods]
impl Server {
    /// `clients(n, f)` waits until n clients in total are connected, then calls `f(client)` for every one, ascending by id.
    ///
    /// `clients(f, tag=None, invert=False)` waits for nobody: it takes those that are there and have the tag, and goes
    /// through them in descending order if `invert`. Both return how many there were. The client is valid inside `f` only.
    #[pyo3(signature = (*args, tag = None, invert = false, timeout = None))]
    fn clients(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        tag: Option<String>,
        invert: bool,
        timeout: Option<f64>,
    ) -> PyResult<usize> {
        let usage = || PyTypeError::new_err("clients(n, f), or clients(f, tag=None, invert=False)");
        let first = args.get_item(0).map_err(|_| usage())?;
        let (wanted, f, tag, invert) = if first.is_callable() {
            let given = |index: usize| args.get_item(index).ok().filter(|_| args.len() <= 3);
            let tag = match given(1) {
                Some(tag) => tag.extract()?,
                None => tag,
            };
            let invert = given(2).map_or(Ok(invert), |invert| invert.is_truthy())?;
            (None, first, tag, invert)
        } else {
            (Some(first.extract::<usize>()?), args.get_item(1).map_err(|_| usage())?, tag, invert)
        };
        if !f.is_callable() || args.len() > 3 {
            return Err(usage());
        }
        let (f, by) = (f.unbind(), deadline(py, timeout, self.timeout)?);
        let timeout = self.timeout;
        let call = |peer: &Peer| {
            Python::attach(|py| {
                let client = Bound::new(py, ServerClient { inner: peer.handle(), timeout });
                client.and_then(|client| f.call1(py, (client,))).map(drop).map_err(Ended::InPython)
            })
        };
        let order = if invert { Order::Descending } else { Order::Ascending };
        let outcome = py.detach(|| match wanted {
            Some(wanted) => self.inner.clients_by(wanted, by, call),
            None => self.inner.clients_with(tag.as_deref(), order, call),
        });
        log::deliver(py);
        outcome.map_err(|ended| match ended {
            Ended::Here(error) => errors::of_ipc(py, &error),
            Ended::InPython(error) => error,
        })
    }

    /// Sends a message to every client, or to those with this tag, and returns how many there are.
    ///
    /// All are served at once: a client that does not read delays only itself. At the deadline, Timeout names those
    /// that have not taken the message.
    #[pyo3(signature = (value, tag = None, *, timeout = None))]
    fn broadcast(&self, py: Python<'_>, value: &Bound<'_, PyAny>, tag: Option<&str>, timeout: Option<f64>) -> PyResult<usize> {
        let draft = Draft::of(value, "broadcast")?;
        let by = deadline(py, timeout, self.timeout)?;
        let value = draft.value(py, "broadcast")?;
        wait(py, || self.inner.broadcast_by(&value, tag, by))
    }

    /// The next message of any client, or of those with this tag, as `(message, client)`. Clients take turns.
    ///
    /// A client that closes its connection is forgotten; Closed is raised when none is left.
    #[pyo3(signature = (tag = None, *, timeout = None))]
    fn recv_any<'py>(&self, py: Python<'py>, tag: Option<&str>, timeout: Option<f64>) -> PyResult<(Bound<'py, PyAny>, ServerClient)> {
        let by = deadline(py, timeout, self.timeout)?;
        let (value, peer) = wait(py, || self.inner.recv_any_by(tag, by))?;
        Ok((to_python(py, value)?, ServerClient { inner: peer, timeout: self.timeout }))
    }

    /// The port it listens at; 0 for a Unix socket.
    #[getter]
    fn port(&self) -> u16 {
        self.inner.port()
    }

    /// Bytes, calls, seconds and MB/s of all clients together, sent (`tx`) and received (`rx`).
    fn net_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats(py, &self.inner.net_stats())
    }

    /// Closes all connections and stops listening; the clients hear that it was on purpose.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.inner.len())
    }

    fn __bool__(&self) -> bool {
        true // a server without clients is a server
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }
}

/// A client as its server sees it: inside the function given to `clients()`, or as `recv_any()` returned it.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct ServerClient {
    inner: Peer,
    timeout: Duration,
}

#[pymethods]
impl ServerClient {
    /// Sends a message to this client; what can be sent is what `Client.send` says.
    #[pyo3(signature = (value, *, timeout = None))]
    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<()> {
        let draft = Draft::of(value, "send")?;
        let by = deadline(py, timeout, self.timeout)?;
        let value = draft.value(py, "send")?;
        wait(py, || self.inner.send_by(&value, by))
    }

    /// This client's next message; an array goes into `out` if that is given, which must have its dtype and shape.
    #[pyo3(signature = (out = None, *, timeout = None))]
    fn recv<'py>(&self, py: Python<'py>, out: Option<&Bound<'py, PyAny>>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let by = deadline(py, timeout, self.timeout)?;
        match out {
            None => to_python(py, wait(py, || self.inner.recv_by(by))?),
            Some(out) => Target::of(out)?.fill(|target| wait(py, || self.inner.recv_into_by(target, by))),
        }
    }

    /// Its next message if it is completely here, else `syncline.ipc.NOTHING`; never waits.
    fn recv_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match wait(py, || self.inner.try_recv())? {
            Some(value) => to_python(py, value),
            None => nothing(py),
        }
    }

    /// Its number, by which clients are ordered (0 unless it was given one); with an argument, gives it one first.
    #[pyo3(signature = (id = None))]
    fn id(&self, py: Python<'_>, id: Option<i64>) -> PyResult<i64> {
        wait(py, || {
            id.map_or(Ok(()), |id| self.inner.set_id(id))?;
            self.inner.id()
        })
    }

    /// Its tag, or None; with an argument, gives it one first.
    #[pyo3(signature = (tag = None))]
    fn tag(&self, py: Python<'_>, tag: Option<&str>) -> PyResult<Option<String>> {
        wait(py, || {
            tag.map_or(Ok(()), |tag| self.inner.set_tag(Some(tag)))?;
            self.inner.tag()
        })
    }

    /// Where it comes from: its IP address, or for a Unix socket its process.
    fn address(&self, py: Python<'_>) -> PyResult<String> {
        wait(py, || self.inner.address())
    }

    /// Closes its connection; it hears that this was on purpose, and the server forgets it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || self.inner.close())
    }
}
