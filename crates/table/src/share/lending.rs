//! Adds of a whole array that stands in shared memory already: the outbox only says where.
//!
//! The caller may change its array as soon as the add returns, so it is applied by then; if that fails, by a deadline
//! or a death, the numbers are taken over into the outbox after all. Up to then a survivor finds them in the array.

use syncline_cluster::{Deadline, Error};
use syncline_shm::outbox::{Full, LentDelta};

use super::local::LEAST_IN_FLIGHT;
use super::{LocalShare, Selection};
use crate::{AddOptions, Consistency};

/// Less is copied: that costs no more than to look where it stands.
const LEAST_LENT: usize = 16 << 10;

impl LocalShare {
    /// Where `delta` stands, if it may stay there. (In sync mode it waits for the others' adds, which may take long.)
    pub(crate) fn lendable(&self, rows: Selection<'_>, delta: &[u8]) -> Option<LentDelta> {
        let whole = matches!(rows, Selection::All) && delta.len() >= LEAST_LENT;
        (whole && !self.alone && self.place.spec.consistency != Consistency::Sync).then(|| self.place.arrays.locate(delta)).flatten()
    }

    /// Makes an add of the whole share count whose delta stays where it is; [`applied_by`](LocalShare::applied_by) must follow.
    pub(crate) fn publish_lent(
        &self,
        worker: u32,
        sequence: u64,
        options: &AddOptions,
        lent: LentDelta,
        by: Deadline,
    ) -> Result<(), Error> {
        self.enter("add", by)?;
        let mut post = self.post(worker, by)?;
        let end = loop {
            match post.room(sequence, self.applied(worker), None, self.bytes(), LEAST_IN_FLIGHT) {
                Ok(room) => break room.end,
                Err(Full::Wait) => self.settle_adds(worker, sequence - 1, by)?,
                Err(Full::Never { room }) => {
                    let detail = format!("{} bytes in one add are more than fit at once ({room})", self.bytes());
                    return Err(Error::ShapeMismatch { operation: self.operation("add"), detail });
                }
            }
        };
        post.stage_lent(sequence, self.stamped(options)?.to_bits(), lent, end);
        post.publish(sequence);
        Ok(())
    }

    /// Has `apply` apply the lent add, and takes `delta` over where it did not.
    pub(crate) fn applied_by(
        &self,
        worker: u32,
        sequence: u64,
        delta: &[u8],
        apply: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let result = apply();
        if self.outboxes[worker as usize].applied() < sequence {
            // In the order of everyone who adds: first the post, then the hand, with which another thread may be reading the array.
            // However long that takes: the caller has its array back when this returns.
            let mut post = self.post(worker, Deadline::never())?;
            let _hand = self.hand(Deadline::never())?;
            if self.outboxes[worker as usize].applied() < sequence {
                post.take_over(sequence, delta);
            }
        }
        if self.place.spec.consistency != Consistency::Async {
            self.ring_neighbours();
        }
        result
    }
}
