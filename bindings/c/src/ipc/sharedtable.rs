//! Tables of keys and values that threads and processes read and change.

use std::ffi::c_int;

use syncline::Value;
use syncline::ipc::SharedTable;

use super::family::{FAMILIES, syncline_family};
use crate::border::guarded;
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::values::{VALUES, give as give_value, give_if_any, syncline_value};

/// A table of keys and values that threads and processes read and change. Values are copied in and out; a table inside a
/// table is a handle (SYNCLINE_HANDLE), and its changes are seen through it.
pub struct syncline_sharedtable {
    _private: [u8; 0],
}

static SHARED: Handles<syncline_sharedtable, SharedTable> = Handles::new("shared table", 15);

/// Makes a table with the pairs of a map, or the items of a list under 1, 2, 3 …; NULL makes an empty one.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_create(
    family: *mut syncline_family,
    initial: *const syncline_value,
    out: *mut *mut syncline_sharedtable,
) -> syncline_status {
    guarded(|| {
        let family = FAMILIES.get(family)?;
        let initial = (!initial.is_null()).then(|| VALUES.get(initial)).transpose()?;
        let make = || match &initial {
            Some(initial) => Ok(SharedTable::of(&family, initial.value())?),
            None => Ok(SharedTable::new(&family)?),
        };
        // SAFETY: the caller's promise.
        unsafe { SHARED.give(out, make) }
    })
}

/// The table that a value of syncline_sharedtable_handle leads to.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_open(
    family: *mut syncline_family,
    handle: *const syncline_value,
    out: *mut *mut syncline_sharedtable,
) -> syncline_status {
    guarded(|| {
        let (family, handle) = (FAMILIES.get(family)?, VALUES.get(handle)?);
        // SAFETY: the caller's promise.
        unsafe { SHARED.give(out, || Ok(SharedTable::open(&family, handle.value())?)) }
    })
}

/// A value that leads to the table, to be sent through anything else of its family.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_handle(table: *mut syncline_sharedtable, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_value(out, SHARED.get(table)?.handle()) })
}

/// Writes `value` under `key`, anything but nil; `existed` tells whether there was one before, 1 or 0.
///
/// # Safety
/// `existed` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_set(
    table: *mut syncline_sharedtable,
    key: *const syncline_value,
    value: *const syncline_value,
    existed: *mut c_int,
) -> syncline_status {
    guarded(|| {
        let (table, key, value) = (SHARED.get(table)?, VALUES.get(key)?, VALUES.get(value)?);
        let before = table.set(key.value(), value.value())?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(existed, "existed", c_int::from(before)) }
    })
}

/// What stands under `key`; NULL if nothing does.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_get(
    table: *mut syncline_sharedtable,
    key: *const syncline_value,
    out: *mut *mut syncline_value,
) -> syncline_status {
    guarded(|| {
        let (table, key) = (SHARED.get(table)?, VALUES.get(key)?);
        // SAFETY: the caller's promise.
        unsafe { give_if_any(out, || Ok(table.get(key.value())?)) }
    })
}

/// Removes `key`; `existed` tells whether something stood there, 1 or 0.
///
/// # Safety
/// `existed` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_remove(
    table: *mut syncline_sharedtable,
    key: *const syncline_value,
    existed: *mut c_int,
) -> syncline_status {
    guarded(|| {
        let before = SHARED.get(table)?.remove(VALUES.get(key)?.value())?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(existed, "existed", c_int::from(before)) }
    })
}

/// How many keys it has, and how many bytes it takes.
///
/// # Safety
/// Both are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_look(
    table: *mut syncline_sharedtable,
    len: *mut usize,
    bytes: *mut usize,
) -> syncline_status {
    guarded(|| {
        let table = SHARED.get(table)?;
        let (keys, size): (usize, usize) = (table.len().map_err(Failure::from)?, table.size()?);
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(len, "len", keys)?;
            memory::give_if(bytes, "bytes", size)
        }
    })
}

/// All pairs at this moment, as a map.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_sharedtable_pairs(table: *mut syncline_sharedtable, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_value(out, Value::Map(SHARED.get(table)?.pairs()?)) })
}

/// Frees the handle; the table ends with the last handle to it, in whatever process.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_sharedtable_free(table: *mut syncline_sharedtable) -> syncline_status {
    guarded(|| SHARED.take(table).map(drop))
}
