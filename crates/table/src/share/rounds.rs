//! Applies rounds: the r-th adds of all workers together, stripe by stripe, on each in order of worker.
//!
//! Many processes do it at once, each beginning elsewhere, and share the stripes among them. What is done on a stripe is
//! a sequence of *steps* that everyone derives alike from the adds of the round; the stripe's progress word says how
//! many are done, so that whoever inherits a stripe goes on with the right one.
//!
//! An outbox is used again once the store counts its round as done on every stripe. So nothing of a round may be
//! believed without having seen, with the stripe in hand, that the store does not count the round yet.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_shm::store::{Hand, Hold, Progress};

use super::apply::Add;
use super::local::BLOCK;
use super::{Emit, LocalShare};
use crate::gradient::RoundStep;
use crate::updater::{Block, apply, apply_in_place};

/// The word of a stripe whose round is done.
pub(crate) fn all_done(round: u64) -> u64 {
    word(round, ALL_STEPS)
}

/// How many steps of a round are done on a stripe whose word says `progress`.
pub(crate) fn steps_done(progress: u64, round: u64) -> u64 {
    if progress >> 32 == round & 0xffff_ffff { progress & ALL_STEPS } else { 0 }
}

/// Steps of a stripe are counted in the low half of its word, the round in the high half.
const ALL_STEPS: u64 = 0xffff_ffff;
/// Set beside the count where a step is a block with all adds, and not a block with one of them.
const ALL_ADDS_AT_ONCE: u64 = 1 << 31;

fn word(round: u64, steps: u64) -> u64 {
    (round & 0xffff_ffff) << 32 | steps
}

impl LocalShare {
    /// Waits for the adds of the rounds up to `goal` and applies them. The last one hands the values to `emit`.
    pub(crate) fn finish_rounds(
        &self,
        worker: u32,
        goal: u64,
        what: &str,
        mut emit: Option<&mut dyn Emit>,
        by: Deadline,
    ) -> Result<(), Error> {
        let rounds = self.store.header().rounds();
        let mut emitted = false;
        loop {
            // Looked at once: others count rounds too, and the one after `goal` needs this worker's next add.
            let round = rounds.get() + 1;
            if round > goal {
                break;
            }
            self.wait_for_round(what, worker, round, by)?;
            let emit = if round == goal { emit.as_mut().map(|emit| &mut **emit as &mut dyn Emit) } else { None };
            emitted = self.finish_round(worker, round, emit, by)?;
        }
        match emit {
            Some(emit) if !emitted => self.read_all(worker, emit, by),
            _ => Ok(()),
        }
    }

    /// Applies one round, whose adds are all published, together with whoever else does. True when everything was emitted.
    fn finish_round(&self, me: u32, round: u64, mut emit: Option<&mut dyn Emit>, by: Deadline) -> Result<bool, Error> {
        let Some(adds) = self.adds_of(round)? else { return Ok(false) };
        let mut step = self.round_step(round, &adds)?;
        if let Some(step) = &mut step
            && !self.measure_round(me, round, &adds, step, by)?
        {
            return Ok(false); // The others were quicker.
        }
        let close = || match &step {
            Some(step) => self.close_round(step, by),
            None => {
                self.store.header().rounds().raise(round);
                Ok(())
            }
        };
        let whole = adds.iter().any(|add| add.entry.ids.is_none()) || step.as_ref().is_some_and(|step| !step.rows_only);
        if !whole && self.has_parts(&adds) {
            self.finish_parts(round, &adds, step.as_ref(), by)?;
            close()?;
            return Ok(false);
        }
        let stripes = self.store.layout().stripes();
        let backs_up = self.place.spec.updater.backup_lane(me, self.place.workers.len() as u32).is_some();
        if !whole || backs_up {
            emit = None;
        }
        let first = self.first_stripe(me);
        let touched: Vec<usize> =
            if whole { (0..stripes).map(|turn| (first + turn) % stripes).collect() } else { self.stripes_touched(&adds, first) };
        let mut later = Vec::new();
        let mut buffer = Vec::new();
        for index in touched {
            if !self.advance(index, round, &adds, step.as_ref(), emit.as_deref_mut(), &mut buffer, None)? {
                later.push(index); // Somebody else is at it: do another one first.
            }
        }
        for index in later {
            self.advance(index, round, &adds, step.as_ref(), emit.as_deref_mut(), &mut buffer, Some(by))?;
        }
        close()?;
        Ok(emit.is_some())
    }

    /// The adds of a round, in order of worker; none when the round turns out to be done.
    pub(super) fn adds_of(&self, round: u64) -> Result<Option<Vec<Add<'_>>>, Error> {
        let mut adds = Vec::with_capacity(self.outboxes.len());
        for (worker, outbox) in self.outboxes.iter().enumerate() {
            if outbox.published() >= round {
                match self.published_add(worker as u32, round) {
                    Ok(add) => adds.push(add),
                    // Its outbox may be in use for a later round already.
                    Err(_) if self.store.header().rounds().get() >= round => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((self.store.header().rounds().get() < round).then_some(adds))
    }

    /// The stripes that a round of rows touches, from `first` on and around.
    fn stripes_touched(&self, adds: &[Add<'_>], first: usize) -> Vec<usize> {
        let (start, stripe) = (self.place.rows.start, self.store.layout().stripe);
        let rows = if self.cols == 0 { 0 } else { self.place.rows.end - start };
        let mut touched = Vec::new();
        for id in adds.iter().filter_map(Add::ids).flatten() {
            // Whoever comes late may read ids of a later round: any row will do then, but it must be one.
            let Some(row) = (*id as u64).checked_sub(start).filter(|row| *row < rows) else { continue };
            let (from, to) = (row * self.cols / stripe, ((row + 1) * self.cols - 1) / stripe);
            touched.extend((from..=to).map(|index| index as usize));
        }
        touched.sort_unstable();
        touched.dedup();
        let split = touched.partition_point(|index| *index < first);
        touched.rotate_left(split);
        touched
    }

    /// Brings one stripe to the end of the round. False when somebody else holds it and `wait` allows no waiting.
    #[allow(clippy::too_many_arguments, reason = "one step of one loop, told apart for its name")]
    fn advance(
        &self,
        index: usize,
        round: u64,
        adds: &[Add<'_>],
        step: Option<&RoundStep>,
        mut emit: Option<&mut (dyn Emit + '_)>,
        buffer: &mut Vec<u8>,
        wait: Option<Deadline>,
    ) -> Result<bool, Error> {
        let elements = self.store.elements_of(index);
        let mut emitted = false;
        if self.store.stripe(index).progress.get() != all_done(round) {
            let mut hand = match (wait, self.hand.try_lock()) {
                (_, Ok(hand)) => hand,
                (Some(by), Err(_)) => self.hand(by)?,
                (None, Err(_)) => return Ok(false), // Another thread has it out.
            };
            let hand: &mut Hand = &mut hand;
            let hold = match wait {
                Some(by) => Some(self.take(hand, index, by)?),
                None => self.take_if_free(hand, index),
            };
            let Some(mut hold) = hold else { return Ok(false) };
            let progress = hold.progress();
            // The store's count is looked at with the stripe in hand: see the head of this file.
            if self.store.header().rounds().get() < round && progress != all_done(round) {
                let done = steps_done(progress, round);
                match step {
                    Some(step) => {
                        let mut steps = Steps { taken: 0, done, round };
                        let emit = emit.as_deref_mut().filter(|_| done == 0);
                        self.step_stripe(&mut hold, elements.clone(), step, &mut steps, adds, emit)?;
                    }
                    None => self.apply_round(&mut hold, elements.clone(), round, done, adds, emit.as_deref_mut()),
                }
                hold.set_progress(all_done(round));
                emitted = done == 0;
            }
        }
        let Some(emit) = emit else { return Ok(true) };
        if !emitted {
            self.read_stripe(elements, emit, buffer, wait.unwrap_or_else(|| Deadline::after(self.place.vigil.timeout())))?;
        }
        emit.stripe_done()?; // Slow, perhaps: nothing is in hand any more.
        Ok(true)
    }

    /// The steps of a round on one stripe, from number `done` on. Emits only when it begins with the first.
    pub(super) fn apply_round(
        &self,
        hold: &mut Hold<'_>,
        elements: Range<u64>,
        round: u64,
        done: u64,
        adds: &[Add<'_>],
        emit: Option<&mut (dyn Emit + '_)>,
    ) {
        let emit = emit.filter(|_| done == 0);
        let asked_for_changes = self.store.header().epoch().get_ordered() != 0;
        let at_once = match done {
            0 => !asked_for_changes && self.place.spec.updater.is_stateless() && adds.iter().all(|add| add.entry.ids.is_none()),
            // Somebody died in the middle: its steps are gone on with as they were counted, whoever has asked for changed rows since.
            _ => done & ALL_ADDS_AT_ONCE != 0,
        };
        if at_once {
            self.apply_whole_adds(hold, elements, round, done & !ALL_ADDS_AT_ONCE, adds, emit);
            if asked_for_changes {
                self.stamp_all_of(hold.index());
            }
        } else {
            self.apply_one_by_one(hold, elements.clone(), round, done, adds);
            if let Some(emit) = emit {
                emit.block(elements.start, hold.contents(0, elements));
            }
        }
    }

    /// All adds cover everything and need no state: a block is read and written once for all of them.
    fn apply_whole_adds(
        &self,
        hold: &mut Hold<'_>,
        elements: Range<u64>,
        round: u64,
        done: u64,
        adds: &[Add<'_>],
        mut emit: Option<&mut (dyn Emit + '_)>,
    ) {
        let (updater, element) = (self.place.spec.updater, self.dtype.size());
        let mut sum = [0; BLOCK];
        let mut step = 0;
        let mut at = elements.start;
        while at < elements.end {
            let end = (at + self.block).min(elements.end);
            step += 1;
            if step > done {
                let bytes = at as usize * element..end as usize * element;
                hold.change_values(at..end, Progress::Stripe(word(round, ALL_ADDS_AT_ONCE | step)), |old, values| {
                    let Some((last, others)) = adds.split_last() else {
                        values.copy_from_slice(old);
                        if let Some(emit) = emit.as_deref_mut() {
                            emit.block(at, values);
                        }
                        return;
                    };
                    // All but the last add make a sum in the first-level cache, which the last one makes the new values of.
                    let sum = &mut sum[..values.len()];
                    for (index, add) in others.iter().enumerate() {
                        let delta = add.delta(bytes.clone());
                        match index {
                            0 => apply(updater, self.dtype, &add.options, stateless(old, delta, sum)),
                            _ => apply_in_place(updater, self.dtype, sum, delta),
                        }
                    }
                    let old = if others.is_empty() { old } else { sum };
                    self.apply_and_emit(&last.options, stateless(old, last.delta(bytes.clone()), values), at, emit.as_deref_mut());
                });
            }
            at = end;
        }
    }

    /// Row adds, states, or both.
    fn apply_one_by_one(&self, hold: &mut Hold<'_>, elements: Range<u64>, round: u64, done: u64, adds: &[Add<'_>]) {
        let element = self.dtype.size();
        let mut steps = Steps { taken: 0, done, round };
        for add in adds {
            match add.ids() {
                None => self.apply_piece(hold, elements.clone(), add, elements.start as usize * element, &mut steps),
                Some(ids) if self.cols > 0 => {
                    // Ids stand in order, so those of this stripe are one run.
                    let start = self.place.rows.start;
                    let lowest = (elements.start / self.cols + start) as i64;
                    let highest = ((elements.end - 1) / self.cols + start) as i64;
                    let run = ids.partition_point(|id| *id < lowest)..ids.partition_point(|id| *id <= highest);
                    self.apply_run(hold, elements.clone(), add, run, &mut steps);
                }
                Some(_) => {}
            }
        }
    }

    /// The rows of a stripe that one add changes, which are a run of its ids.
    pub(crate) fn apply_run(&self, hold: &mut Hold<'_>, elements: Range<u64>, add: &Add<'_>, run: Range<usize>, steps: &mut Steps) {
        let row_bytes = self.cols as usize * self.dtype.size();
        let ids = &add.ids().unwrap_or_default()[run.clone()];
        for (id, place) in ids.iter().zip(&add.places()[run]) {
            let first = (*id as u64 - self.place.rows.start) * self.cols;
            let piece = first.max(elements.start)..(first + self.cols).min(elements.end);
            let skipped = (piece.start - first) as usize * self.dtype.size();
            self.apply_piece(hold, piece, add, *place as usize * row_bytes + skipped, steps);
        }
    }

    /// Some elements of a stripe and the delta for them, which begins `from` bytes into that of the add: a step for each block.
    #[inline]
    fn apply_piece(&self, hold: &mut Hold<'_>, piece: Range<u64>, add: &Add<'_>, from: usize, steps: &mut Steps) {
        let element = self.dtype.size();
        let mut at = piece.start;
        while at < piece.end {
            let end = (at + self.block).min(piece.end);
            if let Some(progress) = steps.next() {
                let from = from + (at - piece.start) as usize * element;
                let delta = add.delta(from..from + (end - at) as usize * element);
                self.change_block(hold, at..end, add.author(), delta, progress, None);
            }
            at = end;
        }
    }
}

/// A block of values alone.
fn stateless<'a>(old: &'a [u8], delta: &'a [u8], new: &'a mut [u8]) -> Block<'a> {
    Block { old, delta, new, states_old: [&[], &[]], states_new: [&mut [], &mut []] }
}

/// The steps of one round on one stripe, counted.
pub(crate) struct Steps {
    pub(crate) round: u64,
    /// Those that somebody has done before.
    pub(crate) done: u64,
    pub(crate) taken: u64,
}

impl Steps {
    /// Goes one further; what the stripe's word will say then, if there is something to do.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Progress<'static>> {
        self.taken += 1;
        (self.taken > self.done).then(|| Progress::Stripe(word(self.round, self.taken)))
    }
}
