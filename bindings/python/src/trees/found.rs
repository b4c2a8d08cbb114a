//! How the nodes of a tree find each other: the job that is there, or one of the tree's own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use syncline::collective::{PlanName, PlanSettings};
use syncline::{Error, TreeOptions};

use super::open;
use super::tree::Tree;
use crate::{errors, interrupt, job, log};

/// The tree of all workers of the open job; worker w is node w + 1.
#[pyfunction]
pub(crate) fn job_tree(py: Python<'_>) -> PyResult<Tree> {
    let session = job::current(py, "tree")?;
    let tree = session.tree().map_err(|error| errors::exception(py, &error))?;
    Ok(Tree::over(Arc::new(tree)))
}

/// A tree of one node, which needs nobody: all_reduce returns what it is given.
#[pyfunction(name = "NullTree")]
pub(crate) fn null_tree() -> Tree {
    Tree::over(Arc::new(syncline::Tree::null()))
}

/// A tree of processes of one host that know a number in common: `ppid`, by default the id of their parent process.
///
/// `node` is this process's number, from 1 to `nodes`. Returns when all nodes have come.
#[pyfunction(name = "LocalhostTree")]
#[pyo3(signature = (node, nodes, ppid = None, *, timeout = None))]
pub(crate) fn localhost_tree(py: Python<'_>, node: u32, nodes: u32, ppid: Option<u32>, timeout: Option<f64>) -> PyResult<Tree> {
    let options = options(py, 2, None, timeout)?;
    join(py, || syncline::Tree::localhost(node, nodes, ppid, &options))
}

/// A tree whose nodes were all told where node 1 listens.
///
/// The others reach this node at `node_host`; node 1 listens at `root_host` and `root_port`.
#[pyfunction(name = "StaticTree")]
#[pyo3(signature = (node, nodes, node_host, node_port, root_host, root_port, *, timeout = None))]
#[expect(clippy::too_many_arguments, reason = "torch-ipc's, which people know")]
pub(crate) fn static_tree(
    py: Python<'_>,
    node: u32,
    nodes: u32,
    node_host: &str,
    node_port: u16,
    root_host: &str,
    root_port: u16,
    timeout: Option<f64>,
) -> PyResult<Tree> {
    let options = options(py, 2, None, timeout)?;
    join(py, || syncline::Tree::fixed(node, nodes, (node_host, node_port), (root_host, root_port), &options))
}

/// A tree whose program has a place to leave an address: node 1 calls `publish(host, port)`, the others call `query()`
/// until it returns `(host, port)` instead of None.
#[pyfunction(name = "DiscoveredTree")]
#[pyo3(signature = (node, nodes, node_host, node_port, publish, query, *, timeout = None))]
#[expect(clippy::too_many_arguments, reason = "torch-ipc's, which people know")]
pub(crate) fn discovered_tree(
    py: Python<'_>,
    node: u32,
    nodes: u32,
    node_host: &str,
    node_port: u16,
    publish: Py<PyAny>,
    query: Py<PyAny>,
    timeout: Option<f64>,
) -> PyResult<Tree> {
    let options = options(py, 2, None, timeout)?;
    discovered(py, node, nodes, (node_host, node_port), &publish, &query, &options)
}

/// A tree of the tasks of this Slurm step; they meet through PMI, or through a file in `path`.
///
/// `.gpu` is the number, from 1, of the GPU of its host that is this task's when `tasks_per_gpu` tasks share each.
#[pyfunction(name = "SlurmTree")]
#[pyo3(signature = (path = None, tasks_per_gpu = 1, *, timeout = None))]
pub(crate) fn slurm_tree(py: Python<'_>, path: Option<PathBuf>, tasks_per_gpu: u32, timeout: Option<f64>) -> PyResult<Tree> {
    let options = options(py, 2, None, timeout)?;
    join(py, || syncline::Tree::slurm(path.as_deref(), tasks_per_gpu, &options))
}

/// Node 1 publishes, the others ask; both in Python.
pub(super) fn discovered(
    py: Python<'_>,
    node: u32,
    nodes: u32,
    own: (&str, u16),
    publish: &Py<PyAny>,
    query: &Py<PyAny>,
    options: &TreeOptions,
) -> PyResult<Tree> {
    let raised = Raised::default();
    let publish =
        |host: &str, port: u16| raised.by(|py| publish.call1(py, (host, port)).map(drop)).ok_or_else(|| "publish has raised".to_owned());
    // A query that raised has an answer, so that nobody asks it again; the exception is what the caller sees.
    let query = || raised.by(|py| query.call0(py)?.extract(py)).unwrap_or_else(|| Some((String::new(), 0)));
    let found = join(py, || syncline::Tree::discovered(node, nodes, own, publish, query, options));
    match raised.take() {
        Some(error) => Err(error),
        None => found,
    }
}

/// What all constructors take beside their own.
pub(super) fn options(py: Python<'_>, base: u32, plan: Option<&str>, timeout: Option<f64>) -> PyResult<TreeOptions> {
    let refused = |text: String| errors::of_class(py, "ConfigurationError", format!("tree: {text}"));
    let mut settings = PlanSettings::default();
    if base < 2 {
        return Err(refused(format!("base={base} is no number of branches\nhint: use 2 or more")));
    }
    settings.base = base;
    settings.forced = plan.map(PlanName::parse).transpose().map_err(|error| refused(error.to_string()))?;
    let timeout = timeout
        .map(|seconds| {
            let patience = Duration::try_from_secs_f64(seconds).ok().filter(|patience| !patience.is_zero());
            patience.ok_or_else(|| refused(format!("timeout={seconds} is not a time to wait\nhint: give seconds")))
        })
        .transpose()?;
    Ok(TreeOptions { plan: settings, timeout, interrupted: Some(interrupt::signal_raised) })
}

/// Makes a tree without the interpreter.
pub(super) fn join(py: Python<'_>, make: impl FnOnce() -> Result<syncline::Tree, Error> + Send) -> PyResult<Tree> {
    job::refuse_fork(py, || "tree".into())?;
    log::follow_level(py);
    let tree = Arc::new(job::wait(py, make)?);
    open::watch(py, &tree)?;
    Ok(Tree::over(tree))
}

/// What a function of the user's raised inside of a wait.
#[derive(Default)]
pub(super) struct Raised(Mutex<Option<PyErr>>);

impl Raised {
    /// Calls Python; None when it raised, now or before.
    pub(super) fn by<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        if self.slot().is_some() {
            return None;
        }
        // None too where the interpreter ends, which threads of Syncline's own may outlive.
        Python::try_attach(call)?.map_err(|error| *self.slot() = Some(error)).ok()
    }

    pub(super) fn take(&self) -> Option<PyErr> {
        self.slot().take()
    }

    /// The exception, which stays here for the next who asks.
    pub(super) fn again(&self, py: Python<'_>) -> Option<PyErr> {
        self.slot().as_ref().map(|error| error.clone_ref(py))
    }

    fn slot(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
