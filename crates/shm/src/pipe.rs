//! Writes to a pipe whose reader may be gone, and hears of it as an error and not as a signal.
//!
//! A write to a pipe that nobody reads raises SIGPIPE, which ends the process unless it said otherwise. Rust's own `main` does; a
//! program in C, or an interpreter that has loaded us, does not, and how it takes the signal is its own affair: we must not
//! change that behind its back. Sockets have a flag for one call, pipes have none. So the signal is held back from the calling
//! thread for the length of one write, and taken away if that write has raised it.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

/// Writes what `pipe` takes; [`io::ErrorKind::BrokenPipe`] when nobody reads it any more.
///
/// The disposition of SIGPIPE and the signal mask of the thread are afterwards what they were, and a SIGPIPE that was waiting
/// before still waits.
/// ```
/// use std::os::fd::AsFd;
/// let (reader, writer) = std::io::pipe()?;
/// assert_eq!(syncline_shm::pipe::write(writer.as_fd(), b"heard")?, 5);
/// drop(reader);
/// assert_eq!(syncline_shm::pipe::write(writer.as_fd(), b"lost").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write(pipe: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let held = Held::back()?;
    let written = rustix::io::write(pipe, bytes);
    if written == Err(rustix::io::Errno::PIPE) {
        held.take_away();
    }
    Ok(written?)
}

/// While it lives, SIGPIPE does not reach this thread.
struct Held {
    signal: libc::sigset_t,
    before: libc::sigset_t,
    /// Somebody else's SIGPIPE was waiting: it is not ours to take.
    waiting: bool,
}

impl Held {
    fn back() -> io::Result<Held> {
        let mut signal = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` fills the set, so it may be read after it; both calls can fail only for a signal that does not exist.
        let signal = unsafe {
            libc::sigemptyset(signal.as_mut_ptr());
            libc::sigaddset(signal.as_mut_ptr(), libc::SIGPIPE);
            signal.assume_init()
        };
        let waiting = is_waiting();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `signal` is a filled set and `before` has room for one; the call changes the mask of this thread alone.
        let refused = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &signal, before.as_mut_ptr()) };
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        // SAFETY: the call succeeded, so it wrote the mask that was.
        Ok(Held { signal, before: unsafe { before.assume_init() }, waiting })
    }

    /// Takes the signal that the write of this thread has raised; where SIGPIPE is ignored there is none.
    fn take_away(&self) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are filled, and the call may leave out whom the signal came from.
        while !self.waiting && unsafe { libc::sigtimedwait(&self.signal, std::ptr::null_mut(), &at_once) } < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that this thread had; a guard never leaves the thread that made it, being local to `write`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Whether a SIGPIPE that was held back waits for this thread or its process.
fn is_waiting() -> bool {
    let mut waiting = MaybeUninit::uninit();
    // SAFETY: the set has room, and it is read only if the call has filled it.
    unsafe { libc::sigpending(waiting.as_mut_ptr()) == 0 && libc::sigismember(waiting.as_ptr(), libc::SIGPIPE) == 1 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use super::*;

    const PART: &str = "PIPE_TEST_PART";

    /// Runs the part `part` of the test of this name in a process of its own, where SIGPIPE is what it is for a program in C.
    fn in_a_process(test: &str, part: &str) -> ExitStatus {
        let own = std::env::current_exe().expect("this test has a file");
        let test = format!("pipe::tests::{test}");
        Command::new(own).args(["--exact", &test, "--nocapture"]).env(PART, part).status().expect("it starts")
    }

    fn signals_by_default() {
        // SAFETY: the default disposition runs no code of ours.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }

    fn broken() -> io::PipeWriter {
        io::pipe().expect("a pipe").1
    }

    fn is_held_back() -> bool {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: without a new set the call only fills the old one, which is read after it.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr());
            libc::sigismember(mask.as_ptr(), libc::SIGPIPE) == 1
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts processes")]
    fn a_pipe_that_nobody_reads_is_an_error_where_sigpipe_would_kill() {
        match std::env::var(PART).as_deref() {
            Ok("ours") => {
                signals_by_default();
                for _ in 0..3 {
                    assert_eq!(write(broken().as_fd(), b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
                    assert!(!is_held_back() && !is_waiting());
                }
            }
            Ok(_) => {
                signals_by_default();
                let _ = write(broken().as_fd(), b"x");
                let _ = rustix::io::write(broken(), b"x"); // ends this process: nothing has changed for others
            }
            Err(_) => {
                let test = "a_pipe_that_nobody_reads_is_an_error_where_sigpipe_would_kill";
                assert!(in_a_process(test, "ours").success());
                assert_eq!(in_a_process(test, "plain").signal(), Some(libc::SIGPIPE));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "starts processes")]
    fn a_sigpipe_that_was_held_back_before_still_waits() {
        if std::env::var(PART).is_err() {
            assert!(in_a_process("a_sigpipe_that_was_held_back_before_still_waits", "ours").success());
            return;
        }
        signals_by_default();
        let mine = Held::back().expect("held back");
        assert_eq!(write(broken().as_fd(), b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(is_held_back() && !is_waiting(), "ours was taken away");
        let _ = rustix::io::write(broken(), b"x");
        assert!(is_waiting());
        assert_eq!(write(broken().as_fd(), b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(is_held_back() && is_waiting(), "theirs was not");
        mine.take_away();
        assert!(!is_waiting());
    }
}
