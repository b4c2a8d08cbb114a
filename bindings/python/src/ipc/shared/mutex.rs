//! Mutexes.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::ipc::{self, Family, Value};

use super::family;
use super::handle::{Handled, reduce};
use super::{open_end, wait};
use crate::errors;

/// A recursive lock between threads and processes, with a barrier. `syncline.ipc.mutex()` makes it; a context manager.
///
/// It survives the death of its holder: the next `lock()` returns True, and what it guards may be half done.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct Mutex {
    inner: ipc::Mutex,
    family: Family,
}

impl Mutex {
    pub(super) fn over(family: &Family, inner: ipc::Mutex) -> Mutex {
        Mutex { inner, family: family.clone() }
    }
}

impl Handled for Mutex {
    fn handle(&self) -> Result<Value<'static>, ipc::Error> {
        Ok(self.inner.handle())
    }

    fn family(&self) -> &Family {
        &self.family
    }
}

#[pymethods]
impl Mutex {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Mutex> {
        let family = family::home(py)?;
        let inner = wait(py, || ipc::Mutex::new(&family))?;
        Ok(Mutex { inner, family })
    }

    /// Takes the lock, however often this thread has it already; waits at most `timeout` seconds. True when its last holder died with it.
    #[pyo3(signature = (*, timeout = None))]
    fn lock(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let by = open_end(py, timeout)?;
        wait(py, || self.inner.acquire(by))
    }

    /// Gives it back, once for each `lock()`. A thread that does not have it gets an error.
    fn unlock(&self, py: Python<'_>) -> PyResult<()> {
        self.inner.release().map_err(|error| errors::of_ipc(py, &error))
    }

    /// Waits until n threads, of whichever processes, have called it; then all pass, and it begins anew.
    #[pyo3(signature = (n, *, timeout = None))]
    fn barrier(&self, py: Python<'_>, n: usize, timeout: Option<f64>) -> PyResult<()> {
        let by = open_end(py, timeout)?;
        wait(py, || self.inner.barrier(n, by))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().lock(slf.py(), None)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.unlock(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        reduce(py, self)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<Mutex>().is_ok_and(|other| other.get().inner.handle() == self.inner.handle())
    }

    fn __hash__(&self) -> u64 {
        super::number(&self.inner.handle())
    }
}
