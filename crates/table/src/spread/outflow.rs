//! A reply that is sent while it is made.
//!
//! Its length is known before its first byte, so the header goes first and the pieces follow as they come. Small pieces are
//! gathered, because each send is a system call; until the first of them has left, an error can still be told, and the link is free for
//! other replies.

use std::time::Duration;

use syncline_cluster::{Deadline, Error};
use syncline_transport::{LinkError, OutFrame, SendHalf};
use syncline_wire::{Fingerprint, Kind};

use super::answering::{Sender, Trouble, sending};
use super::baton::Held;
use super::gate::{self, Gate, Pass};
use super::messages::Reply;

/// What is gathered before it is sent.
const GATHERED: usize = 256 << 10;
/// Pieces from this size on are sent from where they are: a copy would cost more than the call.
const LARGE: usize = 48 << 10;

/// A reply under way.
pub(crate) struct Outflow<'a> {
    send: &'a Sender,
    /// The link, from the first byte to the last.
    held: Option<Held<'a, Box<dyn SendHalf>>>,
    sequence: u64,
    table: Fingerprint,
    rows: u64,
    total: u64,
    left: u64,
    gathered: Vec<u8>,
    lost: Option<LinkError>,
    /// How long the worker may take to read a piece. What is sent may have waited for other workers before, and that time is not its own.
    patience: Duration,
    turn: Turn<'a>,
}

/// Whether a large reply waits for its turn.
enum Turn<'a> {
    No,
    Wanted(&'a Gate, i32),
    Has(Pass<'a>),
}

impl<'a> Outflow<'a> {
    /// A reply of so many rows, in `total` bytes, to a worker that may take so long to read a piece of it.
    pub(crate) fn new(send: &'a Sender, sequence: u64, table: Fingerprint, rows: u64, total: u64, patience: Duration) -> Outflow<'a> {
        let (held, gathered, lost, turn) = (None, Vec::new(), None, Turn::No);
        Outflow { send, held, sequence, table, rows, total, left: total, gathered, lost, patience, turn }
    }

    /// The same, behind `gate` with this priority if it is large.
    pub(crate) fn in_turn(self, gate: &'a Gate, priority: Option<i32>) -> Outflow<'a> {
        let turn = priority.filter(|_| self.total > gate::SMALL).map_or(Turn::No, |priority| Turn::Wanted(gate, priority));
        Outflow { turn, ..self }
    }

    /// Takes the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let more = self.left.checked_sub(bytes.len() as u64);
        self.left =
            more.ok_or_else(|| Error::System { operation: "reply".into(), detail: "a share gave more than was asked for".into() })?;
        let sent = if bytes.len() >= LARGE {
            let sent = if self.gathered.is_empty() { Ok(()) } else { self.flush() };
            sent.and_then(|()| self.emit(bytes))
        } else {
            let full = self.gathered.len() + bytes.len() > GATHERED;
            let sent = if full { self.flush() } else { Ok(()) };
            if self.gathered.capacity() == 0 {
                self.gathered.reserve_exact(GATHERED.min(bytes.len() + self.left as usize));
            }
            self.gathered.extend_from_slice(bytes);
            sent
        };
        sent.map_err(|error| {
            let told = Error::System { operation: "reply".into(), detail: error.to_string() };
            self.lost = Some(error);
            told
        })
    }

    /// Ends the reply as its making ended. An error after the first byte has left leaves no choice but to end the link.
    pub(crate) fn end(mut self, made: Result<(), Error>) -> Result<(), Trouble> {
        if let Some(error) = self.lost {
            return Err(Trouble::Link(error));
        }
        match made {
            Ok(()) if self.left == 0 => Ok(self.flush()?),
            Ok(()) if self.held.is_none() => {
                let detail = format!("a share gave {} bytes too few", self.left);
                Err(Trouble::Refuse(Error::System { operation: "reply".into(), detail }))
            }
            Err(error) if self.held.is_none() => Err(Trouble::Refuse(error)),
            _ => Err(Trouble::Link(LinkError::Broken { since: "a reply could not be finished" })),
        }
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let gathered = std::mem::take(&mut self.gathered);
        let sent = self.emit(&gathered);
        self.gathered = gathered;
        self.gathered.clear();
        sent
    }

    fn emit(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        let by = Deadline::after(self.patience);
        if let Some(held) = &mut self.held {
            if let Turn::Has(pass) = &self.turn {
                pass.progress();
            }
            return if bytes.is_empty() { Ok(()) } else { held.piece(bytes, by) };
        }
        if let Turn::Wanted(gate, priority) = self.turn {
            self.turn = Turn::Has(gate.enter(priority, by));
        }
        let meta = Reply::Data { rows: self.rows }.encode();
        let payload = [bytes];
        let frame = OutFrame {
            sequence: self.sequence,
            fingerprint: self.table,
            meta: &meta,
            payload: &payload,
            ..OutFrame::new(Kind::TABLE_REPLY)
        };
        self.held.insert(sending(self.send, by)?).begin(&frame, self.total, by)
    }
}
