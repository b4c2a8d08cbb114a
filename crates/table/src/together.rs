//! Steps that all workers take together, each of which may fail on one of them: then every worker hears whose failure it was.
//!
//! A worker that failed comes to the agreement all the same, with its failure in place of the step. So nobody waits for it, and the
//! others, who only see that two calls differ, read from the other call what happened.

use std::time::Duration;

use syncline_cluster::{Deadline, Error, Job};
use syncline_wire::Fingerprint;

/// How long a worker that was called off tries to tell the others so.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Something that all workers do step by step.
pub(crate) struct Together<'a> {
    pub(crate) job: &'a Job,
    /// What it is, the same on every worker: `save /tmp/model`.
    pub(crate) what: String,
    /// Where the call stands.
    pub(crate) site: &'a str,
    pub(crate) by: Deadline,
}

impl Together<'_> {
    /// Goes on when everybody has come this far without a failure; returns worker 0's `payload`.
    pub(crate) fn agree<T>(&self, step: &str, payload: &[u8], outcome: Result<T, Error>) -> Result<(T, Vec<u8>), Error> {
        let name = format!("{}: {step}", self.what);
        match outcome {
            Ok(value) => {
                let fingerprint = Fingerprint::of("together").name(&name).finish();
                let agreed = self.job.agree(&name, fingerprint, self.site, payload, self.by).map_err(|error| self.read(&name, error))?;
                Ok((value, agreed.payload))
            }
            Err(error) => {
                let text: String = error.to_string().chars().take(500).collect();
                let failed = Fingerprint::of("failed").name(&text).number("rank", self.job.rank().into()).finish();
                // The others fail with this worker's words; it fails with its own. Who was called off has heard Ctrl-C, which does not come twice: it only tells them.
                let by = if matches!(error, Error::Interrupted { .. }) { Deadline::after(LAST_WORDS) } else { self.by };
                let _ = self.job.agree(&format!("{name}{FAILED}{text}"), failed, self.site, &[], by);
                Err(error)
            }
        }
    }

    /// A difference that is another worker's failure in this step, as what it is.
    fn read(&self, name: &str, error: Error) -> Error {
        let Error::ContractMismatch { detail, .. } = &error else { return error };
        match failure_in(detail, name, self.site) {
            Some(detail) => Error::System { operation: self.what.clone(), detail },
            None => error,
        }
    }
}

/// Between a step and what went wrong in it.
const FAILED: &str = " failed: ";

/// Who failed in the step of this `name`, and how, if that is the difference that `detail` tells of.
fn failure_in(detail: &str, name: &str, site: &str) -> Option<String> {
    let called = format!(" called {name}{FAILED}");
    let at = detail.find(&called)?;
    let rank = detail[..at].rsplit("rank ").next()?;
    rank.parse::<u32>().ok()?;
    let text = &detail[at + called.len()..];
    // What follows is where that call stands, and then the other call or the general advice.
    let ends =
        [format!(" at {site}, rank "), format!(" at {site}\nhint: all workers"), ", rank ".to_owned(), "\nhint: all workers".to_owned()];
    let end = ends.iter().find_map(|end| text.rfind(end.as_str())).unwrap_or(text.len());
    Some(format!("rank {rank} failed: {}", &text[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_from_either_side_of_a_difference() {
        let (step, advice) = ("load /m: begin", "\nhint: all workers must make the same calls in the same order");
        let first =
            format!("rank 0 called {step} failed: no file, rank 5 ate it\nhint: look at load, rank 1 called {step} at load{advice}");
        assert_eq!(failure_in(&first, step, "load").as_deref(), Some("rank 0 failed: no file, rank 5 ate it\nhint: look"));
        let second = format!("rank 0 called {step} at load, rank 11 called {step} failed: disk full at load{advice}");
        assert_eq!(failure_in(&second, step, "load").as_deref(), Some("rank 11 failed: disk full"));
    }

    #[test]
    fn other_differences_stay_what_they_are() {
        let detail = "rank 0 called save /m: begin at save, rank 1 called table 0: array of 3 float32 at train.py:4\nhint: all workers";
        assert_eq!(failure_in(detail, "save /m: begin", "save"), None);
        assert_eq!(failure_in("rank 0 called save /m: written failed: x", "save /m: begin", "save"), None);
    }
}
