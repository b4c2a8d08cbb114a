//! What went over the links of a group.

use std::time::Duration;

/// What this rank exchanged with one peer.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct LinkReport {
    /// The peer's rank in the job.
    pub peer: u32,
    /// Bytes sent to it.
    pub bytes_sent: u64,
    /// Bytes received from it.
    pub bytes_received: u64,
    /// Messages sent to it.
    pub calls_sent: u64,
    /// Messages received from it.
    pub calls_received: u64,
    /// Time spent in sending to it.
    pub sending: Duration,
    /// Time spent in receiving from it.
    pub receiving: Duration,
}
