//! One number for each key.

use syncline_tensor::Element;

use super::handle::{Handle, described};
use crate::Error;

/// A number for each 64-bit key, zero until somebody adds to it; made by [`Session::keys`](crate::Session::keys).
///
/// ```
/// let session = syncline::Session::solo()?;
/// let counts = session.keys::<i64>().name("counts").create()?;
/// counts.add(&[-7, 1 << 60, -7], &[1, 5, 1])?; // any key; one that comes twice is added to twice
/// assert_eq!(counts.get(&[1 << 60, -7, 42])?, [5, 2, 0]);
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct KVTable<T: Element> {
    pub(super) handle: Handle<T>,
}

described!(KVTable);

impl<T: Element> KVTable<T> {
    /// The number of each key.
    pub fn get(&self, keys: &[i64]) -> Result<Vec<T>, Error> {
        let mut values = Handle::zeros(keys.len() as u64);
        self.get_into(keys, &mut values)?;
        Ok(values)
    }

    /// [`get`](Self::get) into memory of the caller's.
    pub fn get_into(&self, keys: &[i64], out: &mut [T]) -> Result<(), Error> {
        Ok(self.handle.table.get_keys(keys, bytemuck::cast_slice_mut(out), self.handle.deadline())?)
    }

    /// Adds one number for each key and returns at once.
    pub fn add(&self, keys: &[i64], values: &[T]) -> Result<(), Error> {
        self.add_until(keys, values, false)
    }

    /// [`add`](Self::add) that returns when everybody's next get sees it.
    pub fn add_wait(&self, keys: &[i64], values: &[T]) -> Result<(), Error> {
        self.add_until(keys, values, true)
    }

    fn add_until(&self, keys: &[i64], values: &[T], applied: bool) -> Result<(), Error> {
        Ok(self.handle.table.add_keys(keys, bytemuck::cast_slice(values), applied, self.handle.deadline())?)
    }
}
