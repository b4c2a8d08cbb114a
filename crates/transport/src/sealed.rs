//! Sealed records: what a TCP link puts between its frames and the network.
//!
//! ```text
//!   length u16 · ciphertext, tag included (≤ 65535)        numbered from the handshake on, never sent
//! ```
//! A frame fills as few records as possible and begins a new one, so that it is never held back. Each direction
//! changes its key every 2²² records (256 GiB), far below where AES-GCM begins to tire.
//!
//! Cost: the payload is copied once more on each side (inside the cipher), a record at a time and thus in cache.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use syncline_metrics::LinkStats;

use crate::framing::{ByteInlet, Outlet, Stopped};
use crate::noise::{Keys, MAX_SEALED, TAG};
use crate::stream::{Socket, SocketOutlet, after, receive};
use crate::{Deadline, LinkError};

/// The most that one record carries.
const RECORD: usize = MAX_SEALED - TAG;
/// The length in front of a record.
const PREFIX: usize = 2;
/// Records that are sealed before they are written: one system call for them all.
const BATCH: usize = 4;
/// Records under one key.
const KEY_LIFE: u64 = 1 << 22;

/// The sealing of one connection, with the number of messages that the handshake used up.
pub(crate) struct Session {
    pub(crate) keys: Keys,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl Session {
    pub(crate) fn split(self) -> (Outgoing, Incoming) {
        let keys = Arc::new(self.keys);
        (Outgoing { keys: Arc::clone(&keys), next: self.sent }, Incoming { keys, next: self.received })
    }
}

/// This side's records: the keys and the number of the next one.
pub(crate) struct Outgoing {
    keys: Arc<Keys>,
    next: u64,
}

impl Outgoing {
    /// Seals `plain` as the next record into the front of `out` and returns its length, prefix included.
    fn seal(&mut self, plain: &[u8], out: &mut [u8]) -> usize {
        let sealed = self.keys.seal(self.next, plain, &mut out[PREFIX..]);
        out[..PREFIX].copy_from_slice(&(sealed as u16).to_le_bytes());
        self.next += 1;
        if self.next.is_multiple_of(KEY_LIFE) {
            self.keys.rekey_outgoing();
        }
        PREFIX + sealed
    }
}

/// The other side's records.
pub(crate) struct Incoming {
    keys: Arc<Keys>,
    next: u64,
}

impl Incoming {
    fn open(&mut self, sealed: &[u8], out: &mut [u8]) -> Result<usize, LinkError> {
        let tampered = LinkError::Tampered { record: self.next };
        let opened = self.keys.open(self.next, sealed, out).ok_or(tampered)?;
        self.next += 1;
        if self.next.is_multiple_of(KEY_LIFE) {
            self.keys.rekey_incoming();
        }
        Ok(opened)
    }
}

/// Seals what it borrows from the caller, a few records at a time.
pub(crate) struct SealedOutlet {
    socket: SocketOutlet,
    records: Outgoing,
    gathered: Box<[u8]>,
    batch: Box<[u8]>,
    // What `write_some` has sealed and not sent, and how many bytes of the frame that is.
    unsent: Range<usize>,
    unsent_plain: u64,
}

impl SealedOutlet {
    pub(crate) fn new(socket: Arc<Socket>, records: Outgoing, stats: Arc<LinkStats>) -> SealedOutlet {
        SealedOutlet {
            socket: SocketOutlet::new(socket, stats),
            records,
            gathered: vec![0; RECORD].into_boxed_slice(),
            batch: vec![0; BATCH * (PREFIX + MAX_SEALED)].into_boxed_slice(),
            unsent: 0..0,
            unsent_plain: 0,
        }
    }
}

impl SealedOutlet {
    /// Seals a few records of what `part` and `parts` hold; returns the bytes they take and those they hold.
    fn seal_batch<'a>(&mut self, part: &mut &'a [u8], parts: &mut impl Iterator<Item = &'a [u8]>) -> (usize, u64) {
        let (mut filled, mut held) = (0, 0);
        while filled + PREFIX + MAX_SEALED <= self.batch.len() && !part.is_empty() {
            // A record comes straight from a piece that fills it; smaller pieces share one.
            let plain = if part.len() >= RECORD {
                let (record, rest) = part.split_at(RECORD);
                *part = rest;
                record
            } else {
                let mut gathered = 0;
                while gathered < RECORD && !part.is_empty() {
                    let (piece, rest) = part.split_at(part.len().min(RECORD - gathered));
                    self.gathered[gathered..gathered + piece.len()].copy_from_slice(piece);
                    gathered += piece.len();
                    *part = if rest.is_empty() { parts.next().unwrap_or_default() } else { rest };
                }
                &self.gathered[..gathered]
            };
            held += plain.len() as u64;
            filled += self.records.seal(plain, &mut self.batch[filled..]);
            if part.is_empty() {
                *part = parts.next().unwrap_or_default();
            }
        }
        (filled, held)
    }

    /// Frees the numbers of records that never left this process, to be used again; not across a change of keys.
    fn take_back_to(&mut self, first: u64) -> bool {
        let same_key = first / KEY_LIFE == self.records.next / KEY_LIFE;
        if same_key {
            self.records.next = first;
        }
        same_key
    }
}

impl Outlet for SealedOutlet {
    fn write_all(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], deadline: Deadline) -> Result<(), Stopped> {
        let mut parts = after(0, header, meta, payload);
        let mut part: &[u8] = parts.next().unwrap_or_default();
        let (first, mut begun) = (self.records.next, false);
        while !part.is_empty() {
            let (filled, _) = self.seal_batch(&mut part, &mut parts);
            if let Err(mut stopped) = self.socket.write_all(&self.batch[..filled], &[], &[], deadline) {
                stopped.half_written = stopped.half_written || begun || !self.take_back_to(first);
                return Err(stopped);
            }
            begun = true;
        }
        Ok(())
    }

    fn write_some(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], gone: u64) -> Result<(u64, bool), Stopped> {
        let first = self.records.next;
        let resumed = gone > 0 || !self.unsent.is_empty();
        if self.unsent.is_empty() {
            let mut parts = after(gone, header, meta, payload);
            let mut part: &[u8] = parts.next().unwrap_or_default();
            let (filled, plain) = self.seal_batch(&mut part, &mut parts);
            (self.unsent, self.unsent_plain) = (0..filled, plain);
        }
        let batch = &self.batch[self.unsent.clone()];
        let (sent, _) = self.socket.write_some(batch, &[], &[], 0).map_err(|mut stopped| {
            stopped.half_written |= resumed;
            stopped
        })?;
        if sent == 0 && !resumed && self.take_back_to(first) {
            self.unsent = 0..0;
            return Ok((0, false));
        }
        self.unsent.start += sent as usize;
        // A record counts when the last of its batch has left: the peer cannot open half of one.
        Ok((if self.unsent.is_empty() { gone + self.unsent_plain } else { gone }, true))
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        self.socket.pollable()
    }

    fn abandon(&mut self) {
        self.socket.abandon();
    }
}

/// Opens records into the caller's memory where they fit, through a buffer where they do not.
pub(crate) struct SealedInlet {
    socket: Arc<Socket>,
    stats: Arc<LinkStats>,
    records: Incoming,
    // Ciphertext as it arrives.
    arrived: Box<[u8]>,
    start: usize,
    end: usize,
    // The rest of a record that was larger than what the caller wanted.
    opened: Box<[u8]>,
    taken: usize,
    ready: usize,
}

impl SealedInlet {
    pub(crate) fn new(socket: Arc<Socket>, records: Incoming, stats: Arc<LinkStats>) -> SealedInlet {
        SealedInlet {
            socket,
            stats,
            records,
            arrived: vec![0; 2 * (PREFIX + MAX_SEALED)].into_boxed_slice(),
            start: 0,
            end: 0,
            opened: vec![0; MAX_SEALED].into_boxed_slice(),
            taken: 0,
            ready: 0,
        }
    }

    /// The length of the record at `start`, if its prefix has arrived.
    fn announced(&self) -> Option<usize> {
        let prefix = self.arrived[self.start..self.end].first_chunk::<PREFIX>()?;
        Some(usize::from(u16::from_le_bytes(*prefix)))
    }

    /// Waits until a whole record has arrived and returns its length; `None` at the end of the stream.
    fn await_record(&mut self, deadline: Deadline) -> Result<Option<usize>, LinkError> {
        loop {
            let have = self.end - self.start;
            if let Some(len) = self.announced() {
                if len < TAG {
                    return Err(LinkError::Tampered { record: self.records.next });
                }
                if have >= PREFIX + len {
                    return Ok(Some(len));
                }
            }
            if have == 0 || self.arrived.len() - self.start < PREFIX + MAX_SEALED {
                self.arrived.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, have);
            }
            match receive(&self.socket, &mut self.arrived[self.end..], deadline, &self.stats)? {
                0 if have == 0 => return Ok(None),
                0 => {
                    return Err(LinkError::PeerGone { detail: "it closed the link in the middle of a frame".to_owned() });
                }
                more => self.end += more,
            }
        }
    }
}

impl ByteInlet for SealedInlet {
    fn read_some(&mut self, target: &mut [u8], deadline: Deadline) -> Result<usize, LinkError> {
        while self.taken == self.ready {
            let Some(len) = self.await_record(deadline)? else {
                return Ok(0);
            };
            let begin = self.start + PREFIX;
            let sealed = &self.arrived[begin..begin + len];
            self.start = begin + len;
            // The cipher wants room for the tag too, even where the next record will overwrite it.
            if target.len() >= len {
                match self.records.open(sealed, target)? {
                    0 => continue,
                    opened => return Ok(opened),
                }
            }
            self.taken = 0;
            self.ready = self.records.open(sealed, &mut self.opened)?;
        }
        let ready = &self.opened[self.taken..self.ready];
        let taken = ready.len().min(target.len());
        target[..taken].copy_from_slice(&ready[..taken]);
        self.taken += taken;
        Ok(taken)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::JobKey;
    use crate::noise::{Caller, admit};

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(10))
    }

    /// Both sides of a handshake, before message number `next`.
    fn sessions(next: u64) -> (Session, Session) {
        let key = JobKey::from_token("t");
        let (caller, greeting) = Caller::greet(&key, true);
        let Ok(admitted) = admit(&key, &[0; 16], true, true, &greeting) else { panic!("a member was refused") };
        let keys = caller.hear(&admitted.answer).unwrap().keys;
        let session = |keys| Session { keys, sent: next, received: next };
        (session(keys), session(admitted.keys))
    }

    /// A sealing outlet, an opening inlet, and a man in the middle.
    fn with_a_man_in_the_middle(next: u64) -> (SealedOutlet, UnixStream, UnixStream, SealedInlet) {
        let (sender, receiver) = sessions(next);
        let (from, middle_in) = UnixStream::pair().unwrap();
        let (middle_out, to) = UnixStream::pair().unwrap();
        let socket = |stream: UnixStream| Arc::new(Socket::new(stream.into()));
        let stats = || Arc::new(LinkStats::new());
        (
            SealedOutlet::new(socket(from), sender.split().0, stats()),
            middle_in,
            middle_out,
            SealedInlet::new(socket(to), receiver.split().1, stats()),
        )
    }

    fn record(stream: &mut UnixStream) -> Vec<u8> {
        let mut prefix = [0; PREFIX];
        stream.read_exact(&mut prefix).unwrap();
        let mut record = vec![0; usize::from(u16::from_le_bytes(prefix))];
        stream.read_exact(&mut record).unwrap();
        [&prefix[..], &record].concat()
    }

    #[test]
    fn what_travels_is_neither_readable_nor_changeable() {
        let (mut out, mut caught, mut onward, mut into) = with_a_man_in_the_middle(0);
        out.write_all(b"head", b"", &[b"a secret"], soon()).unwrap();
        let mut sealed = record(&mut caught);
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        onward.write_all(&sealed).unwrap();
        let mut opened = [0; 100];
        assert_eq!(into.read_some(&mut opened, soon()).unwrap(), 12);
        assert_eq!(&opened[..12], b"heada secret");

        out.write_all(b"next", b"", &[], soon()).unwrap();
        sealed = record(&mut caught);
        sealed[PREFIX] ^= 1;
        onward.write_all(&sealed).unwrap();
        let error = into.read_some(&mut opened, soon()).unwrap_err();
        assert!(matches!(error, LinkError::Tampered { record: 1 }), "{error:?}");
    }

    #[test]
    fn a_repeated_or_missing_record_is_noticed() {
        for lose in [false, true] {
            let (mut out, mut caught, mut onward, mut into) = with_a_man_in_the_middle(0);
            out.write_all(b"one", b"", &[], soon()).unwrap();
            out.write_all(b"two", b"", &[], soon()).unwrap();
            let (one, two) = (record(&mut caught), record(&mut caught));
            let replayed = if lose { [two.clone(), two] } else { [one.clone(), one] };
            onward.write_all(&replayed.concat()).unwrap();
            let mut opened = [0; 100];
            let seen = [(); 2].map(|()| into.read_some(&mut opened, soon()));
            assert!(seen.iter().any(|read| matches!(read, Err(LinkError::Tampered { .. }))), "{seen:?}");
        }
    }

    #[test]
    fn an_impossible_length_is_refused_at_once() {
        let (_out, _caught, mut onward, mut into) = with_a_man_in_the_middle(0);
        onward.write_all(&[15, 0]).unwrap();
        let error = into.read_some(&mut [0; 10], soon()).unwrap_err();
        assert!(matches!(error, LinkError::Tampered { record: 0 }));
    }

    #[test]
    fn both_sides_change_keys_at_the_same_record() {
        let (mut out, mut caught, mut onward, mut into) = with_a_man_in_the_middle(KEY_LIFE - 2);
        for index in 0..5u8 {
            out.write_all(&[index], b"", &[], soon()).unwrap();
            onward.write_all(&record(&mut caught)).unwrap();
            let mut opened = [9; 1];
            assert_eq!(into.read_some(&mut opened, soon()).unwrap(), 1);
            assert_eq!(opened, [index]);
        }
    }

    #[test]
    fn a_frame_that_never_left_does_not_use_up_its_numbers() {
        let (mut out, mut caught, _onward, _into) = with_a_man_in_the_middle(0);
        let full = vec![0; 1 << 20];
        // Fill the socket from behind the outlet's back, so that not one byte of a record fits.
        let filler = Arc::clone(&out.socket.socket);
        while rustix::net::send(&*filler, &full, rustix::net::SendFlags::DONTWAIT).is_ok() {}
        let now = Deadline::after(Duration::ZERO);
        let stopped = out.write_all(b"x", b"", &[], now).unwrap_err();
        assert!(!stopped.half_written);
        assert_eq!(out.records.next, 0);
        caught.set_nonblocking(true).unwrap();
        while caught.read(&mut vec![0; 1 << 20]).is_ok_and(|read| read > 0) {}
        out.write_all(b"x", b"", &[], soon()).unwrap();
        assert_eq!(out.records.next, 1);
    }
}
