//! How a typed table is described before it exists.

use std::panic::Location;
use std::time::Duration;

use syncline_cluster::Deadline;
use syncline_table::{Consistency, Spec, Table, Updater};
use syncline_tensor::Element;

use crate::{ArrayTable, Error, KVTable, MatrixTable, Session};

/// The typed tables: [`ArrayTable`], [`MatrixTable`] and [`KVTable`], and no others.
#[expect(private_bounds, reason = "the private bound is the seal")]
pub trait TableKind: Sealed {
    /// The type of its numbers.
    type Number: Element;
}

pub(crate) trait Sealed {
    fn over(table: Table, timeout: Duration) -> Self;
}

impl<T: Element> TableKind for ArrayTable<T> {
    type Number = T;
}
impl<T: Element> TableKind for MatrixTable<T> {
    type Number = T;
}
impl<T: Element> TableKind for KVTable<T> {
    type Number = T;
}

/// A table to be; [`create`](TableBuilder::create) makes it. Every worker describes the same.
///
/// ```
/// use syncline::{Session, Updater};
///
/// let session = Session::solo()?;
/// let table = session.array::<f64>(2).updater(Updater::Sgd).staleness(2).create()?;
/// assert_eq!(table.get()?, [0.0, 0.0]); // zeros unless told otherwise
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing exists before `create`"]
pub struct TableBuilder<'a, K: TableKind> {
    session: &'a Session,
    spec: Spec,
    initial: Option<&'a [K::Number]>,
    sync: bool,
    staleness: Option<u32>,
}

impl<'a, K: TableKind> TableBuilder<'a, K> {
    pub(super) fn new(session: &'a Session, shape: Spec) -> TableBuilder<'a, K> {
        let spec = shape.with_dtype(K::Number::DTYPE);
        TableBuilder { session, spec, initial: None, sync: session.sync(), staleness: None }
    }

    /// What an add does; [`Updater::Add`] unless told otherwise. Key-value tables only add.
    pub fn updater(self, updater: Updater) -> Self {
        TableBuilder { spec: self.spec.with_updater(updater), ..self }
    }

    /// The name that checkpoints and errors use.
    pub fn name(self, name: impl Into<String>) -> Self {
        TableBuilder { spec: self.spec.named(name), ..self }
    }

    /// Whether a get waits for everybody's adds of the same round; otherwise as the session was
    /// [configured](crate::Config::sync).
    pub fn sync(self, sync: bool) -> Self {
        TableBuilder { sync, ..self }
    }

    /// Lets a worker's view lag at most so many adds behind: a get after j own adds waits until every worker has made
    /// j − `bound`. Wins over [`sync`](TableBuilder::sync); 0 is the same as sync.
    pub fn staleness(self, bound: u32) -> Self {
        TableBuilder { staleness: Some(bound), ..self }
    }

    /// Makes the table and returns when its initial value is in place everywhere. Every worker calls this, in the same
    /// order for all tables.
    ///
    /// # Errors
    /// `ContractMismatch` when another worker makes something else, with the lines of both calls; `ShapeMismatch` when
    /// the initial value has another length; `Configuration` when the description makes no sense, for example AdaGrad
    /// on whole numbers; `Timeout` or `PeerLost` when somebody does not come.
    #[track_caller]
    pub fn create(self) -> Result<K, Error> {
        let deadline = Deadline::after(self.session.timeout());
        self.create_at(&Location::caller().to_string(), deadline)
    }

    /// [`create`](TableBuilder::create) with a deadline of the caller's.
    #[track_caller]
    pub fn create_by(self, deadline: Deadline) -> Result<K, Error> {
        self.create_at(&Location::caller().to_string(), deadline)
    }

    fn create_at(self, site: &str, deadline: Deadline) -> Result<K, Error> {
        let spec = self.spec.with_consistency(Consistency::new(self.sync, self.staleness));
        let initial = self.initial.map(bytemuck::cast_slice);
        let table = self.session.create_table_at(spec, initial, site, deadline)?;
        Ok(K::over(table, self.session.timeout()))
    }
}

impl<'a, T: Element> TableBuilder<'a, ArrayTable<T>> {
    /// The values it begins with: worker 0's count, and no updater sees them. Zeros without this.
    pub fn initial(self, values: &'a [T]) -> Self {
        TableBuilder { initial: Some(values), ..self }
    }
}

impl<'a, T: Element> TableBuilder<'a, MatrixTable<T>> {
    /// The values it begins with, row by row: worker 0's count, and no updater sees them. Zeros without this.
    pub fn initial(self, values: &'a [T]) -> Self {
        TableBuilder { initial: Some(values), ..self }
    }
}
