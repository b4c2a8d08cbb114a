//! What the coordinator is told, and what it wants done.

use std::time::Duration;

use syncline_wire::message::{Blame, Control, DownCause};

/// One member's control connection, numbered by whoever runs the state.
pub type ConnectionId = u64;

/// What the coordinator is told before anybody comes.
#[derive(Debug, Clone)]
pub struct Spec {
    /// How many of the ranks are workers; they come first.
    pub workers: u32,
    /// How many are servers only; they come after the workers.
    pub servers: u32,
    /// The world's number: a member of another one is refused.
    pub epoch: u32,
    /// The job's random name.
    pub job: [u8; 16],
    /// How long a member that does not say so waits for the last; [`silent_after`](super::silent_after) says how long a remote member may be silent.
    pub timeout: Duration,
    /// Whoever hosts the coordinator started the ranks and will say how each process ended: worth a short wait.
    pub knows_exits: bool,
    /// How each rank is expected to start, for the error about missing ones.
    pub how_ranks_start: Vec<String>,
}

impl Spec {
    /// How many ranks the job has.
    pub fn world(&self) -> u32 {
        self.workers + self.servers
    }
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// An authenticated member said something.
    Said {
        /// On this connection.
        connection: ConnectionId,
        /// It runs on this host and needs no heartbeats: its socket tells.
        local: bool,
        /// Its words.
        message: Control,
    },
    /// A member's connection ended.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// How it was noticed.
        detail: String,
    },
    /// The launcher saw a process end.
    ProcessEnded {
        /// The process of this rank.
        rank: u32,
        /// How it ended.
        cause: DownCause,
    },
    /// The member that hosts this coordinator fails, and the coordinator with it.
    HostAborted {
        /// The member.
        rank: u32,
        /// Who else is to blame, if anyone.
        blame: Option<Blame>,
        /// Why.
        reason: String,
    },
    /// Time passed.
    Tick,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send a message to a member.
    Send {
        /// To this one.
        connection: ConnectionId,
        /// These words.
        message: Control,
    },
    /// Close a member's connection, after what was sent before.
    Close {
        /// Which.
        connection: ConnectionId,
    },
    /// Everybody has left or died; nothing will follow.
    Finished,
}
