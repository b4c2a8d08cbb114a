//! Messages whose shape is known only at run time: what a Python object or a Lua table becomes on its way here.
//!
//! A value is built from the leaves up and never changes after it was put into another. Reading hands out pieces that share
//! the memory of the whole.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;

use syncline::Value;
use syncline::ipc::SharedBytes;

use crate::border::guarded;
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::{facts, memory};

/// A value. Free each handle, pieces of other values too.
pub struct syncline_value {
    _private: [u8; 0],
}

/// What a value is.
#[repr(C)]
pub enum syncline_kind {
    /// Nothing.
    SYNCLINE_NIL = 0,
    /// True or false.
    SYNCLINE_BOOL = 1,
    /// A whole number.
    SYNCLINE_INT = 2,
    /// Any other number.
    SYNCLINE_FLOAT = 3,
    /// Text in UTF-8.
    SYNCLINE_TEXT = 4,
    /// Bytes without a meaning.
    SYNCLINE_BYTES = 5,
    /// Values in order.
    SYNCLINE_LIST = 6,
    /// Pairs of key and value.
    SYNCLINE_MAP = 7,
    /// Numbers of one dtype.
    SYNCLINE_TENSOR = 8,
    /// Leads to a channel, workqueue, mutex or shared table of a family.
    SYNCLINE_HANDLE = 9,
    /// What only the program that wrote it understands, such as a pickled object of Python's; it can be passed on.
    SYNCLINE_OPAQUE = 10,
}

use syncline_kind::*;

/// A whole, and the piece of it that the handle stands for.
pub(crate) struct Piece {
    whole: Arc<Value<'static>>,
    /// Inside of `whole`, which nobody changes while anybody else holds it.
    piece: *const Value<'static>,
}

// SAFETY: `piece` points into `whole`, which is shared and never written while it is (`push` needs it alone).
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

pub(crate) static VALUES: Handles<syncline_value, Piece> = Handles::new("value", 5);

impl Piece {
    pub(crate) fn new(value: Value<'static>) -> Piece {
        let whole = Arc::new(value);
        Piece { piece: &raw const *whole, whole }
    }

    pub(crate) fn value(&self) -> &Value<'static> {
        // SAFETY: `piece` is inside of `whole`, which lives as long as this and is not written.
        unsafe { &*self.piece }
    }

    fn part(&self, part: &Value<'static>) -> Piece {
        Piece { whole: Arc::clone(&self.whole), piece: part }
    }
}

/// # Safety
/// `out` may be written.
pub(crate) unsafe fn give(out: *mut *mut syncline_value, value: Value<'static>) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { VALUES.give(out, || Ok(Piece::new(value))) }
}

/// A value that is lent to a function of the caller's; its handle is void afterwards.
pub(crate) struct Lent(*mut syncline_value);

impl Lent {
    pub(crate) fn new(value: Value<'static>) -> Lent {
        Lent(VALUES.put(Piece::new(value)))
    }

    pub(crate) fn handle(&self) -> *const syncline_value {
        self.0
    }

    /// The value again.
    pub(crate) fn take(self) -> Result<Value<'static>, Failure> {
        VALUES.take(self.0).map(into_value)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let _ = VALUES.take(self.0); // it was taken, or the function has freed it
    }
}

/// What a function of the caller's that returned `code` has left for us; None where it left NULL.
pub(crate) fn left_at(left: *mut syncline_value, operation: &str, code: c_int) -> Result<Option<Value<'static>>, Failure> {
    let value = if left.is_null() { Ok(None) } else { VALUES.take(left).map(|piece| Some(into_value(piece))) };
    if code == 0 { value } else { Err(Failure::of_caller(operation, code)) }
}

/// Writes the value, or NULL where there is none.
///
/// # Safety
/// `out` may be written.
pub(crate) unsafe fn give_if_any(
    out: *mut *mut syncline_value,
    make: impl FnOnce() -> Result<Option<Value<'static>>, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { VALUES.give_if_any(out, || Ok(make()?.map(Piece::new))) }
}

/// Nothing.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_nil(out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::Nil) })
}

/// True (not 0) or false.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_bool(truth: c_int, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::Bool(truth != 0)) })
}

/// A whole number.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_int(number: i64, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::Int(number)) })
}

/// Any number.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_float(number: f64, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::Float(number)) })
}

/// A text, which is copied.
///
/// # Safety
/// `text` is a text; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_text(text: *const c_char, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::from(memory::needed_text(text, "text")?.to_owned())) })
}

/// `size` bytes, which are copied.
///
/// # Safety
/// `data` has `size` bytes; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_bytes(data: *const c_void, size: usize, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::from(memory::values(data.cast::<u8>(), size, "data")?.to_vec())) })
}

/// Numbers of one dtype in row-major order, which are copied; none of `axes` has no extent, so 0 of them is one number.
///
/// # Safety
/// `dims` has `axes` extents, `data` as many numbers as they multiply to; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_tensor(
    dtype: i32,
    dims: *const usize,
    axes: usize,
    data: *const c_void,
    out: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        let dtype = facts::dtype(dtype)?;
        // SAFETY: the caller's promise.
        let shape = unsafe { memory::shape(dims, axes) }?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers(data, shape.elements(), dtype, "data") }?.to_vec();
        // Shared, since nothing changes it any more: threads that write it into channels hand it over as it is.
        let data = SharedBytes::new(Arc::new(data));
        let value = Value::tensor(dtype, shape, data).map_err(|error| Failure::argument(error.to_string()))?;
        // SAFETY: the caller's promise.
        unsafe { give(out, value) }
    })
}

/// An empty list.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_list(out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::List(Vec::new())) })
}

/// An empty map.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_map(out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give(out, Value::Map(Vec::new())) })
}

/// Puts `item` at the end of a list and takes it over: its handle is void afterwards, unless the call fails. No piece of the
/// list may have been handed out, and the list must not be a piece itself.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_value_push(list: *mut syncline_value, item: *mut syncline_value) -> syncline_status {
    guarded(|| {
        put_into(
            list,
            &[item],
            "list",
            |whole| matches!(whole, Value::List(_)),
            |whole, taken| {
                if let Value::List(items) = whole {
                    items.extend(taken);
                }
            },
        )
    })
}

/// Puts a pair at the end of a map and takes both over, as syncline_value_push does. A key may be anything but nil; that
/// none comes twice is the caller's business.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_value_put(map: *mut syncline_value, key: *mut syncline_value, value: *mut syncline_value) -> syncline_status {
    guarded(|| {
        put_into(
            map,
            &[key, value],
            "map",
            |whole| matches!(whole, Value::Map(_)),
            |whole, taken| {
                if let (Value::Map(pairs), Ok([key, value])) = (whole, <[Value<'static>; 2]>::try_from(taken)) {
                    pairs.push((key, value));
                }
            },
        )
    })
}

/// Looks at everything, then takes `items` and changes `container`.
fn put_into(
    container: *mut syncline_value,
    items: &[*mut syncline_value],
    wanted: &str,
    fits: impl FnOnce(&Value<'static>) -> bool,
    change: impl FnOnce(&mut Value<'static>, Vec<Value<'static>>),
) -> Result<(), Failure> {
    let all: Vec<*mut syncline_value> = items.iter().copied().chain([container]).collect();
    if all.iter().enumerate().any(|(index, item)| all[..index].contains(item)) {
        return Err(Failure::argument("a value cannot be put into itself, or twice"));
    }
    let before = VALUES.get(container)?;
    if !fits(before.value()) {
        return Err(no(wanted, before.value()));
    }
    if Arc::strong_count(&before.whole) != 1 {
        return Err(Failure::argument(format!("the {wanted} is a piece of another value, or pieces of it are out")));
    }
    drop(before);
    items.iter().try_for_each(|item| VALUES.get(*item).map(drop))?;
    let taken = items.iter().map(|item| Ok(into_value(VALUES.take(*item)?))).collect::<Result<Vec<_>, Failure>>()?;
    VALUES.change(container, |piece| {
        let mut whole = into_value(piece);
        change(&mut whole, taken);
        Piece::new(whole)
    })
}

/// The value itself where nobody else holds it, else a copy.
fn into_value(piece: Arc<Piece>) -> Value<'static> {
    match Arc::try_unwrap(piece) {
        Ok(piece) if std::ptr::eq(piece.piece, &raw const *piece.whole) => {
            Arc::try_unwrap(piece.whole).unwrap_or_else(|shared| (*shared).clone())
        }
        Ok(piece) => piece.value().clone(),
        Err(shared) => shared.value().clone(),
    }
}

/// What a value is, a syncline_kind, and how much of it there is: bytes of a text, items of a list, pairs of a map, numbers
/// of a tensor, else 0.
///
/// # Safety
/// `kind` and `count` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_what(value: *const syncline_value, kind: *mut i32, count: *mut usize) -> syncline_status {
    guarded(|| {
        let piece = VALUES.get(value)?;
        let (is, has) = match piece.value() {
            Value::Nil => (SYNCLINE_NIL, 0),
            Value::Bool(_) => (SYNCLINE_BOOL, 0),
            Value::Int(_) => (SYNCLINE_INT, 0),
            Value::Float(_) => (SYNCLINE_FLOAT, 0),
            Value::Str(text) => (SYNCLINE_TEXT, text.len()),
            Value::Bytes(bytes) => (SYNCLINE_BYTES, bytes.len()),
            Value::List(items) => (SYNCLINE_LIST, items.len()),
            Value::Map(pairs) => (SYNCLINE_MAP, pairs.len()),
            Value::Tensor(tensor) => (SYNCLINE_TENSOR, tensor.shape().elements()),
            Value::Handle(_) => (SYNCLINE_HANDLE, 0),
            Value::Opaque(bytes) => (SYNCLINE_OPAQUE, bytes.len()),
        };
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(kind, "kind", is as i32)?;
            memory::give_if(count, "count", has)
        }
    })
}

fn no(wanted: &str, value: &Value<'_>) -> Failure {
    Failure::argument(format!("the value is a {} and no {wanted}", value.type_name()))
}

/// The truth of a SYNCLINE_BOOL, 1 or 0.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_as_bool(value: *const syncline_value, out: *mut c_int) -> syncline_status {
    guarded(|| match VALUES.get(value)?.value() {
        // SAFETY: the caller's promise.
        Value::Bool(truth) => unsafe { memory::give(out, "out", c_int::from(*truth)) },
        other => Err(no("bool", other)),
    })
}

/// The number of a SYNCLINE_INT, or of a SYNCLINE_FLOAT that is whole.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_as_int(value: *const syncline_value, out: *mut i64) -> syncline_status {
    guarded(|| match VALUES.get(value)?.value() {
        // SAFETY: the caller's promise.
        Value::Int(number) => unsafe { memory::give(out, "out", *number) },
        // SAFETY: the caller's promise.
        Value::Float(number) if *number as i64 as f64 == *number => unsafe { memory::give(out, "out", *number as i64) },
        other => Err(no("whole number", other)),
    })
}

/// The number of a SYNCLINE_FLOAT or a SYNCLINE_INT.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_as_float(value: *const syncline_value, out: *mut f64) -> syncline_status {
    guarded(|| match VALUES.get(value)?.value() {
        // SAFETY: the caller's promise.
        Value::Float(number) => unsafe { memory::give(out, "out", *number) },
        // SAFETY: the caller's promise.
        Value::Int(number) => unsafe { memory::give(out, "out", *number as f64) },
        other => Err(no("number", other)),
    })
}

/// The bytes of a SYNCLINE_TEXT or SYNCLINE_BYTES, without a closing zero; borrowed, and yours until the value is freed.
///
/// # Safety
/// `data` and `size` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_as_bytes(
    value: *const syncline_value,
    data: *mut *const c_char,
    size: *mut usize,
) -> syncline_status {
    guarded(|| {
        let piece = VALUES.get(value)?;
        let bytes = match piece.value() {
            Value::Str(text) => text.as_bytes(),
            Value::Bytes(bytes) => bytes,
            other => return Err(no("text", other)),
        };
        // SAFETY: the caller's promise.
        unsafe {
            memory::give(data, "data", bytes.as_ptr().cast())?;
            memory::give(size, "size", bytes.len())
        }
    })
}

/// The dtype, number of axes, extents and numbers of a SYNCLINE_TENSOR; what is pointed to is borrowed, and yours until the
/// value is freed. The numbers are in row-major order and may lie at any address.
///
/// # Safety
/// The four are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_as_tensor(
    value: *const syncline_value,
    dtype: *mut i32,
    axes: *mut usize,
    dims: *mut *const usize,
    data: *mut *const c_void,
) -> syncline_status {
    guarded(|| match VALUES.get(value)?.value() {
        // SAFETY: the caller's promise.
        Value::Tensor(tensor) => unsafe {
            memory::give_if(dtype, "dtype", i32::from(tensor.dtype().code()))?;
            memory::give_if(axes, "axes", tensor.shape().axes())?;
            memory::give_if(dims, "dims", tensor.shape().dims().as_ptr())?;
            memory::give_if(data, "data", tensor.data().as_ptr().cast())
        },
        other => Err(no("tensor", other)),
    })
}

/// The item at `index`, from 0, of a list.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_item(value: *const syncline_value, index: usize, out: *mut *mut syncline_value) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let piece = VALUES.get(value)?;
        let Value::List(items) = piece.value() else { return Err(no("list", piece.value())) };
        let item = items.get(index).ok_or_else(|| Failure::argument(format!("there is no item {index} in a list of {}", items.len())))?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", VALUES.put(piece.part(item))) }
    })
}

/// The pair at `index`, from 0, of a map.
///
/// # Safety
/// `key` and `item` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_pair(
    value: *const syncline_value,
    index: usize,
    key: *mut *mut syncline_value,
    item: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        memory::check_out(key, "key")?;
        memory::check_out(item, "item")?;
        let piece = VALUES.get(value)?;
        let Value::Map(pairs) = piece.value() else { return Err(no("map", piece.value())) };
        let pair = pairs.get(index).ok_or_else(|| Failure::argument(format!("there is no pair {index} in a map of {}", pairs.len())))?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give(key, "key", VALUES.put(piece.part(&pair.0)))?;
            memory::give(item, "item", VALUES.put(piece.part(&pair.1)))
        }
    })
}

/// What is called with each leaf and its path, such as "layers.0.weight"; what it leaves at `result` is taken over and takes the
/// leaf's place, NULL keeps it. Not 0 ends the walk with SYNCLINE_CALLER.
pub type syncline_visit = Option<
    unsafe extern "C" fn(path: *const c_char, leaf: *const syncline_value, user: *mut c_void, result: *mut *mut syncline_value) -> c_int,
>;

/// Calls `visit` with each leaf of a nested value in the order in which trees visit them, and gives the value with what became of
/// them: torch-ipc's walkTable.
///
/// # Safety
/// `visit` can be called with `user`; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_value_walk(
    value: *const syncline_value,
    visit: syncline_visit,
    user: *mut c_void,
    out: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let visit = visit.ok_or_else(|| Failure::argument("visit is NULL"))?;
        let mut walked = VALUES.get(value)?.value().clone();
        let mut failed = None;
        syncline::walk_leaves(&mut walked, &mut |path, leaf| {
            if failed.is_some() {
                return;
            }
            let path = CString::new(path.replace('\0', "?")).unwrap_or_default();
            let lent = Lent::new(std::mem::take(leaf));
            let mut result = std::ptr::null_mut();
            // SAFETY: the caller's promise; path and leaf live until it returns.
            let code = unsafe { visit(path.as_ptr(), lent.handle(), user, &raw mut result) };
            match left_at(result, "walk", code).and_then(|made| made.map_or_else(|| lent.take(), Ok)) {
                Ok(made) => *leaf = made,
                Err(failure) => failed = Some(failure),
            }
        })?;
        // SAFETY: the caller's promise.
        failed.map_or_else(|| unsafe { give(out, walked) }, Err)
    })
}

/// Frees a value, or a piece of one.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_value_free(value: *mut syncline_value) -> syncline_status {
    guarded(|| VALUES.take(value).map(drop))
}
