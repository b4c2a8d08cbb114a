//! Why a link did not do what it was asked: the one error of everything that moves frames.

use std::io;
use std::time::Duration;

use syncline_wire::WireError;

/// Why a send or a receive failed, and with it what is left of the link.
///
/// Each direction fails by itself. `Timeout` and `Interrupted` between two frames leave it usable, as do
/// `StaleEpoch` and `WrongLength`; in the middle of a frame they leave it [`Broken`](LinkError::Broken).
/// All others are final for the direction.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The deadline passed.
    #[error("the peer did not {} within {waited:?}{}", if *half_written { "take the rest of a frame" } else { "answer" },
        if *half_written { "; the frame is half written and the link cannot be used again" } else { "" })]
    Timeout {
        /// How long this call waited.
        waited: Duration,
        /// Whether part of the frame had already left: the direction is broken then.
        half_written: bool,
    },
    /// The interrupt function of the deadline said so (Ctrl-C in an interpreter).
    #[error("interrupted while waiting for the peer")]
    Interrupted,
    /// The other side died or closed the link.
    #[error("the peer is gone: {detail}")]
    PeerGone {
        /// How it was noticed, and how much of a frame was missing.
        detail: String,
    },
    /// This side gave the link up through its [`Severer`](crate::Severer).
    #[error("the link was severed by this process")]
    Severed,
    /// What arrived is not a frame, or a frame that nobody may send.
    #[error("the frame cannot be read")]
    Corrupt(#[from] WireError),
    /// A sealed record was changed, repeated or left out on its way.
    #[error("record {record} of the encrypted stream fails its authentication")]
    Tampered {
        /// Counted from the beginning of the link.
        record: u64,
    },
    /// A frame of another life of the job. It is skipped; the link goes on.
    #[error("the frame belongs to epoch {theirs} of the job, this is epoch {ours}")]
    StaleEpoch {
        /// The epoch in the frame's header.
        theirs: u32,
        /// The epoch of this link.
        ours: u32,
    },
    /// The caller's buffer does not fit what is left of the body. Nothing was read.
    #[error("the body has {expected} bytes left, the buffer has {got}")]
    WrongLength {
        /// What is left of the body.
        expected: u64,
        /// The length of the buffer.
        got: u64,
    },
    /// An earlier failure left half a frame in this direction.
    #[error("the link cannot be used in this direction since {since}")]
    Broken {
        /// What happened.
        since: &'static str,
    },
    /// The operating system refused a call for a reason that is not the peer's.
    #[error("the operating system refused")]
    Io(#[from] io::Error),
}

impl LinkError {
    /// What an error of a socket call says about the link.
    pub(crate) fn from_errno(errno: rustix::io::Errno) -> LinkError {
        use rustix::io::Errno;
        let detail = match errno {
            Errno::PIPE | Errno::NOTCONN | Errno::SHUTDOWN => "it closed the connection",
            Errno::CONNRESET | Errno::CONNABORTED => "its end of the connection was reset",
            Errno::TIMEDOUT => "its host no longer acknowledges what is sent",
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::NETDOWN => "its host can no longer be reached",
            other => return LinkError::Io(other.into()),
        };
        LinkError::PeerGone { detail: detail.to_owned() }
    }

    /// Whether the same call can be repeated and may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            LinkError::Timeout { half_written: false, .. }
                | LinkError::Interrupted
                | LinkError::StaleEpoch { .. }
                | LinkError::WrongLength { .. }
        )
    }
}
