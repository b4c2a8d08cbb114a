//! Another program, with a pipe to its stdin and one from its stdout: torch-ipc's `spawn`.
//!
//! ```
//! use syncline_ipc::{Deadline, Spawn};
//!
//! let echo = Spawn::new("echo").args(["what up", "dawg"]).start()?;
//! assert_eq!(echo.read_line(Deadline::never())?.as_deref(), Some(&b"what up dawg"[..]));
//! assert_eq!(echo.wait(None, Deadline::never())?.code, Some(0));
//! # Ok::<(), syncline_ipc::SpawnError>(())
//! ```
//! Every call has a deadline and hears an interrupt. The pipes do not block, so a child that writes while it is written to
//! cannot lock itself and us up: what it says meanwhile is kept here until somebody reads it. No program outlives this process,
//! however that ends.

mod error;
mod pipes;
mod start;

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::pidfd_send_signal;
use syncline_transport::Deadline;

use crate::connection::{Taken, Turn};
pub use error::SpawnError;
use pipes::{Stdin, Stdout, ready};

/// How long a child that nobody waited for may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// A program to be started.
///
/// A `file` with a slash is a path, any other is looked for in `PATH`. Stdin and stdout are pipes, stderr stays ours. The kernel
/// kills it when this process ends; only programs with other rights than ours (set-user-ID) and what it starts itself escape that.
#[derive(Debug, Clone)]
pub struct Spawn {
    file: OsString,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
}

impl Spawn {
    /// The program `file` without arguments, in this process's environment.
    pub fn new(file: impl Into<OsString>) -> Spawn {
        Spawn { file: file.into(), args: Vec::new(), env: Vec::new() }
    }

    /// Adds arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Spawn {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Adds a variable. With the first one the environment is no longer inherited: the child has what was given here.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Spawn {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Starts it. [`SpawnError::NotStarted`] when there is no such program or it may not be run.
    pub fn start(self) -> Result<Child, SpawnError> {
        let mut command = Command::new(&self.file);
        command.args(&self.args).stdin(Stdio::piped()).stdout(Stdio::piped());
        if !self.env.is_empty() {
            command.env_clear().envs(self.env);
        }
        let file = self.file.to_string_lossy().into_owned();
        let (mut process, watch) = start::started(&file, command)?;
        let pipes = process.stdin.take().zip(process.stdout.take()).expect("both were asked for");
        let child = Child {
            stdout_descriptor: pipes.1.as_raw_fd(),
            file,
            pid: process.id(),
            maker: std::process::id(),
            watch,
            stdin: Turn::new(Some(Stdin::over(pipes.0.into())?)),
            stdout: Turn::new(Stdout::over(pipes.1.into())?),
            process: Mutex::new(State { process, exit: None, closed: false }),
        };
        Ok(child)
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// What it returned; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Exit {
    /// The number that torch-ipc answers: the code, and 0 for a program that a signal ended.
    pub fn torch_code(&self) -> i32 {
        self.code.unwrap_or(0)
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        Exit { code: status.code(), signal: status.signal() }
    }
}

/// A signal that [`Child::wait`] may send first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: please end.
    Term,
    /// SIGKILL: it ends.
    Kill,
}

impl std::str::FromStr for Signal {
    type Err = SpawnError;

    fn from_str(name: &str) -> Result<Signal, SpawnError> {
        match name {
            "TERM" => Ok(Signal::Term),
            "KILL" => Ok(Signal::Kill),
            _ => Err(SpawnError::UnknownSignal { name: name.to_owned() }),
        }
    }
}

/// A program that was started. May be used from many threads; each pipe serves one at a time.
///
/// Dropped before it was waited for, it gets SIGTERM, after two seconds SIGKILL, and is waited for: nothing is left behind.
pub struct Child {
    file: String,
    pid: u32,
    /// The process that started it: to a fork of that it is nobody's child.
    maker: u32,
    /// Readable once it has ended.
    watch: OwnedFd,
    stdout_descriptor: RawFd,
    stdin: Turn<Option<Stdin>>,
    stdout: Turn<Stdout>,
    process: Mutex<State>,
}

struct State {
    process: std::process::Child,
    exit: Option<Exit>,
    /// Somebody has waited for it: the pipes are closed.
    closed: bool,
}

impl Child {
    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The descriptor of this side of its stdout, for a program that waits for several things at once; reading is done here.
    pub fn stdout_descriptor(&self) -> RawFd {
        self.stdout_descriptor
    }

    /// Whether it has not ended yet.
    pub fn running(&self) -> bool {
        self.exit().is_none()
    }

    /// How it ended; none while it runs.
    pub fn exit(&self) -> Option<Exit> {
        let mut state = self.state();
        if state.exit.is_none() {
            state.exit = state.process.try_wait().ok().flatten().map(Exit::from);
        }
        state.exit
    }

    /// Writes all of `bytes` to its stdin. What the child says meanwhile is kept for the next read.
    pub fn write(&self, bytes: &[u8], by: Deadline) -> Result<(), SpawnError> {
        const OPERATION: &str = "stdin";
        let mut stdin = self.turn(OPERATION, &self.stdin, by)?;
        let pipe = stdin.as_mut().ok_or(SpawnError::Closed { operation: OPERATION, what: "stdin was closed" })?;
        let mut left = bytes;
        loop {
            left = &left[pipe.write(left).map_err(|error| self.failed(OPERATION, error))?..];
            if left.is_empty() {
                return Ok(());
            }
            // The child may be waiting for us to read before it takes more.
            let stdout = self.stdout.try_take();
            ready(Some(pipe), stdout.as_deref(), None, by).map_err(|end| self.ended(OPERATION, end, by))?;
            if let Some(mut stdout) = stdout {
                stdout.collect().map_err(|error| self.failed(OPERATION, error))?;
            }
        }
    }

    /// Closes its stdin: the child reads the end of its input. A second time does nothing.
    pub fn close_stdin(&self, by: Deadline) -> Result<(), SpawnError> {
        *self.turn("stdin", &self.stdin, by)? = None;
        Ok(())
    }

    /// The next line of its stdout without the newline; none at its end.
    pub fn read_line(&self, by: Deadline) -> Result<Option<Vec<u8>>, SpawnError> {
        self.read(by, |stdout| stdout.take_line())
    }

    /// All of its stdout up to the end; none if it ended before.
    pub fn read_all(&self, by: Deadline) -> Result<Option<Vec<u8>>, SpawnError> {
        self.read(by, |stdout| stdout.take_all())
    }

    /// At most `most` bytes of its stdout, as soon as there are any; none at its end.
    pub fn read_some(&self, most: usize, by: Deadline) -> Result<Option<Vec<u8>>, SpawnError> {
        self.read(by, |stdout| stdout.take_some(most))
    }

    /// Sends `signal` if one is given, closes its stdin, reads its stdout to the end (and forgets it), and returns how it ended.
    ///
    /// If the deadline passes, the child is as it was but for its stdin. After it succeeded, every later call on the pipes and
    /// a second `wait` are [`SpawnError::Closed`].
    pub fn wait(&self, signal: Option<Signal>, by: Deadline) -> Result<Exit, SpawnError> {
        const OPERATION: &str = "wait";
        self.open(OPERATION)?;
        if let Some(signal) = signal {
            self.send(signal);
        }
        self.close_stdin(by)?;
        let mut stdout = self.turn(OPERATION, &self.stdout, by)?;
        loop {
            // Its stdout may be held open by a grandchild long after it has ended: the end of the process is enough.
            stdout.collect().map_err(|error| self.failed(OPERATION, error))?;
            stdout.forget();
            if let Some(exit) = self.exit() {
                self.state().closed = true;
                return Ok(exit);
            }
            ready(None, Some(&stdout), Some(&self.watch), by).map_err(|end| self.ended(OPERATION, end, by))?;
        }
    }

    fn read(&self, by: Deadline, mut take: impl FnMut(&mut Stdout) -> Option<Option<Vec<u8>>>) -> Result<Option<Vec<u8>>, SpawnError> {
        const OPERATION: &str = "stdout";
        let mut stdout = self.turn(OPERATION, &self.stdout, by)?;
        loop {
            if let Some(taken) = take(&mut stdout) {
                return Ok(taken);
            }
            if !stdout.collect().map_err(|error| self.failed(OPERATION, error))? {
                ready(None, Some(&stdout), None, by).map_err(|end| self.ended(OPERATION, end, by))?;
            }
        }
    }

    /// Sends by pidfd: never to a stranger who was given the number of a child that has ended.
    fn send(&self, signal: Signal) {
        let signal = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
        };
        let _ = pidfd_send_signal(&self.watch, signal); // fails only for one that has ended
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner) // assignments only: nothing is left half done
    }

    fn open(&self, operation: &'static str) -> Result<(), SpawnError> {
        match self.state().closed {
            true => Err(SpawnError::Closed { operation, what: "spawn was already closed" }),
            false => Ok(()),
        }
    }

    fn turn<'a, T>(&self, operation: &'static str, turn: &'a Turn<T>, by: Deadline) -> Result<Taken<'a, T>, SpawnError> {
        self.open(operation)?;
        turn.take(by).map_err(|_| self.ended(operation, pipes::Ended::of(by), by))
    }

    fn failed(&self, operation: &'static str, error: std::io::Error) -> SpawnError {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return SpawnError::Gone { operation, file: self.file.clone(), pid: self.pid, exit: self.exit() };
        }
        SpawnError::system(operation, &self.file, error)
    }

    fn ended(&self, operation: &'static str, end: pipes::Ended, by: Deadline) -> SpawnError {
        let (file, pid, waited) = (self.file.clone(), self.pid, by.waited());
        match end {
            pipes::Ended::Late => SpawnError::Timeout { operation, file, pid, waited },
            pipes::Ended::Interrupted => SpawnError::Interrupted { operation, waited },
            pipes::Ended::System(error) => SpawnError::system(operation, &self.file, error),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if std::process::id() != self.maker || self.exit().is_some() {
            return;
        }
        tracing::warn!(file = %self.file, pid = self.pid, "spawn: nobody waited for it; it is ended now");
        self.send(Signal::Term);
        let gone = ready(None, None, Some(&self.watch), Deadline::after(GRACE)).is_ok();
        if !gone {
            self.send(Signal::Kill);
        }
        let _ = self.state().process.wait();
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("file", &OsStr::new(&self.file)).field("pid", &self.pid).finish_non_exhaustive()
    }
}
