//! Channels.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::Deadline;
use syncline::ipc::{self, ChannelOptions, Family, Status, Value};

use super::family;
use super::handle::{Handled, reduce};
use super::parcel::{Arrays, Parcel, unpacked};
use super::{at_once, nothing, open_end, quick, wait};
use crate::errors;

/// Many writers, many readers, first in first out; between threads and processes. `syncline.ipc.channel()` makes it.
///
/// Items are plain data, arrays, handles and picklable objects. With a `capacity`, writers wait while it is full. Iterating reads until the
/// channel is drained. A channel may be passed to workers and sent through other channels, queues and tables.
#[pyclass(frozen, module = "syncline.ipc")]
pub(crate) struct Channel {
    inner: ipc::Channel,
    family: Family,
}

impl Channel {
    pub(super) fn over(family: &Family, inner: ipc::Channel) -> Channel {
        Channel { inner, family: family.clone() }
    }

    /// Writes what takes no longer than letting the interpreter go would; that is done only to wait, for room or for somebody who has
    /// stopped in the middle of a write.
    fn write_small(&self, py: Python<'_>, value: &Value<'_>, timeout: Option<f64>) -> PyResult<Status> {
        if let Some(Some(status)) = at_once(py, self.inner.try_write_by(value, Deadline::brief()))? {
            return Ok(status);
        }
        let by = open_end(py, timeout)?;
        wait(py, || self.inner.write(value, by))
    }
}

impl Handled for Channel {
    fn handle(&self) -> Result<Value<'static>, ipc::Error> {
        self.inner.handle()
    }

    fn family(&self) -> &Family {
        &self.family
    }
}

fn code(status: Status) -> u8 {
    match status {
        Status::Open => 0,
        Status::Closed => 1,
        Status::Drained => 2,
    }
}

#[pymethods]
impl Channel {
    /// Items may be written.
    #[classattr]
    const OPEN: u8 = 0;
    /// Nothing can be written any more; items are left.
    #[classattr]
    const CLOSED: u8 = 1;
    /// Closed, and the last item was taken.
    #[classattr]
    const DRAINED: u8 = 2;

    #[new]
    #[pyo3(signature = (capacity = None))]
    fn new(py: Python<'_>, capacity: Option<isize>) -> PyResult<Channel> {
        let room = |given: isize| usize::try_from(given).ok().filter(|room| *room > 0);
        let refused = |given| PyValueError::new_err(format!("channel: a capacity of {given} lets nothing through"));
        let capacity = capacity.map(|given| room(given).ok_or_else(|| refused(given))).transpose()?;
        let family = family::home(py)?;
        let options = ChannelOptions { capacity, ..ChannelOptions::default() };
        let inner = wait(py, || ipc::Channel::with(&family, options))?;
        Ok(Channel { inner, family })
    }

    /// Writes each argument as an item of its own and returns the status: OPEN, or CLOSED or DRAINED, when nothing was written.
    ///
    /// An argument that cannot travel raises before anything is written. While the channel is full, waits, at most `timeout` seconds.
    #[pyo3(signature = (*items, timeout = None))]
    fn write(&self, py: Python<'_>, items: &Bound<'_, PyTuple>, timeout: Option<f64>) -> PyResult<u8> {
        let failed = |error| errors::of_ipc(py, &error);
        let refused = |cause| failed(ipc::Error::Unsendable { operation: "write", cause });
        let status = if items.len() == 1 {
            let item = items.get_item(0)?;
            if let Some(value) = quick::value(&item) {
                self.write_small(py, &value, timeout)?
            } else {
                let parcel = Parcel::of(&item)?;
                let value = parcel.value(py).map_err(refused)?;
                if parcel.is_small(py) {
                    self.write_small(py, &value, timeout)?
                } else {
                    let by = open_end(py, timeout)?;
                    wait(py, || self.inner.write(&value, by))?
                }
            }
        } else {
            let parcels: Vec<Parcel> = items.iter().map(|item| Parcel::of(&item)).collect::<PyResult<_>>()?;
            let values: Vec<Value<'_>> = parcels.iter().map(|parcel| parcel.value(py)).collect::<Result<_, _>>().map_err(refused)?;
            let by = open_end(py, timeout)?;
            wait(py, || self.inner.write_all(&values, by))?
        };
        Ok(code(status))
    }

    /// The next item as `(status, item)`; waits for it, at most `timeout` seconds.
    ///
    /// The status is OPEN, or CLOSED once the channel has been closed. `(DRAINED, None)` when nothing will ever come. With `nonblocking`,
    /// `(OPEN, NOTHING)` when nothing is there now.
    #[pyo3(signature = (nonblocking = false, timeout = None))]
    fn read<'py>(&self, py: Python<'py>, nonblocking: bool, timeout: Option<f64>) -> PyResult<(u8, Bound<'py, PyAny>)> {
        // What is there already needs no wait, and so nobody else in between.
        let mut by = None;
        loop {
            let quick = self.inner.try_read_by(Deadline::brief(), |value| unpacked(py, value, Arrays::Own));
            let (status, item) = match at_once(py, quick)? {
                Some(found) => found,
                None => {
                    let read = if nonblocking {
                        wait(py, || self.inner.try_read())?
                    } else {
                        let by = *by.get_or_insert(open_end(py, timeout)?);
                        wait(py, || self.inner.read(by))?
                    };
                    (read.status, read.item.map(|value| unpacked(py, value, Arrays::Own)))
                }
            };
            match item {
                Some(item) => return Ok((code(status), item?)),
                None if status == Status::Drained => return Ok((code(status), py.None().into_bound(py))),
                None if nonblocking => return Ok((code(status), nothing(py)?)),
                None => {}
            }
            let by = match by {
                Some(by) => by,
                None => *by.insert(open_end(py, timeout)?),
            };
            wait(py, || self.inner.wait_for_item(by))?;
        }
    }

    /// All items that are there, at least one and at most `most`, as a list; empty only when the channel is drained. One wait for many.
    #[pyo3(signature = (most = 1024, timeout = None))]
    fn read_many<'py>(&self, py: Python<'py>, most: usize, timeout: Option<f64>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let by = open_end(py, timeout)?;
        let (_, items) = wait(py, || self.inner.read_many(most, by))?;
        items.into_iter().map(|item| unpacked(py, item, Arrays::Own)).collect()
    }

    /// No more items can be written; those that are there can still be read. A second time does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        wait(py, || self.inner.close())
    }

    /// Whether it was closed.
    fn closed(&self) -> bool {
        self.inner.closed()
    }

    /// Whether it was closed and the last item was taken.
    fn drained(&self) -> bool {
        self.inner.drained()
    }

    /// How many items are there.
    fn num_items(&self) -> usize {
        self.inner.num_items()
    }

    /// How many items fit; None is any number.
    #[getter]
    fn capacity(&self) -> Option<usize> {
        self.inner.capacity()
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (status, item) = self.read(py, false, None)?;
        Ok((status != Self::DRAINED).then_some(item))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        reduce(py, self)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<Channel>().is_ok_and(|other| other.get().inner == self.inner)
    }

    fn __hash__(&self) -> u64 {
        self.inner.number()
    }

    fn __repr__(&self) -> String {
        let state = if self.drained() {
            "drained"
        } else if self.closed() {
            "closed"
        } else {
            "open"
        };
        format!("<syncline.ipc.channel {:x}, {state}, {} items>", self.inner.number(), self.num_items())
    }
}

/// Waits until one of `channels` has an item: `(index, status, item)`. `(None, DRAINED, None)` when all are drained.
#[pyfunction]
#[pyo3(signature = (channels, timeout = None))]
pub(crate) fn ipc_select<'py>(
    py: Python<'py>,
    channels: Vec<Bound<'py, Channel>>,
    timeout: Option<f64>,
) -> PyResult<(Option<usize>, u8, Bound<'py, PyAny>)> {
    let by = open_end(py, timeout)?;
    let inner: Vec<&ipc::Channel> = channels.iter().map(|channel| &channel.get().inner).collect();
    let selected = wait(py, || ipc::select(&inner, by))?;
    let item = selected.read.item.map_or_else(|| py.None().into_bound_py_any(py), |item| unpacked(py, item, Arrays::Own))?;
    Ok((selected.index, code(selected.read.status), item))
}
