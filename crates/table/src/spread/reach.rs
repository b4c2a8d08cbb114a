//! How tables reach the other members: the few things they ask of the job, so that tests can stand in for it.

use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};
use syncline_transport::{Link, LinkError};
use syncline_wire::Fingerprint;

/// What became of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is there, as far as anybody knows.
    Present,
    /// It left politely.
    Left,
    /// It died or was cut off.
    Lost,
}

/// The job, as tables see it.
pub(crate) trait Reach: Send + Sync {
    /// The link with `peer` for one purpose; both ends ask for it.
    fn link(&self, peer: u32, purpose: Fingerprint, by: Deadline) -> Result<Link, Error>;

    /// The error for a frame of `operation` with `peer` that failed, naming the culprit.
    fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error;

    /// The error for an `operation` that waited for `missing` until its deadline.
    fn late(&self, operation: &str, missing: &[u32], started: Instant) -> Error;

    /// The error for an `operation` that waits for `missing` in vain, if it does: one of them is lost and the job does not
    /// go on without it, or the job is over. Asked between two naps.
    fn hopeless(&self, operation: &str, missing: &[u32], started: Instant) -> Option<Error>;

    /// What became of a rank.
    fn fate(&self, rank: u32) -> Fate;

    /// Whether the process of `rank` is certainly gone: it writes nothing more into shared memory.
    fn has_ended(&self, rank: u32) -> bool;

    /// Whether the others go on when a worker is lost (`on_peer_loss="continue"`).
    fn survives_losses(&self) -> bool;

    /// Whether this process is leaving the job: service threads end.
    fn is_closing(&self) -> bool;

    /// How long a wait lasts when nobody says otherwise.
    fn timeout(&self) -> Duration;
}

/// Who holds and who uses a table: the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    /// A name that all ranks derive alike, different for every table of the job.
    pub(crate) table: Fingerprint,
    /// The table as errors call it, for example `table weights`.
    pub(crate) name: String,
    /// Servers of each share, by rank; never none.
    pub(crate) servers: Vec<Vec<u32>>,
    /// Ranks of the workers, by worker id.
    pub(crate) workers: Vec<u32>,
}

impl Places {
    /// The server of `share` that `worker` talks to.
    pub(crate) fn server_of(&self, share: usize, worker: u32) -> u32 {
        let servers = &self.servers[share];
        servers[worker as usize % servers.len()]
    }

    /// The server that speaks for `share` about a dead `worker`: its usual one, or the next that is left.
    pub(crate) fn speaker(&self, share: usize, worker: u32, reach: &dyn Reach) -> u32 {
        let servers = &self.servers[share];
        let turn = |step: usize| servers[(worker as usize + step) % servers.len()];
        (0..servers.len()).map(turn).find(|rank| reach.fate(*rank) == Fate::Present).unwrap_or_else(|| turn(0))
    }

    /// The purpose of the link between `worker` and `share`.
    pub(crate) fn lane(&self, share: usize, worker: u32) -> Fingerprint {
        Fingerprint::of("table").bytes("table", &self.table.0).number("share", share as u64).number("worker", worker.into()).finish()
    }

    /// The purpose of the link over which `share` reports about a dead `worker`.
    pub(crate) fn inquest_lane(&self, share: usize, worker: u32) -> Fingerprint {
        Fingerprint::of("inquest").bytes("table", &self.table.0).number("share", share as u64).number("worker", worker.into()).finish()
    }
}
