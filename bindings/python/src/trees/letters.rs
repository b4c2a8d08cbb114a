//! Messages from one node to another, outside of the calls that all nodes make.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use syncline::DType;

use super::future::{Memory, by};
use super::tree::{Tree, refused};
use super::under_way::UnderWay;
use crate::job;
use crate::memory::Lent;
use crate::parental::Parental;
use crate::view::View;

/// An array on its way to another node.
#[pyclass(frozen, module = "syncline._native")]
pub(crate) struct Sending {
    operation: UnderWay<Memory>,
    /// The array's memory, which is read until the operation is over.
    lent: Mutex<Option<Lent>>,
    /// Stays open until nobody can wait any more.
    _tree: Parental<Arc<syncline::Tree>>,
}

/// Begins to send a contiguous, writable array to node `to`.
#[pyfunction]
pub(crate) fn start_send(py: Python<'_>, tree: &Bound<'_, Tree>, array: &Bound<'_, PyAny>, to: u32, tag: u64) -> PyResult<Sending> {
    job::refuse_fork(py, || "send".into())?;
    let inner = Arc::clone(tree.get().inner());
    let position = position(py, &inner, to, "send")?;
    let lent = Lent::by(array).filter(|lent| lent.writable);
    let mut lent = lent.ok_or_else(|| refused(py, "send: the array lends no memory"))?;
    let collectives = inner.collectives().ok_or_else(|| alone(py, "send"))?;
    let operation = UnderWay::new(collectives.send_start(Memory::of(&mut lent), position, tag, inner.deadline()));
    Ok(Sending { operation, lent: Mutex::new(Some(lent)), _tree: Parental::new(inner) })
}

#[pymethods]
impl Sending {
    /// Whether `wait` would return at once.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        job::refuse_fork(py, || "send".into())?;
        Ok(self.operation.done())
    }

    /// Returns when the array is on its way and may be changed.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        job::refuse_fork(py, || "send".into())?;
        let sent = self.operation.wait(py, by(py, timeout)?);
        if self.operation.is_over() {
            drop(self.lent.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
        sent.map(drop)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.operation.is_over() {
            // It is still being read: the array stays for good.
            std::mem::forget(self.lent.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// An array that another node is to send.
#[pyclass(frozen, module = "syncline._native")]
pub(crate) struct Receiving {
    operation: UnderWay<Vec<u8>>,
    /// Stays open until nobody can wait any more.
    _tree: Parental<Arc<syncline::Tree>>,
}

/// Awaits an array with `tag` from a node, or from any.
#[pyfunction]
#[pyo3(signature = (tree, of, tag))]
pub(crate) fn start_recv(py: Python<'_>, tree: &Bound<'_, Tree>, of: Option<u32>, tag: u64) -> PyResult<Receiving> {
    job::refuse_fork(py, || "recv".into())?;
    let inner = Arc::clone(tree.get().inner());
    let from = of.map(|node| position(py, &inner, node, "recv")).transpose()?;
    let collectives = inner.collectives().ok_or_else(|| alone(py, "recv"))?;
    let operation = UnderWay::new(collectives.recv_start(from, tag, inner.deadline()));
    Ok(Receiving { operation, _tree: Parental::new(inner) })
}

#[pymethods]
impl Receiving {
    /// Whether `wait` would return at once.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        job::refuse_fork(py, || "recv".into())?;
        Ok(self.operation.done())
    }

    /// The bytes that came, once, and the node they are from.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<(View, u32)> {
        job::refuse_fork(py, || "recv".into())?;
        let position = self.operation.wait(py, by(py, timeout)?)?;
        let bytes = self.operation.take().unwrap_or_default();
        let count = bytes.len();
        Ok((View::of_bytes(bytes, DType::U8, &[count]), position + 1))
    }
}

fn position(py: Python<'_>, tree: &syncline::Tree, node: u32, operation: &str) -> PyResult<usize> {
    let (nodes, own) = (tree.nodes(), tree.node());
    match node {
        1.. if node <= nodes && node != own => Ok(node as usize - 1),
        _ => Err(refused(py, &format!("{operation}: node {node} is none of the others of {nodes} nodes"))),
    }
}

fn alone(py: Python<'_>, operation: &str) -> PyErr {
    refused(py, &format!("{operation}: a tree of one node has nobody to write to"))
}
