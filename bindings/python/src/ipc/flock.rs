//! A locked file.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::ipc;

use super::open_end;
use crate::errors;

/// A file that is locked until it is closed; `syncline.ipc.flock()` makes it. A context manager that closes itself.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct Flock {
    inner: Mutex<Option<ipc::Flock>>,
    path: PathBuf,
}

/// Locks a file; see `syncline.ipc.flock`.
#[pyfunction]
#[pyo3(signature = (file, no_block, timeout))]
pub(crate) fn ipc_flock(py: Python<'_>, file: PathBuf, no_block: bool, timeout: Option<f64>) -> PyResult<Option<Flock>> {
    let by = open_end(py, timeout)?;
    let locked = py.detach(|| if no_block { ipc::Flock::try_lock(&file) } else { ipc::Flock::lock(&file, by).map(Some) });
    let locked = locked.map_err(|error| errors::of_kind(py, error.kind(), error.to_string(), None))?;
    Ok(locked.map(|lock| Flock { inner: Mutex::new(Some(lock)), path: file }))
}

#[pymethods]
impl Flock {
    /// Lets go of the lock; a second time does nothing.
    fn close(&self) {
        drop(self.inner.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// The file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.close();
    }
}
