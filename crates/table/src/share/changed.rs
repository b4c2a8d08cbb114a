//! Which rows changed since a worker last looked, by others than itself.
//!
//! Each row has a stamp: the epoch of its last change and who made it, and the epoch of the last change by anybody else.
//! The epoch moves on when a worker asks for changed rows; a change is stamped with the epoch it finds, under the
//! stripe's word. So what is changed after a worker looked at a stripe carries a later epoch than the one it remembers.
//! Before anybody has asked, the epoch is 0 and nothing is stamped: the first question of a worker is answered with all
//! rows anyway.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};

use super::LocalShare;

const WORKER_BITS: u32 = 16;

/// The last answer to a worker's question for changed rows. Over a link it may have got lost, and then its rows are due again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answer {
    /// Which of the worker's answers, from 1.
    number: u64,
    /// The epoch from which on it told of changes.
    since: u64,
    /// The epoch from which on the next one does, if this one arrived.
    until: u64,
}

impl LocalShare {
    /// Stamps the rows of a block that became different.
    #[cold]
    pub(crate) fn stamp(&self, worker: u32, first: u64, old: &[u8], new: &[u8]) {
        if self.store.layout().stamps == 0 {
            return;
        }
        let epoch = self.store.header().epoch().get_ordered();
        let size = self.dtype.size() as u64;
        let (mut at, end) = (first, first + new.len() as u64 / size);
        while at < end {
            let row = at / self.cols;
            let next = ((row + 1) * self.cols).min(end);
            let bytes = ((at - first) * size) as usize..((next - first) * size) as usize;
            if old[bytes.clone()] != new[bytes] {
                self.stamp_row(row, worker, epoch);
            }
            at = next;
        }
    }

    fn stamp_row(&self, row: u64, worker: u32, epoch: u64) {
        let stamp = self.store.stamp(row);
        let last = stamp.last.get();
        let author = u64::from(worker) + 1;
        if last & ((1 << WORKER_BITS) - 1) != author {
            stamp.other.set(last >> WORKER_BITS);
        }
        stamp.last.set(epoch << WORKER_BITS | author);
    }

    /// Stamps every row of a stripe for every worker: after an inheritance nobody knows which rows moved.
    pub(crate) fn stamp_all_of(&self, index: usize) {
        self.stamp_for_all(self.store.elements_of(index));
    }

    /// Stamps the rows of these elements for every worker. The caller holds the stripe's word.
    pub(crate) fn stamp_for_all(&self, elements: Range<u64>) {
        let epoch = self.store.header().epoch().get_ordered();
        if epoch == 0 || self.store.layout().stamps == 0 || self.cols == 0 {
            return;
        }
        for row in elements.start / self.cols..elements.end.div_ceil(self.cols) {
            self.store.stamp(row).last.set(epoch << WORKER_BITS);
            self.store.stamp(row).other.set(epoch);
        }
    }

    /// The epoch of the last change of a row by anybody but `worker`.
    fn changed_by_others(&self, row: u64, worker: u32) -> u64 {
        let stamp = self.store.stamp(row);
        let last = stamp.last.get();
        if last & ((1 << WORKER_BITS) - 1) == u64::from(worker) + 1 { stamp.other.get() } else { last >> WORKER_BITS }
    }

    /// Returns when everybody who may have read the epoch before it moved on has stamped its rows: a stripe that is in nobody's hand now is taken later, and
    /// who takes it later sees the new epoch (both are ordered: `StripeWord::try_take`).
    fn wait_for_stamps(&self, by: Deadline) -> Result<(), Error> {
        let mut element = [0; 8];
        (0..self.store.layout().stripes()).try_for_each(|index| {
            let first = self.store.elements_of(index).start;
            self.read_piece(0, first..first + 1, &mut element[..self.dtype.size()], by)
        })
    }

    /// What others changed since the last answer that arrived: the `received`-th to this worker, or any that was given.
    pub(crate) fn changed_rows(
        &self,
        worker: u32,
        own_adds: u64,
        received: Option<u64>,
        by: Deadline,
    ) -> Result<(Vec<i64>, Vec<u8>), Error> {
        self.enter("get_changed", by)?;
        let _up_to_date = self.catch_up_for_rows(worker, own_adds, by)?;
        // The epoch begins at 1 with the first question. Changes from here on carry a later one than `now`.
        let now = self.store.header().epoch().advance();
        self.wait_for_stamps(by)?;
        let answers = || self.changes_seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let last = answers()[worker as usize];
        let arrived = received.is_none_or(|received| received >= last.number);
        let seen = if arrived { last.until } else { last.since };
        let first_time = seen == 0;
        let rows = self.place.rows.end - self.place.rows.start;
        let ids: Vec<i64> = (0..rows)
            .filter(|row| first_time || self.changed_by_others(*row, worker) + 1 > seen)
            .map(|row| (row + self.place.rows.start) as i64)
            .collect();
        let mut bytes = vec![0; ids.len() * self.cols as usize * self.dtype.size()];
        self.read_rows(worker, &ids, &mut bytes, by)?;
        answers()[worker as usize] = Answer { number: received.unwrap_or(last.number) + 1, since: seen, until: now + 1 };
        Ok((ids, bytes))
    }
}
