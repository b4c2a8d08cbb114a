//! When an array that was lent to the others belongs to its owner again, whatever went wrong.
//!
//! The owner may drop the array as soon as its call returns. A neighbour that still read there would return a wrong sum, and one
//! that still wrote would damage whatever lies there by then. So nobody returns while a member that lives may touch its array:
//!
//! - Who gives up at the first meeting *leaves* it. If somebody is missing still, nobody will ever hold that meeting.
//! - If all have come, some may be at work by now. It waits until each of them is done, has left too, or is gone.
//! - Who finds that somebody left does the same: it leaves, and waits for those at work.
//! - Who was at work waits for the others in the same manner.

use std::time::Duration;

use syncline_cluster::{Deadline, Error};
use syncline_shm::presence::first_to_leave;
use syncline_shm::wait::WaitError;

use super::meeting::Memory;
use crate::call::{Call, Failure};
use crate::setback::Setback;

/// How long a call that has failed waits for those who may still touch its array. They are at work, so only a process that was
/// stopped takes longer than its part of the reduction.
const LINGER: Duration = Duration::from_secs(5);

impl Memory {
    /// Goes on with `meeting`, to which all were seen to come, unless somebody has left it.
    #[inline]
    pub(super) fn hold(&mut self, meeting: u64, call: &Call<'_>) -> Result<(), Failure> {
        match first_to_leave(self.members.iter().map(|member| member.desk.presence(meeting)), meeting) {
            None => Ok(()),
            Some(left) => {
                let error = self.left_by(left, meeting, call);
                Err(self.leave(meeting, Failure::Astray(error)))
            }
        }
    }

    /// Leaves `meeting` because of `failure`, and returns when nobody touches this rank's array any more.
    #[cold]
    pub(super) fn leave(&mut self, meeting: u64, failure: Failure) -> Failure {
        if let Failure::Astray(error) = &failure {
            self.own.leave(meeting, Setback::word(Setback::of(error).as_ref()));
            if self.first_missing(meeting, 0).is_none() {
                self.linger(meeting);
            }
        }
        failure
    }

    /// Says that this rank's part of `meeting` is done, and waits for those of the others.
    #[inline]
    pub(super) fn finish(&mut self, meeting: u64, call: &Call<'_>) -> Result<(), Failure> {
        self.come();
        self.until_done(meeting, call.by).or_else(|why| self.unfinished(why, meeting, call))
    }

    #[cold]
    fn unfinished(&self, why: WaitError, meeting: u64, call: &Call<'_>) -> Result<(), Failure> {
        self.linger(meeting);
        if self.first_missing(meeting + 1, 0).is_none() && why != WaitError::Interrupted {
            return Ok(());
        }
        Err(match self.members.iter().position(|member| member.desk.presence(meeting).has_left(meeting)) {
            Some(left) => Failure::Astray(self.left_by(left, meeting, call)),
            None => self.nobody_came(why, meeting + 1, call),
        })
    }

    /// Waits for those who may still touch this rank's array, and for nothing else.
    fn linger(&self, meeting: u64) {
        // Whatever ends this wait, nothing more can be done about it here.
        let _ = self.until_done(meeting, Deadline::after(LINGER));
    }

    /// Waits until all have come to the meeting after `meeting`, or at least all who hold `meeting`: the dead do not, nor those who left.
    #[inline]
    fn until_done(&self, meeting: u64, by: Deadline) -> Result<(), WaitError> {
        let at_work = |index: usize| {
            let member = &self.members[index];
            let done = index == self.me || member.desk.has_come(meeting + 1);
            !done && !member.desk.presence(meeting).has_left(meeting) && !self.vigil.is_over(member.rank)
        };
        let hope = || !self.vigil.orphaned_or_leaving() && (0..self.members.len()).any(at_work);
        self.until_all_come(meeting + 1, by, &hope)
    }

    /// The error of a call because member `left` gave up: it names whoever that one waited for.
    #[cold]
    fn left_by(&self, left: usize, meeting: u64, call: &Call<'_>) -> Error {
        let member = &self.members[left];
        match Setback::of_word(member.desk.presence(meeting).why()) {
            Some(setback) if setback.missing() != Some(&[self.members[self.me].rank]) => setback.into_error(&self.vigil, call),
            _ => self.vigil.late(&call.operation(), &[member.rank], call.started, ", which had given up before all were there"),
        }
    }
}
