//! How a member behaves, as values: whoever reads the environment fills them in.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a member is told beside its [`Launch`](crate::bootstrap::Launch).
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long to wait for somebody who neither comes nor dies.
    pub timeout: Duration,
    /// What may carry links.
    pub transport: TransportChoice,
    /// Whether traffic between hosts is encrypted.
    pub encrypt: bool,
    /// Offer only addresses of the interfaces whose names begin so.
    pub interface: Option<String>,
    /// What the death of a worker means for the others. It takes all workers to go on; dedicated servers do as they do.
    pub on_peer_loss: OnPeerLoss,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            timeout: Duration::from_secs(30),
            transport: TransportChoice::Auto,
            encrypt: true,
            interface: None,
            on_peer_loss: OnPeerLoss::Fail,
        }
    }
}

/// What the death of a worker means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnPeerLoss {
    /// Whatever waits for all workers fails and names the dead one.
    #[default]
    Fail,
    /// The others go on: barriers and agreements no longer wait for it.
    ///
    /// The death of a dedicated server, or of the first worker of a host in a job of several hosts, still fails.
    Continue,
}

impl fmt::Display for OnPeerLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnPeerLoss::Fail => "fail",
            OnPeerLoss::Continue => "continue",
        })
    }
}

impl FromStr for OnPeerLoss {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [OnPeerLoss::Fail, OnPeerLoss::Continue]
            .into_iter()
            .find(|choice| choice.to_string().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| format!("SYNCLINE_ON_PEER_LOSS={text} is unknown; it may be fail or continue"))
    }
}

/// What may carry links between members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TransportChoice {
    /// Shared memory inside a host, TCP between hosts.
    #[default]
    Auto,
    /// Shared memory only; ranks of other hosts are an error.
    Shm,
    /// Unix sockets only; ranks of other hosts are an error.
    Unix,
    /// TCP everywhere.
    Tcp,
}

impl fmt::Display for TransportChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransportChoice::Auto => "auto",
            TransportChoice::Shm => "shm",
            TransportChoice::Unix => "unix",
            TransportChoice::Tcp => "tcp",
        })
    }
}

impl FromStr for TransportChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [TransportChoice::Auto, TransportChoice::Shm, TransportChoice::Unix, TransportChoice::Tcp]
            .into_iter()
            .find(|choice| choice.to_string().eq_ignore_ascii_case(text.trim()))
            .ok_or_else(|| format!("SYNCLINE_TRANSPORT={text} is unknown; it may be auto, shm, unix or tcp"))
    }
}
