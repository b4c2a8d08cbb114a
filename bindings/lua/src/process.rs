//! What torch-ipc tells about the process itself, and forks of it.

use std::time::Duration;

use mlua::Lua;
use rustix::process::{Pid, WaitOptions};

use crate::arguments::Whole;
use crate::interrupt::pressed;
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

unsafe extern "C" {
    /// The C library's own, which takes its locks along into the child.
    #[link_name = "fork"]
    fn c_fork() -> i32;
}

/// 0 in the child, its process id in the parent. What the parent shares with other processes is not the child's: calls on it say so.
pub(crate) fn fork(_: &Lua, (): ()) -> Result<i32, Failure> {
    // SAFETY: takes nothing. The child has this thread only; it goes on in Lua, which no other thread runs in this state.
    match unsafe { c_fork() } {
        -1 => Err(Failure::new("SystemError", format!("fork: {}", std::io::Error::last_os_error()))),
        pid => Ok(pid),
    }
}

/// Waits for the end of a child; its exit code, or nothing if a signal ended it.
pub(crate) fn waitpid(_: &Lua, Whole(pid): Whole) -> Result<Option<i32>, Failure> {
    let child = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let child = child.ok_or_else(|| Failure::argument(format!("waitpid: {pid} is no process")))?;
    let mut pause = Duration::from_micros(100);
    loop {
        match rustix::process::waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return Ok(status.exit_status()),
            Ok(None) if pressed() => return Err(Failure::new("Interrupted", "waitpid: interrupted")),
            Ok(None) => std::thread::sleep(pause),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::new("SystemError", format!("waitpid: process {pid}: {error}"))),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
