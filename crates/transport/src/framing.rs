//! Frames over anything that moves bytes in order: the part that all transports share.
//!
//! A transport brings an [`Outlet`] and an [`Inlet`] (or a [`ByteInlet`], where bytes have no borders). Everything else that
//! the contract of a link asks for is here, once: stamping and checking headers, keeping what a timeout interrupted, knowing
//! when a direction is beyond repair.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use syncline_metrics::LinkStats;
use syncline_wire::{FrameHeader, HEADER_LEN, Limits};

use crate::link::{Head, Link, LinkInfo, OutFrame, RecvHalf, SendHalf, Sending, Severer};
use crate::{Deadline, LinkError};

/// What a link writes into every header it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) epoch: u32,
    pub(crate) rank: u32,
}

/// Takes bytes to the other side, in order.
pub(crate) trait Outlet: Send + 'static {
    /// Whether frames go through memory that the receiver reads itself, where nothing can damage them on the way.
    const IN_MEMORY: bool = false;

    /// Whether what follows a frame's first bytes may be written by further calls.
    const IN_PIECES: bool = true;

    /// Writes three parts as one, waiting as often as needed. A deadline that is over still allows what needs no wait.
    fn write_all(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], deadline: Deadline) -> Result<(), Stopped>;

    /// Writes more of a frame that was begun, of which more may follow.
    fn write_more(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), Stopped> {
        self.write_all(&[], &[], &[bytes], deadline)
    }

    /// Writes what goes without waiting of three parts, `gone` bytes of which went before. Returns how many have gone now,
    /// and whether the other side may have seen any. Here for transports that move a frame at once.
    fn write_some(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], gone: u64) -> Result<(u64, bool), Stopped> {
        match self.write_all(header, meta, payload, Deadline::after(Duration::ZERO)) {
            Ok(()) => Ok((payload.iter().chain([&header, &meta]).map(|part| part.len() as u64).sum(), true)),
            Err(Stopped { error: LinkError::Timeout { .. }, half_written: false }) => Ok((gone, false)),
            Err(stopped) => Err(stopped),
        }
    }

    /// See [`SendHalf::pollable`].
    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether [`write_offered`](Outlet::write_offered) ever takes anything.
    const TAKES_OFFERS: bool = false;

    /// Writes of a frame that was begun as much as goes with so much waiting; how much that was. For [`SendHalf::offer`].
    fn write_offered(&mut self, bytes: &[u8], patience: Duration) -> Result<usize, LinkError> {
        let _ = (bytes, patience);
        Ok(0)
    }

    /// Tells the other side that half a frame is all that will come.
    fn abandon(&mut self);
}

/// Why a write ended early.
#[derive(Debug)]
pub(crate) struct Stopped {
    pub(crate) error: LinkError,
    /// Whether the other side may have seen a part of the frame.
    pub(crate) half_written: bool,
}

/// Brings frames from the other side, in order.
pub(crate) trait Inlet: Send + 'static {
    /// Waits for the next head. Checks everything but the epoch. May be called again after a timeout.
    fn next_head(&mut self, limits: &Limits, deadline: Deadline) -> Result<Head, LinkError>;

    /// Waits for at least one byte of the body, of which `left` are left, and returns how many it wrote to the front of
    /// `buffer`, which is neither empty nor longer than `left`.
    fn read_body(&mut self, buffer: &mut [u8], left: u64, deadline: Deadline) -> Result<usize, LinkError>;

    /// Lets the rest of the body pass, counting `left` down to zero.
    fn skip_body(&mut self, left: &mut u64, deadline: Deadline) -> Result<(), LinkError> {
        let mut bin = vec![0; (*left).min(64 << 10) as usize];
        while *left > 0 {
            let most = (*left).min(bin.len() as u64) as usize;
            *left -= self.read_body(&mut bin[..most], *left, deadline)? as u64;
        }
        Ok(())
    }

    /// Whether a failed call left something that cannot be taken up again.
    fn is_broken(&self) -> bool;

    /// Whether reading a body in pieces costs more than reading it at once.
    fn prefers_whole_bodies(&self) -> bool {
        false
    }

    /// See [`RecvHalf::pollable`].
    fn pollable(&self) -> Option<BorrowedFd<'_>>;
}

/// Brings bytes from the other side, in order. [`Bytes`] makes frames of them.
pub(crate) trait ByteInlet: Send + 'static {
    /// Waits for at least one byte and returns how many it wrote to the front of `buffer`; 0 is the end.
    /// `buffer` is never empty.
    fn read_some(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<usize, LinkError>;

    /// See [`RecvHalf::pollable`].
    fn pollable(&self) -> Option<BorrowedFd<'_>>;
}

/// Makes a link of two directions. `wake` must end every wait of both (see [`Severer`]).
pub(crate) fn link(
    outlet: impl Outlet,
    inlet: impl Inlet,
    stamp: Stamp,
    info: LinkInfo,
    stats: Arc<LinkStats>,
    wake: impl Fn() + Send + Sync + 'static,
) -> Link {
    let severer = Severer::new(wake);
    let limits = Limits::default();
    let sender =
        FrameWriter { outlet, stamp, limits, end: None, owed: 0, begun: None, stats: Arc::clone(&stats), severer: severer.clone() };
    let receiver =
        FrameReader { inlet, epoch: stamp.epoch, limits, body_left: 0, end: None, stats: Arc::clone(&stats), severer: severer.clone() };
    Link::new(Box::new(sender), Box::new(receiver), info, stats, severer)
}

/// What ended a direction, to be repeated to whoever asks again.
#[derive(Clone, Debug)]
enum End {
    PeerGone { detail: String },
    Broken { since: &'static str },
}

impl End {
    fn error(&self) -> LinkError {
        match self {
            End::PeerGone { detail } => LinkError::PeerGone { detail: detail.clone() },
            End::Broken { since } => LinkError::Broken { since },
        }
    }

    /// What `error` means for the direction, given whether it struck between two frames.
    fn of(error: &LinkError, between_frames: bool, inside: &'static str) -> Option<End> {
        match error {
            LinkError::PeerGone { detail } => Some(End::PeerGone { detail: detail.clone() }),
            LinkError::Corrupt(_) => Some(End::Broken { since: "a frame arrived damaged" }),
            LinkError::Tampered { .. } => Some(End::Broken { since: "an encrypted record failed its authentication" }),
            _ if between_frames => None,
            _ => Some(End::Broken { since: inside }),
        }
    }
}

struct FrameWriter<O> {
    outlet: O,
    stamp: Stamp,
    limits: Limits,
    end: Option<End>,
    // Bytes that a begun frame has announced and not sent.
    owed: u64,
    // The begun frame of a transport that moves payloads at once.
    begun: Option<Begun>,
    stats: Arc<LinkStats>,
    severer: Severer,
}

/// A frame that is gathered before it goes.
struct Begun {
    header: [u8; HEADER_LEN],
    whole: u64,
    meta: Vec<u8>,
    payload: Vec<u8>,
}

impl<O: Outlet> SendHalf for FrameWriter<O> {
    fn send(&mut self, frame: &OutFrame<'_>, deadline: Deadline) -> Result<(), LinkError> {
        let (header, whole) = self.header(frame, frame.payload_len())?;
        self.write(&header, frame.meta, frame.payload, whole, deadline)
    }

    fn begin(&mut self, frame: &OutFrame<'_>, total: u64, deadline: Deadline) -> Result<(), LinkError> {
        let given = frame.payload_len();
        if given > total {
            return Err(LinkError::WrongLength { expected: total, got: given });
        }
        let (header, whole) = self.header(frame, total)?;
        if O::IN_PIECES || given == total {
            self.write(&header, frame.meta, frame.payload, whole, deadline)?;
        } else {
            let mut payload = Vec::new();
            let room = usize::try_from(total).ok().and_then(|total| payload.try_reserve_exact(total).ok());
            room.ok_or_else(|| LinkError::Io(std::io::ErrorKind::OutOfMemory.into()))?;
            frame.payload.iter().for_each(|piece| payload.extend_from_slice(piece));
            self.begun = Some(Begun { header, whole, meta: frame.meta.to_vec(), payload });
        }
        self.owed = total - given;
        Ok(())
    }

    fn piece(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), LinkError> {
        usable(&self.severer, &self.end)?;
        let got = bytes.len() as u64;
        if got > self.owed {
            return Err(LinkError::WrongLength { expected: self.owed, got });
        }
        let Some(begun) = &mut self.begun else {
            self.outlet.write_more(bytes, deadline).map_err(|mut stopped| {
                stopped.half_written = true; // its header is on the way
                self.stop(stopped)
            })?;
            self.owed -= got;
            return Ok(());
        };
        begun.payload.extend_from_slice(bytes);
        self.owed -= got;
        match self.begun.take_if(|_| self.owed == 0) {
            Some(begun) => self.write(&begun.header, &begun.meta, &[&begun.payload], begun.whole, deadline),
            None => Ok(()),
        }
    }

    fn advance(&mut self, frame: &OutFrame<'_>, sending: &mut Sending) -> Result<bool, LinkError> {
        let header = match sending.header {
            Some(header) => usable(&self.severer, &self.end).map(|()| header)?,
            None => {
                let (header, whole) = self.header(frame, frame.payload_len())?;
                (sending.whole, *sending.header.insert(header)) = (whole, header);
                header
            }
        };
        let wrote = self.outlet.write_some(&header, frame.meta, frame.payload, sending.gone);
        (sending.gone, sending.begun) = wrote.map_err(|stopped| self.stop(stopped))?;
        self.owed = if sending.begun { sending.whole - sending.gone } else { 0 };
        let done = sending.gone == sending.whole;
        if done {
            self.stats.frames_sent.add_alone(1);
            self.stats.bytes_sent.add_alone(sending.whole);
        }
        Ok(done)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.outlet.pollable()
    }

    fn takes_offers(&self) -> bool {
        O::TAKES_OFFERS
    }

    fn offer(&mut self, bytes: &[u8], patience: Duration) -> Result<usize, LinkError> {
        usable(&self.severer, &self.end)?;
        let got = bytes.len() as u64;
        if got > self.owed {
            return Err(LinkError::WrongLength { expected: self.owed, got });
        }
        if self.begun.is_some() {
            return Ok(0); // it moves at once, when it is complete
        }
        let taken = self.outlet.write_offered(bytes, patience).map_err(|error| self.stop(Stopped { error, half_written: true }))?;
        self.owed -= taken as u64;
        Ok(taken)
    }
}

impl<O: Outlet> FrameWriter<O> {
    /// The checked header of a frame, and the length of the whole frame.
    fn header(&mut self, frame: &OutFrame<'_>, payload_len: u64) -> Result<([u8; HEADER_LEN], u64), LinkError> {
        usable(&self.severer, &self.end)?;
        if self.owed > 0 {
            self.end = Some(End::Broken { since: "another frame was begun in the middle of one" });
            self.outlet.abandon();
            usable(&self.severer, &self.end)?;
        }
        let header = FrameHeader {
            epoch: self.stamp.epoch,
            source: self.stamp.rank,
            sequence: frame.sequence,
            fingerprint: frame.fingerprint,
            flags: frame.flags,
            payload_len,
            ..FrameHeader::new(frame.kind)
        };
        let header = if O::IN_MEMORY { header.with_meta_in_memory(frame.meta)? } else { header.with_meta(frame.meta)? };
        header.check(&self.limits)?;
        let whole = HEADER_LEN as u64 + u64::from(header.meta_len) + header.payload_len;
        Ok((if O::IN_MEMORY { header.encode_in_memory() } else { header.encode() }, whole))
    }

    fn write(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], whole: u64, deadline: Deadline) -> Result<(), LinkError> {
        match self.outlet.write_all(header, meta, payload, deadline) {
            Ok(()) => {
                // Each half is the only writer of its direction.
                self.stats.frames_sent.add_alone(1);
                self.stats.bytes_sent.add_alone(whole);
                Ok(())
            }
            Err(stopped) => Err(self.stop(stopped)),
        }
    }

    #[cold]
    fn stop(&mut self, stopped: Stopped) -> LinkError {
        if self.severer.is_severed() {
            return LinkError::Severed;
        }
        let inside = "a frame could only be written in part";
        self.end = End::of(&stopped.error, !stopped.half_written, inside);
        if stopped.half_written {
            self.outlet.abandon();
        }
        match stopped.error {
            LinkError::Timeout { waited, .. } => LinkError::Timeout { waited, half_written: stopped.half_written },
            other => other,
        }
    }
}

fn usable(severer: &Severer, end: &Option<End>) -> Result<(), LinkError> {
    if severer.is_severed() {
        return Err(LinkError::Severed);
    }
    end.as_ref().map_or(Ok(()), |end| Err(end.error()))
}

struct FrameReader<I> {
    inlet: I,
    epoch: u32,
    limits: Limits,
    body_left: u64,
    end: Option<End>,
    stats: Arc<LinkStats>,
    severer: Severer,
}

impl<I: Inlet> RecvHalf for FrameReader<I> {
    fn head(&mut self, deadline: Deadline) -> Result<Head, LinkError> {
        self.skip_body(deadline)?;
        let head = self.inlet.next_head(&self.limits, deadline).map_err(|error| self.stop(error, true))?;
        self.body_left = head.header.payload_len;
        let bytes = HEADER_LEN as u64 + u64::from(head.header.meta_len) + head.header.payload_len;
        self.stats.frames_received.add_alone(1);
        self.stats.bytes_received.add_alone(bytes);
        if head.header.epoch != self.epoch {
            self.stats.frames_refused.increment();
            return Err(LinkError::StaleEpoch { theirs: head.header.epoch, ours: self.epoch });
        }
        Ok(head)
    }

    fn body_left(&self) -> u64 {
        self.body_left
    }

    fn body_into(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<(), LinkError> {
        usable(&self.severer, &self.end)?;
        if buffer.len() as u64 != self.body_left {
            return Err(LinkError::WrongLength { expected: self.body_left, got: buffer.len() as u64 });
        }
        let mut filled = 0;
        while filled < buffer.len() {
            match self.inlet.read_body(&mut buffer[filled..], self.body_left, deadline) {
                Ok(read) => filled += read,
                Err(error) => return Err(self.stop(error, filled == 0)),
            }
            self.body_left = (buffer.len() - filled) as u64;
        }
        Ok(())
    }

    fn body(&mut self, deadline: Deadline) -> Result<Vec<u8>, LinkError> {
        /// Up to here a body is believed in one piece.
        const AT_ONCE: u64 = 16 << 20;
        if self.inlet.prefers_whole_bodies() || self.body_left <= AT_ONCE {
            let mut body = zeroed(self.body_left)?;
            self.body_into(&mut body, deadline)?;
            return Ok(body);
        }
        let (mut body, mut filled) = (Vec::new(), 0);
        while self.body_left > 0 {
            if filled == body.len() {
                let step = self.body_left.min(AT_ONCE.max(filled as u64)) as usize; // doubles, so that few bytes move twice
                body.resize(filled + step, 0);
            }
            match self.body_chunk(&mut body[filled..], deadline) {
                Ok(read) => filled += read,
                // What was read goes with the vector, so there is no way back.
                Err(error) => return Err(self.stop(error, filled == 0)),
            }
        }
        body.truncate(filled);
        Ok(body)
    }

    fn body_chunk(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<usize, LinkError> {
        usable(&self.severer, &self.end)?;
        let want = self.body_left.min(buffer.len() as u64) as usize;
        if want == 0 {
            return Ok(0);
        }
        let read = self.inlet.read_body(&mut buffer[..want], self.body_left, deadline);
        let read = read.map_err(|error| self.stop(error, true))?;
        self.body_left -= read as u64;
        Ok(read)
    }

    fn skip_body(&mut self, deadline: Deadline) -> Result<(), LinkError> {
        usable(&self.severer, &self.end)?;
        if self.body_left == 0 {
            return Ok(());
        }
        let skipped = self.inlet.skip_body(&mut self.body_left, deadline);
        skipped.map_err(|error| self.stop(error, true))
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.inlet.pollable()
    }
}

impl<I: Inlet> FrameReader<I> {
    #[cold]
    fn stop(&mut self, error: LinkError, resumable: bool) -> LinkError {
        if self.severer.is_severed() {
            return LinkError::Severed;
        }
        if matches!(error, LinkError::Corrupt(_)) {
            self.stats.frames_refused.increment();
        }
        let resumable = resumable && !self.inlet.is_broken();
        self.end = End::of(&error, resumable, "a frame could only be read in part");
        error
    }
}

/// Finds frames in a stream of bytes.
pub(crate) struct Bytes<B> {
    bytes: B,
    // What has arrived of the next head; a timeout keeps it.
    header: [u8; HEADER_LEN],
    header_got: usize,
    pending: Option<Head>, // a checked header whose meta is incomplete
}

impl<B: ByteInlet> Bytes<B> {
    pub(crate) fn new(bytes: B) -> Bytes<B> {
        Bytes { bytes, header: [0; HEADER_LEN], header_got: 0, pending: None }
    }

    /// Grows the meta with what arrives, so that its announced length alone allocates little.
    fn fill_meta(&mut self, head: &mut Head, deadline: Deadline) -> Result<(), LinkError> {
        const STEP: usize = 64 << 10;
        let (want, meta) = (head.header.meta_len as usize, &mut head.meta);
        while meta.len() < want {
            let filled = meta.len();
            meta.resize(want.min(filled + STEP), 0);
            let read = self.bytes.read_some(&mut meta[filled..], deadline);
            meta.truncate(filled + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                return Err(ended_inside());
            }
        }
        Ok(())
    }
}

impl<B: ByteInlet> Inlet for Bytes<B> {
    fn next_head(&mut self, limits: &Limits, deadline: Deadline) -> Result<Head, LinkError> {
        let mut head = match self.pending.take() {
            Some(head) => head,
            None => {
                while self.header_got < HEADER_LEN {
                    match self.bytes.read_some(&mut self.header[self.header_got..], deadline)? {
                        0 if self.header_got == 0 => {
                            return Err(LinkError::PeerGone { detail: "it closed the link".to_owned() });
                        }
                        0 => return Err(ended_inside()),
                        read => self.header_got += read,
                    }
                }
                let header = FrameHeader::decode(&self.header, limits)?;
                Head { header, meta: Vec::new() }
            }
        };
        if let Err(error) = self.fill_meta(&mut head, deadline) {
            self.pending = Some(head);
            return Err(error);
        }
        self.header_got = 0;
        head.header.check_meta(&head.meta)?;
        Ok(head)
    }

    fn read_body(&mut self, buffer: &mut [u8], _left: u64, deadline: Deadline) -> Result<usize, LinkError> {
        match self.bytes.read_some(buffer, deadline)? {
            0 => Err(ended_inside()),
            read => Ok(read),
        }
    }

    fn is_broken(&self) -> bool {
        false
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.bytes.pollable()
    }
}

/// As many zeros as a body announces, or an error where the memory ends.
pub(crate) fn zeroed(len: u64) -> Result<Vec<u8>, LinkError> {
    let too_much = |_| LinkError::Io(std::io::ErrorKind::OutOfMemory.into());
    let len = usize::try_from(len).map_err(|_| LinkError::Io(std::io::ErrorKind::OutOfMemory.into()))?;
    // Asking first costs nothing and turns the abort of a failed allocation into an error; `vec!` then gets untouched pages.
    Vec::<u8>::new().try_reserve_exact(len).map_err(too_much)?;
    Ok(vec![0; len])
}

#[cold]
fn ended_inside() -> LinkError {
    LinkError::PeerGone { detail: "it closed the link in the middle of a frame".to_owned() }
}
