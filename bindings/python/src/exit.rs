//! The last word of the process: it leaves its job politely, or says that it failed.
//!
//! Python's `atexit` does not know whether the interpreter leaves with success: a `SystemExit` is gone before its
//! handlers run. The C library's `on_exit` does know the status, and runs after the interpreter has finished.

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;
use std::ptr::null_mut;
use std::sync::Once;

use crate::job;

/// Makes sure that the open session ends with the process; cheap to repeat.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: `end` is a function of this library, which Python never unloads, and it ignores its argument.
        // Should the C library refuse (no memory), the kernel still ends the session: peers see the process go.
        unsafe { on_exit(end, null_mut()) };
    });
}

extern "C" fn end(status: c_int, _: *mut c_void) {
    // A panic may not unwind into the C library; there is nobody left to tell.
    let _ = catch_unwind(|| job::end_with_process(status));
}

unsafe extern "C" {
    /// glibc: calls `function` with the exit status when the process ends by `exit` or by returning from `main`.
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}
