//! The two directions of a link as a collective uses them: every frame checked, every wait watched, every byte counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Group, Vigil};
use syncline_transport::{Head, LinkError, OutFrame, RecvHalf, SendHalf};
use syncline_wire::{Fingerprint, Kind};

/// What certainly fits into the buffers of a link, twice: it is sent before anything is received.
pub(super) const SENT_AT_ONCE: usize = 16 << 10;
/// How long a wait lasts before it looks whether somebody died whom the peer may wait for.
pub(super) const NAP: Duration = Duration::from_millis(100);

/// Why a transfer failed, by position.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The link to this position failed.
    Link(usize, LinkError),
    /// Nothing will come from this position: it, or somebody whom it waits for, is gone.
    Vain(usize),
    /// This position sent something else than what was due.
    Garbled(usize, String),
    /// Another thread of this call failed before.
    Stopped,
    /// The caller was interrupted.
    Interrupted,
    /// There is no memory for what comes.
    Memory(u64),
}

impl Trouble {
    /// Whether the time was up, as opposed to something being broken.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Trouble::Link(_, LinkError::Timeout { .. }))
    }
}

/// Those who are linked, and those without whom every call is in vain.
pub(super) struct Company {
    pub(super) vigil: Vigil,
    pub(super) group: Group,
    /// The members, or all those whom the members speak for.
    pub(super) needs: Vec<u32>,
}

/// What all transfers of one call have in common.
#[derive(Clone, Copy)]
pub(super) struct Talk<'a> {
    pub(super) company: &'a Company,
    pub(super) sequence: u64,
    pub(super) fingerprint: Fingerprint,
    pub(super) by: Deadline,
    /// Set by the first thread that fails.
    pub(super) stop: &'a AtomicBool,
}

/// Nanoseconds spent on a link, each way.
#[derive(Debug, Default)]
pub(super) struct Clock {
    pub(super) sending: AtomicU64,
    pub(super) receiving: AtomicU64,
}

/// The way to a position.
pub(super) struct Outgoing {
    pub(super) position: usize,
    pub(super) half: Box<dyn SendHalf>,
    /// Whether a frame may be sent piece by piece without being gathered first.
    pub(super) streams: bool,
    pub(super) clock: Arc<Clock>,
}

/// The way from a position.
pub(super) struct Incoming {
    pub(super) position: usize,
    pub(super) half: Box<dyn RecvHalf>,
    pub(super) streams: bool,
    pub(super) clock: Arc<Clock>,
}

impl Outgoing {
    /// Sends one frame.
    pub(super) fn send(&mut self, talk: &Talk<'_>, meta: &[u8], payload: &[&[u8]]) -> Result<(), Trouble> {
        let frame = OutFrame { sequence: talk.sequence, fingerprint: talk.fingerprint, meta, payload, ..OutFrame::new(Kind::DATA) };
        self.timed(talk, |half, by| half.send(&frame, by))
    }

    /// Begins a frame of `total` bytes with the first of them.
    pub(super) fn begin(&mut self, talk: &Talk<'_>, total: u64, first: &[u8]) -> Result<(), Trouble> {
        let payload = [first];
        let frame = OutFrame { sequence: talk.sequence, fingerprint: talk.fingerprint, payload: &payload, ..OutFrame::new(Kind::DATA) };
        self.timed(talk, |half, by| half.begin(&frame, total, by))
    }

    /// Sends more of a frame that was begun.
    pub(super) fn more(&mut self, talk: &Talk<'_>, bytes: &[u8]) -> Result<(), Trouble> {
        self.timed(talk, |half, by| half.piece(bytes, by))
    }

    fn timed(&mut self, talk: &Talk<'_>, act: impl FnOnce(&mut dyn SendHalf, Deadline) -> Result<(), LinkError>) -> Result<(), Trouble> {
        if talk.stop.load(Acquire) {
            return Err(Trouble::Stopped);
        }
        let since = Instant::now();
        let result = act(&mut *self.half, talk.by);
        self.clock.sending.fetch_add(nanos(since), Relaxed);
        result.map_err(|error| Trouble::Link(self.position, error))
    }
}

impl Incoming {
    /// Waits for the next frame of this call and returns its meta and the length of its body.
    pub(super) fn head(&mut self, talk: &Talk<'_>) -> Result<(Vec<u8>, u64), Trouble> {
        let since = Instant::now();
        let head = self.wait_for_head(talk);
        self.clock.receiving.fetch_add(nanos(since), Relaxed);
        let Head { header, meta } = head?;
        let rank = talk.company.group.ranks()[self.position];
        let due = header.kind == Kind::DATA && header.source == rank;
        if !due || header.sequence != talk.sequence || header.fingerprint != talk.fingerprint {
            let detail = format!("a frame of another call ({} instead of {})", header.sequence, talk.sequence);
            return Err(Trouble::Garbled(self.position, detail));
        }
        Ok((meta, header.payload_len))
    }

    /// Waits for the next frame, which must have a body of `len` bytes.
    pub(super) fn head_of(&mut self, talk: &Talk<'_>, len: u64) -> Result<(), Trouble> {
        match self.head(talk)? {
            (_, found) if found == len => Ok(()),
            (_, found) => Err(Trouble::Garbled(self.position, format!("{found} bytes where {len} were due"))),
        }
    }

    /// Fills `buffer` with the next bytes of the body.
    pub(super) fn fill(&mut self, talk: &Talk<'_>, buffer: &mut [u8]) -> Result<(), Trouble> {
        let since = Instant::now();
        let mut filled = 0;
        let result = loop {
            if filled == buffer.len() {
                break Ok(());
            }
            match self.half.body_chunk(&mut buffer[filled..], talk.by) {
                Ok(0) => break Err(Trouble::Garbled(self.position, format!("a frame that ends {} bytes early", buffer.len() - filled))),
                Ok(read) => filled += read,
                Err(error) => break Err(Trouble::Link(self.position, error)),
            }
        };
        self.clock.receiving.fetch_add(nanos(since), Relaxed);
        result
    }

    /// The whole body in a vector of its own, which grows with what arrives.
    pub(super) fn body(&mut self, talk: &Talk<'_>) -> Result<Vec<u8>, Trouble> {
        let since = Instant::now();
        let result = self.half.body(talk.by);
        self.clock.receiving.fetch_add(nanos(since), Relaxed);
        result.map_err(|error| Trouble::Link(self.position, error))
    }

    fn wait_for_head(&mut self, talk: &Talk<'_>) -> Result<Head, Trouble> {
        let rank = talk.company.group.ranks()[self.position];
        let mut over_before = false;
        loop {
            if talk.stop.load(Acquire) {
                return Err(Trouble::Stopped);
            }
            match self.half.head(talk.by.within(NAP)) {
                Ok(head) => return Ok(head),
                Err(LinkError::Timeout { half_written: false, .. }) if !talk.by.expired() => {
                    // What somebody sent before it left may still be under way, so it gets a second nap.
                    let over = talk.company.vigil.is_over(rank);
                    if over && over_before
                        || talk.company.vigil.orphaned_or_leaving()
                        || talk.company.vigil.first_down(&talk.company.needs).is_some()
                    {
                        return Err(Trouble::Vain(self.position));
                    }
                    over_before = over;
                }
                Err(error) => return Err(Trouble::Link(self.position, error)),
            }
        }
    }
}

fn nanos(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// A vector of `len` zeros, or the trouble that there is no room for it: somebody else chose the length.
pub(super) fn room(len: u64) -> Result<Vec<u8>, Trouble> {
    let mut bytes = Vec::new();
    let fits = usize::try_from(len).ok().filter(|len| bytes.try_reserve_exact(*len).is_ok());
    bytes.resize(fits.ok_or(Trouble::Memory(len))?, 0);
    Ok(bytes)
}
