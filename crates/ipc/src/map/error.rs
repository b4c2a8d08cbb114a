//! What can go wrong in a map: everything that went wrong in its workers, together.

use std::fmt;
use std::time::Duration;

use syncline_cluster::ErrorKind;

use super::Cause;

/// Why one worker has no result.
#[derive(Debug)]
pub struct Failure {
    /// Which worker, from 1.
    pub id: usize,
    /// The error it returned, or the words of its panic.
    pub cause: Cause,
    /// Whether it was a panic.
    pub panicked: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}{}: {}", self.id, if self.panicked { " panicked" } else { "" }, self.cause)
    }
}

/// Why a map has no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Some workers failed: all of them, in order.
    #[error("map: {} of {workers} workers failed\n{}", failures.len(), lines(failures))]
    Failed {
        /// What each of them said.
        failures: Vec<Failure>,
        /// How many there were.
        workers: usize,
    },
    /// Some did not end in time.
    #[error("map: waited {:.1} s for worker{} {}", waited.as_secs_f64(), if running.len() == 1 { "" } else { "s" }, numbers(running))]
    Timeout {
        /// Which.
        running: Vec<usize>,
        /// How long was waited.
        waited: Duration,
    },
    /// The user interrupted the wait.
    #[error("map: interrupted after {:.1} s", waited.as_secs_f64())]
    Interrupted {
        /// How long was waited.
        waited: Duration,
    },
}

impl MapError {
    /// The stable family of this error; bindings map it to their exceptions.
    pub fn kind(&self) -> ErrorKind {
        match self {
            MapError::Failed { .. } => ErrorKind::System,
            MapError::Timeout { .. } => ErrorKind::Timeout,
            MapError::Interrupted { .. } => ErrorKind::Interrupted,
        }
    }

    /// What failed, worker by worker.
    pub fn failures(&self) -> &[Failure] {
        match self {
            MapError::Failed { failures, .. } => failures,
            _ => &[],
        }
    }
}

fn lines(failures: &[Failure]) -> String {
    failures.iter().map(|failure| format!("  {failure}")).collect::<Vec<_>>().join("\n")
}

/// The first ten, and how many more.
fn numbers(running: &[usize]) -> String {
    const SHOWN: usize = 10;
    let shown = running.iter().take(SHOWN).map(usize::to_string).collect::<Vec<_>>().join(", ");
    match running.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}
