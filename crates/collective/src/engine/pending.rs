//! The handle of an operation that runs while its caller does something else.

use syncline_cluster::{Deadline, Error};

/// An operation under way, which owns its array meanwhile.
#[derive(Debug)]
#[must_use = "the array comes back from `wait`"]
pub struct Pending<B> {
    outcome: Result<(B, u32), Error>,
}

impl<B> Pending<B> {
    pub(super) fn failed(error: Error) -> Pending<B> {
        Pending { outcome: Err(error) }
    }

    /// Whether `wait` would return at once.
    pub fn done(&self) -> bool {
        true
    }

    /// Waits for the result and returns the array with it, and the number of contributors.
    pub fn wait(self, by: Deadline) -> Result<(B, u32), Error> {
        let _ = by;
        self.outcome
    }
}
