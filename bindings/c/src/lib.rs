//! The C interface of Syncline: `libsyncline` and `syncline.h`.
//!
//! Every function checks what it is given, calls one function of the `syncline` crate and returns a status; what went wrong
//! is kept per thread and can be asked for afterwards. A handle is a number that looks like a pointer (`handles.rs`), so one that
//! was freed is an error and not a crash. No panic crosses the border (`border.rs`). The header is written from the
//! signatures here; a test compares it.
#![expect(non_camel_case_types, reason = "these are the names that C programs write")]

mod border;
mod handles;
mod memory;

// In the order in which the header tells of them.
pub mod facts;
pub mod failure;

pub mod session;
pub mod tables;
pub mod trees;

pub mod values;

pub mod ipc;
pub mod kvstore;

pub mod multiverso;

use std::ffi::{c_char, c_int};

/// The version of this interface. It grows when a function or a constant is added, and never for another reason: what is
/// there once keeps its meaning.
pub const SYNCLINE_ABI_VERSION: u32 = 2;

/// The version of the interface that the library was built with; compare it with `SYNCLINE_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_abi_version() -> u32 {
    SYNCLINE_ABI_VERSION
}

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn syncline_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Has `asked` called now and then while a call waits, at least every 100 ms and in the thread of that call; not 0 ends the wait with
/// SYNCLINE_INTERRUPTED. For hosts of a language of their own, whose users press Ctrl-C. NULL: nobody is asked.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_set_interrupt(asked: Option<unsafe extern "C" fn() -> c_int>) {
    border::set_interrupt(asked, false, false);
}

/// As syncline_set_interrupt, the other way round: 0 ends the wait; and only calls of the thread that sets it ask. For hosts whose functions return 0 when an
/// exception ended them, and belong to one thread's interpreter.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_set_going_on(asked: Option<unsafe extern "C" fn() -> c_int>) {
    border::set_interrupt(asked, true, true);
}

/// Says where the caller's next calls of this thread stand in its program; errors about calls that differ between ranks
/// show it. `SYNCLINE_HERE()` does it with the current line.
///
/// # Safety
/// `file` is NULL or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_here(file: *const c_char, line: c_int) {
    // SAFETY: the caller promises what is asked for. A name that is no text is left out.
    let file = unsafe { memory::text(file, "file") }.ok().flatten();
    border::set_site(file.map(|file| format!("{file}:{line}")));
}
