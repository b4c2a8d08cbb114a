//! Workqueues.
//!
//! A worker that reads a question has it *in hand* until it answers or reads the next one: should it die before, another gets the question.
//! That is kept per thread, here, so that a loop of `read()` and `write()` needs to know nothing of it; `take()` says it in so many words.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::Deadline;
use syncline::ipc::{self, Family, Item, Side, Taken, Value};

use super::family;
use super::handle::{Handled, reduce};
use super::parcel::{Arrays, Parcel, unpacked};
use super::{at_once, nothing, number, open_end, wait};
use crate::errors;
use crate::interrupt;
use crate::parental::Parental;

/// A question that a thread has in hand. Forgotten without a word, as when the thread ends, it goes back to the queue.
struct InHand(Option<Item>);

impl InHand {
    fn finish(&mut self, by: Deadline) -> Result<(), ipc::Error> {
        self.0.as_mut().map_or(Ok(()), |item| item.done_by(by))?;
        self.0 = None;
        Ok(())
    }

    fn give_back(&mut self, by: Deadline) -> Result<(), ipc::Error> {
        self.0.as_mut().map_or(Ok(()), |item| item.give_back_by(by))?;
        self.0 = None;
        Ok(())
    }
}

/// How long somebody who was stopped in the middle of something may hold up what becomes of a question; Ctrl-C ends it before.
fn deciding() -> Deadline {
    interrupt::deadline(Duration::from_secs(20))
}

impl Drop for InHand {
    fn drop(&mut self) {
        // Fails where the queue is gone, and with it the question, or where a stopped process is in the way: then the question stays this
        // process's until it ends. No longer than the 2 s that a latch needs, since nobody hears Ctrl-C here.
        let _ = self.give_back(Deadline::after(Duration::ZERO));
        if let Some(mut item) = self.0.take() {
            item.abandon();
        }
    }
}

thread_local! {
    /// What this thread has in hand, by the number of the queue.
    static IN_HAND: RefCell<HashMap<u64, Parental<InHand>>> = RefCell::new(HashMap::new());
}

/// Finishes (or, with False, gives back) every question that this thread has in hand: its work has ended.
#[pyfunction]
pub(crate) fn ipc_let_go(py: Python<'_>, finished: bool) -> PyResult<()> {
    let mut in_hand: Vec<InHand> = IN_HAND.take().into_values().filter_map(Parental::into_inner).collect();
    let by = deciding();
    wait(py, || in_hand.iter_mut().try_for_each(|item| if finished { item.finish(by) } else { item.give_back(by) }))
}

/// Two queues in one: questions from its owner to workers, and answers back. `syncline.ipc.workqueue()` makes it.
///
/// The thread that made it is the owner. A question that a worker has read is in its hand until it writes its answer or reads the next one;
/// if it dies before, the question goes to another. None is an end mark and is never in anybody's hand.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct Workqueue {
    inner: ipc::Workqueue,
    family: Family,
}

impl Workqueue {
    pub(super) fn over(family: &Family, inner: ipc::Workqueue) -> Workqueue {
        Workqueue { inner, family: family.clone() }
    }

    fn key(&self) -> u64 {
        number(&self.inner.handle())
    }

    fn is_owner(&self) -> bool {
        matches!(self.inner.side(), Side::Owner)
    }

    /// What a read found; the outer None is "nothing there now".
    fn taken(&self, py: Python<'_>, nonblocking: bool, timeout: Option<f64>) -> PyResult<Option<Item>> {
        let taken = match at_once(py, self.inner.try_read_by(Deadline::brief()))? {
            Some(Taken::Nothing) | None if !nonblocking => {
                let by = open_end(py, timeout)?;
                wait(py, || self.inner.read(by))?
            }
            Some(taken) => taken,
            None => wait(py, || self.inner.try_read())?,
        };
        match taken {
            Taken::Item(item) => Ok(Some(item)),
            Taken::Nothing => Ok(None),
            Taken::Over => Err(errors::of_class(py, "Closed", "read: the workqueue is closed and nothing is left in it")),
        }
    }

    /// Finishes what this thread has in hand; where that fails, it stays there.
    fn finish_in_hand(&self, py: Python<'_>) -> PyResult<()> {
        let item = IN_HAND.with_borrow_mut(|in_hand| in_hand.remove(&self.key()));
        let Some(mut item) = item.and_then(Parental::into_inner) else { return Ok(()) };
        let by = deciding();
        let finished = wait(py, || item.finish(by));
        if finished.is_err() {
            IN_HAND.with_borrow_mut(|in_hand| in_hand.insert(self.key(), Parental::new(item)));
        }
        finished
    }

    fn send(&self, py: Python<'_>, parcels: &[Parcel], timeout: Option<f64>) -> PyResult<()> {
        let refused = |cause| errors::of_ipc(py, &ipc::Error::Unsendable { operation: "write", cause });
        let values: Vec<Value<'_>> = parcels.iter().map(|parcel| parcel.value(py)).collect::<Result<_, _>>().map_err(refused)?;
        let by = open_end(py, timeout)?;
        let mut rest = &values[..];
        if !self.is_owner()
            && let Some(answer) = rest.first()
            && let Some(item) = IN_HAND.with_borrow_mut(|in_hand| in_hand.remove(&self.key()))
            && let Some(mut item) = item.into_inner()
            && let Some(item) = item.0.take()
        {
            // The answer and the end of the question are one step: whoever dies, both happened or neither.
            wait(py, || item.answer(answer, by))?;
            rest = &values[1..];
        }
        if rest.is_empty() {
            return Ok(());
        }
        wait(py, || self.inner.write_all(rest, by)).map(drop)
    }
}

impl Handled for Workqueue {
    fn handle(&self) -> Result<Value<'static>, ipc::Error> {
        Ok(self.inner.handle())
    }

    fn family(&self) -> &Family {
        &self.family
    }
}

/// Opens a queue; see `syncline.ipc.workqueue`.
#[pyfunction]
#[pyo3(signature = (name))]
pub(crate) fn ipc_workqueue(py: Python<'_>, name: Option<&str>) -> PyResult<(Workqueue, bool)> {
    let family = family::home(py)?;
    let (inner, created) = wait(py, || match name {
        Some(name) => ipc::Workqueue::named(&family, name),
        None => ipc::Workqueue::new(&family).map(|queue| (queue, true)),
    })?;
    Ok((Workqueue { inner, family }, created))
}

#[pymethods]
impl Workqueue {
    /// Writes each argument as an item of its own: questions if this thread is the owner, else answers.
    ///
    /// The first answer after a read ends the question that was read, in one step.
    #[pyo3(signature = (*items, timeout = None))]
    fn write(&self, py: Python<'_>, items: &Bound<'_, PyTuple>, timeout: Option<f64>) -> PyResult<()> {
        let parcels: Vec<Parcel> = items.iter().map(|item| Parcel::of(&item)).collect::<PyResult<_>>()?;
        self.send(py, &parcels, timeout)
    }

    /// As `write`, but functions may be closures: what they close over is copied.
    #[pyo3(signature = (*items, timeout = None))]
    fn writeup(&self, py: Python<'_>, items: &Bound<'_, PyTuple>, timeout: Option<f64>) -> PyResult<()> {
        let wrap = py.import("syncline.ipc._functions")?.getattr("with_closures")?;
        let parcels: Vec<Parcel> = items
            .iter()
            .map(|item| if plain(&item) { Parcel::of(&item) } else { Parcel::of(&wrap.call1((item,))?) })
            .collect::<PyResult<_>>()?;
        self.send(py, &parcels, timeout)
    }

    /// The next item: answers if this thread is the owner, else questions. Waits for it, at most `timeout` seconds.
    ///
    /// With `nonblocking`, `syncline.ipc.NOTHING` when nothing is there. Closed is raised once the queue is closed and empty.
    #[pyo3(signature = (nonblocking = false, timeout = None))]
    fn read<'py>(&self, py: Python<'py>, nonblocking: bool, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let owner = self.is_owner();
        if !owner {
            self.finish_in_hand(py)?;
        }
        let Some(item) = self.taken(py, nonblocking, timeout)? else { return nothing(py) };
        if owner {
            return unpacked(py, item.into_value().map_err(|error| errors::of_ipc(py, &error))?, Arrays::Own);
        }
        if matches!(item.value(), Value::Nil) {
            return unpacked(py, wait(py, || item.into_value())?, Arrays::Own);
        }
        let value = item.value().clone();
        IN_HAND.with_borrow_mut(|in_hand| in_hand.insert(self.key(), Parental::new(InHand(Some(item)))));
        // Read-only: should this process die, the next one gets these very bytes.
        unpacked(py, value, Arrays::Common)
    }

    /// The next item as an object that says what becomes of it: `value`, `id`, `attempts`, `answer()`, `done()`, `give_back()`.
    ///
    /// NOTHING or Closed as `read`.
    #[pyo3(signature = (nonblocking = false, timeout = None))]
    fn take<'py>(&self, py: Python<'py>, nonblocking: bool, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let Some(item) = self.taken(py, nonblocking, timeout)? else { return nothing(py) };
        let (id, attempts, value) = (item.id(), item.attempts(), item.value().clone());
        let value = unpacked(py, value, Arrays::Common)?.unbind();
        let inner = Mutex::new(Some(Parental::new(InHand(Some(item)))));
        Ok(Bound::new(py, WorkqueueItem { inner, value, id, attempts })?.into_any())
    }

    /// Ends the question that this thread has in hand without an answer.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        self.finish_in_hand(py)
    }

    /// Waits until every question that was written so far has been finished, those in somebody's hand too. For the owner only.
    #[pyo3(signature = (*, timeout = None))]
    fn drain(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let by = open_end(py, timeout)?;
        wait(py, || self.inner.drain(by))
    }

    /// No more items can be written, by anybody; those that wait are woken. What is left can still be read.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || self.inner.close())
    }

    /// Whether it was closed.
    fn closed(&self) -> bool {
        self.inner.closed()
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Until the queue is closed and empty, or an end mark (None) comes.
    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.read(py, false, None) {
            Ok(item) => Ok(Some(item).filter(|item| !item.is_none())),
            Err(error) if errors::is_of_class(py, &error, "Closed") => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        reduce(py, self)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<Workqueue>().is_ok_and(|other| other.get().inner.handle() == self.inner.handle())
    }

    fn __hash__(&self) -> u64 {
        self.key()
    }
}

/// What needs no look for closures inside.
fn plain(item: &Bound<'_, PyAny>) -> bool {
    use pyo3::types::{PyBytes, PyFloat, PyInt, PyString};
    item.is_none()
        || item.is_instance_of::<PyInt>()
        || item.is_instance_of::<PyFloat>()
        || item.is_instance_of::<PyString>()
        || item.is_instance_of::<PyBytes>()
}

/// A question in hand; `Workqueue.take()` makes it. A context manager: done at the end of its block, given back when that raises.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct WorkqueueItem {
    inner: Mutex<Option<Parental<InHand>>>,
    value: Py<PyAny>,
    /// The item's number, the same however often it is taken.
    #[pyo3(get)]
    id: u64,
    /// How often it was taken before.
    #[pyo3(get)]
    attempts: u32,
}

impl WorkqueueItem {
    /// Tells the queue what becomes of the item; where that fails, it is still in hand.
    fn decide(&self, py: Python<'_>, what: fn(&mut InHand, Deadline) -> Result<(), ipc::Error>) -> PyResult<()> {
        let mut item = InHand(Some(self.out_of_hand(py)?));
        let by = deciding();
        let decided = wait(py, || what(&mut item, by));
        if decided.is_err() {
            *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = Some(Parental::new(item));
        }
        decided
    }

    fn out_of_hand(&self, py: Python<'_>) -> PyResult<Item> {
        let item = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let item = item.and_then(Parental::into_inner).and_then(|mut item| item.0.take());
        item.ok_or_else(|| errors::of_class(py, "Closed", "the item was finished or given back already"))
    }
}

#[pymethods]
impl WorkqueueItem {
    /// What was written.
    #[getter]
    fn value(&self, py: Python<'_>) -> Py<PyAny> {
        self.value.clone_ref(py)
    }

    /// It is finished.
    fn done(&self, py: Python<'_>) -> PyResult<()> {
        self.decide(py, InHand::finish)
    }

    /// Writes its answer and finishes it in one step: exactly once, whoever dies.
    fn answer(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let parcel = Parcel::of(value)?;
        let value = parcel.value(py).map_err(|cause| errors::of_ipc(py, &ipc::Error::Unsendable { operation: "answer", cause }))?;
        let item = self.out_of_hand(py)?;
        let by = open_end(py, None)?;
        wait(py, || item.answer(&value, by))
    }

    /// The next reader gets it.
    fn give_back(&self, py: Python<'_>) -> PyResult<()> {
        self.decide(py, InHand::give_back)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind, *_error))]
    fn __exit__(&self, py: Python<'_>, kind: &Bound<'_, PyAny>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        if self.inner.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Ok(()); // the block has said what becomes of it
        }
        self.decide(py, if kind.is_none() { InHand::finish } else { InHand::give_back })
    }
}
