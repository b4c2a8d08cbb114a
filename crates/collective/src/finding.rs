//! Memory that a neighbour claims for an exchange, which may take it a moment longer than us.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Job, Vigil};
use syncline_shm::segment::Segment;

/// Waits until `owner` has claimed the memory under `key`.
pub(crate) fn find(
    job: &Job,
    vigil: &Vigil,
    operation: &str,
    key: [u64; 2],
    owner: u32,
    at_least: usize,
    by: Deadline,
) -> Result<Arc<Segment>, Error> {
    let started = Instant::now();
    loop {
        if let Some(found) = job.heap().find(key) {
            let segment = found.map_err(|error| Error::System { operation: operation.into(), detail: error.to_string() })?;
            if segment.len() < at_least {
                let detail = format!("rank {owner} made {} bytes of shared memory where {at_least} are needed", segment.len());
                return Err(Error::System { operation: operation.into(), detail });
            }
            return Ok(segment);
        }
        if vigil.is_over(owner) || vigil.hopeless() {
            return Err(vigil.explain(operation, &[owner], started, "it did not share its memory"));
        }
        if by.interrupted() {
            return Err(Error::Interrupted { operation: operation.into(), waited: started.elapsed() });
        }
        if by.expired() {
            return Err(vigil.late(operation, &[owner], started, " to make its first call"));
        }
        std::thread::sleep(Duration::from_micros(if started.elapsed() < Duration::from_millis(5) { 50 } else { 1000 }));
    }
}
