//! The sending half of a connection, and the rest of a message that a deadline cut off.
//!
//! A frame that has begun cannot be taken back. When its sender gives up, the rest of it is copied here and goes
//! out before anything else does, so the peer never sees half a message. At most one message is kept, since the
//! next one does not begin before it has gone: that is the bound on what a client that does not read costs.

use syncline_transport::{LinkError, OutFrame, SendHalf, Sending};
use syncline_wire::Kind;

pub(crate) struct Outflow {
    pub(crate) half: Box<dyn SendHalf>,
    owed: Option<Owed>,
}

struct Owed {
    meta: Vec<u8>,
    payload: Vec<u8>,
    sending: Sending,
}

/// A message as a frame.
pub(crate) fn message<'a>(meta: &'a [u8], payload: &'a [&'a [u8]]) -> OutFrame<'a> {
    OutFrame { meta, payload, ..OutFrame::new(Kind::VALUE) }
}

impl Outflow {
    pub(crate) fn new(half: Box<dyn SendHalf>) -> Outflow {
        Outflow { half, owed: None }
    }

    /// Sends what goes without waiting; true once all of `frame` has gone, and all that was owed before it.
    pub(crate) fn push(&mut self, frame: &OutFrame<'_>, sending: &mut Sending) -> Result<bool, LinkError> {
        if !sending.has_begun() && !self.settle()? {
            return Ok(false);
        }
        self.half.advance(frame, sending)
    }

    /// Sends what is owed as far as it goes without waiting; true when nothing is owed.
    pub(crate) fn settle(&mut self) -> Result<bool, LinkError> {
        let Some(owed) = &mut self.owed else {
            return Ok(true);
        };
        let done = self.half.advance(&message(&owed.meta, &[&owed.payload]), &mut owed.sending)?;
        if done {
            self.owed = None;
        }
        Ok(done)
    }

    /// Whether part of a message waits here.
    pub(crate) fn owes(&self) -> bool {
        self.owed.is_some()
    }

    /// Keeps a message whose sender gives up in the middle of it.
    pub(crate) fn keep(&mut self, frame: &OutFrame<'_>, sending: Sending) {
        self.owed = Some(Owed { meta: frame.meta.to_vec(), payload: frame.payload.concat(), sending });
    }
}
