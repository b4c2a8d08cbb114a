//! Why a process could not tell who it is. Each error names the variable, its value and what to do.

use std::path::PathBuf;

/// Why no [`Launch`](super::Launch) could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// A variable that must be a number is not one.
    #[error("{variable}={value:?} is not {expected}")]
    NotUnderstood {
        /// Which variable.
        variable: String,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// One half of a pair is set.
    #[error("{variable}={value} is set but {missing} is not, so the job cannot be known; set {missing}, or unset {variable} to run alone")]
    HalfSet {
        /// The variable that is there.
        variable: String,
        /// What it holds.
        value: String,
        /// What is needed beside it.
        missing: &'static str,
    },
    /// A number lies outside its range.
    #[error("{variable}={value} does not fit {limit_variable}={limit}: it must be smaller")]
    TooLarge {
        /// The variable with the number.
        variable: String,
        /// Its number.
        value: u32,
        /// The variable with the bound.
        limit_variable: String,
        /// The bound.
        limit: u32,
    },
    /// Two sources that should agree do not.
    #[error("{variable}={value} contradicts {other}={other_value}; unset the one that was left over")]
    Contradiction {
        /// One variable.
        variable: String,
        /// What it holds.
        value: String,
        /// The other variable.
        other: String,
        /// What that holds.
        other_value: String,
    },
    /// A rendezvous text that means nothing.
    #[error("rendezvous {value:?}: {problem}; write unix:@name, tcp://host:port, host:port or file:/path")]
    Rendezvous {
        /// The text as given.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A list of hosts or tasks that does not follow Slurm's grammar.
    #[error("{variable}={value:?} is not a Slurm list: {problem} at byte {offset}")]
    SlurmList {
        /// Which variable.
        variable: String,
        /// What it holds.
        value: String,
        /// What is wrong.
        problem: &'static str,
        /// Where it is wrong.
        offset: usize,
    },
    /// A tree has no such node.
    #[error("there is no node {node} in a tree of {nodes}: nodes are numbered from 1 to {nodes}")]
    NoSuchNode {
        /// The number given.
        node: u32,
        /// How many nodes the tree has.
        nodes: u32,
    },
    /// A node has no parent to be known by.
    #[error("node {node} of {nodes} has no parent process to find the others by; pass a process id that all nodes know")]
    NoParent {
        /// This node.
        node: u32,
        /// How many nodes the tree has.
        nodes: u32,
    },
    /// Node 1 cannot have the port it was told to take.
    #[error("node 1 cannot listen at {address}: {source}; is the port in use, is the address one of this host's?")]
    PortTaken {
        /// Where it was to listen.
        address: String,
        /// What the system answered.
        source: std::io::Error,
    },
    /// Node 1 published no address in time.
    #[error(
        "node {node} of {nodes} {} after {waited:.1?}: node 1 has published no address; is node 1 running, do publish and query use the same place?",
        if *interrupted { "was interrupted" } else { "gave up" }
    )]
    NothingPublished {
        /// This node.
        node: u32,
        /// How many nodes the tree has.
        nodes: u32,
        /// How long it asked.
        waited: std::time::Duration,
        /// Whether the user ended the wait.
        interrupted: bool,
    },
    /// Node 1 could not tell the others where it is.
    #[error("tree of {nodes} nodes: node 1 could not publish that it is at {address}: {reason}")]
    NotPublished {
        /// Where it is.
        address: String,
        /// How many nodes the tree has.
        nodes: u32,
        /// Why it could not, in the words of the function that should have.
        reason: String,
    },
    /// The launcher gives neither a meeting point nor anything to derive one from.
    #[error("{launcher} started rank {rank} of {world} but {missing}; {hint}")]
    NoMeeting {
        /// The launcher's name.
        launcher: &'static str,
        /// This process.
        rank: u32,
        /// How many there are.
        world: u32,
        /// What is missing.
        missing: &'static str,
        /// What to do about it.
        hint: &'static str,
    },
}

/// Why the job's token could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// There is no folder for the user's key.
    #[error(
        "no token is given and neither HOME nor XDG_CONFIG_HOME names a folder to keep the user's key in; set SYNCLINE_TOKEN to the same secret on every rank"
    )]
    NoHome,
    /// The key file may have been read or written by somebody else.
    #[error("the key file {} {problem}; {hint}, or set SYNCLINE_TOKEN on every rank", path.display())]
    Unsafe {
        /// The key file.
        path: PathBuf,
        /// Why it is not trusted.
        problem: String,
        /// How to repair it.
        hint: String,
    },
    /// The key file cannot be used.
    #[error("cannot {action} the key file {}; set SYNCLINE_TOKEN to the same secret on every rank", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The key file.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    NoRandomness(String),
}
