//! A reduction that runs while Python does something else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use syncline::collective::{How, OwnedLeaf, Pending};
use syncline::{DType, Deadline, Error, ReduceOp};
use syncline_tensor::Shape;

use super::tree::{Tree, call_site};
use crate::memory::Lent;
use crate::parental::Parental;
use crate::{errors, interrupt, job};

/// Arrays that are being reduced; `all_reduce_async` makes a future of them.
#[pyclass(frozen, module = "syncline._native")]
pub(crate) struct Reduction {
    state: Mutex<State>,
    /// The arrays' memory, which the operation writes to until it is over.
    lent: Mutex<Option<Vec<Lent>>>,
    tree: Parental<Arc<syncline::Tree>>,
}

enum State {
    UnderWay(Parental<Pending<Vec<OwnedLeaf<Memory>>>>),
    /// One thread waits for it.
    Awaited,
    Over(Result<u32, Error>),
}

/// Where an array lies. Its owner stays in [`Reduction`]: threads of Syncline's own must not touch the interpreter.
struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory, which nobody but the operation touches until it is over.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference nothing is read or written.
unsafe impl Sync for Memory {}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: `Reduction` keeps the lender until the operation is over, and for good when it never ends.
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
        let site = call_site(py)?;
        let own = |(lent, ((name, dtype), shape)): (&mut Lent, ((String, DType), Shape))| {
            let bytes = lent.bytes_mut();
            OwnedLeaf { name, dtype, shape, array: Memory { start: bytes.as_mut_ptr(), bytes: bytes.len() } }
        };
        let leaves = lent.iter_mut().zip(facts).map(own).collect();
        let state = match inner.collectives() {
            None => State::Over(Ok(1)),
            Some(collectives) => {
                // Nobody presses Ctrl-C in the engine's thread: whoever waits hears it.
                let how = How { site: site.to_str()?, by: inner.deadline() };
                State::UnderWay(Parental::new(collectives.all_reduce_leaves_start(leaves, op, true, how)))
            }
        };
        Ok(Reduction { state: Mutex::new(state), lent: Mutex::new(Some(lent)), tree: Parental::new(inner) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Reduction {
    /// Whether `wait` would return at once.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        job::refuse_fork(py, || "all_reduce_async".into())?;
        Ok(match &*self.state() {
            State::UnderWay(pending) => pending.done(),
            State::Awaited => false,
            State::Over(_) => true,
        })
    }

    /// Waits for the arrays and returns the number of nodes that contributed.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<u32> {
        job::refuse_fork(py, || "all_reduce_async".into())?;
        let patience = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let by = interrupt::deadline(patience.unwrap_or_else(|| self.tree.timeout()));
        loop {
            let taken = match &mut *self.state() {
                State::Over(Ok(contributors)) => return Ok(*contributors),
                State::Over(Err(error)) => return Err(errors::exception(py, error)),
                State::Awaited => None,
                state @ State::UnderWay(_) => Some(std::mem::replace(state, State::Awaited)),
            };
            let Some(State::UnderWay(pending)) = taken else {
                py.detach(|| std::thread::sleep(Duration::from_millis(1))); // another thread waits, and will tell
                py.check_signals()?;
                continue;
            };
            let outcome = match py.detach(|| pending.wait(by)) {
                Ok((_, contributors)) => Ok(contributors),
                Err(error) if !pending.done() => {
                    *self.state() = State::UnderWay(pending);
                    return Err(errors::exception(py, &error.into()));
                }
                // Its own failure, unless it ended right after this wait gave up: then the result is there.
                Err(error) => pending.wait(Deadline::after(Duration::ZERO)).map(|(_, contributors)| contributors).map_err(|_| error),
            };
            *self.state() = State::Over(outcome.map_err(Error::from));
            drop(self.lent.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Drop for Reduction {
    fn drop(&mut self) {
        if !matches!(&*self.state(), State::Over(_)) {
            // Somebody else may still write there: the arrays stay for good.
            std::mem::forget(self.lent.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}
