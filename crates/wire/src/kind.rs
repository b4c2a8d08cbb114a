//! What a frame is for: one number in its header that says who should read it.

use std::fmt;

/// The purpose of a frame.
///
/// The set is open on purpose: this crate knows how to carry any kind, and a layer that receives one it
/// does not know answers with an error instead of losing the connection in the decoder. Kinds below
/// [`Kind::FIRST_FREE`] are Syncline's own spine; the layers above number theirs from there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u16);

impl Kind {
    /// A [`Control`](crate::message::Control) message in the meta, no payload.
    pub const CONTROL: Kind = Kind(1);
    /// A payload of raw bytes; the meta, if any, belongs to the sender's layer.
    pub const DATA: Kind = Kind(2);
    /// A [`Value`](crate::Value): its structure in the meta, its tensors in the payload.
    pub const VALUE: Kind = Kind(3);
    /// "I have arrived": a step of a barrier. The fingerprint says of which.
    pub const BARRIER: Kind = Kind(4);
    /// The sender will send no more and leaves in good order.
    pub const GOODBYE: Kind = Kind(5);
    /// The sender will not serve this connection; the meta says why.
    pub const REFUSED: Kind = Kind(6);
    /// Nothing but a sign of life.
    pub const HEARTBEAT: Kind = Kind(7);
    /// A [`Hello`](crate::message::Hello): who connects and what for, the first frame of a link.
    pub const HELLO: Kind = Kind(8);
    /// What a worker asks of a part of a table that lives elsewhere.
    pub const TABLE_REQUEST: Kind = Kind(9);
    /// What it is answered.
    pub const TABLE_REPLY: Kind = Kind(10);
    /// What one server of a table tells another about a worker that died.
    pub const TABLE_REPORT: Kind = Kind(11);
    /// The first number that this crate leaves to the layers above.
    pub const FIRST_FREE: Kind = Kind(256);

    /// The name of a kind of the spine, if it is one.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Kind::CONTROL => "control",
            Kind::DATA => "data",
            Kind::VALUE => "value",
            Kind::BARRIER => "barrier",
            Kind::GOODBYE => "goodbye",
            Kind::REFUSED => "refused",
            Kind::HEARTBEAT => "heartbeat",
            Kind::HELLO => "hello",
            Kind::TABLE_REQUEST => "table request",
            Kind::TABLE_REPLY => "table reply",
            Kind::TABLE_REPORT => "table report",
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "kind {}", self.0),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kind({self})")
    }
}
