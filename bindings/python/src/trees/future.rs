//! Reductions that run while Python does something else.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyList;
use syncline::collective::{How, OwnedLeaf};
use syncline::{DType, Deadline, ReduceOp};
use syncline_tensor::Shape;

use super::found::Raised;
use super::tree::Tree;
use super::under_way::UnderWay;
use crate::ipc::values::to_python;
use crate::memory::Lent;
use crate::parental::Parental;
use crate::{errors, interrupt, job, site};

/// Arrays that are being reduced; `all_reduce_async` makes a future of them.
#[pyclass(frozen, module = "syncline._native")]
pub(crate) struct Reduction {
    operation: UnderWay<Vec<OwnedLeaf<Memory>>>,
    /// The arrays' memory, which the operation writes to until it is over.
    lent: Mutex<Option<Vec<Lent>>>,
    /// Stays open until nobody can wait any more.
    _tree: Parental<Arc<syncline::Tree>>,
}

/// Where an array lies. Its owner stays in Python's hands: threads of Syncline's own must not touch the interpreter.
pub(super) struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory, which nobody but the operation touches until it is over.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference nothing is read or written.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory of `lent`, whose keeper keeps it until the operation is over, and for good when it never ends.
    pub(super) fn of(lent: &mut Lent) -> Memory {
        let bytes = lent.bytes_mut();
        Memory { start: bytes.as_mut_ptr(), bytes: bytes.len() }
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the lender is kept until the operation is over (see `of`).
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Reduction {
    /// `facts` are the name, dtype and shape of each array that was lent.
    pub(super) fn start(
        py: Python<'_>,
        tree: &Tree,
        mut lent: Vec<Lent>,
        facts: impl Iterator<Item = ((String, DType), Shape)>,
        op: ReduceOp,
    ) -> PyResult<Reduction> {
        let inner = Arc::clone(tree.inner());
        let site = site::here(py)?;
        let own = |(lent, ((name, dtype), shape)): (&mut Lent, ((String, DType), Shape))| OwnedLeaf {
            name,
            dtype,
            shape,
            array: Memory::of(lent),
        };
        let leaves = lent.iter_mut().zip(facts).map(own).collect();
        let operation = match inner.collectives() {
            None => UnderWay::over(None, 1),
            Some(collectives) => {
                // Nobody presses Ctrl-C in the engine's thread: whoever waits hears it.
                let how = How { site: &site, by: inner.deadline() };
                UnderWay::new(collectives.all_reduce_leaves_start(leaves, op, true, how))
            }
        };
        Ok(Reduction { operation, lent: Mutex::new(Some(lent)), _tree: Parental::new(inner) })
    }
}

#[pymethods]
impl Reduction {
    /// Whether `wait` would return at once.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        job::refuse_fork(py, || "all_reduce_async".into())?;
        Ok(self.operation.done())
    }

    /// Waits for the arrays and returns the number of nodes that contributed.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u32> {
        job::refuse_fork(py, || "all_reduce_async".into())?;
        let contributors = self.operation.wait(py, by(py, timeout)?);
        if self.operation.is_over() {
            drop(self.lent.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        contributors
    }
}

impl Drop for Reduction {
    fn drop(&mut self) {
        if !self.operation.is_over() {
            // Somebody else may still write there: the arrays stay for good.
            std::mem::forget(self.lent.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// Leaves that a function of the user's reduces in the engine's thread; `all_reduce_async` makes a future of them.
#[pyclass(frozen, module = "syncline._native")]
pub(crate) struct Folding {
    operation: UnderWay<Vec<u8>>,
    raised: Arc<Raised>,
    /// Stays open until nobody can wait any more.
    _tree: Parental<Arc<syncline::Tree>>,
}

impl Folding {
    pub(super) fn new(operation: UnderWay<Vec<u8>>, raised: Arc<Raised>, tree: &Tree) -> Folding {
        Folding { operation, raised, _tree: Parental::new(Arc::clone(tree.inner())) }
    }
}

#[pymethods]
impl Folding {
    /// Whether `wait` would return at once.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        job::refuse_fork(py, || "all_reduce_async".into())?;
        Ok(self.operation.done())
    }

    /// Waits for the leaves and returns them, once, with the number of nodes that contributed.
    #[pyo3(signature = (timeout = None))]
    fn wait<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<(Bound<'py, PyList>, u32)> {
        job::refuse_fork(py, || "all_reduce_async".into())?;
        let waited = self.operation.wait(py, by(py, timeout)?);
        if let Some(error) = self.raised.again(py) {
            return Err(error);
        }
        let contributors = waited?;
        let message = self.operation.take().unwrap_or_default();
        let leaves = syncline::Tree::leaves_of(&message).map_err(|error| errors::exception(py, &error))?;
        let leaves = leaves.into_iter().map(|leaf| to_python(py, leaf)).collect::<PyResult<Vec<_>>>()?;
        Ok((PyList::new(py, leaves)?, contributors))
    }
}

/// `timeout` seconds from now; without one, until the operation ends, which keeps to its tree's timeout and says who is missing.
pub(super) fn by(py: Python<'_>, timeout: Option<f64>) -> PyResult<Deadline> {
    let Some(seconds) = timeout else { return Ok(interrupt::no_deadline()) };
    Duration::try_from_secs_f64(seconds)
        .map(interrupt::deadline)
        .map_err(|_| errors::of_class(py, "ConfigurationError", format!("wait: timeout={seconds} is not a time to wait")))
}
