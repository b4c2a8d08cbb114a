//! Collectives among ranks that share memory; the README of this crate has the plan and what it costs.

mod commons;
mod head;
mod leaving;
mod meeting;
mod reducing;
mod streams;

pub(crate) use meeting::Memory;
pub(crate) use reducing::Reduction;

use syncline_cluster::Error;

/// What the members brought does not fit together, though they said the same: only a bug or another version does that.
#[cold]
fn garbled(operation: String) -> Error {
    let detail = "the parts of the ranks do not fit together\nhint: do all processes run the same version of Syncline?".into();
    Error::System { operation, detail }
}

/// Copies what must be just as long.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    debug_assert_eq!(to.len(), from.len());
    to.copy_from_slice(from);
}
