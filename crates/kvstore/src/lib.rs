//! A key-value store in the manner of MXNet's: one push and one pull, in this process or over all workers of a job.
//!
//! ```text
//! kind          which stores there are
//! value         arrays that go in and out, dense or some rows of them (row_sparse)
//! store         what users call: init, push, pull and the others, over keys
//! gradient      the values of one push, summed
//! compression   gradients in few bits, with what was not said yet
//! queue         calls that go on in the background, in order of priority; pending: their results
//! memory        keys of this process: assigned, updated by a function or by an optimizer
//! distributed   keys of a job: tables whose adds are gradients
//! states        optimizer states as a file
//! register      how keys are looked up
//! ```
//!
//! Every call takes a `Deadline` and lists of keys; the crate `syncline` has the plainer face of it. The README beside this crate has the rules.
#![forbid(unsafe_code)]

mod compression;
mod distributed;
mod gradient;
mod kind;
mod memory;
mod pending;
mod queue;
mod register;
mod row_sparse;
mod slot;
mod states;
mod store;
mod value;

pub use compression::Compression;
pub use distributed::Member;
pub use kind::Kind;
pub use memory::Updater;
pub use pending::Pending;
pub use row_sparse::RowSparse;
pub use store::{KvStore, Pull, Push, RowPull};
pub use syncline_optimizer::{Key, Optimizer};
pub use syncline_tensor::kernels::quantize::Quantizer;
pub use value::{Dense, DenseMut, Output, Value};
