//! Moves frames between two ranks and keeps their order, over whatever joins them.
//!
//! ```text
//!  Door ◀── Noise, token ── dial      two processes meet and become a Connection,
//!     └────▶ Link ◀──────────┘        a Connection becomes a Link: inproc, shm, unix or tcp behind one contract
//! ```
//! Start with [`link`](mod@link): the contract. Its implementations are [`inproc`], [`shm`], [`unix`] and [`tcp`], each with its cost at the top.
//! [`door`](mod@door) lets members in and nobody else; [`dial`](mod@dial) reaches them.
//!
//! What this crate never does: wait without a [`Deadline`], believe a length before checking it, re-encode a payload,
//! start a thread, or call anyone back.

#![forbid(unsafe_code)]

mod address;
mod connection;
pub mod dial;
pub mod door;
mod fault;
mod framing;
pub mod inproc;
mod key;
pub mod link;
mod noise;
mod sealed;
pub mod shm;
mod stream;
pub mod tcp;
pub mod unix;

pub use address::{Address, AddressError, MAX_UNIX_NAME};
pub use connection::Connection;
pub use dial::{DialConfig, DialError, DialFailure, dial, dial_any, dial_any_until, dial_until};
pub use door::{Door, DoorConfig, DoorError, DoorEvent, DoorWaker};
pub use fault::LinkError;
pub use key::JobKey;
pub use link::{Head, Link, LinkInfo, OutFrame, RecvHalf, SendHalf, Sending, Severer, TransportKind};
pub use noise::{Identity, MAX_HELLO, Refusal};
pub use syncline_shm::wait::Deadline;
