//! Keys and arrays as callers describe them: looked at once, then lent to the store.

use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::sync::Arc;

use syncline::DType;
use syncline::kvstore::{Dense, DenseMut, Key, Output, RowSparse, Value};

use super::rows::{ROWS, syncline_rows};
use crate::failure::Failure;
use crate::{facts, memory};

/// A key: a name, or without one (NULL) a number. One store has one kind of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncline_kv_key {
    /// The name, or NULL.
    pub(crate) name: *const c_char,
    /// The number, where there is no name.
    pub(crate) number: i64,
}

/// An array: numbers in row-major order, or some rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncline_kv_array {
    /// A syncline_dtype. Not read where there are rows.
    pub(crate) dtype: i32,
    /// How many extents there are. Not read where there are rows.
    pub(crate) axes: u32,
    /// The extents. Not read where there are rows.
    pub(crate) dims: *const usize,
    /// The numbers; written only where the array is an output. Not read where there are rows.
    pub(crate) data: *mut c_void,
    /// NULL, or an array of which only some rows are there.
    pub(crate) rows: *mut syncline_rows,
}

/// The keys at `keys`.
///
/// # Safety
/// `keys` is NULL or has `count` keys, whose names are texts.
pub(crate) unsafe fn keys(keys: *const syncline_kv_key, count: usize) -> Result<Vec<Key>, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { memory::values(keys, count, "keys") }?;
    // SAFETY: the caller's promise.
    given.iter().map(|key| unsafe { named(key) }).collect()
}

/// # Safety
/// Its name is NULL or a text.
unsafe fn named(key: &syncline_kv_key) -> Result<Key, Failure> {
    // SAFETY: the caller's promise.
    let name = unsafe { memory::text(key.name, "a key") }?;
    Ok(name.map_or(Key::Int(key.number), Key::from))
}

/// One key and one array to be read, without lists of them: most calls are about one.
///
/// # Safety
/// As [`keys`] and [`lent`], for one.
pub(crate) unsafe fn one_lent<'a>(key: *const syncline_kv_key, array: *const syncline_kv_array) -> Result<(Key, Lent<'a>), Failure> {
    // SAFETY: the caller's promise.
    unsafe { Ok((named(&memory::values(key, 1, "keys")?[0])?, read_from(&memory::values(array, 1, "values")?[0])?)) }
}

/// One key and one array to be filled.
///
/// # Safety
/// As [`keys`] and [`targets`], for one.
pub(crate) unsafe fn one_target<'a>(key: *const syncline_kv_key, array: *const syncline_kv_array) -> Result<(Key, Target<'a>), Failure> {
    // SAFETY: the caller's promise.
    unsafe { Ok((named(&memory::values(key, 1, "keys")?[0])?, written_to(&memory::values(array, 1, "outs")?[0])?)) }
}

/// An array that is read.
pub(crate) enum Lent<'a> {
    Dense(Dense<'a>),
    Rows(Arc<RowSparse>),
}

impl Lent<'_> {
    pub(crate) fn value(&self) -> Value<'_> {
        match self {
            Lent::Dense(dense) => Value::Dense(*dense),
            Lent::Rows(rows) => Value::RowSparse(rows),
        }
    }

    /// Where its numbers lie.
    fn memory(&self) -> Range<usize> {
        match self {
            Lent::Dense(dense) => addresses(dense.bytes()),
            Lent::Rows(_) => 0..0,
        }
    }
}

/// The arrays at `arrays`, to be read.
///
/// # Safety
/// `arrays` is NULL or has `count` arrays, each with the numbers that its dims announce.
pub(crate) unsafe fn lent<'a>(arrays: *const syncline_kv_array, count: usize) -> Result<Vec<Lent<'a>>, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { memory::values(arrays, count, "values") }?;
    // SAFETY: the caller's promise.
    given.iter().map(|array| unsafe { read_from(array) }).collect()
}

/// # Safety
/// The array has the numbers that its dims announce.
unsafe fn read_from<'a>(array: &syncline_kv_array) -> Result<Lent<'a>, Failure> {
    if !array.rows.is_null() {
        return Ok(Lent::Rows(ROWS.get(array.rows)?.now()));
    }
    // SAFETY: the caller's promise.
    let (dtype, dims, numbers) = unsafe { described(array) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory::numbers(array.data, numbers, dtype, "values") }?;
    Ok(Lent::Dense(Dense::new(dtype, dims, bytes)?))
}

/// An array that is filled.
pub(crate) enum Target<'a> {
    Dense(DenseMut<'a>),
    Rows { handle: *mut syncline_rows, fresh: RowSparse },
}

impl Target<'_> {
    pub(crate) fn output(&mut self) -> Result<Output<'_>, Failure> {
        match self {
            Target::Dense(dense) => {
                let (dtype, shape) = (dense.dtype(), dense.shape());
                Ok(Output::Dense(DenseMut::new(dtype, shape, dense.bytes())?))
            }
            Target::Rows { fresh, .. } => Ok(Output::RowSparse(fresh)),
        }
    }

    /// Hands rows that were filled to their handle; dense numbers are in place already.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self {
            Target::Dense(_) => Ok(()),
            Target::Rows { handle, fresh } => ROWS.get(handle).map(|kept| kept.fill(fresh)),
        }
    }
}

/// Refuses outputs that cannot be filled, before anything happens: no two of them may lie in the same memory.
///
/// # Safety
/// `arrays` is NULL or has `count` arrays, each with room for the numbers that its dims announce.
pub(crate) unsafe fn check_targets<'a>(arrays: *const syncline_kv_array, count: usize) -> Result<&'a [syncline_kv_array], Failure> {
    // SAFETY: the caller's promise.
    let (given, all) = unsafe { (memory::values(arrays, count, "outs")?, lent(arrays, count)?) };
    let mut places: Vec<Range<usize>> = all.iter().map(Lent::memory).filter(|place| !place.is_empty()).collect();
    places.sort_unstable_by_key(|place| place.start);
    if places.windows(2).any(|pair| pair[1].start < pair[0].end) {
        return Err(Failure::argument("two outputs lie in the same memory"));
    }
    Ok(given)
}

/// The arrays at `arrays`, to be filled.
///
/// # Safety
/// As [`check_targets`], and nobody else uses what is filled.
pub(crate) unsafe fn targets<'a>(arrays: *const syncline_kv_array, count: usize) -> Result<Vec<Target<'a>>, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { check_targets(arrays, count) }?;
    // SAFETY: the caller's promise, and no two lie in the same memory.
    given.iter().map(|array| unsafe { written_to(array) }).collect()
}

/// # Safety
/// The array has room for the numbers that its dims announce, and nobody else uses it.
unsafe fn written_to<'a>(array: &syncline_kv_array) -> Result<Target<'a>, Failure> {
    if !array.rows.is_null() {
        let like = ROWS.get(array.rows)?.now();
        return Ok(Target::Rows { handle: array.rows, fresh: RowSparse::empty(like.dtype(), like.shape())? });
    }
    // SAFETY: the caller's promise.
    let (dtype, dims, numbers) = unsafe { described(array) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory::numbers_mut(array.data, numbers, dtype, "outs") }?;
    Ok(Target::Dense(DenseMut::new(dtype, dims, bytes)?))
}

/// Whether an output lies where a value does.
///
/// # Safety
/// As [`targets`].
pub(crate) unsafe fn collide(values: &[Lent<'_>], outs: *const syncline_kv_array, count: usize) -> Result<bool, Failure> {
    // SAFETY: the caller's promise.
    let outs = unsafe { lent(outs, count) }?;
    let taken: Vec<Range<usize>> = values.iter().map(Lent::memory).filter(|place| !place.is_empty()).collect();
    Ok(outs.iter().map(Lent::memory).any(|out| taken.iter().any(|value| value.start < out.end && out.start < value.end)))
}

/// dtype, extents and how many numbers they make.
///
/// # Safety
/// Its dims are NULL or have `axes` extents.
unsafe fn described<'a>(array: &syncline_kv_array) -> Result<(DType, &'a [usize], usize), Failure> {
    let dtype = facts::dtype(array.dtype)?;
    // SAFETY: the caller's promise.
    let dims = unsafe { memory::extents(array.dims, array.axes as usize) }?;
    let numbers = dims.iter().try_fold(1usize, |all, dim| all.checked_mul(*dim));
    let numbers = numbers.ok_or_else(|| Failure::argument(format!("an array of {dims:?} is more than memory has addresses")))?;
    Ok((dtype, dims, numbers))
}

fn addresses(bytes: &[u8]) -> Range<usize> {
    let start = bytes.as_ptr().addr();
    start..start + bytes.len()
}
