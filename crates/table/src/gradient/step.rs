//! Steps of async adds, one after the other: through the outbox, or directly.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{Also, Block, Start};
use syncline_shm::bulletin::Number;
use syncline_shm::outbox::Outbox;
use syncline_shm::store::{Hand, Hold, Progress};
use syncline_tensor::kernels::cast;

use super::counts::Stamp;
use super::sums::{Numbers, Room, Sum};
use super::{Gradient, Resolved, Rule};
use crate::AddOptions;
use crate::share::{Add, Emit, LocalShare};

impl LocalShare {
    pub(crate) fn gradient(&self) -> &Gradient {
        self.gradient.as_ref().expect("a gradient table")
    }

    /// The options of an add that is staged here: those it came with, or a stamp.
    pub(crate) fn stamped(&self, options: &AddOptions) -> Result<AddOptions, Error> {
        let Some(gradient) = &self.gradient else { return Ok(*options) };
        if self.counts_adds() {
            // Counted where the key lives, whatever its author says.
            return Ok(gradient.stamp(Some(self.store.header().count()))?.to_options());
        }
        match Stamp::of_options(options) {
            Some(_) => Ok(*options),
            None => Ok(gradient.stamp(None)?.to_options()),
        }
    }

    /// Applies one add of an async table.
    pub(crate) fn step_published(&self, hand: &mut Hand, add: &Add<'_>, emit: Option<&mut dyn Emit>, by: Deadline) -> Result<(), Error> {
        let stamp = Stamp::of_options(&add.options).ok_or_else(|| Error::System {
            operation: self.operation("add"),
            detail: format!("add {} of worker {} does not say by which rule it goes", add.entry.sequence, add.worker),
        })?;
        if let Some(ids) = add.ids() {
            self.check_rows("add", ids)?;
        }
        let mut resolved = match self.gradient().rule(stamp.page)?.needs_norms() {
            true => self.measure_add(hand, add, stamp, by)?,
            false => self.gradient().resolve_add(stamp)?,
        };
        if add.entry.ids.is_none() {
            return self.step_whole(hand, add, &resolved, emit, by);
        }
        resolved = resolved.of_rows();
        match resolved.is_lazy() {
            true => self.step_rows(hand, add, &resolved, by),
            false => self.step_whole(hand, add, &resolved, emit, by),
        }
    }

    /// All elements of the share, stripe by stripe from a place that depends on the worker.
    fn step_whole(
        &self,
        hand: &mut Hand,
        add: &Add<'_>,
        resolved: &Resolved,
        mut emit: Option<&mut dyn Emit>,
        by: Deadline,
    ) -> Result<(), Error> {
        let (stripes, element) = (self.store.layout().stripes(), self.dtype.size() as u64);
        let first = self.first_stripe(add.worker);
        let before = add.outbox.progress(add.entry.sequence);
        let mut room = Room::default();
        let mut passed = 0;
        for turn in 0..stripes {
            let index = (first + turn) % stripes;
            let elements = self.store.elements_of(index);
            let bytes = (elements.end - elements.start) * element;
            if passed + bytes <= before {
                passed += bytes; // A rescuer goes on where the dead one stopped.
                continue;
            }
            let mut at = elements.start + before.saturating_sub(passed) / element;
            passed += (at - elements.start) * element;
            let mut hold = self.take(hand, index, by)?;
            let late = self.begin_states(&mut hold, resolved)?;
            let resolved = late.as_deref().unwrap_or(resolved);
            let block = if resolved.rule.touched.len() == 1 { self.block_of_values } else { self.block };
            while at < elements.end {
                let end = (at + block).min(elements.end);
                passed += (end - at) * element;
                let sum = self.sum(std::slice::from_ref(add)).block(at..end, &mut room);
                self.step_block(&mut hold, at..end, resolved, sum, self.progress_of(add, passed), add.worker, emit.as_deref_mut());
                at = end;
            }
            drop(hold);
            if let Some(emit) = emit.as_deref_mut() {
                emit.stripe_done()?;
            }
        }
        Ok(())
    }

    /// The rows of an add, which stand sorted, repeated ones together. As with whole shares each worker begins elsewhere: two that went
    /// through the same stripes side by side would take each one's words out of the other's cache.
    fn step_rows(&self, hand: &mut Hand, add: &Add<'_>, resolved: &Resolved, by: Deadline) -> Result<(), Error> {
        const AHEAD: usize = 8;
        let (ids, places) = (add.ids().unwrap_or_default(), add.places());
        let size = self.dtype.size();
        let row_bytes = self.cols as usize * size;
        let first_of = |id: i64| (id as u64 - self.place.rows.start) * self.cols;
        let start = self.store.elements_of(self.first_stripe(add.worker)).start;
        let split = ids.partition_point(|id| first_of(*id) < start);
        // The row that comes so late, counted from the first one that this worker begins with.
        let at = |row: usize| if row < ids.len() - split { split + row } else { split + row - ids.len() };
        let before = add.outbox.progress(add.entry.sequence) as usize;
        let mut row = before.checked_div(row_bytes).unwrap_or(ids.len());
        let mut inside = (before % row_bytes.max(1) / size) as u64;
        let sum = self.sum(std::slice::from_ref(add));
        let mut room = Room::default();
        while row < ids.len() {
            let index = self.store.stripe_of(first_of(ids[at(row)]) + inside);
            let mut hold = self.take(hand, index, by)?;
            let late = self.begin_states(&mut hold, resolved)?.map(|late| late.of_rows());
            let resolved = late.as_ref().unwrap_or(resolved);
            let limit = self.store.elements_of(index).end;
            while row < ids.len() && self.store.stripe_of(first_of(ids[at(row)]) + inside) == index {
                let here = at(row);
                if row + AHEAD < ids.len() {
                    let first = first_of(ids[at(row + AHEAD)]);
                    resolved.rule.touched.iter().for_each(|lane| self.store.prefetch(*lane, first..first + self.cols, true));
                    add.ask_for(places[at(row + AHEAD)] as usize, row_bytes); // Sorted ids are rows from all over the delta.
                }
                let first = first_of(ids[here]);
                let same = ids[here..].iter().take_while(|id| **id == ids[here]).count();
                let piece = first + inside..(first + inside + self.block).min(first + self.cols).min(limit);
                let parts = places[here..here + same].iter().map(|place| sum.piece(add, *place, first, piece.clone()));
                let grad = room.sum_of(self.dtype, parts);
                let done = piece.end == first + self.cols;
                let passed = if done { (row + same) * row_bytes } else { row * row_bytes + (piece.end - first) as usize * size };
                let progress = self.progress_of(add, passed as u64);
                self.step_block(&mut hold, piece.clone(), resolved, grad, progress, add.worker, None);
                (row, inside) = if done { (row + same, 0) } else { (row, piece.end - first) };
            }
        }
        Ok(())
    }

    fn progress_of<'a>(&self, add: &'a Add<'_>, passed: u64) -> Progress<'a> {
        let value = Outbox::progress_value(add.entry.sequence, passed);
        Progress::Outbox { worker: add.worker, word: add.outbox.progress_word(), value }
    }

    pub(crate) fn sum<'a>(&self, adds: &'a [Add<'a>]) -> Sum<'a> {
        Sum { adds, dtype: self.dtype, cols: self.cols, first_row: self.place.rows.start }
    }

    /// Makes the stripe's states those of the rule's generation. Where a newer one has begun, what to do instead.
    #[inline(always)] // Nearly always there is nothing to do, and the answer is larger than the question.
    pub(crate) fn begin_states(&self, hold: &mut Hold<'_>, resolved: &Resolved) -> Result<Option<Box<Resolved>>, Error> {
        let found = hold.generation();
        if found >> 40 == u64::from(resolved.rule.generation()) || resolved.step.is_none() {
            return Ok(None);
        }
        self.begin_states_anew(hold, resolved, Number::of_word(found))
    }

    #[cold]
    fn begin_states_anew(&self, hold: &mut Hold<'_>, resolved: &Resolved, found: Number) -> Result<Option<Box<Resolved>>, Error> {
        let rule = &resolved.rule;
        if found.chapter > rule.generation() {
            return self.gradient().resolve_late(found.page).map(|late| Some(Box::new(late)));
        }
        self.take_memory(rule)?;
        self.start_states(hold, rule);
        Ok(None)
    }

    /// Takes the memory of the states, once, unless the table is so large that it is taken row by row.
    fn take_memory(&self, rule: &Rule) -> Result<(), Error> {
        const TAKEN_AT_ONCE: usize = 1 << 30;
        let reserved = self.store.header().reserved();
        let (before, wanted) = (reserved.get(), rule.lanes.len() as u64);
        let states: usize = self.store.layout().lanes[1..=rule.lanes.len()].iter().sum();
        if before >= wanted || states as u64 * self.store.layout().elements > TAKEN_AT_ONCE as u64 || !reserved.exchange(before, wanted) {
            return Ok(());
        }
        self.store.reserve_lanes(before as usize + 1..wanted as usize + 1).map_err(|error| {
            reserved.exchange(wanted, before);
            Error::System { operation: self.operation("states of an optimizer"), detail: error.to_string() }
        })
    }

    /// States as they begin, in all of a stripe. Who dies meanwhile has not said so, and the next one does it again.
    pub(crate) fn start_states(&self, hold: &mut Hold<'_>, rule: &Rule) {
        let elements = self.store.elements_of(hold.index());
        for (lane, info) in (1..).zip(&rule.lanes) {
            match info.start {
                Start::Zeros => hold.contents_mut(lane, elements.clone()).fill(0),
                Start::Weights => {
                    let values = hold.contents(0, elements.clone()).to_vec();
                    let done = cast(self.dtype, &values, info.dtype, hold.contents_mut(lane, elements.clone()));
                    assert!(done.is_ok(), "states of {} from values of {}: {done:?}", info.dtype, self.dtype);
                }
            }
        }
        hold.set_generation(rule.number.to_word());
    }

    /// One block takes its step under a redo record.
    #[allow(clippy::too_many_arguments, reason = "one step of several loops")]
    #[inline]
    pub(crate) fn step_block(
        &self,
        hold: &mut Hold<'_>,
        elements: Range<u64>,
        resolved: &Resolved,
        (grad_dtype, grad): Numbers<'_>,
        progress: Progress<'_>,
        author: u32,
        emit: Option<&mut (dyn Emit + '_)>,
    ) {
        let epoch = self.store.header().epoch().get_ordered();
        let stamp = |old: &[u8], new: &[u8]| {
            if epoch != 0 {
                self.stamp(author, elements.start, old, new);
            }
        };
        let Some(step) = &resolved.step else {
            hold.change_values(elements.clone(), progress, |old, new| {
                let done = cast(grad_dtype, grad, self.dtype, new);
                assert!(done.is_ok(), "{grad_dtype} becomes {}: {done:?}", self.dtype);
                stamp(old, new);
                if let Some(emit) = emit {
                    emit.block(elements.start, new);
                }
            });
            return;
        };
        let at = self.place.rows.start * self.cols + elements.start;
        if let [_] = resolved.rule.touched[..] {
            hold.change_values(elements.clone(), progress, |old, new| {
                let block = Block { dtype: self.dtype, at, weight: &mut *new, grad_dtype, grad, states: &mut [] };
                let done = match emit {
                    None => step.apply_from(old, block, None),
                    Some(emit) => {
                        let past_cache = emit.past_cache();
                        match emit.place(elements.start, old.len()) {
                            Some(bytes) => step.apply_from(old, block, Some(Also { bytes, past_cache })),
                            None => step.apply_from(old, block, None).map(|()| emit.block(elements.start, new)),
                        }
                    }
                };
                assert!(done.is_ok(), "a step on {}: {done:?}", self.dtype);
                stamp(old, new);
            });
            return;
        }
        hold.rewrite(elements.clone(), &resolved.rule.touched, progress, |old, values, states| {
            let done = step.apply(Block { dtype: self.dtype, at, weight: &mut *values, grad_dtype, grad, states });
            assert!(done.is_ok(), "a step on {}: {done:?}", self.dtype);
            stamp(old, values);
            if let Some(emit) = emit {
                emit.block(elements.start, values);
            }
        });
    }
}
