//! The contract of every transport: whole frames, in order, and no wait without a deadline.
//!
//! A [`Link`] joins two ranks. Its halves work at the same time and may live in different threads:
//! ```text
//!  rank 0                                        rank 1
//!  SendHalf ── header · meta · payload ────────▶ RecvHalf     head() gives header and meta,
//!  RecvHalf ◀──────────────────────────────────  SendHalf     body_into() the payload, where you want it
//! ```
//! Payloads are borrowed when they are sent and written into the caller's memory when they are received; no
//! transport re-encodes them. Each link stamps its epoch and rank on what it sends and refuses frames of another epoch.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use syncline_metrics::LinkStats;
use syncline_wire::{Fingerprint, Flags, FrameHeader, HEADER_LEN, Kind};

use crate::{Deadline, LinkError};

/// A frame as its sender sees it: a few fields and borrowed bytes.
#[derive(Clone, Copy, Debug)]
pub struct OutFrame<'a> {
    /// Who should read it.
    pub kind: Kind,
    /// The number that the sender's layer gives it.
    pub sequence: u64,
    /// The operation it belongs to.
    pub fingerprint: Fingerprint,
    /// Variations of the format.
    pub flags: Flags,
    /// How to read the payload.
    pub meta: &'a [u8],
    /// Raw bytes, in pieces that the receiver sees as one.
    pub payload: &'a [&'a [u8]],
}

impl<'a> OutFrame<'a> {
    /// A frame of this kind without meta and payload; set what differs with `..`.
    pub const fn new(kind: Kind) -> OutFrame<'a> {
        OutFrame { kind, sequence: 0, fingerprint: Fingerprint::NONE, flags: Flags::NONE, meta: &[], payload: &[] }
    }

    /// Bytes of the payload.
    pub fn payload_len(&self) -> u64 {
        self.payload.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// The part of a received frame that says what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The checked header.
    pub header: FrameHeader,
    /// The meta, checked against the header.
    pub meta: Vec<u8>,
}

/// The half of a link that sends.
pub trait SendHalf: Send {
    /// Sends one frame and returns when the transport has taken all of it (not: when the peer has read it).
    ///
    /// A timeout before the first byte leaves the link as it was; one in the middle breaks this direction,
    /// and the peer is told by an early end rather than left waiting.
    fn send(&mut self, frame: &OutFrame<'_>, deadline: Deadline) -> Result<(), LinkError>;

    /// Begins a frame whose payload has `total` bytes: those of `frame` now, the rest by [`piece`](SendHalf::piece).
    ///
    /// For payloads that are made while they are sent. Any failure breaks this direction, and so does another frame
    /// before the last byte of this one. Transports that move a payload at once gather it first.
    fn begin(&mut self, frame: &OutFrame<'_>, total: u64, deadline: Deadline) -> Result<(), LinkError>;

    /// Sends the next bytes of the frame that was begun; more than it still has room for are [`LinkError::WrongLength`].
    fn piece(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), LinkError>;

    /// Sends what goes of `frame` without waiting, from where `sending` stands; true once all of it has gone.
    ///
    /// For senders that serve many links at once: ask again, with the same frame, when [`pollable`](SendHalf::pollable) is
    /// writable. A frame that [has begun](Sending::has_begun) must be finished before another one. Transports without a
    /// descriptor take a frame whole or not at all, and break if it is larger than they hold.
    fn advance(&mut self, frame: &OutFrame<'_>, sending: &mut Sending) -> Result<bool, LinkError>;

    /// A descriptor that becomes writable when more may go, where the transport has one.
    fn pollable(&self) -> Option<BorrowedFd<'_>>;

    /// Whether [`offer`](SendHalf::offer) may take anything.
    fn takes_offers(&self) -> bool;

    /// Sends as many of the next bytes of the frame that was begun as the transport takes while it is waited for no longer
    /// than `patience` in all; how many. What it did not take must follow by [`piece`](SendHalf::piece).
    ///
    /// For a caller who wants its memory back soon and can keep a copy of the rest.
    fn offer(&mut self, bytes: &[u8], patience: Duration) -> Result<usize, LinkError>;
}

/// How much of a frame has gone; kept by a caller of [`SendHalf::advance`] from one call to the next.
#[derive(Clone, Debug, Default)]
pub struct Sending {
    pub(crate) header: Option<[u8; HEADER_LEN]>,
    pub(crate) whole: u64,
    pub(crate) gone: u64,
    pub(crate) begun: bool,
}

impl Sending {
    /// Nothing has gone yet.
    pub fn new() -> Sending {
        Sending::default()
    }

    /// Whether the peer may have seen a part of the frame, so that it can no longer be taken back.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Bytes of the frame that have gone, its header included.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Bytes of the whole frame; zero before the first attempt.
    pub fn whole(&self) -> u64 {
        self.whole
    }
}

/// The half of a link that receives: first [`head`](RecvHalf::head), then the body in one of four ways.
pub trait RecvHalf: Send {
    /// Waits for the next frame and returns its header and meta. What is left of the previous body is skipped.
    ///
    /// After a timeout call it again: a header that was half there is kept.
    fn head(&mut self, deadline: Deadline) -> Result<Head, LinkError>;

    /// Bytes of the current body that have not been read.
    fn body_left(&self) -> u64;

    /// Reads the rest of the body into `buffer`, which must have exactly its length ([`LinkError::WrongLength`]).
    ///
    /// A failure after the first byte breaks this direction: the caller cannot know where it stopped.
    fn body_into(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<(), LinkError>;

    /// Reads what is there of the body, at least one byte, at most `buffer`; 0 at its end. After a timeout, call it again.
    fn body_chunk(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<usize, LinkError>;

    /// Reads the rest of the body and forgets it. After a timeout, call it again.
    fn skip_body(&mut self, deadline: Deadline) -> Result<(), LinkError>;

    /// A descriptor that becomes readable when a frame may have arrived, where the transport has one.
    ///
    /// After it did, ask [`head`](RecvHalf::head) until it times out: a link may hold several frames in its buffer.
    fn pollable(&self) -> Option<BorrowedFd<'_>>;

    /// Reads the rest of the body into a new vector, which grows with what arrives rather than with what was announced.
    fn body(&mut self, deadline: Deadline) -> Result<Vec<u8>, LinkError>;

    /// The next frame with its whole body.
    fn frame(&mut self, deadline: Deadline) -> Result<(Head, Vec<u8>), LinkError> {
        let head = self.head(deadline)?;
        let body = self.body(deadline)?;
        Ok((head, body))
    }
}

/// What carries a link's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TransportKind {
    /// A queue inside one process.
    Inproc,
    /// Memory shared with a neighbour.
    Shm,
    /// A Unix socket.
    Unix,
    /// A TCP connection.
    Tcp,
}

impl TransportKind {
    /// The name that logs, tables and configuration use.
    pub const fn name(self) -> &'static str {
        match self {
            TransportKind::Inproc => "inproc",
            TransportKind::Shm => "shm",
            TransportKind::Unix => "unix",
            TransportKind::Tcp => "tcp",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a link is made of, for logs and errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// What carries it.
    pub transport: TransportKind,
    /// The other end, as far as the transport knows it.
    pub peer: String,
    /// Whether its traffic is sealed.
    pub encrypted: bool,
}

impl fmt::Display for LinkInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sealed = if self.encrypted { ", encrypted" } else { "" };
        write!(f, "{} to {}{sealed}", self.transport, self.peer)
    }
}

/// Two halves and what is known about them.
pub struct Link {
    sender: Box<dyn SendHalf>,
    receiver: Box<dyn RecvHalf>,
    info: LinkInfo,
    stats: Arc<LinkStats>,
    severer: Severer,
}

impl Link {
    pub(crate) fn new(
        sender: Box<dyn SendHalf>,
        receiver: Box<dyn RecvHalf>,
        info: LinkInfo,
        stats: Arc<LinkStats>,
        severer: Severer,
    ) -> Link {
        Link { sender, receiver, info, stats, severer }
    }

    /// What carries the link, and where to.
    pub fn info(&self) -> &LinkInfo {
        &self.info
    }

    /// What went through it so far; stays valid after [`split`](Link::split).
    pub fn stats(&self) -> Arc<LinkStats> {
        Arc::clone(&self.stats)
    }

    /// The means to end every wait on this link from another thread.
    pub fn severer(&self) -> Severer {
        self.severer.clone()
    }

    /// The two halves, to be used by two threads.
    pub fn split(self) -> (Box<dyn SendHalf>, Box<dyn RecvHalf>) {
        (self.sender, self.receiver)
    }

    /// The sending half, in place.
    pub fn sender(&mut self) -> &mut dyn SendHalf {
        &mut *self.sender
    }

    /// The receiving half, in place.
    pub fn receiver(&mut self) -> &mut dyn RecvHalf {
        &mut *self.receiver
    }

    /// See [`SendHalf::send`].
    pub fn send(&mut self, frame: &OutFrame<'_>, deadline: Deadline) -> Result<(), LinkError> {
        self.sender.send(frame, deadline)
    }

    /// See [`RecvHalf::head`].
    pub fn head(&mut self, deadline: Deadline) -> Result<Head, LinkError> {
        self.receiver.head(deadline)
    }

    /// See [`RecvHalf::body_into`].
    pub fn body_into(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<(), LinkError> {
        self.receiver.body_into(buffer, deadline)
    }

    /// See [`RecvHalf::body`].
    pub fn body(&mut self, deadline: Deadline) -> Result<Vec<u8>, LinkError> {
        self.receiver.body(deadline)
    }

    /// See [`RecvHalf::frame`].
    pub fn frame(&mut self, deadline: Deadline) -> Result<(Head, Vec<u8>), LinkError> {
        self.receiver.frame(deadline)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Ends a link from outside: both halves wake at once and fail with [`LinkError::Severed`], now and for ever.
///
/// Holding one does not keep the link open.
#[derive(Clone)]
pub struct Severer {
    severed: Arc<AtomicBool>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Severer {
    /// `wake` makes every call of the halves return; what they return no longer matters then.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Severer {
        Severer { severed: Arc::default(), wake: Arc::new(wake) }
    }

    /// Ends the link. A second time does nothing.
    pub fn sever(&self) {
        // Release pairs with the Acquire in `is_severed`: who is woken by `wake` sees why.
        if !self.severed.swap(true, Ordering::AcqRel) {
            (self.wake)();
        }
    }

    /// Whether this is all that is left of the link: both halves and all other severers are dropped.
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.severed) == 1
    }

    /// Whether somebody ended it.
    pub fn is_severed(&self) -> bool {
        self.severed.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Severer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Severer").field("severed", &self.is_severed()).finish()
    }
}
