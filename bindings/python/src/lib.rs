//! The native half of the Python package `syncline`: convert, call, convert back.
//!
//! Everything that decides is in the crate `syncline`; what is here only speaks Python. The interpreter is
//! released around every wait, signals are asked about while waiting, and each kind of error becomes one exception.
//! `python/syncline/_native.pyi` is the typed face of this file: change both together.

mod arrays;
mod casts;
mod dlpack;
mod errors;
mod exit;
mod interrupt;
mod ipc;
mod job;
mod kvstore;
mod log;
mod memory;
mod ndarray;
mod optimizer;
mod parental;
mod site;
mod tables;
mod topology;
mod trees;
mod view;

use pyo3::prelude::*;

/// The native half of `syncline`; import `syncline` instead.
#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use crate::casts::cast;
    #[pymodule_export]
    use crate::ipc::{
        Channel, Client, Flock, Mutex, Server, ServerClient, SharedTable, Spawned, Workqueue, WorkqueueItem, ipc_client, ipc_family_stats,
        ipc_flock, ipc_handle_beside, ipc_let_go, ipc_open_handle, ipc_select, ipc_server, ipc_spawn, ipc_workqueue,
    };
    #[pymodule_export]
    use crate::job::{
        abort, barrier, forget_in_child, is_master_worker, is_open, local_rank, num_workers, open, rank, server_id, shutdown, size,
        topology, worker_id,
    };
    #[pymodule_export]
    use crate::kvstore::{Store, StoreFuture};
    #[pymodule_export]
    use crate::optimizer::{optimizer_options, optimizer_rate, schedule_rate};
    #[pymodule_export]
    use crate::tables::{ArrayTable, Future, KVTable, MatrixTable, aggregate, empty_shared, load, save};
    #[pymodule_export]
    use crate::topology::{Host, Topology};
    #[pymodule_export]
    use crate::trees::{
        Folding, Receiving, Reduction, Sending, Tree, abandon_trees, close_trees, discovered_tree, fold_leaves, interpreter_ends, job_tree,
        last_value, localhost_tree, null_tree, reduce_leaves, remember_value, scatter_reduced, slurm_tree, start_fold, start_leaves,
        start_recv, start_send, static_tree,
    };
    #[pymodule_export]
    use crate::view::View;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        log::listen();
        Ok(())
    }
}
