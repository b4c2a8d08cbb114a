//! Trees that have a job of their own, which must be left whichever way the process ends.
//!
//! A tree that Python lets go while the program runs leaves its job at once. One that is let go because the interpreter
//! ends waits for the exit status, which only `exit.rs` knows: a failure is told to the others.
//! The lock is held for a moment at a time and only with the interpreter in hand, as that of `job.rs`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use syncline::Tree;

use crate::{exit, job};

static OPEN: Mutex<Vec<Arc<Tree>>> = Mutex::new(Vec::new());
static ENDING: AtomicBool = AtomicBool::new(false);

fn open() -> MutexGuard<'static, Vec<Arc<Tree>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sees to it that the tree's own job, if it has one, is left in the end.
pub(super) fn watch(py: Python<'_>, tree: &Arc<Tree>) -> PyResult<()> {
    if tree.has_own_job() {
        exit::watch();
        py.import("syncline._ending")?.call_method0("watch")?;
        open().push(Arc::clone(tree));
    }
    Ok(())
}

/// Python has no more use for the tree.
pub(super) fn let_go(tree: &Arc<Tree>) {
    if job::is_fork() || ENDING.load(Relaxed) {
        return;
    }
    let ours = {
        let mut open = open();
        open.iter().position(|other| Arc::ptr_eq(other, tree)).map(|index| open.swap_remove(index))
    };
    if let Some(tree) = ours {
        // Leaving may take a while: the other threads of the program need not wait for it.
        Python::attach(|py| py.detach(|| drop(tree.close())));
    }
}

/// Leaves the tree's own job because the block that used it fails.
pub(super) fn abandon(py: Python<'_>, tree: &Arc<Tree>, reason: &str) {
    open().retain(|other| !Arc::ptr_eq(other, tree));
    py.detach(|| tree.abort(reason));
}

/// Whether a tree of this process has a job of its own.
pub(crate) fn any_open() -> bool {
    !open().is_empty()
}

/// Called before the interpreter takes its modules down: what is let go from now on waits for the exit status.
#[pyfunction]
pub(crate) fn interpreter_ends() {
    ENDING.store(true, Relaxed);
}

/// Leaves the jobs of all trees because this process fails; the others are told why.
#[pyfunction]
pub(crate) fn abandon_trees(py: Python<'_>, reason: &str) {
    if job::is_fork() {
        return;
    }
    let trees = std::mem::take(&mut *open());
    py.detach(|| trees.iter().for_each(|tree| tree.abort(reason)));
}

/// Leaves the jobs of all trees politely.
#[pyfunction]
pub(crate) fn close_trees(py: Python<'_>) {
    if job::is_fork() {
        return;
    }
    let trees = std::mem::take(&mut *open());
    py.detach(|| trees.iter().for_each(|tree| drop(tree.close())));
}

/// Ends the jobs of trees with the process, as its exit status says.
pub(crate) fn end_with_process(status: i32) {
    let Ok(mut open) = OPEN.try_lock() else { return };
    for tree in open.drain(..) {
        match status {
            // A failure to leave has nobody left to be raised to.
            0 => drop(tree.close()),
            _ => tree.abort(&format!("exited with status {status}")),
        }
    }
}
