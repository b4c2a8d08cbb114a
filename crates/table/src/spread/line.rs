//! A worker's end of the link with one share: requests go out, replies come back in the same order.
//!
//! A request is *quiet* when its caller does not wait for the reply (an add that was taken over): the reply is read before
//! the next one that somebody waits for, and a refusal in it is kept for the next call. A caller that gave up leaves an
//! *orphan* behind, which is skipped when it arrives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};
use syncline_transport::{Link, LinkError, OutFrame, RecvHalf, SendHalf};
use syncline_wire::{Fingerprint, Kind};

use super::gate::{self, Gate};
use super::messages::{Refusal, Reply, Request};
use super::reach::Reach;

/// Quiet replies that may be under way: the server's answers must fit into the buffers between us.
const MOST_QUIET: usize = 64;
/// A server that gives up at the caller's deadline has more to tell than our own impatience: its word may come so much later.
const LAST_WORD: Duration = Duration::from_millis(300);

/// How much longer the rest of a reply, or of a request, may take.
const REST: Duration = Duration::from_secs(2);

/// What the next reply is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Nobody waits; `Some` is the number of an add.
    Quiet(Option<u64>),
    /// The caller waits.
    Loud,
    /// The caller gave up.
    Orphan,
}

/// The link with one share.
pub(crate) struct Line {
    server: u32,
    table: Fingerprint,
    /// The table as errors call it.
    title: String,
    send: Box<dyn SendHalf>,
    recv: Box<dyn RecvHalf>,
    next: u64,
    expected: VecDeque<Expected>,
    refused: Option<(Option<u64>, Error)>,
    /// What ended the link; told again to whoever asks for more.
    ended: Option<Error>,
    gate: Arc<Gate>,
    /// The turn of large frames among those to this server, if they take turns.
    priority: Option<i32>,
}

impl Line {
    /// Over `link` with rank `server`, for the table of this fingerprint, which errors call `title`.
    pub(crate) fn new(link: Link, server: u32, table: Fingerprint, title: &str, gate: Arc<Gate>) -> Line {
        let (send, recv) = link.split();
        let title = title.to_owned();
        Line { server, table, title, send, recv, next: 0, expected: VecDeque::new(), refused: None, ended: None, gate, priority: None }
    }

    /// From now on large frames take turns with those of other tables to the same server; `None`: they do not.
    pub(crate) fn set_priority(&mut self, priority: Option<i32>) {
        self.priority = priority;
    }

    /// Whether a large frame would have to wait for its turn.
    pub(crate) fn would_wait(&self) -> bool {
        self.priority.is_some() && !self.gate.is_free()
    }

    /// Sends a request whose reply nobody waits for.
    pub(crate) fn tell(
        &mut self,
        request: &Request,
        add: Option<u64>,
        payload: &[&[u8]],
        reach: &dyn Reach,
        by: Deadline,
    ) -> Result<(), Error> {
        while self.expected.len() >= MOST_QUIET {
            self.receive_one(request.name(), reach, by)?;
        }
        self.send(request, Expected::Quiet(add), payload, reach, by)
    }

    /// Whether [`offer`](Line::offer) may be worth a try.
    pub(crate) fn takes_offers(&self) -> bool {
        self.send.takes_offers()
    }

    /// As [`tell`](Line::tell), but of `large`, behind the payload, only what the network takes while it is waited for no longer
    /// than `patience`; how much that was. The [`rest`](Line::rest) must go before anything else.
    #[expect(clippy::too_many_arguments, reason = "those of `tell`, and two more")]
    pub(crate) fn offer(
        &mut self,
        request: &Request,
        add: Option<u64>,
        payload: &[u8],
        large: &[u8],
        patience: Duration,
        reach: &dyn Reach,
        by: Deadline,
    ) -> Result<usize, Error> {
        while self.expected.len() >= MOST_QUIET {
            self.receive_one(request.name(), reach, by)?;
        }
        self.check()?;
        let (meta, started) = (request.encode(), Instant::now());
        let payload = [payload];
        let frame =
            OutFrame { sequence: self.next, fingerprint: self.table, meta: &meta, payload: &payload, ..OutFrame::new(Kind::TABLE_REQUEST) };
        let total = frame.payload_len() + large.len() as u64;
        let gate = Arc::clone(&self.gate);
        let _turn = self.priority.map(|priority| gate.enter(priority, by));
        let begun = self.send.begin(&frame, total, by);
        begun.map_err(|error| self.failed(request.name(), started, &error, reach))?;
        self.next += 1;
        self.expected.push_back(Expected::Quiet(add));
        self.send.offer(large, patience).map_err(|error| self.failed(request.name(), started, &error, reach))
    }

    /// Sends what was left of an [`offer`](Line::offer).
    pub(crate) fn rest(&mut self, operation: &str, bytes: &[u8], reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        self.check()?;
        let started = Instant::now();
        let gate = Arc::clone(&self.gate);
        let turn = self.priority.map(|priority| gate.enter(priority, by));
        // As with half a reply: a link that is left in the middle of a request is lost.
        let sent = match turn {
            None => self.send.piece(bytes, by.extended(REST)),
            Some(turn) => bytes.chunks(gate::CHUNK).try_for_each(|chunk| {
                turn.progress();
                self.send.piece(chunk, by.extended(REST))
            }),
        };
        sent.map_err(|error| self.failed(operation, started, &error, reach))
    }

    /// Sends a request; [`reply`](Line::reply) brings its answer.
    pub(crate) fn ask(&mut self, request: &Request, payload: &[&[u8]], reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        self.send(request, Expected::Loud, payload, reach, by)
    }

    fn send(&mut self, request: &Request, expected: Expected, payload: &[&[u8]], reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        self.check()?;
        let (meta, started) = (request.encode(), Instant::now());
        let frame = OutFrame { sequence: self.next, fingerprint: self.table, meta: &meta, payload, ..OutFrame::new(Kind::TABLE_REQUEST) };
        let sent = match self.priority.filter(|_| frame.payload_len() > gate::SMALL) {
            Some(priority) => send_in_turn(self.send.as_mut(), &frame, &self.gate, priority, by),
            None => self.send.send(&frame, by),
        };
        sent.map_err(|error| self.failed(request.name(), started, &error, reach))?;
        self.next += 1;
        self.expected.push_back(expected);
        Ok(())
    }

    /// What a refusal means here. A death that the server saw is looked into as if this process had seen it: its neighbours must
    /// hear whom it blames before it fails.
    fn told(&self, refusal: Refusal, reach: &dyn Reach) -> Error {
        match refusal.into_error(self.server) {
            Error::PeerLost { operation, who, how, waited, .. } if !reach.survives_losses() => {
                let started = Instant::now().checked_sub(waited).unwrap_or_else(Instant::now);
                reach.link_failed(&operation, who.rank, started, &LinkError::PeerGone { detail: how })
            }
            error => error,
        }
    }

    /// The reply to the oldest request that somebody waits for; a refusal is an error. Its payload waits to be read.
    pub(crate) fn reply(&mut self, operation: &str, reach: &dyn Reach, by: Deadline) -> Result<Reply, Error> {
        loop {
            match self.receive_one(operation, reach, by.extended(LAST_WORD)) {
                Ok(None) => {}
                Ok(Some(Reply::Refused(refusal))) => return Err(self.told(refusal, reach)),
                Ok(Some(reply)) => return Ok(reply),
                Err(error) => {
                    self.forsake();
                    return Err(error);
                }
            }
        }
    }

    /// Reads all replies that nobody waits for.
    pub(crate) fn hear_quiet(&mut self, reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        self.forsake();
        while !self.expected.is_empty() {
            self.receive_one("add", reach, by)?;
        }
        Ok(())
    }

    /// Reads replies until no add is under way.
    pub(crate) fn hear_adds(&mut self, reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        while self.expected.iter().any(|expected| matches!(expected, Expected::Quiet(Some(_)))) {
            self.receive_one("add", reach, by)?;
        }
        Ok(())
    }

    /// Reads the next reply of any kind; one that the caller waits for is returned.
    fn receive_one(&mut self, operation: &str, reach: &dyn Reach, by: Deadline) -> Result<Option<Reply>, Error> {
        self.check()?;
        let started = Instant::now();
        let head = self.recv.head(by).map_err(|error| self.failed(operation, started, &error, reach))?;
        let strange = |detail: String| Error::ContractMismatch { operation: operation.into(), detail };
        let number = self.next - self.expected.len() as u64;
        if head.header.kind != Kind::TABLE_REPLY || head.header.sequence != number || head.header.fingerprint != self.table {
            let detail =
                format!("rank {} answered with {} {} where reply {number} was due", self.server, head.header.kind, head.header.sequence);
            return Err(strange(detail));
        }
        let reply = Reply::decode(&head.meta).map_err(|error| strange(format!("rank {}: {error}", self.server)))?;
        match self.expected.pop_front() {
            Some(Expected::Loud) => Ok(Some(reply)),
            Some(Expected::Quiet(add)) => {
                if let Reply::Refused(refusal) = reply {
                    // The first one tells why; what came after it failed for want of it.
                    let error = self.told(refusal, reach);
                    self.refused.get_or_insert((add, error));
                }
                Ok(None)
            }
            Some(Expected::Orphan) => Ok(None),
            None => Err(strange(format!("rank {} answered without a question", self.server))),
        }
    }

    /// Nobody waits any more for what was asked.
    pub(crate) fn forsake(&mut self) {
        self.expected.iter_mut().filter(|expected| **expected == Expected::Loud).for_each(|expected| *expected = Expected::Orphan);
    }

    /// A refusal of something that nobody waited for: the number of the add, if it was one, and why.
    pub(crate) fn take_refused(&mut self) -> Option<(Option<u64>, Error)> {
        self.refused.take()
    }

    /// Bytes of the reply's payload that have not been read.
    pub(crate) fn left(&self) -> u64 {
        self.recv.body_left()
    }

    /// Reads the next `buffer.len()` bytes of the reply's payload.
    pub(crate) fn read(&mut self, operation: &str, buffer: &mut [u8], reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        let started = Instant::now();
        // A link that is left in the middle of a reply is lost, so what has begun to arrive may take a little longer.
        let read = read_exactly(self.recv.as_mut(), buffer, by.extended(REST));
        read.map_err(|error| self.failed(operation, started, &error, reach))
    }

    fn check(&self) -> Result<(), Error> {
        self.ended.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn failed(&mut self, operation: &str, started: Instant, error: &LinkError, reach: &dyn Reach) -> Error {
        let named = reach.link_failed(&format!("{}: {operation}", self.title), self.server, started, error);
        if !error.is_transient() {
            self.ended.get_or_insert_with(|| named.clone());
        }
        named
    }

    /// Tells the server that nothing more will come.
    pub(crate) fn goodbye(&mut self) {
        let _ = self.send.send(&OutFrame::new(Kind::GOODBYE), Deadline::after(Duration::from_millis(100)));
    }
}

/// Sends a large frame when it is its turn, and shows that it moves.
fn send_in_turn(send: &mut dyn SendHalf, frame: &OutFrame<'_>, gate: &Gate, priority: i32, by: Deadline) -> Result<(), LinkError> {
    let pass = gate.enter(priority, by);
    if send.pollable().is_none() {
        return send.send(frame, by); // memory takes a frame as it is, at once or not at all
    }
    send.begin(&OutFrame { payload: &[], ..*frame }, frame.payload_len(), by)?;
    for chunk in frame.payload.iter().flat_map(|piece| piece.chunks(gate::CHUNK)) {
        send.piece(chunk, by.extended(REST))?;
        pass.progress();
    }
    Ok(())
}

/// Fills `buffer` with the next bytes of the body; too few are an error.
pub(crate) fn read_exactly(recv: &mut dyn RecvHalf, buffer: &mut [u8], by: Deadline) -> Result<(), LinkError> {
    let (left, want) = (recv.body_left(), buffer.len() as u64);
    if left == want {
        return recv.body_into(buffer, by);
    }
    if left < want {
        return Err(LinkError::WrongLength { expected: left, got: want });
    }
    let mut filled = 0;
    while filled < buffer.len() {
        filled += recv.body_chunk(&mut buffer[filled..], by)?;
    }
    Ok(())
}
