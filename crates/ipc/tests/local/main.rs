//! What a program does beside itself on its own host: other programs, locked files, threads that work for it.

mod background;
mod flock;
mod map;
mod spawn;

use std::time::Duration;

use syncline_ipc::Deadline;

/// Longer than anything here takes; a test that reaches it fails.
fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// Over before anything can happen that is not there yet.
fn at_once() -> Deadline {
    Deadline::after(Duration::from_millis(20))
}
