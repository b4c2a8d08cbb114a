//! Rounds of gradients: summed in order of worker, then one step, block by block.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_shm::store::Hold;

use super::Resolved;
use super::counts::{Notes, Stamp};
use super::sums::Room;
use crate::share::{Add, Emit, LocalShare, Steps};

/// Nobody in particular: what a round changed was changed by others, for every worker.
const EVERYBODY: u32 = 0xfffe;

/// What a round does, the same for whoever applies it.
pub(crate) struct RoundStep {
    pub(super) resolved: Resolved,
    /// What it leaves for the next round.
    notes: Notes,
    /// Only the rows that somebody has are touched.
    pub(crate) rows_only: bool,
}

impl LocalShare {
    /// What round `round` does, whose adds these are; none for a table that knows no gradients.
    pub(crate) fn round_step(&self, round: u64, adds: &[Add<'_>]) -> Result<Option<RoundStep>, Error> {
        let Some(gradient) = &self.gradient else { return Ok(None) };
        let stamp = adds.first().and_then(|add| Stamp::of_options(&add.options)).ok_or_else(|| Error::System {
            operation: self.operation("add"),
            detail: format!("round {round} does not say by which rule it goes"),
        })?;
        let before = Notes::read(self.store.header().notes(round - 1), round - 1).unwrap_or(Notes { round: round - 1, ..Notes::default() });
        let (mut resolved, notes) = gradient.resolve_round(stamp, before)?;
        let rows = adds.iter().all(|add| add.entry.ids.is_some());
        if rows {
            resolved = resolved.of_rows();
        }
        Ok(Some(RoundStep { rows_only: rows && resolved.is_lazy(), resolved, notes }))
    }

    /// Writes down what a round leaves, and counts it as done.
    ///
    /// With the first stripe in hand, and only if nobody has: the round after the next uses the same room, and a latecomer must not write
    /// into what that one left.
    pub(crate) fn close_round(&self, step: &RoundStep, by: Deadline) -> Result<(), Error> {
        let (header, round) = (self.store.header(), step.notes.round);
        let mut hand = self.hand(by)?;
        let hold = if self.store.layout().elements > 0 { Some(self.take(&mut hand, 0, by)?) } else { None };
        if header.rounds().get() < round {
            step.notes.write(header.notes(round));
            self.gradient().note_round(&step.resolved.rule, &step.notes);
            header.rounds().raise(round);
        }
        drop(hold);
        Ok(())
    }

    /// The steps of a round on one stripe, from number `done` on.
    pub(crate) fn step_stripe(
        &self,
        hold: &mut Hold<'_>,
        elements: Range<u64>,
        step: &RoundStep,
        steps: &mut Steps,
        adds: &[Add<'_>],
        mut emit: Option<&mut (dyn Emit + '_)>,
    ) -> Result<(), Error> {
        let sum = self.sum(adds);
        if step.rows_only {
            let runs = adds.iter().map(|add| (add, sum.run(add.ids().unwrap_or_default(), &elements))).collect();
            return self.step_merged_rows(hold, elements, step, steps, adds, runs, &mut Room::default());
        }
        self.begin_states(hold, &step.resolved)?;
        let mut room = Room::default();
        let mut at = elements.start;
        while at < elements.end {
            let end = (at + self.block).min(elements.end);
            if let Some(progress) = steps.next() {
                let sum = sum.block(at..end, &mut room);
                self.step_block(hold, at..end, &step.resolved, sum, progress, EVERYBODY, emit.as_deref_mut());
            }
            at = end;
        }
        Ok(())
    }

    /// The rows of one stripe that a round touches: for each add of `adds` a run of its ids.
    #[allow(clippy::too_many_arguments, reason = "one step of two loops")]
    pub(crate) fn step_merged_rows(
        &self,
        hold: &mut Hold<'_>,
        elements: Range<u64>,
        step: &RoundStep,
        steps: &mut Steps,
        adds: &[Add<'_>],
        mut runs: Vec<(&Add<'_>, Range<usize>)>,
        room: &mut Room,
    ) -> Result<(), Error> {
        let sum = self.sum(adds);
        self.begin_states(hold, &step.resolved)?;
        let mut parts: Vec<(&Add<'_>, i64)> = Vec::with_capacity(runs.len());
        let id_at = |add: &Add<'_>, at: usize| add.ids().unwrap_or_default()[at];
        while let Some(id) = runs.iter().filter(|(_, run)| !run.is_empty()).map(|(add, run)| id_at(add, run.start)).min() {
            parts.clear();
            for (add, run) in &mut runs {
                while run.start < run.end && id_at(add, run.start) == id {
                    parts.push((add, add.places()[run.start]));
                    run.start += 1;
                }
            }
            let first = (id as u64 - self.place.rows.start) * self.cols;
            let mut at = first.max(elements.start);
            let row_end = (first + self.cols).min(elements.end);
            while at < row_end {
                let piece = at..(at + self.block).min(row_end);
                at = piece.end;
                if let Some(progress) = steps.next() {
                    let pieces = parts.iter().map(|(add, place)| sum.piece(add, *place, first, piece.clone()));
                    let grad = room.sum_of(self.dtype, pieces);
                    self.step_block(hold, piece, &step.resolved, grad, progress, EVERYBODY, None);
                }
            }
        }
        Ok(())
    }
}
