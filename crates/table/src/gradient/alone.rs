//! Steps in place, where nobody could inherit or read half of one: a world of one worker.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::Block;
use syncline_shm::store::{Hand, Hold};
use syncline_tensor::kernels::cast;

use super::Resolved;
use super::sums::{Numbers, Room};
use crate::share::{LocalShare, Selection};

/// How many rows ahead one is asked for.
const AHEAD: usize = 8;

/// Whether an id stands twice. Quicker than sorting them, after which rows would be taken from all over the delta.
fn has_repeats(ids: &[i64]) -> bool {
    if ids.is_sorted_by(|one, next| one < next) {
        return false;
    }
    let cells = (4 * ids.len()).next_power_of_two();
    let mut seen = vec![0i64; cells]; // Ids plus one; zero is a free cell.
    for id in ids {
        let mut at = ((*id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (cells - 1);
        while seen[at] != 0 {
            if seen[at] == id + 1 {
                return true;
            }
            at = (at + 1) & (cells - 1);
        }
        seen[at] = id + 1;
    }
    false
}

impl LocalShare {
    /// Makes the step of one add. False, and nothing done, when it needs more than one pass.
    pub(crate) fn step_alone(&self, rows: Selection<'_>, delta: &[u8], by: Deadline) -> Result<bool, Error> {
        if self.has_unapplied(0) || self.store.header().epoch().get() != 0 {
            return Ok(false);
        }
        self.enter("add")?;
        if let Selection::Rows(ids) = rows {
            self.check_rows("add", ids)?;
        }
        self.gradient().with_step_now(self.store.header().count(), rows, |resolved| {
            let mut hand = self.hand();
            match rows {
                Selection::All => self.step_in_place(&mut hand, resolved, 0..self.store.layout().elements, (self.dtype, delta), by),
                Selection::Rows(ids) if !has_repeats(ids) => self.step_rows_in_place(&mut hand, resolved, ids, |row| row, delta, by),
                Selection::Rows(ids) => {
                    let mut order = vec![0; 2 * ids.len()];
                    self.in_order(ids, &mut order);
                    let (sorted, places) = order.split_at(ids.len());
                    self.step_rows_in_place(&mut hand, resolved, sorted, |row| places[row] as usize, delta, by)
                }
            }?;
            let outbox = &self.outboxes[0];
            outbox.pass(outbox.published() + 1); // Others of its adds may go through the outbox.
            Ok(())
        })
    }

    /// Rows of which those with one id stand together; `place` tells which row of the delta belongs to each.
    fn step_rows_in_place(
        &self,
        hand: &mut Hand,
        resolved: &Resolved,
        ids: &[i64],
        place: impl Fn(usize) -> usize,
        delta: &[u8],
        by: Deadline,
    ) -> Result<(), Error> {
        let row_bytes = self.cols as usize * self.dtype.size();
        let elements = |id: i64| {
            let first = (id as u64 - self.place.rows.start) * self.cols;
            first..first + self.cols
        };
        let mut room = Room::default();
        let mut row = 0;
        while row < ids.len() {
            let index = self.store.stripe_of(elements(ids[row]).start);
            let mut hold = self.take(hand, index, by)?;
            self.begin_states(&mut hold, resolved)?;
            let held = self.store.elements_of(index);
            let is_held = |id: i64| held.contains(&elements(id).start);
            while row < ids.len() && is_held(ids[row]) && elements(ids[row]).end <= held.end {
                if let Some(ahead) = ids.get(row + AHEAD) {
                    resolved.rule.touched.iter().for_each(|lane| self.store.prefetch(*lane, elements(*ahead), true));
                }
                let same = 1 + ids[row + 1..].iter().take_while(|id| **id == ids[row]).count();
                let grads = (row..row + same).map(|row| &delta[place(row) * row_bytes..][..row_bytes]);
                self.step_held(&mut hold, resolved, elements(ids[row]), room.sum_of(self.dtype, grads));
                row += same;
            }
            drop(hold);
            // One that lies across stripes.
            if let Some(id) = ids.get(row).filter(|id| is_held(**id)) {
                let same = ids[row..].iter().take_while(|other| *other == id).count();
                let grads = (row..row + same).map(|row| &delta[place(row) * row_bytes..][..row_bytes]);
                self.step_in_place(hand, resolved, elements(*id), room.sum_of(self.dtype, grads), by)?;
                row += same;
            }
        }
        Ok(())
    }

    /// Elements that may lie in several stripes.
    #[inline]
    fn step_in_place(
        &self,
        hand: &mut Hand,
        resolved: &Resolved,
        elements: Range<u64>,
        (dtype, grad): Numbers<'_>,
        by: Deadline,
    ) -> Result<(), Error> {
        let mut at = elements.start;
        while at < elements.end {
            let index = self.store.stripe_of(at);
            let end = self.store.elements_of(index).end.min(elements.end);
            let bytes = |element: u64| (element - elements.start) as usize * dtype.size();
            let mut hold = self.take(hand, index, by)?;
            self.begin_states(&mut hold, resolved)?;
            self.step_held(&mut hold, resolved, at..end, (dtype, &grad[bytes(at)..bytes(end)]));
            at = end;
        }
        Ok(())
    }

    /// Elements of the stripe in hand, whose states have begun.
    #[inline]
    fn step_held(&self, hold: &mut Hold<'_>, resolved: &Resolved, elements: Range<u64>, (grad_dtype, grad): Numbers<'_>) {
        let Some(step) = &resolved.step else {
            let done = cast(grad_dtype, grad, self.dtype, hold.contents_mut(0, elements));
            assert!(done.is_ok(), "{grad_dtype} becomes {}: {done:?}", self.dtype);
            return;
        };
        let at = self.place.rows.start * self.cols + elements.start;
        let dtype = self.dtype;
        let apply = |weight: &mut [u8], states: &mut [&mut [u8]]| {
            let done = step.apply(Block { dtype, at, weight, grad_dtype, grad, states });
            assert!(done.is_ok(), "a step on {dtype}: {done:?}");
        };
        match resolved.rule.touched[..] {
            [_] => apply(hold.contents_mut(0, elements), &mut []),
            ref lanes => hold.change_in_place(elements, lanes, apply),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_ids_are_found_and_only_those() {
        assert!(!has_repeats(&[]) && !has_repeats(&[7]) && !has_repeats(&[0, 5, 9]) && !has_repeats(&[9, 0, 5]));
        assert!(has_repeats(&[5, 5]) && has_repeats(&[9, 0, 5, 0]) && has_repeats(&[0, 1, 0]));
        let shuffled: Vec<i64> = (0..5000).map(|number| number * 7919 % 5000 * 4096).collect();
        assert!(!has_repeats(&shuffled));
        assert!((0..5000).step_by(631).all(|at| has_repeats(&[&shuffled[..], &shuffled[at..=at]].concat())));
    }
}
