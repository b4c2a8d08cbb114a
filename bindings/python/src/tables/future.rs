//! A get that is under way, and the array it becomes.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use syncline::{DType, Pending};

use crate::arrays::{presented, python};
use crate::view::View;
use crate::{errors, interrupt, job};

/// A get that is under way; `wait()` returns its array.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct Future {
    state: Mutex<State>,
    timeout: Duration,
    dtype: DType,
    shape: Vec<usize>,
}

enum State {
    /// Shared, since several threads may wait.
    UnderWay(ManuallyDrop<Arc<Pending>>),
    Here(Py<PyAny>),
}

#[pymethods]
impl Future {
    /// The array, as soon as it is here; the same one each time.
    ///
    /// `timeout` is in seconds: when it is over, `Timeout` (a `TimeoutError`) is raised and the get goes on.
    #[pyo3(signature = (timeout = None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        job::refuse_fork(py, || "get_async".into())?;
        let timeout = timeout.map(|seconds| patience(py, seconds)).transpose()?;
        let pending = match &*self.state() {
            State::Here(array) => return Ok(array.bind(py).clone()),
            State::UnderWay(pending) => Arc::clone(pending),
        };
        let patience = self.timeout;
        let bytes = job::wait(py, || pending.wait(timeout, interrupt::deadline(patience)))?;
        drop(pending);
        self.keep(py, bytes)
    }

    /// The array, as soon as it is here; the name that Python's own futures use.
    #[pyo3(signature = (timeout = None))]
    fn result<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        self.wait(py, timeout)
    }

    /// Whether `wait()` would return at once.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        job::refuse_fork(py, || "get_async".into())?;
        Ok(match &*self.state() {
            State::UnderWay(pending) => pending.done(),
            State::Here(_) => true,
        })
    }
}

impl Future {
    pub(crate) fn new(pending: Pending, timeout: Duration, dtype: DType, shape: Vec<usize>) -> Future {
        Future { state: Mutex::new(State::UnderWay(ManuallyDrop::new(Arc::new(pending)))), timeout, dtype, shape }
    }

    /// Makes the array of these bytes, unless another thread was faster.
    fn keep<'py>(&self, py: Python<'py>, bytes: Arc<Vec<u8>>) -> PyResult<Bound<'py, PyAny>> {
        // The lock is held while Python code of ours runs, which never waits for this future.
        let mut state = self.state();
        if let State::Here(array) = &*state {
            return Ok(array.bind(py).clone());
        }
        let before = std::mem::replace(&mut *state, State::Here(py.None()));
        release(before); // the last other owner of the bytes, as a rule: then they need no copy
        let bytes = Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec());
        let view = Bound::new(py, View::of_bytes(bytes, self.dtype, &self.shape))?;
        let array = presented(python(py)?.call_method1("array_over", (view,))?, self.dtype)?;
        *state = State::Here(array.clone().unbind());
        Ok(array)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Future {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !job::is_fork()
            && let State::UnderWay(pending) = state
        {
            // SAFETY: dropped once, here; in a forked child it stays untouched, since it is the parent's.
            unsafe { ManuallyDrop::drop(pending) };
        }
    }
}

fn release(state: State) {
    if let State::UnderWay(pending) = state {
        drop(ManuallyDrop::into_inner(pending));
    }
}

fn patience(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::of_class(py, "ConfigurationError", format!("wait: timeout={seconds} is not a time to wait")))
}
