//! Children that end with the process that started them, also when that is killed.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the kernel kill the program as soon as the *thread* that starts it ends: call this, and start it, from one that lives as
/// long as the program may. (A program with more rights than ours, set-user-ID, is not killed.)
pub fn ends_with_this_thread(command: &mut Command) {
    let parent = getpid();
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        match getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()), // it ended before the line above, and nobody is left to tell
        }
    };
    // SAFETY: the closure runs in the child between fork and exec: two system calls and no allocation (an `ErrorKind` or an
    // error code is a plain number), no lock of the parent's threads.
    unsafe { command.pre_exec(tie) };
}
