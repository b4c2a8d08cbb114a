//! Small adds that need no outbox: one change under one redo record is in the table or not, whoever dies.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_shm::outbox::Outbox;
use syncline_shm::store::{Hold, Progress};

use super::apply::Author;
use super::{LocalShare, Selection};
use crate::{AddOptions, Consistency};

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
        self.enter("add", by)?;
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
        let mut post = self.post(worker, by)?;
        let mut hand = self.hand(by)?;
        let index = self.store.stripe_of(elements.start);
        if hand.was_followed_at(&self.store, index) && !self.puts_adds_together() {
            self.turns.met(sequence, bytes);
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
        let few = !elements.is_empty() && elements.end - elements.start <= self.direct;
        (few && self.store.stripe_of(elements.start) == self.store.stripe_of(elements.end - 1)).then_some(elements)
    }
}
