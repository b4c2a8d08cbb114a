//! Small adds that need no outbox: one change under one redo record is in the table or not, whoever dies.
//!
//! Two workers that add to the same few kilobytes in tight loops would hand the cache lines to and fro with every add,
//! which costs far more than the adds. So they take turns: who finds that another hand has been at the stripe since, and has
//! been adding without pause itself, leaves it alone for some microseconds. Who adds now and then never waits.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use syncline_cluster::{Deadline, Error};
use syncline_shm::outbox::Outbox;
use syncline_shm::store::{Hold, Progress};

use super::apply::Author;
use super::{LocalShare, Selection};
use crate::{AddOptions, Consistency};

/// How long a worker is left alone with a stripe that several want, in nanoseconds: long beside the handing over of its lines.
const TURN: u64 = 20_000;
/// Who adds less often than this, in nanoseconds, has other things to do: waiting for its turn would cost it more than the lines.
const HURRY: u64 = 2_500;

/// When this process last found that another had been at a stripe of its own, and which of its adds that was.
pub(super) struct Turns {
    since: Instant,
    met: AtomicU64,
    sequence: AtomicU64,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { since: Instant::now(), met: AtomicU64::new(0), sequence: AtomicU64::new(0) }
    }

    /// Another hand has been there before add `sequence`: lets it go on for a moment if both are in a hurry.
    #[cold]
    fn met(&self, sequence: u64) {
        let now = || self.since.elapsed().as_nanos() as u64;
        let start = now();
        let adds = sequence.saturating_sub(self.sequence.swap(sequence, Relaxed));
        let mut at = start;
        if is_in_a_hurry(start.saturating_sub(self.met.load(Relaxed)), adds) {
            while at < start + TURN {
                (0..8).for_each(|_| std::hint::spin_loop());
                at = now();
            }
        }
        self.met.store(at, Relaxed);
    }
}

/// Whether so many adds in so many nanoseconds are all that a worker does.
fn is_in_a_hurry(elapsed: u64, adds: u64) -> bool {
    elapsed < adds.saturating_mul(HURRY)
}

impl LocalShare {
    /// Adds without a detour, if it is one change: to all of a small async share, or to one row. False when it is not.
    pub(crate) fn add_directly(
        &self,
        worker: u32,
        sequence: u64,
        rows: Selection<'_>,
        options: &AddOptions,
        delta: &[u8],
        by: Deadline,
    ) -> Result<bool, Error> {
        let Some(elements) = self.one_change(rows) else { return Ok(false) };
        if self.place.spec.consistency != Consistency::Async || self.has_unapplied(worker) {
            return Ok(false);
        }
        self.enter("add")?;
        self.change_directly(worker, sequence, elements, delta.len(), by, |hold, elements, progress| {
            self.change_block(hold, elements, Author { worker, options }, delta, progress, None);
            Ok(())
        })?;
        Ok(true)
    }

    /// One change of elements in one stripe, which is all of an add.
    #[inline]
    pub(crate) fn change_directly(
        &self,
        worker: u32,
        sequence: u64,
        elements: Range<u64>,
        bytes: usize,
        by: Deadline,
        change: impl FnOnce(&mut Hold<'_>, Range<u64>, Progress<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut post = self.post(worker)?;
        let mut hand = self.hand();
        let index = self.store.stripe_of(elements.start);
        if hand.was_followed(&self.store, index) {
            self.turns.met(sequence);
        }
        let mut hold = self.take(&mut hand, index, by)?;
        let value = Outbox::progress_value(sequence, bytes as u64);
        change(&mut hold, elements, Progress::Outbox { worker, word: self.outboxes[worker as usize].progress_word(), value })?;
        drop(hold);
        post.pass(sequence);
        Ok(())
    }

    /// The elements that an add changes, if they are few and lie in one stripe.
    #[inline]
    pub(crate) fn one_change(&self, rows: Selection<'_>) -> Option<Range<u64>> {
        let elements = match rows {
            Selection::All => 0..self.store.layout().elements,
            Selection::Rows(&[id]) if self.place.rows.contains(&(id as u64)) => {
                let first = (id as u64 - self.place.rows.start) * self.cols;
                first..first + self.cols
            }
            Selection::Rows(_) => return None,
        };
        let few = !elements.is_empty() && elements.end - elements.start <= self.block;
        (few && self.store.stripe_of(elements.start) == self.store.stripe_of(elements.end - 1)).then_some(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_adds_without_pause_takes_turns() {
        assert!(is_in_a_hurry(2_000, 1) && is_in_a_hurry(2 * TURN, 40));
        assert!(!is_in_a_hurry(2 * TURN, 1) && !is_in_a_hurry(30_000 * 10, 10) && !is_in_a_hurry(0, 0));
        let turns = Turns::new();
        let waited = |sequence: u64| {
            let start = Instant::now();
            turns.met(sequence);
            start.elapsed().as_nanos() as u64
        };
        waited(1);
        assert!(waited(1_000_000) >= TURN, "a million adds since just now");
        assert!(turns.met.load(Relaxed) >= TURN && turns.sequence.load(Relaxed) == 1_000_000);
    }
}
