//! Another program, its stdin and its stdout.

use std::ffi::OsString;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use syncline::ipc::{Child, Spawn, SpawnError};

use super::open_end;
use crate::parental::Parental;
use crate::{errors, log};

/// A program that was started; `syncline.ipc.spawn()` makes it.
///
/// A context manager that waits for it. One that is forgotten is ended: SIGTERM, after two seconds SIGKILL. None outlives the
/// process that started it.
#[pyclass(frozen, module = "syncline.ipc", name = "Spawn")]
pub(crate) struct Spawned {
    inner: Parental<Child>,
}

/// Starts a program; see `syncline.ipc.spawn`.
#[pyfunction]
#[pyo3(signature = (file, args, env))]
pub(crate) fn ipc_spawn(py: Python<'_>, file: OsString, args: Vec<OsString>, env: Vec<(OsString, OsString)>) -> PyResult<Spawned> {
    log::follow_level(py);
    let spawn = env.into_iter().fold(Spawn::new(file).args(args), |spawn, (name, value)| spawn.env(name, value));
    let child = py.detach(|| spawn.start());
    Ok(Spawned { inner: Parental::new(child.map_err(|error| raised(py, error))?) })
}

fn raised(py: Python<'_>, error: SpawnError) -> PyErr {
    errors::of_kind(py, error.kind(), error.to_string(), error.pid())
}

impl Spawned {
    fn wait_for<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&Child) -> Result<T, SpawnError> + Send) -> PyResult<T> {
        let result = py.detach(|| call(&self.inner));
        log::deliver(py);
        result.map_err(|error| raised(py, error))
    }
}

#[pymethods]
impl Spawned {
    /// The number of its process.
    fn pid(&self) -> u32 {
        self.inner.pid()
    }

    /// The descriptor of this side of its stdout, for programs that wait for several things at once; reading is done here.
    fn stdout_descriptor(&self) -> i32 {
        self.inner.stdout_descriptor()
    }

    /// Whether it has not ended yet.
    fn running(&self) -> bool {
        self.inner.running()
    }

    /// Writes all of `data` (str or bytes) to its stdin; without an argument, closes it.
    ///
    /// What the program says meanwhile is kept for the next read, so the two cannot lock each other up.
    #[pyo3(signature = (data = None, *, timeout = None))]
    fn stdin(&self, py: Python<'_>, data: Option<&Bound<'_, PyAny>>, timeout: Option<f64>) -> PyResult<()> {
        let by = open_end(py, timeout)?;
        let Some(data) = data else { return self.wait_for(py, |child| child.close_stdin(by)) };
        let bytes: Vec<u8> = match data.cast::<PyString>() {
            Ok(text) => text.extract::<String>()?.into_bytes(),
            Err(_) => data.extract().map_err(|_| PyTypeError::new_err("stdin: str or bytes are needed"))?,
        };
        self.wait_for(py, |child| child.write(&bytes, by))
    }

    /// Reads from its stdout: `"*line"` (the default) without the newline, `"*all"` up to its end, or a number: at most so many bytes,
    /// as soon as there are any. None at its end. Lines and all are str, a number of bytes is bytes.
    #[pyo3(signature = (what = None, *, timeout = None))]
    fn stdout<'py>(&self, py: Python<'py>, what: Option<&Bound<'py, PyAny>>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let by = open_end(py, timeout)?;
        if let Some(most) = what.and_then(|what| what.extract::<usize>().ok()) {
            let read = self.wait_for(py, |child| child.read_some(most, by))?;
            return Ok(read.map(|bytes| PyBytes::new(py, &bytes).into_any()));
        }
        let what = what.map_or(Ok("*line".into()), |what| what.extract::<String>());
        let read = match what.as_deref() {
            Ok("*line") => self.wait_for(py, |child| child.read_line(by))?,
            Ok("*all") => self.wait_for(py, |child| child.read_all(by))?,
            _ => return Err(PyValueError::new_err("stdout: '*line', '*all' or a number of bytes is needed")),
        };
        // What is no UTF-8 survives the way through str as file names do.
        let text = |bytes: Vec<u8>| PyBytes::new(py, &bytes).call_method1("decode", ("utf-8", "surrogateescape"));
        read.map(text).transpose()
    }

    /// Sends `"TERM"` or `"KILL"` if that is asked for, closes its stdin, reads and forgets the rest of its stdout, and returns its
    /// exit code: 0 for one that a signal ended, whose number is then `exit_signal`.
    #[pyo3(signature = (signal = None, *, timeout = None))]
    fn wait(&self, py: Python<'_>, signal: Option<&str>, timeout: Option<f64>) -> PyResult<i32> {
        let by = open_end(py, timeout)?;
        let signal = signal.map(str::parse).transpose().map_err(|error| raised(py, error))?;
        Ok(self.wait_for(py, |child| child.wait(signal, by))?.torch_code())
    }

    /// What it returned: None while it runs, and when a signal ended it.
    #[getter]
    fn exit_code(&self) -> Option<i32> {
        self.inner.exit().and_then(|exit| exit.code)
    }

    /// The signal that ended it, or None.
    #[getter]
    fn exit_signal(&self) -> Option<i32> {
        self.inner.exit().and_then(|exit| exit.signal)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        match self.wait(py, None, None) {
            Err(_) if self.inner.exit().is_some() => Ok(()), // it was waited for already
            ended => ended.map(drop),
        }
    }
}
