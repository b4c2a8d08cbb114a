//! Tables: arrays, matrices and key spaces that many workers read and add to.
//!
//! [`Tables`] belongs to a job and makes [`Table`]s; making one is collective. Calls move raw bytes of the table's
//! dtype; the facade and the bindings give them types.
#![forbid(unsafe_code)]

mod arrays;
mod caretaker;
pub mod checkpoint;
mod fetching;
#[doc(hidden)]
pub mod fuzzing;
mod gradient;
mod ground;
mod keys;
mod locking;
mod named;
mod partition;
mod pending;
mod reaching;
mod saving;
mod setup;
mod share;
mod spec;
mod spread;
mod table;
mod tables;
mod together;
mod updater;
mod way;

pub use arrays::SharedArray;
pub use gradient::{GradientStates, StateLane};
pub use partition::Placement;
pub use pending::Pending;
pub use spec::{Consistency, Shape, Spec};
pub use table::Table;
pub use tables::Tables;
pub use updater::{AddOptions, Updater};
