//! What the typed tables have in common: a table, the type of its numbers, and how long to wait.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use syncline_cluster::Deadline;
use syncline_table::{AddOptions, Table};
use syncline_tensor::Element;

use super::PendingValues;
use crate::Error;

/// When an add returns.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Return {
    /// When the delta was taken over.
    AtOnce,
    /// When it is applied.
    Applied,
}

#[derive(Clone)]
pub(super) struct Handle<T> {
    pub(super) table: Table,
    pub(super) timeout: Duration,
    numbers: PhantomData<fn() -> T>,
}

impl<T: Element> Handle<T> {
    pub(super) fn new(table: Table, timeout: Duration) -> Handle<T> {
        assert_eq!(table.spec().dtype(), T::DTYPE, "the builder asks for its own type");
        Handle { table, timeout, numbers: PhantomData }
    }

    pub(super) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// So many zeros.
    pub(super) fn zeros(count: u64) -> Vec<T> {
        bytemuck::zeroed_vec(count as usize)
    }

    pub(super) fn add(&self, delta: &[T], rows: Option<&[i64]>, options: &AddOptions, until: Return) -> Result<(), Error> {
        Ok(self.table.add(bytemuck::cast_slice(delta), rows, options, until == Return::Applied, self.deadline())?)
    }

    pub(super) fn get(&self, out: &mut [T], rows: Option<&[i64]>) -> Result<(), Error> {
        Ok(self.table.get(bytemuck::cast_slice_mut(out), rows, self.deadline())?)
    }

    pub(super) fn add_get(&self, delta: &[T], out: &mut [T], rows: Option<&[i64]>, options: &AddOptions) -> Result<(), Error> {
        let (delta, out) = (bytemuck::cast_slice(delta), bytemuck::cast_slice_mut(out));
        Ok(self.table.add_get(delta, out, rows, options, self.deadline())?)
    }

    pub(super) fn get_async(&self, rows: Option<Vec<i64>>) -> Result<PendingValues<T>, Error> {
        Ok(PendingValues::new(self.table.get_async(rows)?))
    }
}

impl<T: Element> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.table.name(), self.table.spec())
    }
}

/// What every typed table can tell, whatever its shape.
macro_rules! described {
    ($Table:ident) => {
        impl<T: syncline_tensor::Element> $Table<T> {
            /// The table underneath, which moves bytes.
            pub fn table(&self) -> &syncline_table::Table {
                &self.handle.table
            }

            /// The table's name, given or made up.
            pub fn name(&self) -> &str {
                self.handle.table.name()
            }

            /// How many adds each worker has made, as far as this process knows.
            pub fn clocks(&self) -> Vec<u64> {
                self.handle.table.clocks()
            }

            /// A handle on the same table whose calls wait so long for somebody who neither comes nor dies; the first
            /// handle waits as long as its session does.
            pub fn with_timeout(&self, timeout: std::time::Duration) -> Self {
                let mut other = self.clone();
                other.handle.timeout = timeout;
                other
            }
        }

        impl<T: syncline_tensor::Element> crate::tables::builder::Sealed for $Table<T> {
            fn over(table: syncline_table::Table, timeout: std::time::Duration) -> Self {
                $Table { handle: crate::tables::handle::Handle::new(table, timeout) }
            }
        }
    };
}
pub(super) use described;
