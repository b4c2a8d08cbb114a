//! The two pipes of a child, which never block: whoever waits does so in [`ready`], with a deadline.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use syncline_transport::Deadline;

use super::SpawnError;

/// One read takes at most this much.
const PIECE: usize = 64 * 1024;

pub(super) struct Stdin(OwnedFd);

impl Stdin {
    pub(super) fn over(pipe: OwnedFd) -> Result<Stdin, SpawnError> {
        Ok(Stdin(unblock(pipe)?))
    }

    /// Writes what the pipe takes now; that may be nothing. No SIGPIPE when the child has ended: our host may be a program that it kills.
    pub(super) fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut gone = 0;
        while gone < bytes.len() {
            match syncline_shm::pipe::write(self.0.as_fd(), &bytes[gone..]) {
                Ok(taken) => gone += taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }
}

/// What the child said, as far as nobody has read it.
pub(super) struct Stdout {
    pipe: File,
    kept: Vec<u8>,
    /// Bytes of `kept` in which a newline was looked for already.
    searched: usize,
    ended: bool,
    /// Its end was reported: from then on every read says so.
    told: bool,
}

impl Stdout {
    pub(super) fn over(pipe: OwnedFd) -> Result<Stdout, SpawnError> {
        Ok(Stdout { pipe: File::from(unblock(pipe)?), kept: Vec::new(), searched: 0, ended: false, told: false })
    }

    /// Takes what is in the pipe now; false when there was nothing and more may come.
    pub(super) fn collect(&mut self) -> std::io::Result<bool> {
        let mut any = self.ended;
        while !self.ended {
            let before = self.kept.len();
            self.kept.resize(before + PIECE, 0);
            let read = self.pipe.read(&mut self.kept[before..]);
            self.kept.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => (self.ended, any) = (true, true),
                Ok(_) => any = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(any)
    }

    /// The outer option: is there an answer yet? The inner one: is it more than "the end"?
    pub(super) fn take_line(&mut self) -> Option<Option<Vec<u8>>> {
        let newline = self.kept[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| at + self.searched);
        if let Some(at) = newline {
            let mut line: Vec<u8> = self.kept.drain(..=at).collect();
            line.pop();
            self.searched = 0;
            return Some(Some(line));
        }
        self.searched = self.kept.len();
        self.ended.then(|| self.rest())
    }

    pub(super) fn take_all(&mut self) -> Option<Option<Vec<u8>>> {
        if !self.ended {
            return None;
        }
        let first = !std::mem::replace(&mut self.told, true);
        Some(self.rest().or_else(|| first.then(Vec::new)))
    }

    pub(super) fn take_some(&mut self, most: usize) -> Option<Option<Vec<u8>>> {
        if self.kept.is_empty() && most > 0 {
            return self.ended.then(|| self.rest());
        }
        self.searched = 0;
        Some(Some(self.kept.drain(..most.min(self.kept.len())).collect()))
    }

    pub(super) fn forget(&mut self) {
        (self.kept, self.searched) = (Vec::new(), 0);
    }

    fn rest(&mut self) -> Option<Vec<u8>> {
        self.searched = 0;
        let rest = std::mem::take(&mut self.kept);
        self.told |= rest.is_empty();
        (!rest.is_empty()).then_some(rest)
    }
}

/// Why a wait ended without what it waited for.
pub(super) enum Ended {
    Late,
    Interrupted,
    System(std::io::Error),
}

impl Ended {
    /// Which of the two ends of a deadline it was.
    pub(super) fn of(by: Deadline) -> Ended {
        if by.expired() { Ended::Late } else { Ended::Interrupted }
    }
}

/// Sleeps until `stdin` takes something, `stdout` has something, or the process behind `watch` has ended.
pub(super) fn ready(stdin: Option<&Stdin>, stdout: Option<&Stdout>, watch: Option<&OwnedFd>, by: Deadline) -> Result<(), Ended> {
    const LONGEST: Duration = Duration::from_secs(60);
    let stdout = stdout.filter(|stdout| !stdout.ended);
    let mut watched = Vec::with_capacity(3);
    watched.extend(stdin.map(|pipe| PollFd::from_borrowed_fd(pipe.0.as_fd(), PollFlags::OUT)));
    watched.extend(stdout.map(|pipe| PollFd::from_borrowed_fd(pipe.pipe.as_fd(), PollFlags::IN)));
    watched.extend(watch.map(|watch| PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)));
    loop {
        let slice = by.slice(LONGEST);
        let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
        match poll(&mut watched, Some(&slice)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(Ended::System(error.into())),
        }
        if by.interrupted() {
            return Err(Ended::Interrupted);
        }
        if by.expired() {
            return Err(Ended::Late);
        }
    }
}

fn unblock(pipe: OwnedFd) -> Result<OwnedFd, SpawnError> {
    let flags = fcntl_getfl(&pipe).and_then(|flags| fcntl_setfl(&pipe, flags | OFlags::NONBLOCK));
    flags.map_err(|error| SpawnError::system("spawn", "a pipe", error.into()))?;
    Ok(pipe)
}
