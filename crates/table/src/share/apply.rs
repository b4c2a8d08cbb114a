//! Applies the adds of one worker, one after the other: async and bounded tables.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_shm::array::Lent;
use syncline_shm::outbox::{Entry, Outbox};
use syncline_shm::store::{Hand, Hold, Progress};

use super::tally::Tally;
use super::{Emit, LocalShare};
use crate::AddOptions;
use crate::updater::{Block, apply, apply_into_both};

/// Whose add it is, and what it says to the updater.
#[derive(Clone, Copy)]
pub(crate) struct Author<'a> {
    pub(crate) worker: u32,
    pub(crate) options: &'a AddOptions,
}

/// One add, ready to be applied.
pub(crate) struct Add<'a> {
    pub(crate) worker: u32,
    pub(crate) options: AddOptions,
    pub(crate) entry: Entry,
    pub(crate) outbox: &'a Outbox,
    /// The delta, where it does not stand in the outbox.
    lent: Option<Lent>,
    /// Its ids stand in ascending order, followed by their places in the delta: a sync table's.
    sorted: bool,
}

impl Add<'_> {
    pub(crate) fn author(&self) -> Author<'_> {
        Author { worker: self.worker, options: &self.options }
    }

    /// Its rows, none for the whole share.
    pub(crate) fn ids(&self) -> Option<&[i64]> {
        let ids = self.entry.ids.clone().map(|range| self.outbox.ids(range))?;
        Some(if self.sorted { &ids[..ids.len() / 2] } else { ids })
    }

    /// Which row of the delta belongs to each of the ids, where they were sorted.
    pub(crate) fn places(&self) -> &[i64] {
        let ids = self.entry.ids.clone().map_or(&[][..], |range| self.outbox.ids(range));
        &ids[ids.len() / 2..]
    }

    /// Asks for a row of the delta ahead of its use.
    #[inline]
    pub(crate) fn ask_for(&self, place: usize, row_bytes: usize) {
        let start = self.entry.delta.start.wrapping_add(place.wrapping_mul(row_bytes));
        self.outbox.prefetch(start..start.wrapping_add(row_bytes.min(512)));
    }

    /// Bytes of the delta.
    #[inline]
    pub(crate) fn delta(&self, bytes: Range<usize>) -> &[u8] {
        if let Some(lent) = &self.lent {
            return lent.bytes(bytes.start..bytes.end.min(self.entry.delta.len()));
        }
        let start = self.entry.delta.start;
        self.outbox.delta(start + bytes.start..(start + bytes.end).min(self.entry.delta.end))
    }
}

impl LocalShare {
    /// The add with this number, if it makes sense for this share.
    pub(crate) fn published_add(&self, worker: u32, sequence: u64) -> Result<Add<'_>, Error> {
        let entry = self.outboxes[worker as usize].entry(sequence);
        self.add_of(worker, sequence, entry)
    }

    fn add_of(&self, worker: u32, sequence: u64, entry: Option<Entry>) -> Result<Add<'_>, Error> {
        let outbox = &self.outboxes[worker as usize];
        let sorted = self.sorts_rows();
        let add = entry.and_then(|entry| {
            let lent = match entry.lent {
                Some(lent) => Some(self.place.arrays.lent(lent, entry.delta.len())?),
                None => None,
            };
            Some(Add { worker, options: AddOptions::from_bits(entry.options), entry, outbox, lent, sorted })
        });
        let row_bytes = self.cols as usize * self.dtype.size();
        add.filter(|add| {
            let rows = add.ids().map(<[i64]>::len);
            add.entry.delta.len() == rows.map_or(self.bytes(), |rows| rows * row_bytes)
        })
        .ok_or_else(|| Error::System {
            operation: self.operation("add"),
            detail: format!("add {sequence} of worker {worker} makes no sense in shared memory\nhint: do all processes run the same version of Syncline?"),
        })
    }

    /// Applies everything a worker has published. The last add hands its result to `emit` if it covers the whole share.
    ///
    /// True when all values went to `emit`: the last add covered the whole share and was applied from its beginning by this call.
    /// Another thread of this process, or a rescuer, may have applied it meanwhile, or a part of it.
    pub(crate) fn apply_published(&self, worker: u32, emit: Option<&mut dyn Emit>, by: Deadline) -> Result<bool, Error> {
        let lock = |tally| Tally::lock(tally, || self.operation("applying adds"), by);
        let _no_more_comes = self.tally.as_ref().map(lock).transpose()?;
        self.apply_all_published(worker, emit, by)
    }

    /// The same for who has the lock of the tally in hand, where there is one.
    pub(super) fn apply_all_published(&self, worker: u32, mut emit: Option<&mut dyn Emit>, by: Deadline) -> Result<bool, Error> {
        let outbox = &self.outboxes[worker as usize];
        let backs_up = self.place.spec.updater.backup_lane(worker, self.place.workers.len() as u32).is_some();
        let mut hand = self.hand(by)?;
        let mut emitted = false;
        let published = outbox.published();
        let tally = outbox.tally();
        let first = if tally.is_some() { published } else { outbox.applied() + 1 };
        for sequence in first..=published {
            let add = self.add_of(worker, sequence, tally.clone().or_else(|| outbox.entry(sequence)))?;
            if add.entry.ids.is_none() {
                self.take_turns(&hand, worker, sequence);
            }
            let last = sequence == published && add.entry.ids.is_none();
            let emit = if last { emit.as_mut().map(|emit| &mut **emit as &mut dyn Emit) } else { None };
            emitted = emit.is_some() && !backs_up && outbox.progress(sequence) == 0;
            match add.ids() {
                _ if self.gradient.is_some() => self.step_published(&mut hand, &add, emit, by)?,
                None => self.apply_whole(&mut hand, &add, emit, by)?,
                Some(ids) => self.apply_rows(&mut hand, &add, ids, by)?,
            }
            if let (Some(tally), Some(gradient)) = (&tally, &self.gradient) {
                gradient.count_sum(self.store.header().count(), &AddOptions::from_bits(tally.options));
            }
            outbox.set_applied(sequence);
        }
        Ok(emitted)
    }

    /// The stripe a worker begins with, so that workers at the same point work on different stripes.
    pub(crate) fn first_stripe(&self, worker: u32) -> usize {
        let stripes = self.store.layout().stripes();
        // A worker from elsewhere is served in order, so that its result can be sent while it is made.
        if !self.place.hands.contains(&self.place.workers[worker as usize]) {
            return 0;
        }
        worker as usize * stripes / self.place.workers.len().max(1)
    }

    fn apply_whole(&self, hand: &mut Hand, add: &Add<'_>, mut emit: Option<&mut dyn Emit>, by: Deadline) -> Result<(), Error> {
        let (stripes, element) = (self.store.layout().stripes(), self.dtype.size());
        let first = self.first_stripe(add.worker);
        let backs_up = self.place.spec.updater.backup_lane(add.worker, self.place.workers.len() as u32).is_some();
        if backs_up {
            emit = None; // The get that follows must leave its copy in the backup lane too.
        }
        let before = add.outbox.progress(add.entry.sequence);
        let mut passed = 0;
        for turn in 0..stripes {
            let index = (first + turn) % stripes;
            let elements = self.store.elements_of(index);
            let bytes = (elements.end - elements.start) * element as u64;
            if passed + bytes <= before {
                passed += bytes; // A rescuer goes on where the dead one stopped.
                continue;
            }
            let mut at = elements.start + before.saturating_sub(passed) / element as u64;
            passed += (at - elements.start) * element as u64;
            let mut hold = self.take(hand, index, by)?;
            while at < elements.end {
                let end = (at + self.block).min(elements.end);
                let delta = add.delta(at as usize * element..end as usize * element);
                passed += delta.len() as u64;
                self.change(&mut hold, at..end, add, delta, passed, emit.as_deref_mut());
                at = end;
            }
            drop(hold);
            if let Some(emit) = emit.as_deref_mut() {
                emit.stripe_done()?;
            }
        }
        Ok(())
    }

    fn apply_rows(&self, hand: &mut Hand, add: &Add<'_>, ids: &[i64], by: Deadline) -> Result<(), Error> {
        const AHEAD: usize = 8;
        self.check_rows("add", ids)?;
        let row_bytes = self.cols as usize * self.dtype.size();
        let stripe = self.store.layout().stripe;
        let first_of = |id: i64| (id as u64 - self.place.rows.start) * self.cols;
        let before = add.outbox.progress(add.entry.sequence) as usize;
        let mut row = before.checked_div(row_bytes).unwrap_or(ids.len());
        // Where a row lies across stripes, or is wider than a block, it is applied in pieces.
        let mut inside = (before % row_bytes.max(1) / self.dtype.size()) as u64;
        while row < ids.len() {
            let index = self.store.stripe_of(first_of(ids[row]) + inside);
            let mut hold = self.take(hand, index, by)?;
            while row < ids.len() && self.store.stripe_of(first_of(ids[row]) + inside) == index {
                if let Some(ahead) = ids.get(row + AHEAD) {
                    let first = first_of(*ahead);
                    self.store.prefetch(0, first..first + self.cols, true);
                }
                let first = first_of(ids[row]);
                let at = first + inside;
                let end = (at + self.block).min(first + self.cols).min((index as u64 + 1) * stripe);
                let from = row * row_bytes + inside as usize * self.dtype.size();
                let delta = add.delta(from..from + (end - at) as usize * self.dtype.size());
                self.change(&mut hold, at..end, add, delta, (from + delta.len()) as u64, None);
                inside += end - at;
                if inside == self.cols {
                    (row, inside) = (row + 1, 0);
                }
            }
        }
        Ok(())
    }

    /// Applies one block of one add under a redo record that tells its outbox how far it has come.
    #[inline]
    fn change(
        &self,
        hold: &mut Hold<'_>,
        elements: Range<u64>,
        add: &Add<'_>,
        delta: &[u8],
        passed: u64,
        emit: Option<&mut (dyn Emit + '_)>,
    ) {
        let sequence = add.entry.sequence;
        let progress =
            Progress::Outbox { worker: add.worker, word: add.outbox.progress_word(), value: Outbox::progress_value(sequence, passed) };
        self.change_block(hold, elements, add.author(), delta, progress, emit);
    }

    /// Applies one block of one add.
    #[inline]
    pub(crate) fn change_block(
        &self,
        hold: &mut Hold<'_>,
        elements: Range<u64>,
        author: Author<'_>,
        delta: &[u8],
        progress: Progress<'_>,
        emit: Option<&mut (dyn Emit + '_)>,
    ) {
        let updater = self.place.spec.updater;
        let epoch = self.store.header().epoch().get_ordered();
        if updater.is_stateless() {
            hold.change_values(elements.clone(), progress, |old, new| {
                let states_new: [&mut [u8]; 2] = [&mut [], &mut []];
                let block = Block { old, delta, new: &mut *new, states_old: [&[], &[]], states_new };
                self.apply_and_emit(author.options, block, elements.start, emit);
                if epoch != 0 {
                    self.stamp(author.worker, elements.start, old, new);
                }
            });
            return;
        }
        let (touched, states) = updater.lanes_touched(author.worker, self.place.workers.len() as u32);
        let lanes = [0, touched[0] + 1, touched[1] + 1];
        hold.change(elements.clone(), &lanes[..1 + states], progress, |old, mut new| {
            let [values, first, second] = &mut new;
            let block = Block { old: old[0], delta, new: values, states_old: [old[1], old[2]], states_new: [first, second] };
            self.apply_and_emit(author.options, block, elements.start, emit);
            if epoch != 0 {
                self.stamp(author.worker, elements.start, old[0], new[0]);
            }
        });
    }

    /// Computes the new values of a block that begins at element `first`, and hands them on while they are at hand.
    #[inline]
    pub(crate) fn apply_and_emit(&self, options: &AddOptions, block: Block<'_>, first: u64, emit: Option<&mut (dyn Emit + '_)>) {
        let (updater, dtype) = (self.place.spec.updater, self.dtype);
        let Some(emit) = emit else { return apply(updater, dtype, options, block) };
        let past_cache = emit.past_cache();
        if let Some(place) = emit.place(first, block.new.len()) {
            return apply_into_both(updater, dtype, options, block, place, past_cache);
        }
        let Block { old, delta, new, states_old, states_new } = block;
        apply(updater, dtype, options, Block { old, delta, new: &mut *new, states_old, states_new });
        emit.block(first, new);
    }
}
