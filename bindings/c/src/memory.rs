//! The caller's memory: every pointer is looked at here before it becomes a slice.

use std::ffi::{CStr, c_char, c_void};
use std::time::Duration;

use syncline::DType;
use syncline::ipc::Shape;

use crate::failure::Failure;

/// The text at `text`; None for NULL.
///
/// # Safety
/// `text` is NULL or points to bytes that end with a zero, which nobody changes while the result is used.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, and the rest is the caller's promise.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map(Some).map_err(|_| Failure::argument(format!("{name} is not UTF-8: {}", bytes.to_string_lossy())))
}

/// The text at `text`, which must be there.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn needed_text<'a>(given: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: the caller's promise is the same.
    unsafe { text(given, name) }?.ok_or_else(|| Failure::argument(format!("{name} is NULL")))
}

/// `count` values at `data`.
///
/// # Safety
/// `data` is NULL or points to so many values, which nobody writes while the result is used.
pub(crate) unsafe fn values<'a, T>(data: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    check(data.cast(), count, size_of::<T>(), align_of::<T>(), name)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: not NULL, aligned and of a length that fits an address space, checked above; that the memory is there and
    // quiet is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data, count) })
}

/// `count` values at `data`, to be written.
///
/// # Safety
/// `data` is NULL or points to so many values, which nobody else uses while the result is used.
pub(crate) unsafe fn values_mut<'a, T>(data: *mut T, count: usize, name: &str) -> Result<&'a mut [T], Failure> {
    check(data.cast_const().cast(), count, size_of::<T>(), align_of::<T>(), name)?;
    if count == 0 {
        return Ok(&mut []);
    }
    // SAFETY: as in `values`, and nobody else uses the memory.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, count) })
}

/// The bytes of `count` numbers of `dtype` at `data`.
///
/// # Safety
/// As [`values`].
pub(crate) unsafe fn numbers<'a>(data: *const c_void, count: usize, dtype: DType, name: &str) -> Result<&'a [u8], Failure> {
    let bytes = bytes_of(count, dtype, name)?;
    // SAFETY: the caller promises so many numbers, and bytes need no alignment.
    unsafe { values(data.cast(), bytes, name) }
}

/// The bytes of `count` numbers of `dtype` at `data`, to be written.
///
/// # Safety
/// As [`values_mut`].
pub(crate) unsafe fn numbers_mut<'a>(data: *mut c_void, count: usize, dtype: DType, name: &str) -> Result<&'a mut [u8], Failure> {
    let bytes = bytes_of(count, dtype, name)?;
    // SAFETY: the caller promises so many numbers, and bytes need no alignment.
    unsafe { values_mut(data.cast(), bytes, name) }
}

fn bytes_of(count: usize, dtype: DType, name: &str) -> Result<usize, Failure> {
    count.checked_mul(dtype.size()).ok_or_else(|| too_much(name, count))
}

/// As many axes as arrays of any language have. A structure that was never filled in mostly asks for more, and is not read past its end then.
const MOST_AXES: usize = 64;

/// The extents at `dims`.
///
/// # Safety
/// As [`values`].
pub(crate) unsafe fn extents<'a>(dims: *const usize, axes: usize) -> Result<&'a [usize], Failure> {
    if axes > MOST_AXES {
        return Err(Failure::argument(format!("axes is {axes}, and an array has {MOST_AXES} at most")));
    }
    // SAFETY: the caller's promise is the same.
    unsafe { values(dims, axes, "dims") }
}

/// The shape at `dims`.
///
/// # Safety
/// As [`values`].
pub(crate) unsafe fn shape(dims: *const usize, axes: usize) -> Result<Shape, Failure> {
    // SAFETY: the caller's promise is the same.
    let dims = unsafe { extents(dims, axes) }?;
    Shape::new(dims).map_err(|error| Failure::argument(format!("dims: {error}")))
}

/// Writes a result.
///
/// # Safety
/// `out` is NULL or may be written.
pub(crate) unsafe fn give<T>(out: *mut T, name: &str, value: T) -> Result<(), Failure> {
    check_out(out, name)?;
    // SAFETY: neither NULL nor askew, checked above; that it may be written is the caller's promise.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes a result if the caller wants it.
///
/// # Safety
/// As [`give`].
pub(crate) unsafe fn give_if<T>(out: *mut T, name: &str, value: T) -> Result<(), Failure> {
    // SAFETY: the caller's promise is the same.
    if out.is_null() { Ok(()) } else { unsafe { give(out, name, value) } }
}

/// Whether a result could be written there, asked before something is made that only the result could free.
pub(crate) fn check_out<T>(out: *mut T, name: &str) -> Result<(), Failure> {
    if out.is_null() || !out.is_aligned() {
        return Err(Failure::argument(format!("{name} is {}", if out.is_null() { "NULL" } else { "not aligned" })));
    }
    Ok(())
}

/// Copies a text with its closing zero into `out`, cut short where there is less room.
///
/// # Safety
/// `out` is NULL or has `room` bytes that may be written.
pub(crate) unsafe fn give_text(out: *mut c_char, room: usize, text: &str) -> Result<(), Failure> {
    // SAFETY: the caller's promise is the same.
    let out = unsafe { values_mut(out.cast::<u8>(), room, "out") }?;
    let Some(last) = room.checked_sub(1) else { return Err(Failure::argument("out has no room")) };
    let length = text.len().min(last);
    out[..length].copy_from_slice(&text.as_bytes()[..length]);
    out[length] = 0;
    Ok(())
}

fn check(data: *const u8, count: usize, size: usize, align: usize, name: &str) -> Result<(), Failure> {
    if count == 0 {
        return Ok(());
    }
    if data.is_null() {
        return Err(Failure::argument(format!("{name} is NULL, and {count} values were announced")));
    }
    if !data.addr().is_multiple_of(align) {
        return Err(Failure::argument(format!("{name} is not aligned to {align} bytes")));
    }
    let fits = count.checked_mul(size).filter(|bytes| isize::try_from(*bytes).is_ok());
    let fits = fits.and_then(|bytes| data.addr().checked_add(bytes));
    fits.map(drop).ok_or_else(|| too_much(name, count))
}

fn too_much(name: &str, count: usize) -> Failure {
    Failure::argument(format!("{name}: {count} values are more than memory has addresses"))
}

/// A time to wait in seconds; None for 0, which leaves it to the environment.
pub(crate) fn patience(seconds: f64) -> Result<Option<Duration>, Failure> {
    if seconds == 0.0 {
        return Ok(None);
    }
    let patience = Duration::try_from_secs_f64(seconds).ok().filter(|patience| !patience.is_zero());
    patience.map(Some).ok_or_else(|| Failure::argument(format!("timeout {seconds} is not a time to wait; give seconds, or 0")))
}
