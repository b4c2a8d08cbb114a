//! Row-sparse arrays: made by the caller, or filled by a pull.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use syncline::kvstore::RowSparse;

use crate::border::guarded;
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::{facts, memory};

/// An array of which only some rows are there, the others being zero: ids in ascending order, each once, and one row of numbers for each.
pub struct syncline_rows {
    _private: [u8; 0],
}

pub(crate) struct Kept(Mutex<Arc<RowSparse>>);

impl Kept {
    /// What it holds now; it may be filled anew meanwhile.
    pub(crate) fn now(&self) -> Arc<RowSparse> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn fill(&self, rows: RowSparse) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(rows);
    }
}

pub(crate) static ROWS: Handles<syncline_rows, Kept> = Handles::new("row-sparse array", 41);

/// A handle that lives until the caller of `of` is done with it.
pub(crate) struct Passing(pub(crate) *mut syncline_rows);

impl Passing {
    pub(crate) fn of(rows: RowSparse) -> Passing {
        Passing(ROWS.put(Kept(Mutex::new(Arc::new(rows)))))
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // The function that it was passed to may have freed it already.
        let _ = ROWS.take(self.0);
    }
}

/// Makes a row-sparse array of this dtype and these extents from `num_ids` ids in any order and a row of numbers for each, `count` in all.
/// Rows of an id that stands twice are added. No ids are fine: a pull fills it.
///
/// # Safety
/// `dims` has `axes` extents, `ids` `num_ids` ids, `values` `count` numbers of `dtype`; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_rows_create(
    dtype: i32,
    dims: *const usize,
    axes: usize,
    ids: *const i64,
    num_ids: usize,
    values: *const c_void,
    count: usize,
    out: *mut *mut syncline_rows,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let dtype = facts::dtype(dtype)?;
        // SAFETY: the caller's promise.
        let (dims, ids, values) = unsafe {
            let dims = memory::extents(dims, axes)?;
            (dims, memory::values(ids, num_ids, "ids")?, memory::numbers(values, count, dtype, "values")?)
        };
        let rows = RowSparse::new(dtype, dims, ids.to_vec(), values.to_vec())?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", ROWS.put(Kept(Mutex::new(Arc::new(rows))))) }
    })
}

/// How many rows are there, and how many numbers they have together.
///
/// # Safety
/// `num_ids` and `count` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_rows_count(rows: *mut syncline_rows, num_ids: *mut usize, count: *mut usize) -> syncline_status {
    guarded(|| {
        let rows = ROWS.get(rows)?.now();
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(num_ids, "num_ids", rows.indices().len())?;
            memory::give_if(count, "count", rows.values().len() / rows.dtype().size())
        }
    })
}

/// Copies the ids and the numbers, as many as syncline_rows_count says.
///
/// # Safety
/// `ids` has room for `num_ids` ids and `values` for `count` numbers of its dtype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_rows_read(
    rows: *mut syncline_rows,
    ids: *mut i64,
    num_ids: usize,
    values: *mut c_void,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let rows = ROWS.get(rows)?.now();
        let has = (rows.indices().len(), rows.values().len() / rows.dtype().size());
        if has != (num_ids, count) {
            return Err(Failure::shape(format!("it has {} ids and {} numbers, and there is room for {num_ids} and {count}", has.0, has.1)));
        }
        // SAFETY: the caller's promise.
        let (ids, values) =
            unsafe { (memory::values_mut(ids, num_ids, "ids")?, memory::numbers_mut(values, count, rows.dtype(), "values")?) };
        ids.copy_from_slice(rows.indices());
        values.copy_from_slice(rows.values());
        Ok(())
    })
}

/// Frees it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_rows_free(rows: *mut syncline_rows) -> syncline_status {
    guarded(|| ROWS.take(rows).map(drop))
}
