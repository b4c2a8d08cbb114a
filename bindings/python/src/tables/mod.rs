//! The tables as Python sees them: one class for each shape over what they have in common.

mod array;
mod future;
mod handle;
mod keys;
mod matrix;
mod whole;

pub(crate) use array::ArrayTable;
pub(crate) use future::Future;
pub(crate) use handle::call_site;
pub(crate) use keys::KVTable;
pub(crate) use matrix::MatrixTable;
pub(crate) use whole::{aggregate, empty_shared, load, save};
