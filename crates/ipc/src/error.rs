//! What can go wrong between a server and a client, always with the name of the other side.

use std::fmt;
use std::time::Duration;

use syncline_cluster::ErrorKind;
use syncline_wire::WireError;

/// The other end of a connection, as an error names it: `client 42 "hi" (127.0.0.1:5000, pid 4711 on node7)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whom {
    /// Role, id and tag, address: what a reader needs to find it.
    pub name: String,
    /// The name of its machine, where it told.
    pub host: Option<String>,
    /// Its process, where it is known.
    pub pid: Option<u32>,
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (&self.host, self.pid) {
            (Some(host), Some(pid)) => write!(f, " (pid {pid} on {host})"),
            (None, Some(pid)) => write!(f, " (pid {pid})"),
            _ => Ok(()),
        }
    }
}

/// Why a call on a server or a client failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The other side died, was cut off, or sent what nobody may send.
    #[error("{operation}: {whom} is gone: {how}{others}")]
    PeerLost {
        /// What was going on.
        operation: &'static str,
        /// The other side.
        whom: Box<Whom>,
        /// How it was noticed.
        how: String,
        /// What happened to others in the same call, if it was made for several.
        others: String,
    },
    /// Somebody did not come, send or take in time.
    #[error("{operation}: waited {:.1} s for {waited_for}\nhint: {hint}", waited.as_secs_f64())]
    Timeout {
        /// What was going on.
        operation: &'static str,
        /// For whom, and what they have done so far.
        waited_for: String,
        /// The first of them.
        whom: Option<Box<Whom>>,
        /// How long was waited.
        waited: Duration,
        /// What to try next.
        hint: &'static str,
    },
    /// One of the two sides has closed the connection on purpose.
    #[error("{operation}: {what}")]
    Closed {
        /// What was asked for.
        operation: &'static str,
        /// Which side closed it.
        what: String,
    },
    /// A server's client that was closed, or whose function has returned.
    #[error("server client is invalid, either closed or used outside of server function scope")]
    InvalidClient,
    /// The token of one side is not that of the other.
    #[error("{operation}: {detail}\nhint: give both sides the same token= or SYNCLINE_TOKEN, or run them as one user of one host")]
    Auth {
        /// What was going on.
        operation: &'static str,
        /// Who refused whom.
        detail: String,
    },
    /// A message is no tensor of the dtype and shape that it should be received into. It stays where it is.
    #[error("{operation}: {whom} sent {sent}, which cannot be received into {wanted}\nhint: recv() without a target takes it as it is")]
    ShapeMismatch {
        /// What was asked for.
        operation: &'static str,
        /// Who sent it.
        whom: Box<Whom>,
        /// What came.
        sent: String,
        /// What the target is.
        wanted: String,
    },
    /// A value that no message can carry.
    #[error("{operation}: the value cannot be sent: {cause}")]
    Unsendable {
        /// What was asked for.
        operation: &'static str,
        /// What is wrong with it.
        cause: WireError,
    },
    /// The user interrupted the wait.
    #[error("{operation}: interrupted after {:.1} s", waited.as_secs_f64())]
    Interrupted {
        /// What was going on.
        operation: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// This process is a fork of the one that opened the connection.
    #[error(
        "{operation}: this process was forked from the one that has this handle, and cannot use it\nhint: start the child with the spawn or forkserver method and give it the handle; a client it may open itself"
    )]
    Forked {
        /// What was asked for.
        operation: &'static str,
    },
    /// An address or a setting that makes no sense, or a place where something else listens.
    #[error("{operation}: {detail}")]
    Configuration {
        /// What was asked for.
        operation: &'static str,
        /// Which, and why.
        detail: String,
    },
    /// The item is not leased to this process any more: it was finished or given back.
    #[error("{operation}: the item is not leased to this process any more, it was finished or given back")]
    LeaseOver {
        /// What was asked for.
        operation: &'static str,
    },
    /// Shared memory says what no member of the family would write.
    #[error("{operation}: the family's shared memory is damaged: {detail}")]
    Damaged {
        /// What was asked for.
        operation: &'static str,
        /// Which word, and what it said.
        detail: String,
    },
    /// The operating system refused something.
    #[error("{operation}: {detail}")]
    System {
        /// What was going on.
        operation: &'static str,
        /// The system's words and what they were about.
        detail: String,
    },
}

impl Error {
    /// The stable family of this error; bindings map it to their exceptions.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::PeerLost { .. } => ErrorKind::PeerLost,
            Error::Timeout { .. } => ErrorKind::Timeout,
            Error::Closed { .. } | Error::InvalidClient | Error::LeaseOver { .. } => ErrorKind::Closed,
            Error::Auth { .. } => ErrorKind::Auth,
            Error::ShapeMismatch { .. } => ErrorKind::ShapeMismatch,
            Error::Interrupted { .. } => ErrorKind::Interrupted,
            Error::Forked { .. } => ErrorKind::Forked,
            Error::Unsendable { .. } | Error::Configuration { .. } => ErrorKind::Configuration,
            Error::System { .. } | Error::Damaged { .. } => ErrorKind::System,
        }
    }

    /// The other side, where one is at fault.
    pub fn whom(&self) -> Option<&Whom> {
        match self {
            Error::PeerLost { whom, .. } | Error::ShapeMismatch { whom, .. } => Some(whom),
            Error::Timeout { whom, .. } => whom.as_deref(),
            _ => None,
        }
    }
}
