//! Where the ranks of a job meet: the launcher hosts the coordinator, because it is there before the first rank and after the last.
//!
//! The launcher knows only this contract. [`open`] is the one place that chooses who fulfils it.

use std::io;
use std::time::Duration;

use super::verdict::Ended;

/// What a rank is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Computes; also holds shards when the job has no servers of its own.
    Worker,
    /// Only holds shards.
    Server,
}

/// Who will come to a meeting point.
#[expect(dead_code, reason = "a coordinator needs all of it; the one below only its name")]
pub(crate) struct Guests<'a> {
    /// The job's name: unique, not secret.
    pub(crate) job: &'a str,
    /// The role of each rank; its length is the size of the world.
    pub(crate) roles: &'a [Role],
    /// The secret that admits a rank.
    pub(crate) token: &'a str,
    /// How long ranks wait for each other, if the command line says so.
    pub(crate) timeout: Option<Duration>,
    /// The number of restarts so far.
    pub(crate) epoch: u32,
}

/// A coordinator as the launcher sees it. It works on threads of its own: no call may block for long.
pub(crate) trait MeetingPoint {
    /// The value of `SYNCLINE_RENDEZVOUS`.
    fn rendezvous(&self) -> String;
    /// A rank is gone; the survivors should hear it now.
    fn child_ended(&mut self, rank: u32, how: Ended);
    /// All ranks are gone.
    fn close(self: Box<Self>);
}

/// Opens the meeting point of one attempt of a job.
pub(crate) fn open(guests: &Guests<'_>) -> io::Result<Box<dyn MeetingPoint>> {
    Ok(Box::new(NameOnly { name: format!("unix:@syncline-{}-{}", guests.job, guests.epoch) }))
}

/// Only a name to meet under: enough for programs that do not use Syncline, and for whoever hosts the meeting elsewhere.
struct NameOnly {
    name: String,
}

impl MeetingPoint for NameOnly {
    fn rendezvous(&self) -> String {
        self.name.clone()
    }

    fn child_ended(&mut self, _rank: u32, _how: Ended) {}

    fn close(self: Box<Self>) {}
}
