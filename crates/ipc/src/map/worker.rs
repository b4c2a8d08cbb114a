//! One worker: its function, guarded, and what it cost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::{Cause, Failure};

/// How far a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It has not ended yet.
    Running,
    /// It has returned a result.
    Done,
    /// It has returned an error or panicked.
    Failed,
}

/// What one worker did and cost.
#[derive(Debug, Clone, Copy)]
pub struct WorkerStats {
    /// Its number, from 1.
    pub id: usize,
    /// How far it is.
    pub outcome: Outcome,
    /// How long it took, or takes so far.
    pub wall: Duration,
    /// How long it kept a core busy; zero until it has ended.
    pub cpu: Duration,
}

/// The result of `f`, whose panic is a failure like any other.
pub(crate) fn guarded<T>(f: impl FnOnce() -> Result<T, Cause>) -> Result<T, Failure> {
    // What `f` touches is its own or behind locks of its own: whoever shares it finds it as after any other failure.
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(made) => made.map_err(|cause| Failure { id: 0, cause, panicked: false }),
        Err(panic) => {
            let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
            let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into());
            Err(Failure { id: 0, cause: words.into(), panicked: true })
        }
    }
}

/// How long the calling thread has kept a core busy.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}
