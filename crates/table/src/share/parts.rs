//! Rounds of rows: the stripes they touch are shared out in parts, one after the other to whoever comes first.
//!
//! Thousands of stripes are touched by a row or two each, and a look at a word that another core has just written costs
//! as much as the row. So a process claims a run of stripes at a time and looks at no other; it comes back for those of
//! others only when they are not done a little later, because their process lost its core or its life.
//!
//! Claims are hints: what is done on a stripe is told by its own word, as in every round.

use std::ops::Range;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};
use syncline_shm::store::Hand;

use super::LocalShare;
use super::apply::Add;
use super::rounds::{Steps, all_done, steps_done};
use crate::gradient::{Room, RoundStep};

/// How many rows ahead of their use they are asked for.
const AHEAD: usize = 8;
/// How long a process that still works is left alone with its part.
const PATIENCE: Duration = Duration::from_micros(100);

impl LocalShare {
    /// Whether a round is one of rows that lie wholly inside their stripes.
    pub(super) fn has_parts(&self, adds: &[Add<'_>]) -> bool {
        self.cols > 0 && self.store.layout().stripe.is_multiple_of(self.cols) && adds.iter().all(|add| add.ids().is_some())
    }

    /// Applies a round of rows together with whoever else does.
    pub(super) fn finish_parts(&self, round: u64, adds: &[Add<'_>], step: Option<&RoundStep>, by: Deadline) -> Result<(), Error> {
        let mut hand = self.hand(by)?;
        let parts = self.store.parts();
        let bounds = self.bounds(adds, parts.len());
        let first = hand.number() as usize * parts.len() / self.place.hands.len();
        let mut of_others = Vec::new();
        for turn in 0..parts.len() {
            let part = (first + turn) % parts.len();
            match parts[part].claim(round) {
                true => self.apply_part(&mut hand, bounds[part]..bounds[part + 1], round, adds, step, by)?,
                false => {
                    of_others.push(part);
                    continue;
                }
            }
            parts[part].set_done(round);
        }
        let started = Instant::now();
        for part in of_others {
            let mut turns = 0;
            while !parts[part].is_done(round) {
                turns += 1;
                if turns < 200 {
                    std::hint::spin_loop();
                } else if started.elapsed() < PATIENCE {
                    std::thread::yield_now();
                } else {
                    self.apply_part(&mut hand, bounds[part]..bounds[part + 1], round, adds, step, by)?;
                    parts[part].set_done(round);
                }
            }
        }
        Ok(())
    }

    /// The first stripe of each part, and the end: about as many rows to each, as the longest add has them.
    fn bounds(&self, adds: &[Add<'_>], parts: usize) -> Vec<usize> {
        let longest = adds.iter().filter_map(Add::ids).max_by_key(|ids| ids.len()).unwrap_or_default();
        let stripes = self.store.layout().stripes();
        let mut last = 0;
        let mut bounds = vec![0];
        bounds.extend((1..parts).map(|part| {
            // Whoever comes late may read ids of a later round: any stripes will do then, but they must be some.
            let stripe = longest.get(longest.len() * part / parts).and_then(|id| self.stripe_of_row(*id)).unwrap_or(0);
            last = stripe.clamp(last, stripes);
            last
        }));
        bounds.push(stripes);
        bounds
    }

    /// The stripe of a row, if it is one of this share.
    #[inline]
    fn stripe_of_row(&self, id: i64) -> Option<usize> {
        let row = (id as u64).checked_sub(self.place.rows.start).filter(|_| (id as u64) < self.place.rows.end)?;
        Some(self.store.stripe_of(row * self.cols))
    }

    /// Brings the stripes of a part that the round touches to its end, in order.
    fn apply_part(
        &self,
        hand: &mut Hand,
        stripes: Range<usize>,
        round: u64,
        adds: &[Add<'_>],
        step: Option<&RoundStep>,
        by: Deadline,
    ) -> Result<(), Error> {
        let mut room = Room::default();
        let mut runs: Vec<Run<'_>> = adds.iter().filter_map(|add| Run::new(add, |id| self.stripe_of_row(id), &stripes)).collect();
        for run in &runs {
            (run.at..run.ids.len().min(run.at + AHEAD)).for_each(|row| self.ask_for(run, row));
        }
        while let Some(index) = runs.iter().filter_map(|run| run.next).min().filter(|index| stripes.contains(index)) {
            let rows =
                runs.iter_mut().map(|run| (run.add, run.take(index, |id| self.stripe_of_row(id), |run, row| self.ask_for(run, row))));
            let rows = rows.filter(|(_, rows)| !rows.is_empty());
            if self.store.stripe(index).progress.get() == all_done(round) {
                rows.for_each(drop);
                continue;
            }
            let mut hold = self.take(hand, index, by)?;
            let progress = hold.progress();
            // The store's count is looked at with the stripe in hand: see the head of `rounds`.
            if self.store.header().rounds().get() >= round {
                return Ok(());
            }
            if progress == all_done(round) {
                rows.for_each(drop);
                continue;
            }
            let mut steps = Steps { round, done: steps_done(progress, round), taken: 0 };
            let elements = self.store.elements_of(index);
            match step {
                Some(step) => self.step_merged_rows(&mut hold, elements, step, &mut steps, adds, rows.collect(), &mut room)?,
                None => rows.for_each(|(add, rows)| self.apply_run(&mut hold, elements.clone(), add, rows, &mut steps)),
            }
            hold.set_progress(all_done(round));
        }
        Ok(())
    }

    /// Asks for a row's values and its delta ahead of their use.
    #[inline]
    fn ask_for(&self, run: &Run<'_>, row: usize) {
        let (Some(id), Some(place)) = (run.ids.get(row), run.places.get(row)) else { return };
        let first = (*id as u64).wrapping_sub(self.place.rows.start).wrapping_mul(self.cols);
        self.store.prefetch(0, first..first.wrapping_add(self.cols), true);
        run.add.ask_for(*place as usize, self.cols as usize * self.dtype.size());
    }
}

/// The rows of one add that are still to be applied.
struct Run<'a> {
    add: &'a Add<'a>,
    ids: &'a [i64],
    places: &'a [i64],
    at: usize,
    /// The stripe of the row at `at`.
    next: Option<usize>,
}

impl<'a> Run<'a> {
    /// The rows from the first of `stripes` on.
    fn new(add: &'a Add<'a>, stripe_of: impl Fn(i64) -> Option<usize>, stripes: &Range<usize>) -> Option<Run<'a>> {
        let (ids, places) = (add.ids()?, add.places());
        let at = ids.partition_point(|id| stripe_of(*id).is_some_and(|stripe| stripe < stripes.start));
        Some(Run { add, ids, places, at, next: ids.get(at).and_then(|id| stripe_of(*id)) })
    }

    /// The rows in stripe `index`, which is not behind the next one; those to come are announced to `ahead`.
    fn take(&mut self, index: usize, stripe_of: impl Fn(i64) -> Option<usize>, ahead: impl Fn(&Run<'_>, usize)) -> Range<usize> {
        let from = self.at;
        while self.next == Some(index) {
            ahead(self, self.at + AHEAD);
            self.at += 1;
            self.next = self.ids.get(self.at).and_then(|id| stripe_of(*id));
        }
        from..self.at
    }
}
