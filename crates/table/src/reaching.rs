//! The job as tables reach it: what they ask of others goes through the cluster's vigil.

use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Lane, Vigil};
use syncline_transport::{Link, LinkError};
use syncline_wire::Fingerprint;

use crate::spread::{Fate, Reach};

impl Reach for Vigil {
    fn link(&self, peer: u32, purpose: Fingerprint, by: Deadline) -> Result<Link, Error> {
        Vigil::link(self, peer, Lane::of(purpose), by)
    }

    fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        Vigil::link_failed(self, operation, peer, started, error)
    }

    fn late(&self, operation: &str, missing: &[u32], started: Instant) -> Error {
        Vigil::late(self, operation, missing, started, "")
    }

    fn hopeless(&self, operation: &str, missing: &[u32], started: Instant) -> Option<Error> {
        Vigil::hopeless(self).then(|| self.explain(operation, missing, started, "it did not come"))
    }

    fn fate(&self, rank: u32) -> Fate {
        match (self.is_over(rank), self.has_left(rank)) {
            (false, _) => Fate::Present,
            (true, true) => Fate::Left,
            (true, false) => Fate::Lost,
        }
    }

    fn has_ended(&self, rank: u32) -> bool {
        Vigil::has_ended(self, rank)
    }

    fn survives_losses(&self) -> bool {
        self.goes_on()
    }

    fn is_closing(&self) -> bool {
        self.orphaned_or_leaving()
    }

    fn timeout(&self) -> Duration {
        Vigil::timeout(self)
    }
}
