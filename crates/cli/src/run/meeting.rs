//! Where the ranks of a job meet: the launcher hosts the coordinator, because it is there before the first rank and after the last.

use std::io;
use std::time::Duration;

use syncline_cluster::DownCause;
use syncline_cluster::coordinator::{Coordinator, Listen, Spec};
use syncline_transport::JobKey;

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

/// The coordinator of one attempt of a job. It works on threads of its own: no call here blocks.
pub(crate) struct MeetingPoint {
    coordinator: Coordinator,
}

impl MeetingPoint {
    /// Opens it under an abstract name that ends with this process.
    pub(crate) fn open(guests: &Guests<'_>) -> io::Result<MeetingPoint> {
        let servers = guests.roles.iter().filter(|role| **role == Role::Server).count() as u32;
        let workers = guests.roles.len() as u32 - servers;
        let mut job = [0; 16];
        getrandom::fill(&mut job).map_err(io::Error::other)?;
        let timeout = match guests.timeout {
            Some(timeout) => timeout,
            None => syncline::Config::settings_from_env().map_err(io::Error::other)?.timeout,
        };
        let how_ranks_start = (0..workers + servers)
            .map(|rank| format!("`syncline run` starts it with SYNCLINE_RANK={rank}; look for its lines in the output or in --log-dir"))
            .collect();
        let spec = Spec { workers, servers, epoch: guests.epoch, job, timeout, knows_exits: true, how_ranks_start };
        let unix = Some(format!("syncline-{}-{}", guests.job, guests.epoch));
        let listen = Listen { unix, ..Listen::default() };
        let coordinator = Coordinator::host(spec, JobKey::from_token(guests.token), listen).map_err(io::Error::other)?;
        Ok(MeetingPoint { coordinator })
    }

    /// The value of `SYNCLINE_RENDEZVOUS`.
    pub(crate) fn rendezvous(&self) -> String {
        self.coordinator.unix_address().to_string()
    }

    /// The rank with which the trouble began, as its connection told, which may be earlier than the end of its process.
    pub(crate) fn culprit(&self) -> Option<u32> {
        self.coordinator.culprit()
    }

    /// Whether the ranks go on when a worker dies, as `SYNCLINE_ON_PEER_LOSS=continue` asks of them.
    pub(crate) fn goes_on(&self) -> bool {
        self.coordinator.goes_on()
    }

    /// A rank is gone; the survivors hear it now. One that had left politely is not missed.
    pub(crate) fn child_ended(&mut self, rank: u32, how: Ended) {
        let cause = match how {
            Ended::Code(code) => DownCause::Exited { code },
            Ended::Signal(signal) => DownCause::Killed { signal },
        };
        self.coordinator.process_ended(rank, cause);
    }
}
