//! Syncline keeps the parameters of one model the same in many processes.
//!
//! This is the one crate to name: it finds the job this process belongs to, and everything else hangs from
//! the [`Session`] it returns. Nothing is global; two sessions may live side by side in one process.
//!
//! ```
//! let session = syncline::Session::solo()?; // a world of one: this process is worker and server
//! assert_eq!((session.rank(), session.size()), (0, 1));
//! session.barrier()?;
//! # Ok::<(), syncline::Error>(())
//! ```
#![forbid(unsafe_code)]

mod among;
mod config;
mod error;
pub mod ipc;
pub mod kvstore;
mod session;
mod tables;
mod tree;

pub use among::Among;
pub use config::Config;
pub use error::Error;
pub use session::Session;
pub use syncline_cluster::{Deadline, ErrorKind, Group, Lane, OnPeerLoss, Role, Settings, Topology, TransportChoice, Who, bootstrap};
pub use syncline_collective as collective;
pub use syncline_table::{AddOptions, Consistency, Pending, Placement, Shape as TableShape, SharedArray, Spec, Table, Updater};
pub use syncline_tensor::kernels::ReduceOp;
pub use syncline_tensor::{DType, Element, bf16, f16};
pub use syncline_transport as transport;
pub use syncline_wire::{TensorValue, Value};
pub use tables::{ArrayTable, KVTable, MatrixTable, PendingValues, TableBuilder, TableKind};
pub use tree::{LeafMerge, PendingReduction, Reduce, Tree, TreeOptions, Zero, walk_leaves};

/// The names a program usually needs.
pub mod prelude {
    pub use crate::{AddOptions, ArrayTable, Config, Error, ErrorKind, KVTable, MatrixTable, ReduceOp, Session, Updater};
}
