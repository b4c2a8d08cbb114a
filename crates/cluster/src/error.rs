//! What can go wrong between the members of a job, always with the culprit's name.
//!
//! Each variant answers the same questions: which operation, whom it waited for (rank, host, process id),
//! how long, and what to try. Bindings map [`Error::kind`](crate::ErrorKind) to their own exceptions.

use std::fmt;
use std::time::Duration;

/// A member as an error names it: `rank 2 (node7, pid 4711)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// The member's number in the job.
    pub rank: u32,
    /// The name its machine goes by; empty when it never arrived.
    pub host: String,
    /// Its process id; zero when it never arrived.
    pub pid: u32,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.pid == 0 { write!(f, "rank {}", self.rank) } else { write!(f, "rank {} ({}, pid {})", self.rank, self.host, self.pid) }
    }
}

/// Stable families of errors, the same in every language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A member was killed, ended or was cut off.
    PeerLost,
    /// A member is there but silent, or never came.
    Timeout,
    /// Two members called different things where the same was needed.
    ContractMismatch,
    /// A peer could not prove that it belongs to the job.
    Auth,
    /// An array has another shape or dtype than the operation needs.
    ShapeMismatch,
    /// A key, table or name that does not exist.
    UnknownKey,
    /// The session was already shut down, or never opened.
    Closed,
    /// The user interrupted the wait.
    Interrupted,
    /// The settings or the launcher's variables make no sense.
    Configuration,
    /// The process was forked after the session was opened.
    Forked,
    /// The operating system refused something.
    System,
}

/// Why an operation among members failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody this operation needs is gone.
    #[error("{operation}: {who} {how} (noticed after {})\nhint: {hint}", seconds(*.waited))]
    PeerLost {
        /// What was going on, for example `barrier 7`.
        operation: String,
        /// The member that is gone.
        who: Who,
        /// What happened to it, for example `was killed by signal 9`.
        how: String,
        /// How long this process had waited when it noticed.
        waited: Duration,
        /// What to try next.
        hint: String,
    },
    /// The launcher that held the job together is gone.
    #[error("{operation}: the launcher is gone and the job with it (noticed after {})\nhint: was `syncline run` killed?", seconds(*.waited))]
    LauncherLost {
        /// What was going on.
        operation: String,
        /// How long this process had waited when it noticed.
        waited: Duration,
    },
    /// Somebody this operation needs has not answered in time.
    #[error("{operation}: waited {}{}{detail}\nhint: {hint}", seconds(*.waited), for_whom(.missing))]
    Timeout {
        /// What was going on.
        operation: String,
        /// The members that did not come.
        missing: Vec<Who>,
        /// What is known about them.
        detail: String,
        /// How long was waited.
        waited: Duration,
        /// What to try next.
        hint: String,
    },
    /// The job did not assemble in time.
    #[error("start: after {} {} of {world} ranks are here ({}); missing: {}\n{expected}", seconds(*.waited), .arrived.len(), list(.arrived), list(.missing))]
    Missing {
        /// Ranks the job should have.
        world: u32,
        /// Those that came.
        arrived: Vec<Who>,
        /// Those that did not.
        missing: Vec<Who>,
        /// How each missing rank was expected to start, a line each.
        expected: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Two members disagree on what they are doing.
    #[error("{operation}: {detail}")]
    ContractMismatch {
        /// What was going on.
        operation: String,
        /// Both sides, as they were called.
        detail: String,
    },
    /// A peer could not prove the job's token, or we could not to it.
    #[error("{operation}: {detail}\nhint: every process of a job needs the same SYNCLINE_TOKEN (and the same version of Syncline)")]
    Auth {
        /// What was going on.
        operation: String,
        /// Who was refused, by whom.
        detail: String,
    },
    /// The coordinator refused this process.
    #[error("start: the coordinator at {at} refused this process: {reason}")]
    Refused {
        /// Where the coordinator listens.
        at: String,
        /// Its words.
        reason: String,
    },
    /// The session is closed.
    #[error("{operation}: the session is already shut down")]
    Closed {
        /// What was asked for.
        operation: String,
    },
    /// The wait was interrupted by the user.
    #[error("{operation}: interrupted after {}", seconds(*.waited))]
    Interrupted {
        /// What was going on.
        operation: String,
        /// How long was waited.
        waited: Duration,
    },
    /// This process is a fork of the one that opened the session.
    #[error(
        "{operation}: this process was forked from a member of the job and is not one itself\nhint: start workers with the spawn or forkserver method, or open the session after the fork"
    )]
    Forked {
        /// What was asked for.
        operation: String,
    },
    /// The launcher's variables or the settings are wrong.
    #[error("{detail}")]
    Configuration {
        /// Which, and why.
        detail: String,
    },
    /// An array has another shape, size or dtype than the operation needs; nothing was changed.
    #[error("{operation}: {detail}")]
    ShapeMismatch {
        /// What was asked for.
        operation: String,
        /// What was given and what is needed.
        detail: String,
    },
    /// A key, row or name that does not exist; nothing was changed.
    #[error("{operation}: {detail}")]
    UnknownKey {
        /// What was asked for.
        operation: String,
        /// Which, and what there is.
        detail: String,
    },
    /// The operating system refused something.
    #[error("{operation}: {detail}")]
    System {
        /// What was going on.
        operation: String,
        /// The system's words and what they were about.
        detail: String,
    },
}

impl Error {
    /// The stable family of this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::PeerLost { .. } | Error::LauncherLost { .. } => ErrorKind::PeerLost,
            Error::Timeout { .. } | Error::Missing { .. } => ErrorKind::Timeout,
            Error::ContractMismatch { .. } => ErrorKind::ContractMismatch,
            Error::Auth { .. } => ErrorKind::Auth,
            Error::Refused { .. } | Error::Configuration { .. } => ErrorKind::Configuration,
            Error::Closed { .. } => ErrorKind::Closed,
            Error::Interrupted { .. } => ErrorKind::Interrupted,
            Error::Forked { .. } => ErrorKind::Forked,
            Error::ShapeMismatch { .. } => ErrorKind::ShapeMismatch,
            Error::UnknownKey { .. } => ErrorKind::UnknownKey,
            Error::System { .. } => ErrorKind::System,
        }
    }

    /// The member at fault, where one is known.
    pub fn who(&self) -> Option<&Who> {
        match self {
            Error::PeerLost { who, .. } => Some(who),
            Error::Timeout { missing, .. } | Error::Missing { missing, .. } => missing.first(),
            _ => None,
        }
    }

    /// The same with other advice, where it is that somebody is gone.
    pub(crate) fn with_hint(mut self, advice: &str) -> Self {
        if let Error::PeerLost { hint, .. } = &mut self {
            *hint = advice.into();
        }
        self
    }

    pub(crate) fn system(operation: impl Into<String>, detail: impl fmt::Display) -> Self {
        Error::System { operation: operation.into(), detail: detail.to_string() }
    }
}

/// `rank 1 (a, pid 7), rank 3`, cut after a dozen so that a large job's error stays readable.
pub(crate) fn list(members: &[Who]) -> String {
    const SHOWN: usize = 12;
    if members.is_empty() {
        return "nobody".into();
    }
    let mut text = members.iter().take(SHOWN).map(Who::to_string).collect::<Vec<_>>().join(", ");
    if members.len() > SHOWN {
        text.push_str(&format!(" and {} more", members.len() - SHOWN));
    }
    text
}

/// ` for rank 1 (a, pid 7)`, or nothing where it was this process that stood in its own way.
fn for_whom(members: &[Who]) -> String {
    if members.is_empty() { String::new() } else { format!(" for {}", list(members)) }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}
