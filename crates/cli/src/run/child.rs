//! One rank as a process: how it is started so that it cannot outlive the launcher, and how it is watched and told to end.
//!
//! ```text
//! syncline run ──spawn──▶ syncline __child PID WORD… ──exec──▶ WORD…
//!                          │ dies with its parent from here on
//!                          └ leaves if the parent died before that
//! ```
//! The detour through our own binary costs a millisecond and buys a safe place between fork and exec.
//! Each rank leads a process group of its own, so a signal reaches what it started too. Not a session of its own: where the
//! kernel groups tasks by session, a yield between two ranks on one core would no longer hand the core over.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getppid, kill_process, kill_process_group, pidfd_open, set_parent_process_death_signal,
    waitid,
};

use super::leftovers::process_number;
use super::meeting::Role;
use super::verdict::{Ended, Fate};

/// First word of a command line that means: become a rank.
pub(crate) const CHILD_WORD: &str = "__child";

/// A rank that was started.
pub(super) struct Rank {
    pub(super) number: u32,
    pub(super) role: Role,
    process: Child,
    pid: Pid,
    pidfd: OwnedFd,
    started: Instant,
    told: Option<Signal>,
    fate: Option<Fate>,
}

/// The reading ends of what a rank says.
pub(super) struct Voices {
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Rank {
    pub(super) fn start(
        number: u32,
        role: Role,
        words: &[OsString],
        environment: &[(&str, Option<OsString>)],
    ) -> io::Result<(Rank, Voices)> {
        let mut command = this_program("syncline");
        command.arg(CHILD_WORD).arg(std::process::id().to_string()).args(words);
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // A background process group that reads the terminal is stopped by the kernel, hence no input for anyone.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let started = Instant::now();
        let mut process = command.spawn()?;
        let voices = Voices {
            stdout: process.stdout.take().expect("stdout was piped").into(),
            stderr: process.stderr.take().expect("stderr was piped").into(),
        };
        let pid = Pid::from_child(&process);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        Ok((Rank { number, role, process, pid, pidfd, started, told: None, fate: None }, voices))
    }

    /// The number of the rank's process group, which is that of its process. It stays taken until [`Rank::reap`].
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// Readable once the process has ended.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.fate.is_none()
    }

    pub(super) fn fate(&self) -> Option<&Fate> {
        self.fate.as_ref()
    }

    /// The end of the process, if it came since the last call.
    pub(super) fn look(&mut self) -> io::Result<Option<&Fate>> {
        if self.fate.is_some() {
            return Ok(None);
        }
        // The process stays a zombie until `reap`: so its group's number cannot pass to strangers while we may signal it.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Some(status) = waitid(WaitId::PidFd(self.pidfd.as_fd()), options)? else {
            return Ok(None);
        };
        let ended = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ended::Code(code),
            (None, signal) => Ended::Signal(signal.unwrap_or(0)),
        };
        self.fate =
            Some(Fate { rank: self.number, pid: self.pid.as_raw_nonzero().get(), ended, after: self.started.elapsed(), told: self.told });
        Ok(self.fate.as_ref())
    }

    /// Sends a signal that should end the rank and all it started.
    pub(super) fn tell_to_end(&mut self, signal: Signal) {
        self.told = Some(signal);
        signal_group(self.pid, signal);
        if signal != Signal::KILL {
            signal_group(self.pid, Signal::CONT); // A stopped process hears nothing until it goes on.
        }
    }

    /// Sends a signal to the process of the rank alone: what it started may not know the signal and would die of it.
    pub(super) fn pass_on(&self, signal: Signal) {
        let _ = kill_process(self.pid, signal); // It is not reaped, so at worst it is a zombie and does not care.
    }

    /// Removes the zombie; the process must have ended.
    pub(super) fn reap(mut self) {
        let _ = self.process.wait();
    }
}

/// A process group that is gone needs no signal.
pub(super) fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// This binary once more, whatever happened to its file since it was started.
pub(super) fn this_program(name: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name);
    command
}

/// Ties this process to its parent, then becomes the command in `words`: `PID WORD…`.
pub(crate) fn become_child(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = words.next().and_then(|word| process_number(word.to_str()?));
    let (Some(parent), Some(program)) = (parent, words.next()) else {
        eprintln!("syncline: {CHILD_WORD} is for `syncline run` only");
        return ExitCode::from(125);
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("syncline: cannot tie this process to its launcher: {error}");
        return ExitCode::from(125);
    }
    if getppid() != Some(parent) {
        return ExitCode::from(125); // The launcher died before the line above, and nobody is left to tell.
    }
    let error = Command::new(&program).args(words).exec();
    eprintln!("syncline: cannot start `{}`: {error}", program.display());
    ExitCode::from(if Errno::from_io_error(&error) == Some(Errno::NOENT) { 127 } else { 126 })
}
