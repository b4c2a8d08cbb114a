//! The class `Tree`: what its nodes call together.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyString};
use syncline::collective::{How, Leaf};
use syncline::{DType, Error, ReduceOp};
use syncline_tensor::Shape;

use super::{found, open};
use crate::ipc::values::{Draft, to_python};
use crate::memory::Lent;
use crate::parental::Parental;
use crate::{errors, interrupt, job, site};

/// Nodes, numbered from 1, that combine what they have. All of them make the same calls in the same order.
///
/// `Tree(node, nodes)` joins processes of this host, as `LocalhostTree` does, with `base` branches at each node or by the
/// `plan` of that name. With a `server` (on node 1) and `client`s of `sl.ipc` connected to it (on the others) these carry
/// the address where the nodes meet; a client whose `node` is None is numbered in order of arrival. `host` and `port` are
/// where the others reach this node.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct Tree {
    tree: Parental<Arc<syncline::Tree>>,
    /// The value of the last ordinary call, which a call without a value repeats.
    last: Mutex<Option<Py<PyAny>>>,
}

impl Drop for Tree {
    fn drop(&mut self) {
        open::let_go(&self.tree);
    }
}

#[pymethods]
impl Tree {
    #[new]
    #[pyo3(signature = (node, nodes, base = 2, server = None, client = None, host = None, port = None, *, plan = None, timeout = None))]
    #[expect(clippy::too_many_arguments, reason = "torch-ipc's, which people know")]
    fn new(
        py: Python<'_>,
        node: Option<u32>,
        nodes: u32,
        base: u32,
        server: Option<Py<PyAny>>,
        client: Option<Py<PyAny>>,
        host: Option<&str>,
        port: Option<u16>,
        plan: Option<&str>,
        timeout: Option<f64>,
    ) -> PyResult<Tree> {
        let options = found::options(py, base, plan, timeout)?;
        if server.is_none() && client.is_none() {
            let node = node.ok_or_else(|| refused(py, "tree: node=None needs a client, in whose order of arrival nodes are numbered"))?;
            return found::join(py, || syncline::Tree::localhost(node, nodes, None, &options));
        }
        let introduced = module(py)?.call_method1("introduced", (node, nodes, server, client))?;
        let (node, publish, query): (u32, Py<PyAny>, Py<PyAny>) = introduced.extract()?;
        found::discovered(py, node, nodes, (host.unwrap_or("127.0.0.1"), port.unwrap_or(0)), &publish, &query, &options)
    }

    /// This node's number, from 1.
    #[getter]
    fn node(&self) -> u32 {
        self.tree.node()
    }

    /// How many nodes there are.
    #[getter]
    fn nodes(&self) -> u32 {
        self.tree.nodes()
    }

    /// This node's number, from 1: torch-ipc's name for it.
    #[getter(nodeIndex)]
    fn node_index(&self) -> u32 {
        self.tree.node()
    }

    /// How many nodes there are: torch-ipc's name for it.
    #[getter(numNodes)]
    fn num_nodes(&self) -> u32 {
        self.tree.nodes()
    }

    /// Which GPU of its host is this node's, from 1, where the launcher tells; else None.
    #[getter]
    fn gpu(&self) -> Option<u32> {
        self.tree.gpu()
    }

    /// Combines `value` over all nodes and returns it with the number of nodes that had data.
    ///
    /// `value` is an array, a number, or any nesting of dicts, lists and tuples of them, of the same structure on all
    /// nodes. Writable arrays are reduced in place and are what is returned. `reduce` is sum, prod, min, max, mean, and,
    /// or, or a function `f(mine, received)` that is called once per leaf and child; None as its result keeps `mine`.
    ///
    /// With `zero` this node has no more data: each leaf becomes `zero(leaf, index)` and the call takes part in those
    /// of the others until nobody has data left, and returns 0 contributors. Without a value it takes the last call's.
    #[pyo3(signature = (value = None, reduce = None, zero = None), text_signature = "($self, value=None, reduce='sum', zero=None)")]
    fn all_reduce<'py>(
        slf: &Bound<'py, Self>,
        value: Option<&Bound<'py, PyAny>>,
        reduce: Option<&Bound<'py, PyAny>>,
        zero: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let (Some(value), None, Some(op)) = (value, zero, builtin(reduce))
            && let Some(mut lent) = Lent::by(value)
            && let Some(dtype) = lent.dtype.filter(|dtype| lent.writable && (op != ReduceOp::Mean || dtype.is_float()))
        {
            let contributors = this.reduce_lone(py, &mut lent, dtype, op)?;
            this.remember(Some(value.clone().unbind()));
            return Ok((value, contributors).into_pyobject(py)?.into_any());
        }
        module(py)?.call_method1(intern!(py, "all_reduce"), (slf, value, reduce, zero))
    }

    /// `all_reduce` by torch-ipc's name.
    #[pyo3(name = "allReduce", signature = (value = None, reduce = None, zero = None), text_signature = "($self, value=None, reduce='sum', zero=None)")]
    fn all_reduce_by_its_old_name<'py>(
        slf: &Bound<'py, Self>,
        value: Option<&Bound<'py, PyAny>>,
        reduce: Option<&Bound<'py, PyAny>>,
        zero: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Tree::all_reduce(slf, value, reduce, zero)
    }

    /// Begins an `all_reduce` and returns a future; `wait()` returns what `all_reduce` would.
    ///
    /// Until then the arrays of `value` belong to the operation. A function as `reduce` is called by a thread of Syncline's
    /// own, while this one does something else.
    #[pyo3(signature = (value, reduce = None), text_signature = "($self, value, reduce='sum')")]
    fn all_reduce_async<'py>(
        slf: &Bound<'py, Self>,
        value: &Bound<'py, PyAny>,
        reduce: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        module(slf.py())?.call_method1("all_reduce_async", (slf, value, reduce))
    }

    /// Gives everybody the value of node 1. Writable arrays of the same shape are filled in place.
    fn scatter<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Tree::broadcast(slf, Some(value), 1)
    }

    /// Gives everybody the value of node `root`, which the others need not know.
    ///
    /// Writable arrays of a node's own value are filled in place where they have the shape of root's.
    #[pyo3(signature = (value = None, root = 1))]
    fn broadcast<'py>(slf: &Bound<'py, Self>, value: Option<&Bound<'py, PyAny>>, root: u32) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let none = py.None().into_bound(py);
        let value = value.unwrap_or(&none);
        let brings = root == this.tree.node();
        let draft = Draft::of(if brings { value } else { &none }, "broadcast")?;
        let sent = message(py, "broadcast", &draft)?;
        let received = this.call(py, "broadcast", |tree, how| tree.broadcast_value(&sent, root, how))?;
        if brings {
            return Ok(value.clone());
        }
        let received = to_python(py, received)?;
        module(py)?.call_method1(intern!(py, "poured"), (value, received))
    }

    /// Everybody's values at node `root`, a list by node; None elsewhere. They need not be alike.
    #[pyo3(signature = (value, root = 1))]
    fn gather<'py>(&self, value: &Bound<'py, PyAny>, root: u32) -> PyResult<Option<Bound<'py, PyList>>> {
        let py = value.py();
        let draft = Draft::of(value, "gather")?;
        let sent = message(py, "gather", &draft)?;
        let all = self.call(py, "gather", |tree, how| tree.gather_value(&sent, root, how))?;
        all.map(|all| listed(py, all)).transpose()
    }

    /// Everybody's values, a list by node. They need not be alike.
    fn all_gather<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = value.py();
        let draft = Draft::of(value, "all_gather")?;
        let sent = message(py, "all_gather", &draft)?;
        listed(py, self.call(py, "all_gather", |tree, how| tree.all_gather_value(&sent, how))?)
    }

    /// Combines an array over all nodes and returns this node's part of its numbers; the first nodes take the remainder.
    #[pyo3(signature = (value, reduce = "sum"))]
    fn reduce_scatter<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>, reduce: &str) -> PyResult<Bound<'py, PyAny>> {
        module(slf.py())?.call_method1("reduce_scatter", (slf, value, reduce))
    }

    /// Sends item i of `values`, one for each node, to node i + 1, and returns the list of what each node sent here.
    fn all_to_all<'py>(&self, values: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = values.py();
        let drafts = values.try_iter()?.map(|part| Draft::of(&part?, "all_to_all")).collect::<PyResult<Vec<_>>>()?;
        let parts = drafts.iter().map(|draft| message(py, "all_to_all", draft)).collect::<PyResult<Vec<_>>>()?;
        listed(py, self.call(py, "all_to_all", |tree, how| tree.all_to_all_value(&parts, how))?)
    }

    /// Returns when every node has called it.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, "barrier", |tree, how| tree.barrier_at(how))
    }

    /// What went over the network, by node: a dict with `tx` and `rx`, each with bytes, calls, seconds and MB/s.
    ///
    /// Nodes that share a host's memory exchange nothing over links, and are not listed.
    fn net_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        job::refuse_fork(py, || "net_stats".into())?;
        let group = self.tree.collectives().map(|collectives| collectives.group().ranks().to_vec()).unwrap_or_default();
        let stats = PyDict::new(py);
        for link in self.tree.net_stats() {
            let node = group.iter().position(|rank| *rank == link.peer).map_or(0, |position| position + 1);
            let both = PyDict::new(py);
            for (way, bytes, calls, time) in [
                ("tx", link.bytes_sent, link.calls_sent, link.sending.as_secs_f64()),
                ("rx", link.bytes_received, link.calls_received, link.receiving.as_secs_f64()),
            ] {
                let facts = PyDict::new(py);
                facts.set_item("bytes", bytes)?;
                facts.set_item("calls", calls)?;
                facts.set_item("seconds", time)?;
                facts.set_item("MB/s", if time > 0.0 { bytes as f64 / time / 1e6 } else { 0.0 })?;
                both.set_item(way, facts)?;
            }
            stats.set_item(node, both)?;
        }
        Ok(stats)
    }

    /// `net_stats` by torch-ipc's name.
    #[pyo3(name = "netStats")]
    fn net_stats_by_its_old_name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.net_stats(py)
    }

    /// The same structure with each leaf replaced by `f(leaf)`, in the order in which trees visit leaves; None keeps it.
    #[staticmethod]
    fn walk_table<'py>(value: &Bound<'py, PyAny>, f: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        module(value.py())?.call_method1("walk_table", (value, f))
    }

    /// `walk_table` by torch-ipc's name.
    #[staticmethod]
    #[pyo3(name = "walkTable")]
    fn walk_table_by_its_old_name<'py>(value: &Bound<'py, PyAny>, f: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Tree::walk_table(value, f)
    }

    /// Leaves the job, if it is the tree's own. A second call does nothing; a tree that nobody refers to does the same.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        job::refuse_fork(py, || "close".into())?;
        py.detach(|| open::let_go(&self.tree));
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(&self, py: Python<'_>, kind: Option<Py<PyAny>>, error: Option<Py<PyAny>>, traceback: Option<Py<PyAny>>) -> PyResult<()> {
        let _ = (kind, traceback);
        match error {
            None => self.close(py),
            Some(error) => {
                let reason: String = py.import("syncline._ending")?.call_method1("in_words", (error,))?.extract()?;
                open::abandon(py, &self.tree, &reason);
                Ok(())
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("<syncline.Tree: node {} of {}>", self.tree.node(), self.tree.nodes())
    }
}

impl Tree {
    pub(super) fn over(tree: Arc<syncline::Tree>) -> Tree {
        Tree { tree: Parental::new(tree), last: Mutex::default() }
    }

    /// The operations below.
    pub(super) fn inner(&self) -> &Arc<syncline::Tree> {
        &self.tree
    }

    pub(super) fn remember(&self, value: Option<Py<PyAny>>) {
        let before = std::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), value);
        drop(before); // after the lock: dropping an object may run any code
    }

    pub(super) fn last(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|value| value.clone_ref(py))
    }

    /// Reduces one array where it lies.
    fn reduce_lone(&self, py: Python<'_>, lent: &mut Lent, dtype: DType, op: ReduceOp) -> PyResult<u32> {
        if lent.dimensions == 1 {
            // What all_reduce_leaves would make of it, without a description that nobody reads.
            let bytes = lent.bytes_mut();
            return self.call(py, "all_reduce", |tree, how| match tree.collectives() {
                None => Ok(1),
                Some(collectives) => Ok(collectives.all_reduce(bytes, dtype, op, true, how)?),
            });
        }
        let shape = Shape::new(&lent.shape()).map_err(|error| refused(py, &format!("all_reduce: {error}")))?;
        let mut leaf = [Leaf { name: "", dtype, shape, bytes: lent.bytes_mut() }];
        self.call(py, "all_reduce", |tree, how| tree.all_reduce_leaves(&mut leaf, op, true, how))
    }

    /// Runs one call without the interpreter.
    pub(super) fn call<T: Send>(
        &self,
        py: Python<'_>,
        operation: &str,
        call: impl FnOnce(&syncline::Tree, How<'_>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        job::refuse_fork(py, || operation.to_owned())?;
        let site = site::here(py)?;
        let tree: &syncline::Tree = &self.tree;
        job::wait(py, || call(tree, How { site: &site, by: interrupt::deadline(tree.timeout()) }))
    }
}

/// The operation of this name; sum where none is given; None for a function, or a name that the Python side will refuse.
fn builtin(reduce: Option<&Bound<'_, PyAny>>) -> Option<ReduceOp> {
    match reduce {
        None => Some(ReduceOp::Sum),
        Some(reduce) => named(reduce.cast::<PyString>().ok()?.to_str().ok()?),
    }
}

/// The operation of this name.
pub(super) fn named(name: &str) -> Option<ReduceOp> {
    ReduceOp::ALL.into_iter().find(|op| op.name() == name)
}

/// The module with all that is better said in Python: walks over structures, other layouts.
pub(super) fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(MODULE.get_or_try_init(py, || py.import("syncline._trees").map(Bound::unbind))?.bind(py))
}

fn listed<'py>(py: Python<'py>, all: Vec<syncline::Value<'static>>) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, all.into_iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?)
}

/// What travels, over the memory of the objects that were drafted.
pub(super) fn message<'d>(py: Python<'_>, operation: &str, draft: &'d Draft) -> PyResult<syncline::Value<'d>> {
    draft.laid_out().map_err(|error| refused(py, &format!("{operation}: {error}")))
}

pub(super) fn refused(py: Python<'_>, text: &str) -> PyErr {
    errors::of_class(py, "ConfigurationError", text)
}
