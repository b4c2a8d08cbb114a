//! What a process learns about itself before it meets anyone: a [`Launch`].
//!
//! It is plain data. Finding it opens no socket and no file, so every launcher is tested with a map of variables.

use std::fmt;
use std::net::SocketAddr;

use super::tree::Reservation;
use super::{BootstrapError, Environment, Meeting, TokenOrigin, derive};

/// Who this process is in its job, how it will find the others, and why we think so.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Who started the process.
    pub launcher: Launcher,
    /// This process's number; `None` when it is assigned on joining (DMLC roles).
    pub rank: Option<u32>,
    /// How many ranks the job has. A coordinator-only process is not one of them.
    pub world: u32,
    /// How many of them are servers only, where the launcher says it; those have the highest numbers.
    pub servers: u32,
    /// This process's number among those of its host, where the launcher says it.
    pub local_rank: Option<u32>,
    /// How many ranks share this host, where the launcher says it.
    pub local_size: Option<u32>,
    /// What this process does in the job.
    pub role: Role,
    /// Whether the job stays on one host.
    pub hosts: HostSpan,
    /// Where the members find the coordinator.
    pub meeting: Meeting,
    /// Where this member listens for the others, if it was told; otherwise on all interfaces at any port.
    pub door: Option<SocketAddr>,
    /// The port of the meeting point, kept for the coordinator until it listens.
    pub reserved: Option<Reservation>,
    /// Where the job's token comes from.
    pub token: TokenOrigin,
    /// Which life of the job this is: a restarted job has a higher number.
    pub epoch: u32,
    /// What all ranks of this job share and no other job has (launcher, job id, restart count).
    /// A rendezvous file with another key is stale; it is not a secret.
    pub job: String,
    /// Why, one sentence each: for `syncline env` and the one line of log.
    pub because: Vec<String>,
}

/// Who started the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Launcher {
    /// Nobody in particular: a world of one.
    Solo,
    /// The program passed its rank and world itself.
    Arguments,
    /// The program made a tree of nodes that it numbers itself.
    Tree,
    /// `syncline run`.
    SynclineRun,
    /// `SYNCLINE_RANK` and its siblings, set by hand or by a script.
    Explicit,
    /// `torchrun`, or a script that sets the same variables.
    Torchrun,
    /// Open MPI's `mpirun`.
    OpenMpi,
    /// A PMIx launcher that is neither Open MPI nor Slurm.
    Pmix,
    /// MPICH's or Intel MPI's `mpiexec`.
    Hydra,
    /// A Slurm step (`srun`).
    Slurm,
    /// `DMLC_ROLE` and its siblings, as MXNet's and ps-lite's scripts set them.
    Dmlc,
    /// An indexed Kubernetes Job or a Kubeflow training job.
    Kubernetes,
}

/// What a process does in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    /// Worker and server at once, as in Multiverso.
    #[default]
    Both,
    /// Trains and holds no shard.
    Worker,
    /// Holds shards and does not train.
    Server,
    /// Only introduces the others to each other (a DMLC scheduler); it has no rank.
    Coordinator,
}

/// Whether a job stays on one host, as far as its launcher says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostSpan {
    /// Every rank runs on this host.
    One,
    /// At least two hosts take part.
    Several,
    /// The launcher does not say.
    Unknown,
}

impl Launch {
    /// A launch about which nothing but rank and size is known yet.
    pub(super) fn new(launcher: Launcher, rank: u32, world: u32, because: String) -> Self {
        Launch {
            launcher,
            rank: Some(rank),
            world,
            servers: 0,
            local_rank: None,
            local_size: None,
            role: Role::Both,
            hosts: HostSpan::Unknown,
            meeting: Meeting::Alone,
            door: None,
            reserved: None,
            token: TokenOrigin::None,
            epoch: 0,
            job: launcher.name().to_owned(),
            because: vec![because],
        }
    }

    /// Takes a meeting point that was given by hand, whatever the launcher offers.
    pub(super) fn meet_at(&mut self, meeting: Meeting) {
        self.because.push(format!("the meeting point {meeting} was given"));
        // The given place is what the ranks share, so it also names the job where nothing else does.
        if matches!(self.launcher, Launcher::Explicit | Launcher::Arguments | Launcher::SynclineRun) {
            self.job = format!("{meeting} epoch {}", self.epoch);
        }
        match &meeting {
            Meeting::Unix { .. } => self.hosts = HostSpan::One,
            Meeting::Tcp { host, .. } if derive::is_loopback(host) => self.hosts = HostSpan::One,
            _ => {}
        }
        self.meeting = meeting;
    }

    /// Fills in what follows from the rest: a world of one meets nobody, one host holds all ranks.
    pub(super) fn settle_hosts(&mut self) -> Result<(), BootstrapError> {
        let Some(rank) = self.rank else {
            return Ok(()); // DMLC: even a single worker joins its scheduler.
        };
        if self.world == 1 {
            self.meeting = Meeting::Alone;
            self.hosts = HostSpan::One;
        }
        if let (HostSpan::Unknown, Some(size)) = (self.hosts, self.local_size) {
            self.hosts = if size < self.world { HostSpan::Several } else { HostSpan::One };
        }
        if self.hosts == HostSpan::One {
            self.local_rank = self.local_rank.or(Some(rank));
            self.local_size = self.local_size.or(Some(self.world));
        }
        match (self.local_rank, self.local_size) {
            (Some(value), Some(limit)) if value >= limit => Err(BootstrapError::TooLarge {
                variable: format!("{}'s local rank", self.launcher),
                value,
                limit_variable: "its local size".into(),
                limit,
            }),
            (_, Some(size)) if size > self.world => Err(BootstrapError::Contradiction {
                variable: format!("the local size of {}", self.launcher),
                value: size.to_string(),
                other: "its world size".into(),
                other_value: self.world.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Where a token comes from that nobody gave.
    pub(super) fn token_origin(&self, environment: &Environment) -> TokenOrigin {
        match self.meeting {
            Meeting::Alone => TokenOrigin::None,
            Meeting::File { .. } | Meeting::Pmi { .. } => TokenOrigin::Exchanged,
            Meeting::Unix { .. } | Meeting::Tcp { .. } => {
                TokenOrigin::Derived { key_file: derive::key_file(environment), launcher: self.launcher, job: self.job.clone() }
            }
        }
    }

    /// Whether this process hosts the coordinator: rank 0, the scheduler of a DMLC job, or a process alone.
    ///
    /// Under `syncline run` no rank does: the launcher hosts it, so it outlives every rank.
    pub fn hosts_coordinator(&self) -> bool {
        match self.launcher {
            Launcher::SynclineRun => matches!(self.meeting, Meeting::Alone),
            Launcher::Dmlc => self.role == Role::Coordinator,
            _ => self.rank == Some(0),
        }
    }

    /// How `rank` was expected to start, in one line: for the error that misses it.
    pub fn how_rank_starts(&self, rank: u32) -> String {
        let world = self.world;
        match self.launcher {
            Launcher::Solo => "nobody else is expected in a world of one".into(),
            Launcher::Arguments => {
                format!("start it with rank {rank} of {world}, the same rendezvous ({}) and the same token", self.meeting)
            }
            Launcher::Tree => {
                format!("it makes the same tree as node {} of {world} (nodes count from 1), meeting at {}", rank + 1, self.meeting)
            }
            Launcher::SynclineRun => {
                format!("`syncline run` starts it with SYNCLINE_RANK={rank}; look for its lines in the output or in --log-dir")
            }
            Launcher::Explicit => format!(
                "start it with SYNCLINE_RANK={rank} SYNCLINE_WORLD_SIZE={world} SYNCLINE_RENDEZVOUS={} and the same SYNCLINE_TOKEN",
                self.meeting
            ),
            Launcher::Torchrun => format!("torchrun starts it with RANK={rank} WORLD_SIZE={world}"),
            Launcher::OpenMpi => format!("mpirun starts it with OMPI_COMM_WORLD_RANK={rank}"),
            Launcher::Pmix => format!("the PMIx launcher starts it with PMIX_RANK={rank}"),
            Launcher::Hydra => format!("mpiexec starts it with PMI_RANK={rank}"),
            Launcher::Slurm => format!("srun starts it with SLURM_PROCID={rank}"),
            Launcher::Dmlc => format!(
                "ranks are given in order of joining: {world} processes with DMLC_ROLE=worker or server and the same DMLC_PS_ROOT_URI and DMLC_PS_ROOT_PORT ({})",
                self.meeting
            ),
            Launcher::Kubernetes => {
                format!("its pod has JOB_COMPLETION_INDEX={rank} (or PET_NODE_RANK={rank})")
            }
        }
    }
}

impl Launcher {
    /// Whether the coordinator of its jobs is no rank's: it then outlives every rank.
    pub(crate) fn hosts_coordinator(self) -> bool {
        matches!(self, Launcher::SynclineRun | Launcher::Dmlc)
    }

    /// The name that `syncline env` prints.
    pub fn name(self) -> &'static str {
        match self {
            Launcher::Solo => "solo",
            Launcher::Arguments => "arguments",
            Launcher::Tree => "tree",
            Launcher::SynclineRun => "syncline-run",
            Launcher::Explicit => "explicit",
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "openmpi",
            Launcher::Pmix => "pmix",
            Launcher::Hydra => "hydra",
            Launcher::Slurm => "slurm",
            Launcher::Dmlc => "dmlc",
            Launcher::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Role {
    /// Whether a process of this role trains.
    pub fn works(self) -> bool {
        matches!(self, Role::Both | Role::Worker)
    }

    /// Whether a process of this role holds shards.
    pub fn serves(self) -> bool {
        matches!(self, Role::Both | Role::Server)
    }

    /// The word `SYNCLINE_ROLE` uses.
    pub fn name(self) -> &'static str {
        match self {
            Role::Both => "both",
            Role::Worker => "worker",
            Role::Server => "server",
            Role::Coordinator => "coordinator",
        }
    }

    /// The role that a word of `SYNCLINE_ROLE` means; any case.
    pub fn from_name(name: &str) -> Option<Role> {
        [Role::Both, Role::Worker, Role::Server, Role::Coordinator].into_iter().find(|role| role.name().eq_ignore_ascii_case(name.trim()))
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for HostSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HostSpan::One => "one host",
            HostSpan::Several => "several hosts",
            HostSpan::Unknown => "one host or several",
        })
    }
}
