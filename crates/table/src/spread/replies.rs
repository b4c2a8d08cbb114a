//! What comes back over the line to one share, for the threads of a worker that wait for it.
//!
//! A server answers when it can: a get that waits for other workers is overtaken by what its worker asks meanwhile, so replies carry the
//! numbers of their requests. One thread at a time reads the link, whoever needs something first. It puts down what others wait for,
//! and where bytes follow, their owner goes on reading:
//! ```text
//!  A: get 7, reads ── reply 8 ──▶ put down for B ── reply 9 · rows ──▶ C reads them ── reply 7 · rows ──▶ A reads them
//! ```
//! A request is *quiet* when its caller does not wait for the reply (an add that was taken over): whoever reads it keeps a refusal for the
//! next call. A caller that gave up leaves an *orphan* behind, which is skipped when it arrives, with what is left of its bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};
use syncline_transport::{LinkError, RecvHalf};
use syncline_wire::{Fingerprint, Kind};

use super::messages::{Refusal, Reply};
use super::reach::Reach;

/// A server that gives up at the caller's deadline has more to tell than our own impatience: its word may come so much later.
const LAST_WORD: Duration = Duration::from_millis(300);
/// How much longer the rest of a reply may take.
const REST: Duration = Duration::from_secs(2);

/// What a reply is for.
#[derive(Debug)]
pub(crate) enum Expected {
    /// Nobody waits; `Some` is the number of an add.
    Quiet(Option<u64>),
    /// Its caller waits.
    Loud,
    /// It is here, and its caller has not come for it.
    Here(Reply),
    /// Its caller gave up.
    Orphan,
}

/// The replies of one server over one link.
pub(crate) struct Replies {
    server: u32,
    table: Fingerprint,
    /// The table as errors call it.
    title: String,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The receiving half, unless some thread has it.
    recv: Option<Box<dyn RecvHalf>>,
    /// By number of the request, ascending.
    expected: VecDeque<(u64, Expected)>,
    /// The reply whose bytes come next on the link: its owner reads them before anybody reads anything else.
    open: Option<u64>,
    refused: Option<(Option<u64>, Error)>,
    /// What ended the link; told again to whoever asks for more.
    ended: Option<Error>,
    /// Threads that wait for another one to read.
    waiting: usize,
}

impl State {
    fn at(&self, number: u64) -> Option<usize> {
        self.expected.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    fn quiet(&self) -> usize {
        self.expected.iter().filter(|(_, expected)| matches!(expected, Expected::Quiet(_))).count()
    }
}

impl Replies {
    /// Over `recv`, from rank `server`, for the table of this fingerprint, which errors call `title`.
    pub(crate) fn new(recv: Box<dyn RecvHalf>, server: u32, table: Fingerprint, title: &str) -> Arc<Replies> {
        let state = State { recv: Some(recv), expected: VecDeque::new(), open: None, refused: None, ended: None, waiting: 0 };
        Arc::new(Replies { server, table, title: title.to_owned(), state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // nobody panics while holding it
    }

    /// The reply to request `number`, which comes after all before it, will be for this. Said before the request goes: another thread
    /// may read what it brings at once.
    pub(crate) fn expect(&self, number: u64, expected: Expected) {
        self.lock().expected.push_back((number, expected));
    }

    /// Request `number` did not go after all.
    pub(crate) fn take_back(&self, number: u64) {
        let mut state = self.lock();
        if let Some(at) = state.at(number) {
            state.expected.remove(at);
        }
    }

    /// A refusal of something that nobody waited for: the number of the add, if it was one, and why.
    pub(crate) fn take_refused(&self) -> Option<(Option<u64>, Error)> {
        self.lock().refused.take()
    }

    /// Whether there is one.
    pub(crate) fn has_refused(&self) -> bool {
        self.lock().refused.is_some()
    }

    /// Says again what ended the link, if something did.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.lock().ended.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Reads until fewer than `most` quiet replies are under way.
    pub(crate) fn hear_all_but(&self, most: usize, operation: &str, reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        self.until(operation, reach, by, |state| (state.quiet() < most).then_some(()))
    }

    /// Reads until no add is under way.
    pub(crate) fn hear_adds(&self, reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        let is_add = |(_, expected): &(u64, Expected)| matches!(expected, Expected::Quiet(Some(_)));
        self.until("add", reach, by, |state| (!state.expected.iter().any(is_add)).then_some(()))
    }

    /// Takes, after goodbye, what the server still answers to those who gave up, until it has heard that and closes the link. One that cannot answer reads no
    /// further, and would miss the goodbye.
    pub(crate) fn hear_out(&self, by: Deadline) {
        let mut state = self.lock();
        if state.expected.is_empty() || state.ended.is_some() {
            return;
        }
        if let Some(mut recv) = state.recv.take() {
            drop(state);
            while recv.head(by).is_ok() {}
        }
    }

    /// Reads, or waits while another thread reads, until `found` finds what its caller wants.
    fn until<T>(
        &self,
        operation: &str,
        reach: &dyn Reach,
        by: Deadline,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Error> {
        const NAP: Duration = Duration::from_millis(200);
        let started = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(found) = found(&mut state) {
                return Ok(found);
            }
            if let Some(error) = &state.ended {
                return Err(error.clone());
            }
            if state.open.is_none()
                && let Some(mut recv) = state.recv.take()
            {
                drop(state);
                let read = self.read_one(recv.as_mut(), operation, reach, started, by);
                state = self.lock();
                state.recv = Some(recv);
                if state.waiting > 0 {
                    self.changed.notify_all();
                }
                read?;
                continue;
            }
            let in_vain = match (by.interrupted(), by.expired()) {
                (true, _) => Some(LinkError::Interrupted),
                (_, true) => Some(LinkError::Timeout { waited: started.elapsed(), half_written: false }),
                _ => None,
            };
            if let Some(error) = in_vain {
                drop(state);
                return Err(self.failed(operation, started, &error, reach));
            }
            state.waiting += 1;
            state = self.changed.wait_timeout(state, by.slice(NAP)).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            state.waiting -= 1;
        }
    }

    /// Reads the next reply and puts it down where it belongs.
    fn read_one(&self, recv: &mut dyn RecvHalf, operation: &str, reach: &dyn Reach, started: Instant, by: Deadline) -> Result<(), Error> {
        let head = recv.head(by).map_err(|error| self.failed(operation, started, &error, reach))?;
        let strange = |detail: String| Error::ContractMismatch { operation: operation.into(), detail };
        let (header, number) = (&head.header, head.header.sequence);
        if header.kind != Kind::TABLE_REPLY || header.fingerprint != self.table {
            return Err(strange(format!("rank {} answered with {} {number}, which is no reply of this table", self.server, header.kind)));
        }
        let reply = Reply::decode(&head.meta).map_err(|error| strange(format!("rank {}: {error}", self.server)))?;
        let mut state = self.lock();
        let at = state.at(number);
        match at.map(|at| &state.expected[at].1) {
            Some(Expected::Loud) => {
                let at = at.expect("just found");
                state.expected[at].1 = Expected::Here(reply);
                state.open = (recv.body_left() > 0).then_some(number);
            }
            Some(Expected::Quiet(add)) => {
                let add = *add;
                if let Reply::Refused(refusal) = reply {
                    drop(state); // naming a culprit takes a moment
                    let error = self.told(refusal, reach);
                    state = self.lock();
                    // The first one tells why; what came after it failed for want of it.
                    state.refused.get_or_insert((add, error));
                }
                // Only now: who finds that nothing is under way finds the refusal too.
                if let Some(at) = state.at(number) {
                    state.expected.remove(at);
                }
            }
            Some(Expected::Orphan) => {
                state.expected.remove(at.expect("just found"));
            }
            Some(Expected::Here(_)) | None => {
                return Err(strange(format!("rank {} answered request {number}, for which no reply was due", self.server)));
            }
        }
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

    /// The error for a call that the link failed; one that ends the link is kept. What ended it before is why it fails now.
    pub(crate) fn failed(&self, operation: &str, started: Instant, error: &LinkError, reach: &dyn Reach) -> Error {
        if error.is_transient() {
            return self.named(operation, started, error, reach);
        }
        if let Err(earlier) = self.check() {
            return earlier;
        }
        let named = self.named(operation, started, error, reach);
        let kept = self.lock().ended.get_or_insert(named).clone();
        self.changed.notify_all();
        kept
    }

    /// The same, without an end to anything.
    pub(crate) fn named(&self, operation: &str, started: Instant, error: &LinkError, reach: &dyn Reach) -> Error {
        reach.link_failed(&format!("{}: {operation}", self.title), self.server, started, error)
    }

    /// Nobody waits for this reply any more.
    fn forsake(&self, number: u64) {
        let mut state = self.lock();
        let Some(at) = state.at(number) else { return };
        match state.expected[at].1 {
            Expected::Loud => state.expected[at].1 = Expected::Orphan,
            Expected::Here(_) => {
                state.expected.remove(at);
                state.open.take_if(|open| *open == number); // who reads next skips its bytes
                self.changed.notify_all();
            }
            Expected::Quiet(_) | Expected::Orphan => {}
        }
    }
}

/// A request whose reply its owner waits for; dropped before that, the reply is an orphan.
pub(crate) struct Question {
    replies: Arc<Replies>,
    number: u64,
}

impl Question {
    pub(crate) fn new(replies: &Arc<Replies>, number: u64) -> Question {
        Question { replies: Arc::clone(replies), number }
    }

    /// The reply; a refusal is an error. Its payload waits to be read.
    pub(crate) fn reply(&self, operation: &str, reach: &dyn Reach, by: Deadline) -> Result<Arrival<'_>, Error> {
        let (replies, number) = (&*self.replies, self.number);
        let arrival = replies.until(operation, reach, by.extended(LAST_WORD), |state| {
            let at = state.at(number)?;
            let Expected::Here(_) = &state.expected[at].1 else { return None };
            let mut recv = None;
            if state.open == Some(number) {
                recv = Some(state.recv.take()?); // who read the reply is about to put the half down
                state.open = None;
            }
            match state.expected.remove(at) {
                Some((_, Expected::Here(reply))) => Some(Arrival { replies, reply, recv }),
                _ => None,
            }
        })?;
        match arrival.reply {
            Reply::Refused(ref refusal) => Err(replies.told(refusal.clone(), reach)),
            _ => Ok(arrival),
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.replies.forsake(self.number);
    }
}

/// A reply and the bytes that came with it. What is not read is skipped.
pub(crate) struct Arrival<'a> {
    replies: &'a Replies,
    pub(crate) reply: Reply,
    recv: Option<Box<dyn RecvHalf>>,
}

impl Arrival<'_> {
    /// Bytes of the payload that have not been read.
    pub(crate) fn left(&self) -> u64 {
        self.recv.as_ref().map_or(0, |recv| recv.body_left())
    }

    /// Reads the next `buffer.len()` bytes of the payload. A caller that gives up in the middle leaves the link as good as it was.
    pub(crate) fn read(&mut self, operation: &str, buffer: &mut [u8], reach: &dyn Reach, by: Deadline) -> Result<(), Error> {
        let started = Instant::now();
        let (left, want) = (self.left(), buffer.len() as u64);
        if left < want {
            return Err(self.replies.failed(operation, started, &LinkError::WrongLength { expected: left, got: want }, reach));
        }
        let Some(recv) = &mut self.recv else { return Ok(()) };
        let mut filled = 0;
        while filled < buffer.len() {
            // What has begun to arrive may take a little longer.
            let read = recv.body_chunk(&mut buffer[filled..], by.extended(REST));
            filled += read.map_err(|error| self.replies.failed(operation, started, &error, reach))?;
        }
        Ok(())
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        if let Some(recv) = self.recv.take() {
            let mut state = self.replies.lock();
            state.recv = Some(recv);
            if state.waiting > 0 {
                self.replies.changed.notify_all();
            }
        }
    }
}
