//! What torch-ipc tells about the process itself.

use mlua::Lua;

use crate::reply::Failure;

pub(crate) fn getpid(_: &Lua, (): ()) -> Result<u32, Failure> {
    Ok(std::process::id())
}

pub(crate) fn getppid(_: &Lua, (): ()) -> Result<u32, Failure> {
    Ok(std::os::unix::process::parent_id())
}

/// A number of this thread; torch-ipc's is a handle too, and means nothing else.
pub(crate) fn gettid(_: &Lua, (): ()) -> Result<u64, Failure> {
    thread_local! {
        static NUMBER: u64 = {
            use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
            static NEXT: AtomicU64 = AtomicU64::new(1);
            NEXT.fetch_add(1, Relaxed)
        };
    }
    Ok(NUMBER.with(|number| *number))
}
