//! A call of a store that goes on in the background, and what it becomes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;
use syncline::kvstore::{Pending, RowSparse, Tensor};

use super::values::{Purpose, Target, array_of, listed, python_rows};
use crate::parental::Parental;
use crate::{errors, interrupt, job};

/// A push or pull that is under way; `wait()` returns what the call would have returned.
#[pyclass(frozen, module = "syncline._native")]
pub(crate) struct StoreFuture {
    coming: Parental<Coming>,
    operation: &'static str,
    /// Where the results go, as the user gave it; without it they are new arrays.
    out: Option<Py<PyAny>>,
    /// A list of results rather than one.
    many: bool,
    here: Mutex<Option<Py<PyAny>>>,
}

pub(super) enum Coming {
    Nothing(Pending<()>),
    Arrays(Pending<Tensor>),
    Rows(Pending<RowSparse>),
}

#[pymethods]
impl StoreFuture {
    /// The result, as soon as it is here; the same one each time. `out`, where one was given, is filled by the first call.
    ///
    /// `timeout` is in seconds: when it is over, `Timeout` (a `TimeoutError`) is raised and the call goes on. Without one the
    /// wait lasts as long as the call, which keeps to the job's timeout and says whom it waited for.
    #[pyo3(signature = (timeout = None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        job::refuse_fork(py, || self.operation.into())?;
        if let Some(here) = &*self.here() {
            return Ok(here.bind(py).clone());
        }
        let timeout = timeout.map(|seconds| patience(py, seconds)).transpose()?;
        let coming = &*self.coming;
        let result = match coming {
            Coming::Nothing(pending) => {
                job::wait(py, || pending.wait(timeout, interrupt::no_deadline()))?;
                py.None().into_bound(py)
            }
            Coming::Arrays(pending) => {
                let arrays = job::wait(py, || pending.wait(timeout, interrupt::no_deadline()))?;
                match &self.out {
                    Some(out) => self.fill(out.bind(py), &arrays)?,
                    None => self.presented(py, arrays.iter().map(|array| array_of(py, Tensor::clone(array))))?,
                }
            }
            Coming::Rows(pending) => {
                let rows = job::wait(py, || pending.wait(timeout, interrupt::no_deadline()))?;
                match &self.out {
                    Some(out) => {
                        let targets = listed(out.bind(py)).unwrap_or_else(|| vec![out.bind(py).clone()]);
                        for (target, rows) in targets.iter().zip(&rows) {
                            Target::of(target, self.purpose())?.fill_rows(RowSparse::clone(rows), self.operation, py)?;
                        }
                        out.bind(py).clone()
                    }
                    None => self.presented(py, rows.iter().map(|rows| python_rows(py, RowSparse::clone(rows))))?,
                }
            }
        };
        // Two threads may both have come here; the first one's result is everybody's.
        Ok(self.here().get_or_insert_with(|| result.unbind()).bind(py).clone())
    }

    /// The name that Python's own futures use.
    #[pyo3(signature = (timeout = None))]
    fn result<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.wait(py, timeout)
    }

    /// Whether `wait()` would return at once.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        job::refuse_fork(py, || self.operation.into())?;
        Ok(match &*self.coming {
            Coming::Nothing(pending) => pending.done(),
            Coming::Arrays(pending) => pending.done(),
            Coming::Rows(pending) => pending.done(),
        })
    }
}

impl StoreFuture {
    pub(super) fn new(coming: Coming, operation: &'static str, out: Option<Py<PyAny>>, many: bool) -> StoreFuture {
        StoreFuture { coming: Parental::new(coming), operation, out, many, here: Mutex::default() }
    }

    fn purpose(&self) -> Purpose<'static> {
        Purpose { operation: self.operation, key: None }
    }

    fn here(&self) -> std::sync::MutexGuard<'_, Option<Py<PyAny>>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn presented<'py>(&self, py: Python<'py>, made: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>) -> PyResult<Bound<'py, PyAny>> {
        let mut made = made.collect::<PyResult<Vec<_>>>()?;
        if self.many { Ok(PyList::new(py, made)?.into_any()) } else { Ok(made.pop().unwrap_or_else(|| py.None().into_bound(py))) }
    }

    fn fill<'py>(&self, out: &Bound<'py, PyAny>, arrays: &[std::sync::Arc<Tensor>]) -> PyResult<Bound<'py, PyAny>> {
        let py = out.py();
        let of_keys = if self.many { listed(out).unwrap_or_default() } else { vec![out.clone()] };
        for (outputs, tensor) in of_keys.iter().zip(arrays) {
            for output in listed(outputs).unwrap_or_else(|| vec![outputs.clone()]) {
                let mut target = Target::of(&output, self.purpose())?;
                target.fill(tensor, self.operation, py)?;
                target.finish(false)?;
            }
        }
        Ok(out.clone())
    }
}

fn patience(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::of_class(py, "ConfigurationError", format!("wait: timeout={seconds} is not a time to wait")))
}
