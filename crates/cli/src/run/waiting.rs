//! Waiting for descriptors until a moment, as both loops of the launcher do it.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Waits until one of the descriptors can be read (or is closed at the other side) or the moment has come; `None` is for ever.
///
/// Returns the positions of those that can be read: none after a timeout, and now and then none without a reason.
pub(super) fn readable(descriptors: &[BorrowedFd<'_>], until: Option<Instant>) -> io::Result<Vec<usize>> {
    let timeout = until.map(|moment| {
        let left = moment.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs().min(1 << 30) as i64, tv_nsec: i64::from(left.subsec_nanos()) }
    });
    let mut polled: Vec<PollFd<'_>> = descriptors.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty()).map(|(at, _)| at).collect()),
        Err(Errno::INTR | Errno::AGAIN) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
