//! Tables with types: what Rust programs hold.
//!
//! A [`Table`] moves raw bytes; the three types here know what the bytes are. They are made by builders that hang from
//! the [`Session`]:
//! ```
//! use syncline::{Session, Updater};
//!
//! let session = Session::solo()?;
//! let weights = session.array::<f32>(4).initial(&[1.0; 4]).updater(Updater::Sgd).name("weights").create()?;
//! weights.add(&[0.5, 0.0, -0.5, 0.0])?; // returns at once
//! assert_eq!(weights.get()?, [0.5, 1.0, 1.5, 1.0]); // a worker sees its own adds
//! # Ok::<(), syncline::Error>(())
//! ```
//! Handles are cheap to clone and may be used from any number of threads. Slices of a wrong length and ids out of range
//! are errors that change nothing.

mod array;
mod builder;
mod handle;
mod keys;
mod matrix;
mod pending;
mod whole;

use syncline_cluster::Deadline;
use syncline_table::Spec;
use syncline_tensor::Element;
use syncline_tensor::kernels::ReduceOp;

pub use array::ArrayTable;
pub use builder::{TableBuilder, TableKind};
pub use keys::KVTable;
pub use matrix::MatrixTable;
pub use pending::PendingValues;

use crate::{Error, Session};

impl Session {
    /// A table of `size` numbers that move together; every worker makes it with the same arguments.
    pub fn array<T: Element>(&self, size: u64) -> TableBuilder<'_, ArrayTable<T>> {
        TableBuilder::new(self, Spec::array(size))
    }

    /// A table of `rows` × `cols` numbers, in row-major order, that move together or by rows.
    ///
    /// ```
    /// let session = syncline::Session::solo()?;
    /// let embeddings = session.matrix::<f32>(4, 2).name("embeddings").create()?;
    /// embeddings.add_rows(&[3, 1], &[3.0, 3.0, 1.0, 1.0])?;
    /// assert_eq!(embeddings.get_rows(&[1, 3, 0])?, [1.0, 1.0, 3.0, 3.0, 0.0, 0.0]);
    /// # Ok::<(), syncline::Error>(())
    /// ```
    pub fn matrix<T: Element>(&self, rows: u64, cols: u64) -> TableBuilder<'_, MatrixTable<T>> {
        TableBuilder::new(self, Spec::matrix(rows, cols))
    }

    /// A table with one number for each 64-bit key that anyone thinks of.
    pub fn keys<T: Element>(&self) -> TableBuilder<'_, KVTable<T>> {
        TableBuilder::new(self, Spec::keys())
    }

    /// Combines `array` over all workers, in place and in order of worker; no server takes part. Every worker calls it.
    ///
    /// ```
    /// use syncline::{ReduceOp, Session};
    ///
    /// let session = Session::solo()?;
    /// let mut loss = [0.25f64];
    /// session.aggregate(&mut loss, ReduceOp::Sum)?;
    /// assert_eq!(loss, [0.25]); // a sum over one worker
    /// # Ok::<(), syncline::Error>(())
    /// ```
    pub fn aggregate<T: Element>(&self, array: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.aggregate_bytes(bytemuck::cast_slice_mut(array), T::DTYPE, op, Deadline::after(self.timeout()))
    }
}
