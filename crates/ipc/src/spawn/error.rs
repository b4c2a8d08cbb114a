//! What can go wrong with a program that was started.

use std::time::Duration;

use syncline_cluster::ErrorKind;

use super::Exit;

/// Why a call on a [`Child`](super::Child) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There is no such program, or it may not be run.
    #[error("spawn: cannot start {file:?}: {source}\nhint: a name without a slash is looked for in PATH, one with a slash is a path")]
    NotStarted {
        /// What was to be started.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The child, or this side of a pipe, was closed before.
    #[error("{operation}: {what}")]
    Closed {
        /// What was asked for.
        operation: &'static str,
        /// What was closed.
        what: &'static str,
    },
    /// The child no longer reads its stdin.
    #[error("{operation}: {file:?} (pid {pid}) no longer reads{}", how(exit))]
    Gone {
        /// What was asked for.
        operation: &'static str,
        /// The program.
        file: String,
        /// Its process.
        pid: u32,
        /// How it ended, if it has.
        exit: Option<Exit>,
    },
    /// The child did not write, read or end in time.
    #[error("{operation}: waited {:.1} s for {file:?} (pid {pid})\nhint: wait with the signal TERM or KILL ends it", waited.as_secs_f64())]
    Timeout {
        /// What was asked for.
        operation: &'static str,
        /// The program.
        file: String,
        /// Its process.
        pid: u32,
        /// How long was waited.
        waited: Duration,
    },
    /// The user interrupted the wait.
    #[error("{operation}: interrupted after {:.1} s", waited.as_secs_f64())]
    Interrupted {
        /// What was asked for.
        operation: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// `wait` was given another signal than those it knows.
    #[error("wait: cannot send {name:?}\nhint: it knows TERM and KILL")]
    UnknownSignal {
        /// What was given.
        name: String,
    },
    /// The operating system refused something.
    #[error("{operation}: {file:?}: {source}")]
    System {
        /// What was going on.
        operation: &'static str,
        /// The program.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl SpawnError {
    pub(super) fn system(operation: &'static str, file: &str, source: std::io::Error) -> SpawnError {
        SpawnError::System { operation, file: file.to_owned(), source }
    }

    /// The stable family of this error; bindings map it to their exceptions.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SpawnError::NotStarted { .. } | SpawnError::UnknownSignal { .. } => ErrorKind::Configuration,
            SpawnError::Closed { .. } => ErrorKind::Closed,
            SpawnError::Gone { .. } => ErrorKind::PeerLost,
            SpawnError::Timeout { .. } => ErrorKind::Timeout,
            SpawnError::Interrupted { .. } => ErrorKind::Interrupted,
            SpawnError::System { .. } => ErrorKind::System,
        }
    }

    /// The process at fault, where one is.
    pub fn pid(&self) -> Option<u32> {
        match self {
            SpawnError::Gone { pid, .. } | SpawnError::Timeout { pid, .. } => Some(*pid),
            _ => None,
        }
    }
}

fn how(exit: &Option<Exit>) -> String {
    match exit {
        Some(Exit { code: Some(code), .. }) => format!(": it ended with code {code}"),
        Some(Exit { signal: Some(signal), .. }) => format!(": signal {signal} ended it"),
        _ => String::new(),
    }
}
