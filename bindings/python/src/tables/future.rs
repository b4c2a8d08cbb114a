//! A get that is under way, and the array it becomes.
//!
//! The lock is held for a moment at a time and never while Python code runs: that may let another thread go on, which
//! would wait for the lock with the interpreter in its hands.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use syncline::{DType, Pending};

use crate::arrays::{presented, python};
use crate::parental::Parental;
use crate::view::View;
use crate::{errors, interrupt, job};

/// A get that is under way; `wait()` returns its array.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct Future {
    state: Mutex<State>,
    dtype: DType,
    shape: Vec<usize>,
}

enum State {
    /// Shared, since several threads may wait.
    UnderWay(Parental<Arc<Pending>>),
    /// One thread makes the array.
    Arriving,
    Here(Py<PyAny>),
}

#[pymethods]
impl Future {
    /// The array, as soon as it is here; the same one each time.
    ///
    /// `timeout` is in seconds: when it is over, `Timeout` (a `TimeoutError`) is raised and the get goes on. Without one the
    /// wait lasts as long as the get, which keeps to the job's timeout and says whom it waited for.
    #[pyo3(signature = (timeout = None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        job::refuse_fork(py, || "get_async".into())?;
        let timeout = timeout.map(|seconds| patience(py, seconds)).transpose()?;
        loop {
            let pending = match &*self.state() {
                State::Here(array) => return Ok(array.bind(py).clone()),
                State::UnderWay(pending) => Some(Arc::clone(pending)),
                State::Arriving => None,
            };
            let Some(pending) = pending else {
                py.detach(std::thread::yield_now);
                continue;
            };
            let bytes = job::wait(py, || pending.wait(timeout, interrupt::no_deadline()))?;
            drop(pending);
            if self.is_mine_to_make() {
                return self.make(py, bytes);
            }
        }
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
            State::Arriving | State::Here(_) => true,
        })
    }
}

impl Future {
    pub(crate) fn new(pending: Pending, dtype: DType, shape: Vec<usize>) -> Future {
        Future { state: Mutex::new(State::UnderWay(Parental::new(Arc::new(pending)))), dtype, shape }
    }

    /// Whether this thread is the one that makes the array: the first that comes with the bytes.
    fn is_mine_to_make(&self) -> bool {
        let before = {
            let mut state = self.state();
            if !matches!(*state, State::UnderWay(_)) {
                return false;
            }
            std::mem::replace(&mut *state, State::Arriving)
        };
        drop(before); // it owns the bytes too, and without it they need no copy
        true
    }

    fn make<'py>(&self, py: Python<'py>, bytes: Arc<Vec<u8>>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec());
        let made = Bound::new(py, View::of_bytes(bytes, self.dtype, &self.shape))
            .and_then(|view| python(py)?.call_method1("array_over", (view,)))
            .and_then(|array| presented(array, self.dtype));
        // Without memory for an array there is none, now or later, and no thread may wait for it.
        *self.state() = State::Here(made.as_ref().map_or_else(|_| py.None(), |array| array.clone().unbind()));
        made
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn patience(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::of_class(py, "ConfigurationError", format!("wait: timeout={seconds} is not a time to wait")))
}
