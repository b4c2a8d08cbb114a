//! What survivors do for the dead: finish the adds that count, and let no clock wait for them.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};

use super::LocalShare;
use crate::Consistency;
use crate::locking::lock_by;

impl LocalShare {
    /// Called when somebody died since the last look: an error that names the culprit, unless this job goes on.
    #[cold]
    pub(super) fn after_deaths(&self, what: &str, deaths: u32, by: Deadline) -> Result<(), Error> {
        let vigil = &self.place.vigil;
        if !vigil.goes_on() {
            if !vigil.any_down() {
                self.deaths_seen.store(deaths, Release); // Somebody ended after a goodbye.
                return Ok(());
            }
            let everybody: Vec<u32> = (0..vigil.topology().world()).filter(|rank| *rank != vigil.me()).collect();
            return Err(vigil.explain(&self.operation(what), &everybody, Instant::now(), "it ended"));
        }
        let mut certain = true;
        for worker in 0..self.outboxes.len() {
            let owner = self.place.owners[worker];
            if owner == vigil.me() || !vigil.is_over(owner) || self.outboxes[worker].is_finished() {
                continue;
            }
            match vigil.has_ended(owner) {
                true => self.rescue(worker as u32, by)?,
                false if vigil.has_left(owner) => {}
                false => certain = false, // Heard of, not seen: the certain word comes within the second.
            }
        }
        if certain {
            self.deaths_seen.store(deaths, Release);
        }
        Ok(())
    }

    /// Applies what a worker that makes no more adds has published, if its outbox is this process's to write or nobody's any more. Whether all is applied.
    pub(super) fn apply_left(&self, worker: u32, by: Deadline) -> Result<bool, Error> {
        let (vigil, owner) = (&self.place.vigil, self.place.owners[worker as usize]);
        if owner == vigil.me() && self.has_unapplied(worker) {
            self.apply_published(worker, None, by)?;
        } else if owner != vigil.me() && vigil.has_ended(owner) {
            self.rescue(worker, by)?;
        }
        Ok(!self.has_unapplied(worker))
    }

    /// Returns when what the dead left is in the table: also of those whose end is known by hearsay only, which is certain within a second.
    pub(crate) fn settle_losses(&self, by: Deadline) -> Result<(), Error> {
        let (vigil, started) = (&self.place.vigil, Instant::now());
        loop {
            let deaths = vigil.deaths();
            self.enter("barrier", by)?;
            if self.deaths_seen.load(Acquire) == deaths {
                return Ok(());
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation: self.operation("barrier"), waited: started.elapsed() });
            }
            if by.expired() {
                let uncertain = |rank: &u32| vigil.is_over(*rank) && !vigil.has_ended(*rank) && !vigil.has_left(*rank);
                let ranks: Vec<u32> = self.place.hands.iter().copied().filter(uncertain).collect();
                return Err(vigil.late(&self.operation("barrier"), &ranks, started, " to end for certain"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Applies what a dead worker had published and closes its outbox. One survivor does it, the others wait for it, as long as their callers like.
    fn rescue(&self, worker: u32, by: Deadline) -> Result<(), Error> {
        let vigil = &self.place.vigil;
        let operation = || self.operation("taking over from a dead worker");
        let outbox = &self.outboxes[worker as usize];
        let by = by.within(vigil.timeout());
        let started = Instant::now();
        let me = u64::from(vigil.me()) + 1;
        // One thread of this process, so that who fails can leave it to others.
        let _alone = lock_by(&self.rescuing, operation, "is taking over from a dead worker", by)?;
        loop {
            if outbox.is_finished() {
                return Ok(());
            }
            let other = outbox.rescuer().get();
            let vacant = other == 0 || other == me || vigil.has_ended(other as u32 - 1);
            if vacant && outbox.rescuer().exchange(other, me) {
                break;
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation: operation(), waited: started.elapsed() });
            }
            if by.expired() {
                return Err(vigil.late(&operation(), &[other as u32 - 1], started, " to finish its adds"));
            }
            std::thread::yield_now();
        }
        let applied = self.apply_for_the_dead(worker, by);
        if applied.is_err() {
            outbox.rescuer().exchange(me, 0); // What stands in the way of this one, or of its caller, need not stop the others.
            return applied;
        }
        outbox.finish();
        tracing::info!("{}: finished the {} adds of worker {worker}, which is gone", self.place.title, outbox.published());
        Ok(())
    }

    /// What a rescuer does, from wherever another stopped.
    fn apply_for_the_dead(&self, worker: u32, by: Deadline) -> Result<(), Error> {
        if self.place.spec.consistency == Consistency::Sync {
            return Ok(()); // Rounds are applied by whoever needs them.
        }
        // Redo records of the dead first: its own, or that of a rescuer before this one, may hold the last step of the very add that is to be continued.
        for index in (0..self.place.hands.len() as u32).filter(|hand| self.is_dead(*hand)).filter_map(|hand| self.store.under_change(hand))
        {
            drop(self.take(&mut *self.hand(by)?, index, by)?);
        }
        self.apply_published(worker, None, by).map(drop)
    }
}
