//! A worker's end of the link with one share: requests go out, numbered; what comes back is for [`Replies`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};
use syncline_transport::{Link, LinkError, OutFrame, RecvHalf, SendHalf};
use syncline_wire::{Fingerprint, Kind};

use super::gate::{self, Gate};
use super::messages::Request;
use super::reach::Reach;
use super::replies::{Expected, Question, Replies};

/// Quiet replies that may be under way: the server's answers must fit into the buffers between us.
const MOST_QUIET: usize = 64;
/// How much longer the rest of a request may take.
const REST: Duration = Duration::from_secs(2);

/// The link with one share.
pub(crate) struct Line {
    table: Fingerprint,
    send: Box<dyn SendHalf>,
    next: u64,
    replies: Arc<Replies>,
    gate: Arc<Gate>,
    /// The turn of large frames among those to this server, if they take turns.
    priority: Option<i32>,
}

impl Line {
    /// Over `link` with rank `server`, for the table of this fingerprint, which errors call `title`.
    pub(crate) fn new(link: Link, server: u32, table: Fingerprint, title: &str, gate: Arc<Gate>) -> Line {
        let (send, recv) = link.split();
        Line { table, send, next: 0, replies: Replies::new(recv, server, table, title), gate, priority: None }
    }

    /// What comes back.
    pub(crate) fn replies(&self) -> &Arc<Replies> {
        &self.replies
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
        self.replies.hear_all_but(MOST_QUIET, request.name(), reach, by)?;
        self.send(request, Expected::Quiet(add), payload, reach, by).map(drop)
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
        self.replies.hear_all_but(MOST_QUIET, request.name(), reach, by)?;
        self.replies.check()?;
        let (meta, started) = (request.encode(), Instant::now());
        let payload = [payload];
        let frame =
            OutFrame { sequence: self.next, fingerprint: self.table, meta: &meta, payload: &payload, ..OutFrame::new(Kind::TABLE_REQUEST) };
        let total = frame.payload_len() + large.len() as u64;
        let gate = Arc::clone(&self.gate);
        let _turn = self.priority.map(|priority| gate.enter(priority, by));
        self.replies.expect(self.next, Expected::Quiet(add));
        if let Err(error) = self.send.begin(&frame, total, by) {
            self.replies.take_back(self.next);
            return Err(self.failed(request.name(), started, &error, reach));
        }
        self.next += 1;
        self.send.offer(large, patience).map_err(|error| self.failed(request.name(), started, &error, reach))
    }

    /// Sends what was left of an [`offer`](Line::offer).
    pub(crate) fn rest(&mut self, operation: &str, bytes: &[u8], reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        self.replies.check()?;
        let started = Instant::now();
        let gate = Arc::clone(&self.gate);
        let turn = self.priority.map(|priority| gate.enter(priority, by));
        // A link that is left in the middle of a request is lost.
        let sent = match turn {
            None => self.send.piece(bytes, by.extended(REST)),
            Some(turn) => bytes.chunks(gate::CHUNK).try_for_each(|chunk| {
                turn.progress();
                self.send.piece(chunk, by.extended(REST))
            }),
        };
        sent.map_err(|error| self.failed(operation, started, &error, reach))
    }

    /// Sends as much of that rest as goes until `by`: how much, and what stopped it. What is left goes later.
    pub(crate) fn more(&mut self, operation: &str, bytes: &[u8], reach: &dyn Reach, by: Deadline) -> (usize, Result<(), Error>) {
        const LOOK: Duration = Duration::from_millis(100);
        if let Err(error) = self.replies.check() {
            return (0, Err(error));
        }
        let (started, gate) = (Instant::now(), Arc::clone(&self.gate));
        let turn = self.priority.map(|priority| gate.enter(priority, by));
        let mut taken = 0;
        while taken < bytes.len() {
            let chunk = &bytes[taken..bytes.len().min(taken + gate::CHUNK)];
            let stopped = match self.send.offer(chunk, by.slice(LOOK)) {
                Ok(0) if by.interrupted() => LinkError::Interrupted,
                Ok(0) if by.expired() => LinkError::Timeout { waited: started.elapsed(), half_written: false },
                Ok(more) => {
                    taken += more;
                    turn.as_ref().filter(|_| more > 0).inspect(|turn| turn.progress());
                    continue;
                }
                Err(error) => error,
            };
            return (taken, Err(self.replies.failed(operation, started, &stopped, reach)));
        }
        (taken, Ok(()))
    }

    /// Sends a request whose reply somebody waits for.
    pub(crate) fn ask(&mut self, request: &Request, payload: &[&[u8]], reach: &dyn Reach, by: Deadline) -> Result<Question, Error> {
        let number = self.send(request, Expected::Loud, payload, reach, by)?;
        Ok(Question::new(&self.replies, number))
    }

    /// Sends a request; its number.
    fn send(&mut self, request: &Request, expected: Expected, payload: &[&[u8]], reach: &dyn Reach, by: Deadline) -> Result<u64, Error> {
        self.replies.check()?;
        let (meta, started, number) = (request.encode(), Instant::now(), self.next);
        let frame = OutFrame { sequence: number, fingerprint: self.table, meta: &meta, payload, ..OutFrame::new(Kind::TABLE_REQUEST) };
        self.replies.expect(number, expected);
        let sent = match self.priority.filter(|_| frame.payload_len() > gate::SMALL) {
            Some(priority) => send_in_turn(self.send.as_mut(), &frame, &self.gate, priority, by),
            None => self.send.send(&frame, by),
        };
        if let Err(error) = sent {
            self.replies.take_back(number);
            return Err(self.failed(request.name(), started, &error, reach));
        }
        self.next += 1;
        Ok(number)
    }

    /// The error for a caller whose request did not go, or not as a whole. Half a frame ends the link for everybody, by this process's own
    /// doing: others are told so before the server, which sees no more than an early end, closes it.
    fn failed(&mut self, operation: &str, started: Instant, error: &LinkError, reach: &dyn Reach) -> Error {
        // Between two frames there is no room for a piece, and nothing goes; a link that is broken says so first.
        if matches!(error, LinkError::Interrupted | LinkError::Timeout { .. })
            && let Err(broken @ LinkError::Broken { .. }) = self.send.piece(&[0], Deadline::after(Duration::ZERO))
        {
            self.replies.failed(operation, started, &broken, reach);
            return self.replies.named(operation, started, error, reach);
        }
        self.replies.failed(operation, started, error, reach)
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
