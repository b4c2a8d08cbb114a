//! Norms of the whole array, measured before any of its numbers changes: LAMB and LARS.
//!
//! The array is measured in pieces of about a stripe that begin on whole cells ([`CELL`]), so that the sums do not depend on how stripes are cut.
//! A piece is copied first and measured then; with the stripe of the same number in hand it is written down, if the round has not come
//! to that stripe and nobody else was quicker. As long as one piece is missing nothing has changed, so what was copied was right.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{Block, CELL, NORM_WORDS, Norms, Start, Step};
use syncline_shm::store::{Hand, Layout};
use syncline_tensor::kernels::cast;

use super::counts::Stamp;
use super::sums::{Room, Sum};
use super::{Resolved, RoundStep};
use crate::share::{Add, LocalShare, all_done};

/// No number, in a word.
const NONE: u64 = u64::MAX;

/// How many pieces a store of this layout is measured in: never more than it has stripes.
pub(crate) fn pieces(layout: &Layout) -> usize {
    layout.elements.div_ceil(piece_elements(layout)) as usize
}

fn piece_elements(layout: &Layout) -> u64 {
    layout.stripe.next_multiple_of(CELL as u64)
}

impl LocalShare {
    fn check_whole(&self, step: &Step) -> Result<(), Error> {
        let all = self.place.spec.rows_and_cols().map_or(0, |(rows, _)| rows);
        match !step.needs_norms() || self.place.rows == (0..all) {
            true => Ok(()),
            false => Err(Error::Configuration {
                detail: format!(
                    "{}: its optimizer needs norms of the whole array, of which only rows {:?} live here\nhint: place such tables whole",
                    self.operation("add"),
                    self.place.rows
                ),
            }),
        }
    }

    /// Gives the step of a round its norms, measuring what nobody has measured yet. False when the round is over.
    pub(crate) fn measure_round(&self, me: u32, round: u64, adds: &[Add<'_>], step: &mut RoundStep, by: Deadline) -> Result<bool, Error> {
        let Some(unmeasured) = step.resolved.step.as_ref().filter(|step| step.needs_norms()) else { return Ok(true) };
        self.check_whole(unmeasured)?;
        let pieces = self.store.layout().measures;
        let first = self.first_stripe(me) % pieces.max(1);
        for piece in (first..pieces).chain(0..first) {
            let measure = self.store.measure(piece);
            if measure.tag.get() == round {
                continue;
            }
            let mut hand = self.hand(by)?;
            let norms = self.measure(&mut hand, self.piece(piece), &self.sum(adds), &step.resolved, by)?;
            let hold = self.take(&mut hand, piece, by)?;
            if self.store.header().rounds().get() >= round {
                return Ok(false);
            }
            if measure.tag.get() != round && hold.progress() != all_done(round) {
                measure.words.iter().zip(norms.to_words()).for_each(|(word, value)| word.set(value));
                measure.tag.set(round);
            }
        }
        let mut norms = Norms::default();
        for piece in 0..pieces {
            let words = &self.store.measure(piece).words;
            norms.merge(&Norms::from_words(&std::array::from_fn::<u64, NORM_WORDS, _>(|index| words[index].get())));
        }
        step.resolved.step = Some(unmeasured.with_norms(&norms));
        Ok(true)
    }

    /// The step of an async add with its norms, noted in its outbox before anything changes: a rescuer must find the same. So must it the
    /// rate of the update before, which the store remembers.
    pub(crate) fn measure_add(&self, hand: &mut Hand, add: &Add<'_>, stamp: Stamp, by: Deadline) -> Result<Resolved, Error> {
        let [tag, weight, update, last_rate] = add.outbox.notes();
        let remembered = self.store.header().notes(0);
        let generation = u64::from(self.gradient().rule(stamp.page)?.generation());
        if tag.get() != add.entry.sequence {
            let known = remembered[0].get() == generation;
            last_rate.set(if known { remembered[1].get() } else { NONE });
        }
        let after = Some(last_rate.get()).filter(|bits| *bits != NONE).map(f64::from_bits);
        let (mut resolved, rate) = self.gradient().resolve_add_after(stamp, after)?;
        let Some(step) = resolved.step.clone() else { return Ok(resolved) };
        self.check_whole(&step)?;
        if tag.get() != add.entry.sequence {
            let everything = 0..self.store.layout().elements;
            let norms = match step.needs_norms() {
                true => self.measure(hand, everything, &self.sum(std::slice::from_ref(add)), &resolved, by)?,
                false => Norms::default(),
            };
            let values = norms.values();
            weight.set(values[0].to_bits());
            update.set(values[1].to_bits());
            tag.set(add.entry.sequence);
        }
        remembered[1].set(rate.to_bits());
        remembered[0].set(generation);
        resolved.step = Some(step.with_norm_values([weight, update].map(|word| f64::from_bits(word.get()))));
        Ok(resolved)
    }

    fn piece(&self, piece: usize) -> Range<u64> {
        let (elements, length) = (self.store.layout().elements, piece_elements(self.store.layout()));
        (piece as u64 * length).min(elements)..((piece as u64 + 1) * length).min(elements)
    }

    /// Measures elements as they stand, from a whole cell on.
    fn measure(&self, hand: &mut Hand, elements: Range<u64>, sum: &Sum<'_>, resolved: &Resolved, by: Deadline) -> Result<Norms, Error> {
        let Some(step) = &resolved.step else { return Ok(Norms::default()) };
        let (mut norms, mut room) = (Norms::default(), Room::default());
        let mut weight = Vec::new();
        let mut lanes: Vec<Vec<u8>> = vec![Vec::new(); resolved.rule.lanes.len()];
        for at in elements.clone().step_by(CELL) {
            let cell = at..(at + CELL as u64).min(elements.end);
            self.copy_elements(hand, 0, cell.clone(), resolved, &mut weight, by)?;
            for (lane, bytes) in (1..).zip(&mut lanes) {
                self.copy_elements(hand, lane, cell.clone(), resolved, bytes, by)?;
            }
            let (grad_dtype, grad) = sum.block(cell.clone(), &mut room);
            let mut states: Vec<&mut [u8]> = lanes.iter_mut().map(Vec::as_mut_slice).collect();
            let block = Block { dtype: self.dtype, at, weight: &mut weight, grad_dtype, grad, states: &mut states };
            let measured = step.measure(&block);
            let measured = measured.map_err(|error| Error::System { operation: self.operation("add"), detail: error.to_string() })?;
            norms.merge(&measured);
        }
        Ok(norms)
    }

    /// Elements of a lane as they are, or as they will begin where their stripe has not come to the rule's generation.
    pub(crate) fn copy_elements(
        &self,
        hand: &mut Hand,
        lane: usize,
        elements: Range<u64>,
        resolved: &Resolved,
        out: &mut Vec<u8>,
        by: Deadline,
    ) -> Result<(), Error> {
        let width = self.store.layout().lanes[lane];
        out.clear();
        out.resize((elements.end - elements.start) as usize * width, 0);
        let mut at = elements.start;
        while at < elements.end {
            let index = self.store.stripe_of(at);
            let end = self.store.elements_of(index).end.min(elements.end);
            let bytes = (at - elements.start) as usize * width..(end - elements.start) as usize * width;
            let room = &mut out[bytes];
            let begun = self.store.stripe(index).generation.get() >> 40 == u64::from(resolved.rule.generation());
            match lane.checked_sub(1).filter(|_| !begun).map(|state| &resolved.rule.lanes[state]) {
                None => self.copy_piece(hand, lane, at..end, room, by)?,
                Some(info) if info.start == Start::Weights => {
                    let mut values = vec![0; (end - at) as usize * self.dtype.size()];
                    self.copy_piece(hand, 0, at..end, &mut values, by)?;
                    let done = cast(self.dtype, &values, info.dtype, room);
                    assert!(done.is_ok(), "states of {} from values of {}: {done:?}", info.dtype, self.dtype);
                }
                Some(_) => {}
            }
            at = end;
        }
        Ok(())
    }

    /// Elements of one stripe, with this hand to inherit from the dead.
    fn copy_piece(&self, hand: &mut Hand, lane: usize, elements: Range<u64>, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        while self.store.try_read(lane, elements.clone(), out).is_err() {
            drop(self.take(hand, self.store.stripe_of(elements.start), by)?);
        }
        Ok(())
    }
}
