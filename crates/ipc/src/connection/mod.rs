//! One connection, from either side: messages out, messages in, and what is left when it ends.
//!
//! Each half is used by one thread at a time, both at once. Nothing here has a thread: bytes move while somebody
//! sends or receives.

mod deliver;
mod inflow;
mod meter;
mod outflow;
mod turn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use syncline_tensor::TensorViewMut;
use syncline_transport::{Connection, Deadline, LinkError, OutFrame, Sending, Severer};
use syncline_wire::{EncodedValue, Kind, Value, WireError};

use crate::{Error, Whom};
pub(crate) use deliver::deliver;
pub(crate) use inflow::Inflow;
pub(crate) use meter::Meter;
pub use meter::{NetStats, Traffic};
use outflow::Outflow;
pub(crate) use turn::{Taken, Turn};

/// One end of a connection.
pub(crate) struct Pipe {
    outflow: Turn<Outflow>,
    pub(crate) inflow: Turn<Inflow>,
    severer: Severer,
    closed: AtomicBool,
    /// Part of a message waits to be sent by whoever comes by.
    owes: AtomicBool,
    pub(crate) meter: Arc<Meter>,
    owner: Owner,
}

impl Pipe {
    pub(crate) fn new(connection: Connection, meter: Arc<Meter>) -> Pipe {
        // Epochs and ranks are a job's; here there are none.
        let link = connection.into_stream_link(0, 0);
        let severer = link.severer();
        let (sender, receiver) = link.split();
        Pipe {
            outflow: Turn::new(Outflow::new(sender)),
            inflow: Turn::new(Inflow::new(receiver)),
            severer,
            closed: AtomicBool::new(false),
            owes: AtomicBool::new(false),
            meter,
            owner: Owner::this_process(),
        }
    }

    pub(crate) fn recv(&self, by: Deadline) -> Result<Value<'static>, Fault> {
        self.receive(by, |inflow, by| inflow.next(by))
    }

    pub(crate) fn recv_into(&self, target: &mut TensorViewMut<'_>, by: Deadline) -> Result<(), Fault> {
        self.receive(by, |inflow, by| inflow.next_into(target, by).map(|bytes| ((), bytes)))
    }

    /// The next message if it is completely here.
    pub(crate) fn try_recv(&self) -> Result<Option<Value<'static>>, Fault> {
        self.usable()?;
        self.settle();
        self.meter.rx.call(|| {
            let Some(mut inflow) = self.inflow.try_take() else { return Ok(None) };
            let message = self.meter.rx.system(|| inflow.next_if_here())?;
            Ok(message.map(|(value, bytes)| {
                self.meter.rx.message(bytes, 2);
                value
            }))
        })
    }

    fn receive<T>(&self, by: Deadline, mut read: impl FnMut(&mut Inflow, Deadline) -> Result<(T, u64), Fault>) -> Result<T, Fault> {
        /// How often a wait looks after the rest of a message that this side still owes.
        const TICK: Duration = Duration::from_millis(10);
        self.usable()?;
        self.meter.rx.call(|| {
            let mut inflow = self.inflow.take(by)?;
            inflow.drained = false;
            loop {
                let waits = if self.settle() { by } else { by.within(TICK) };
                match self.meter.rx.system(|| read(&mut inflow, waits)) {
                    Ok((value, bytes)) => {
                        self.meter.rx.message(bytes, 2);
                        return Ok(value);
                    }
                    Err(Fault::Late { .. }) if !by.expired() => {}
                    Err(fault) => return Err(fault),
                }
            }
        })
    }

    /// Goes on with what is owed, if nobody else does; true when nothing is.
    pub(crate) fn settle(&self) -> bool {
        if !self.owes.load(Acquire) {
            return true;
        }
        // Whoever has the other half settles first; a failure is theirs to find who sends next.
        let Some(mut outflow) = self.outflow.try_take() else { return false };
        let settled = outflow.settle().unwrap_or(true);
        if settled {
            self.owes.store(false, Release);
        }
        settled
    }

    pub(crate) fn owes(&self) -> bool {
        self.owes.load(Acquire)
    }

    /// Says goodbye if there is room for it, and ends every wait on this connection.
    pub(crate) fn close(&self) {
        if !self.owner.is_this_process() || self.closed.swap(true, AcqRel) {
            return;
        }
        if let Some(mut outflow) = self.outflow.try_take() {
            let _ = outflow.push(&OutFrame::new(Kind::GOODBYE), &mut Sending::new()); // a peer that is gone needs none
        }
        if let Some(mut inflow) = self.inflow.try_take() {
            inflow.discard();
        }
        self.severer.sever();
    }

    fn usable(&self) -> Result<(), Fault> {
        self.owner.check()?;
        if self.closed.load(Acquire) { Err(Fault::Closed) } else { Ok(()) }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.close();
    }
}

/// The process that opened something: a forked child must not touch it, since a lock in it may be held for ever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(u32);

impl Owner {
    pub(crate) fn this_process() -> Owner {
        Owner(std::process::id())
    }

    pub(crate) fn is_this_process(self) -> bool {
        self.0 == std::process::id()
    }

    pub(crate) fn check(self) -> Result<(), Fault> {
        if self.is_this_process() { Ok(()) } else { Err(Fault::Forked) }
    }
}

/// Lays out a value for sending.
pub(crate) fn encode<'v>(operation: &'static str, value: &'v Value<'_>) -> Result<EncodedValue<'v>, Error> {
    value.encode(&syncline_wire::Limits::default()).map_err(|cause| Error::Unsendable { operation, cause })
}

/// Why a message did not pass, before anybody knows on whose behalf.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The deadline passed when so much of a message had gone.
    Late {
        gone: u64,
        whole: u64,
    },
    Interrupted,
    /// The peer said goodbye.
    Left,
    /// This side closed the connection.
    Closed,
    Forked,
    Mismatch {
        sent: String,
        wanted: String,
    },
    /// What came is no message.
    Unreadable(String),
    Link(LinkError),
}

impl From<LinkError> for Fault {
    fn from(error: LinkError) -> Fault {
        match error {
            LinkError::Timeout { .. } => Fault::Late { gone: 0, whole: 0 },
            LinkError::Interrupted => Fault::Interrupted,
            LinkError::Severed => Fault::Closed,
            other => Fault::Link(other),
        }
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Fault {
        Fault::Unreadable(error.to_string())
    }
}

impl Fault {
    /// Whether the connection is of no use any more.
    pub(crate) fn ends_it(&self) -> bool {
        matches!(self, Fault::Left | Fault::Closed | Fault::Unreadable(_) | Fault::Link(_))
    }

    /// What the user hears.
    pub(crate) fn error(self, operation: &'static str, whom: Whom, by: Deadline) -> Error {
        let lost = |how: String, whom: Whom| Error::PeerLost { operation, whom: Box::new(whom), how, others: String::new() };
        match self {
            Fault::Late { whole, gone } => {
                let done =
                    if whole > 0 { format!(", which has taken {gone} of {whole} bytes; the rest stays queued") } else { String::new() };
                Error::Timeout {
                    operation,
                    waited_for: format!("{whom}{done}"),
                    whom: Some(Box::new(whom)),
                    waited: by.waited(),
                    hint: "is it busy, or waiting for this side? a longer timeout= waits longer",
                }
            }
            Fault::Interrupted => Error::Interrupted { operation, waited: by.waited() },
            Fault::Left => Error::Closed { operation, what: format!("{whom} has closed the connection") },
            Fault::Closed => Error::Closed { operation, what: format!("the connection to {whom} was closed by this side") },
            Fault::Forked => Error::Forked { operation },
            Fault::Mismatch { sent, wanted } => Error::ShapeMismatch { operation, whom: Box::new(whom), sent, wanted },
            Fault::Unreadable(what) => lost(format!("it sent what cannot be read ({what})"), whom),
            Fault::Link(LinkError::PeerGone { detail }) => lost(detail, whom),
            Fault::Link(LinkError::Io(error)) => Error::System { operation, detail: format!("{whom}: {error}") },
            Fault::Link(LinkError::Corrupt(error)) => lost(format!("it sent what cannot be read ({error})"), whom),
            Fault::Link(other) => lost(other.to_string(), whom),
        }
    }
}
