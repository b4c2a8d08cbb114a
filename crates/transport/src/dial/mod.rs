//! How to reach a door: several addresses tried at once, the first that proves to be the right one wins.
//!
//! Only the winner hears the hello, so a door sees one visitor however many of its addresses were tried. An address that
//! swallows everything costs a descriptor until the race is over and delays nobody.

mod race;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::noise::{Identity, MAX_HELLO, Unanswered, VERSION};
use crate::{Address, Connection, Deadline, JobKey};
use race::Race;

/// What a caller needs to know.
#[derive(Clone, Debug)]
pub struct DialConfig {
    /// The job's key.
    pub key: JobKey,
    /// The member that is wanted; anyone who holds the token, if `None`.
    pub expect_identity: Option<Identity>,
    /// Whether TCP traffic must be sealed. The door may insist even if not.
    pub encrypt: bool,
}

/// Connects to the door at `address`, proves the token, and says `hello`, handing over `fd` if there is one (Unix only).
///
/// One attempt; an error tells what happened to it.
pub fn dial(
    address: &Address,
    config: &DialConfig,
    hello: &[u8],
    fd: Option<BorrowedFd<'_>>,
    deadline: Deadline,
) -> Result<Connection, DialError> {
    dial_any(std::slice::from_ref(address), config, hello, fd, deadline)
}

/// As [`dial`], but tries again and again until the deadline, since the listener may not be there yet.
///
/// What cannot become better by waiting (another protocol, version, token or member) still fails at once.
pub fn dial_until(
    address: &Address,
    config: &DialConfig,
    hello: &[u8],
    fd: Option<BorrowedFd<'_>>,
    deadline: Deadline,
) -> Result<Connection, DialError> {
    dial_any_until(std::slice::from_ref(address), config, hello, fd, deadline)
}

/// Tries all addresses at once; the first that completes the handshake with the expected identity wins.
pub fn dial_any(
    addresses: &[Address],
    config: &DialConfig,
    hello: &[u8],
    fd: Option<BorrowedFd<'_>>,
    deadline: Deadline,
) -> Result<Connection, DialError> {
    Race::new(addresses, config, hello, fd, false)?.run(deadline)
}

/// As [`dial_any`], trying each address again and again until the deadline.
pub fn dial_any_until(
    addresses: &[Address],
    config: &DialConfig,
    hello: &[u8],
    fd: Option<BorrowedFd<'_>>,
    deadline: Deadline,
) -> Result<Connection, DialError> {
    Race::new(addresses, config, hello, fd, true)?.run(deadline)
}

/// Why nobody was reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// No address led to the wanted member.
    #[error("no address answered within {waited:.1?}: {}", list(tried))]
    Unreached {
        /// Every address and its last failure.
        tried: Vec<Tried>,
        /// How long it was tried.
        waited: Duration,
    },
    /// The interrupt function of the deadline said so.
    #[error("interrupted while connecting")]
    Interrupted,
    /// The hello does not fit.
    #[error("a hello has at most {MAX_HELLO} bytes, this one has {len}")]
    HelloTooLong {
        /// Its length.
        len: usize,
    },
}

impl DialError {
    /// Whether an address was reached whose door does not accept this process's token (or has none).
    pub fn is_about_the_token(&self) -> bool {
        let about = |tried: &Tried| {
            matches!(
                tried.failure,
                DialFailure::TokenRefused | DialFailure::Impostor
            )
        };
        matches!(self, DialError::Unreached { tried, .. } if tried.iter().any(about))
    }
}

fn list(tried: &[Tried]) -> String {
    if tried.is_empty() {
        return "there was no address to try".to_owned();
    }
    tried
        .iter()
        .map(Tried::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// What happened to one address.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {failure}{}", if *attempts > 1 { format!(" ({attempts} attempts)") } else { String::new() })]
pub struct Tried {
    /// Where.
    pub address: Address,
    /// The last thing that went wrong there.
    pub failure: DialFailure,
    /// How often it was tried.
    pub attempts: u32,
}

/// What can go wrong at one address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialFailure {
    /// Nobody listens there.
    #[error("nobody listens there")]
    Refused,
    /// The network does not lead there.
    #[error("it cannot be reached ({0})")]
    Unreachable(Errno),
    /// Connecting got no answer: a wrong address, or a firewall that swallows packets.
    #[error("no answer; is the address right, is the port open?")]
    Silent,
    /// It connected, but the door did not answer: its process may be stopped.
    #[error("somebody listens but did not answer the greeting")]
    Unanswered,
    /// It hung up in the middle of the greeting.
    #[error("it hung up during the greeting")]
    HungUp,
    /// Something else listens there.
    #[error("what listens there does not speak Syncline's protocol")]
    NotSyncline,
    /// Another release.
    #[error(
        "it speaks protocol version {theirs}, this process speaks {ours}; install the same release everywhere"
    )]
    Version {
        /// The door's version.
        theirs: u16,
        /// This process's version.
        ours: u16,
    },
    /// The door belongs to a job with another token.
    #[error("it refused this process's token; is SYNCLINE_TOKEN the same everywhere?")]
    TokenRefused,
    /// It answered without knowing the token.
    #[error("it answered without proving that it holds this job's token")]
    Impostor,
    /// A member of the job, but not the wanted one.
    #[error("another member of the job listens there")]
    OtherMember {
        /// Who was found.
        found: Identity,
    },
    /// It refused for a reason that this release does not know.
    #[error("it refused with status {status}")]
    Unknown {
        /// The number it gave.
        status: u16,
    },
    /// A descriptor can only be passed to a neighbour.
    #[error("a descriptor cannot travel over TCP")]
    NoDescriptors,
    /// The name is not one.
    #[error("it is no valid address")]
    BadAddress,
    /// The operating system refused a call for another reason.
    #[error("{0}")]
    Os(Errno),
}

impl DialFailure {
    /// Whether the same attempt may succeed later.
    fn may_pass(&self) -> bool {
        use DialFailure::{HungUp, Os, Refused, Silent, Unanswered, Unreachable};
        matches!(
            self,
            Refused | Unreachable(_) | Silent | Unanswered | HungUp | Os(_)
        )
    }

    fn from_errno(errno: Errno) -> DialFailure {
        match errno {
            Errno::CONNREFUSED => DialFailure::Refused,
            Errno::TIMEDOUT => DialFailure::Silent,
            Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN => DialFailure::HungUp,
            Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::ADDRNOTAVAIL => DialFailure::Unreachable(errno),
            other => DialFailure::Os(other),
        }
    }
}

impl From<Unanswered> for DialFailure {
    fn from(unanswered: Unanswered) -> DialFailure {
        match unanswered {
            Unanswered::NotSyncline => DialFailure::NotSyncline,
            Unanswered::Version { theirs } => DialFailure::Version {
                theirs,
                ours: VERSION,
            },
            Unanswered::TokenRefused => DialFailure::TokenRefused,
            Unanswered::Unknown { status } => DialFailure::Unknown { status },
            Unanswered::Forged => DialFailure::Impostor,
        }
    }
}
