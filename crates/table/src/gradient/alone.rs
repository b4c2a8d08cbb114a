//! Steps in place, where nobody could inherit or read half of one: a world of one worker.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::Block;
use syncline_shm::store::{Hand, Hold};
use syncline_tensor::kernels::cast;

use super::counts::Counter;
use super::repeats::{Place, Repeats};
use super::sums::{Numbers, Room};
use super::{Habits, Resolved};
use crate::share::{LocalShare, Selection};

/// How many rows ahead one is asked for.
const AHEAD: usize = 8;

impl LocalShare {
    /// Makes the step of one add. False, and nothing done, when it needs more than one pass.
    #[inline]
    pub(super) fn step_alone(&self, habits: &mut Habits, rows: Selection<'_>, delta: &[u8], by: Deadline) -> Result<bool, Error> {
        self.enter("add", by)?;
        if let Selection::Rows(ids) = rows {
            if ids.len() > Repeats::MOST {
                return Ok(false);
            }
            self.check_rows("add", ids)?;
        }
        let Habits { steady, repeats, .. } = habits;
        let mut hand = self.hand(by)?;
        // Whoever writes the count has the count of the worker's adds in hand, or the hand.
        let count = Counter { word: self.store.header().count(), alone: true };
        self.gradient().with_step_now(steady, count, rows, |resolved| {
            match rows {
                Selection::All => self.step_in_place(&mut hand, resolved, 0..self.store.layout().elements, (self.dtype, delta), by)?,
                Selection::Rows(ids) => self.step_rows_in_place(&mut hand, resolved, ids, repeats, delta, by)?,
            }
            let outbox = &self.outboxes[0];
            outbox.pass(outbox.published() + 1); // Others of its adds may go through the outbox.
            Ok(())
        })
    }

    /// Each row once, where it stands first, with the sum of all that have its id.
    fn step_rows_in_place(
        &self,
        hand: &mut Hand,
        resolved: &Resolved,
        ids: &[i64],
        repeats: &mut Repeats,
        delta: &[u8],
        by: Deadline,
    ) -> Result<(), Error> {
        let elements = |id: i64| {
            let first = (id as u64 - self.place.rows.start) * self.cols;
            first..first + self.cols
        };
        let mut repeats = repeats.find(ids);
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
                if let Some(grad) = self.gradient_of_row(row, repeats.at(row), delta, &mut room) {
                    self.step_held(&mut hold, resolved, elements(ids[row]), grad);
                }
                row += 1;
            }
            drop(hold);
            // One that lies across stripes.
            if let Some(id) = ids.get(row).filter(|id| is_held(**id)) {
                if let Some(grad) = self.gradient_of_row(row, repeats.at(row), delta, &mut room) {
                    self.step_in_place(hand, resolved, elements(*id), grad, by)?;
                }
                row += 1;
            }
        }
        Ok(())
    }

    /// The sum of all rows of a delta that have this one's id; nothing for one that an earlier row has brought along.
    #[inline]
    fn gradient_of_row<'a>(&self, row: usize, place: Place<'_>, delta: &'a [u8], room: &'a mut Room) -> Option<Numbers<'a>> {
        let row_bytes = self.cols as usize * self.dtype.size();
        let grad = |row: usize| &delta[row * row_bytes..][..row_bytes];
        match place {
            Place::Once => Some((self.dtype, grad(row))),
            Place::First(again) => {
                let rows = std::iter::once(row).chain(again.iter().map(|pair| pair.later as usize));
                Some(room.sum_of(self.dtype, rows.map(grad)))
            }
            Place::Later => None,
        }
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
