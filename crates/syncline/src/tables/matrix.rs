//! Rows that move alone or together.

use syncline_table::AddOptions;
use syncline_tensor::Element;

use super::PendingValues;
use super::handle::{Handle, Return, described};
use super::whole::moves_whole;
use crate::Error;

/// A matrix that all workers read and add to; made by [`Session::matrix`](crate::Session::matrix).
///
/// Numbers of rows lie one after another, in the order of the ids. Ids may come in any order and more than once: a get
/// gives the row each time, an add adds each time.
///
/// ```
/// let session = syncline::Session::solo()?;
/// let factors = session.matrix::<f32>(1000, 2).create()?;
/// let mut mine = vec![0.0; 2000];
/// factors.get_changed(&mut mine)?; // the first call fetches everything
/// factors.add_rows(&[7, 7], &[1.0, 2.0, 1.0, 2.0])?;
/// assert_eq!(factors.get_rows(&[7])?, [2.0, 4.0]);
/// assert!(factors.add_rows(&[1000], &[1.0, 2.0]).is_err()); // there is no row 1000
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MatrixTable<T: Element> {
    pub(super) handle: Handle<T>,
}

described!(MatrixTable);
moves_whole!(MatrixTable);

impl<T: Element> MatrixTable<T> {
    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        self.rows_and_cols().0
    }

    /// How many numbers a row has.
    pub fn cols(&self) -> u64 {
        self.rows_and_cols().1
    }

    /// The rows of these ids.
    ///
    /// # Errors
    /// `UnknownKey` naming an id that is out of range.
    pub fn get_rows(&self, ids: &[i64]) -> Result<Vec<T>, Error> {
        let mut values = Handle::zeros(ids.len() as u64 * self.cols());
        self.get_rows_into(ids, &mut values)?;
        Ok(values)
    }

    /// [`get_rows`](Self::get_rows) into memory of the caller's.
    pub fn get_rows_into(&self, ids: &[i64], out: &mut [T]) -> Result<(), Error> {
        self.handle.get(out, Some(ids))
    }

    /// Begins to get rows and returns at once.
    pub fn get_rows_async(&self, ids: impl Into<Vec<i64>>) -> Result<PendingValues<T>, Error> {
        self.handle.get_async(Some(ids.into()))
    }

    /// Adds one row for each id. Returns at once: the delta may be changed again, while the add goes on.
    ///
    /// # Errors
    /// `UnknownKey` naming an id that is out of range; nothing was changed.
    pub fn add_rows(&self, ids: &[i64], delta: &[T]) -> Result<(), Error> {
        self.add_rows_with(ids, delta, &AddOptions::default())
    }

    /// [`add_rows`](Self::add_rows) that returns when everybody's next get sees it.
    pub fn add_rows_wait(&self, ids: &[i64], delta: &[T]) -> Result<(), Error> {
        self.handle.add(delta, Some(ids), &AddOptions::default(), Return::Applied)
    }

    /// [`add_rows`](Self::add_rows) with numbers for the updater.
    pub fn add_rows_with(&self, ids: &[i64], delta: &[T], options: &AddOptions) -> Result<(), Error> {
        self.handle.add(delta, Some(ids), options, Return::AtOnce)
    }

    /// Adds one row for each id and gets the same rows after it.
    pub fn add_get_rows(&self, ids: &[i64], delta: &[T], out: &mut [T]) -> Result<(), Error> {
        self.handle.add_get(delta, out, Some(ids), &AddOptions::default())
    }

    /// Brings `copy`, which holds the whole table, up to date: writes the rows that others changed since this worker's
    /// last call, and returns their ids in order. The first call fetches every row. Only these rows travel.
    pub fn get_changed(&self, copy: &mut [T]) -> Result<Vec<i64>, Error> {
        Ok(self.handle.table.get_changed(bytemuck::cast_slice_mut(copy), self.handle.deadline())?)
    }

    fn rows_and_cols(&self) -> (u64, u64) {
        self.handle.table.spec().rows_and_cols().unwrap_or((0, 0))
    }
}
