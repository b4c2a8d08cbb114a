//! Memory that a neighbour claims on the heap, which may take it a moment longer than us.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_shm::heap::Heap;
use syncline_shm::segment::Segment;
use syncline_shm::wait::Deadline;

use crate::{Error, Job, Vigil};

impl Job {
    /// Waits until `owner` has claimed the memory under `key`, for an `operation` that needs `at_least` so many bytes of it.
    ///
    /// A claim rings no bell, since all neighbours make their claims at the same time: looking every 50 µs is soon enough.
    pub fn claimed_by(&self, owner: u32, key: [u64; 2], at_least: usize, operation: &str, by: Deadline) -> Result<Arc<Segment>, Error> {
        self.vigil().claimed_by(self.heap(), owner, key, at_least, operation, by)
    }
}

impl Vigil {
    /// As [`Job::claimed_by`], in the memory of this rank's neighbourhood.
    pub fn claimed_by(
        &self,
        heap: &Heap,
        owner: u32,
        key: [u64; 2],
        at_least: usize,
        operation: &str,
        by: Deadline,
    ) -> Result<Arc<Segment>, Error> {
        let (vigil, started) = (self, Instant::now());
        loop {
            if let Some(found) = heap.find(key) {
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
                return Err(vigil.late(operation, &[owner], started, " to share its memory"));
            }
            std::thread::sleep(Duration::from_micros(if started.elapsed() < Duration::from_millis(5) { 50 } else { 1000 }));
        }
    }
}
