//! Steps that are made while the add is: nothing is staged, and nobody else need ever hear of it.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_shm::bulletin::Number;

use super::Resolved;
use super::counts::Counter;
use super::repeats::Repeats;
use super::resolve::Steady;
use crate::Consistency;
use crate::share::{LocalShare, Selection};

/// What a worker keeps from one add to the next. It lies with the count of its adds, which whoever adds has in hand, so it needs no lock of its own.
#[derive(Default)]
pub(crate) struct Habits {
    pub(super) steady: Option<Steady>,
    pub(super) repeats: Repeats,
    /// The newest rule when the last gradient came.
    looked_at: Number,
}

impl Habits {
    /// The step of whole gradients, if it is the same every time and several may be added up before it is made.
    #[inline]
    fn sums(&self) -> Option<&Resolved> {
        self.steady.as_ref().and_then(Steady::of_sums)
    }
}

impl LocalShare {
    /// Makes the step of add `sequence` at once. False, and nothing done, if it has to be staged.
    #[inline]
    pub(crate) fn step_now(
        &self,
        habits: &mut Habits,
        (worker, sequence): (u32, u64),
        rows: Selection<'_>,
        delta: &[u8],
        by: Deadline,
    ) -> Result<bool, Error> {
        if self.place.spec.consistency != Consistency::Async {
            return Ok(false);
        }
        if self.keeps_sums(habits, rows)? && self.add_to_tally((worker, sequence), rows, delta, habits.sums(), by)? {
            return Ok(true);
        }
        if self.has_unapplied(worker) {
            return Ok(false);
        }
        if self.alone && self.store.header().epoch().get() == 0 {
            return self.step_alone(habits, rows, delta, by);
        }
        match self.one_change(rows) {
            Some(elements) => self.step_one_change(habits, (worker, sequence), rows, elements, delta, by),
            None => Ok(false),
        }
    }

    /// Whether gradients of all of a small share may wait in a tally, by the newest rule.
    #[inline]
    fn keeps_sums(&self, habits: &mut Habits, rows: Selection<'_>) -> Result<bool, Error> {
        let (Some(tally), Selection::All) = (&self.tally, rows) else { return Ok(false) };
        if self.gradient().has_changed(&mut habits.looked_at) {
            self.gradient().look_at_newest(&mut habits.steady)?;
            tally.set_in_use(habits.sums().is_some());
        }
        Ok(habits.sums().is_some())
    }

    /// An add that is one change, of elements in one stripe.
    fn step_one_change(
        &self,
        habits: &mut Habits,
        (worker, sequence): (u32, u64),
        rows: Selection<'_>,
        elements: Range<u64>,
        delta: &[u8],
        by: Deadline,
    ) -> Result<bool, Error> {
        self.enter("add", by)?;
        let count = Counter { word: self.store.header().count(), alone: false };
        self.gradient().with_step_now(&mut habits.steady, count, rows, |step| {
            self.change_directly(worker, sequence, elements, delta.len(), by, |hold, elements, progress| {
                let late = self.begin_states(hold, step)?;
                self.step_block(hold, elements, late.as_deref().unwrap_or(step), (self.dtype, delta), progress, worker, None);
                Ok(())
            })
        })
    }
}
