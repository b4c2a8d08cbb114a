//! A share's service for one worker of another neighbourhood: one thread, one link, requests in order.
//!
//! What arrives is staged with the socket read straight into the share's memory; what is asked for is sent while it is
//! read. An add is applied when nothing else has arrived: the get that usually follows does it while it answers, in one
//! pass over the table instead of two. A request that makes no sense is answered with a refusal and changes nothing. When the link ends, the worker's
//! estate is settled (see [`estate`](super::estate)).
//!
//! What has to wait for other workers waits in a [room](super::waiting_room) of its own, and is overtaken by what comes behind it.
//!
//! Cost: one thread per remote worker and table, asleep in the kernel between requests, and a second one once a request had to wait; 256 KiB
//! of buffer while it answers.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};
use syncline_transport::{Head, Link, LinkError, RecvHalf};
use syncline_wire::Kind;

use super::answering::{Answering, Trouble, Wanted, Wish, soon};
use super::baton::Baton;
use super::counting::publish;
use super::estate;
use super::gate::Gate;
use super::line::read_exactly;
use super::messages::{Bounds, Reply, Request, Rows};
use super::moving::{bytes_of_ids, words};
use super::protocol::{Answer, Ward};
use super::reach::{Places, Reach};
use super::waiting_room::WaitingRoom;
use crate::Consistency;
use crate::keys::KeyShare;
use crate::share::{Selection, Share};

/// What one thread serves: a share to a worker.
#[derive(Clone)]
pub(crate) struct Service {
    /// Who holds and who uses the table.
    pub(crate) places: Arc<Places>,
    /// The number of the share.
    pub(crate) index: usize,
    /// The share.
    pub(crate) share: Arc<dyn Share>,
    /// The same as a key-value table, if it is one.
    pub(crate) keys: Option<Arc<KeyShare>>,
    /// Bytes of a row, or of a key's value.
    pub(crate) row_bytes: usize,
    /// Whom a get waits for. Adds are applied as soon as they count, while nobody waits for it, unless they wait for a round.
    pub(crate) consistency: Consistency,
    /// The worker's id.
    pub(crate) worker: u32,
    /// The job.
    pub(crate) reach: Arc<dyn Reach>,
    /// Elements are f32.
    pub(crate) floats: bool,
    /// The turns of large replies to this worker.
    pub(crate) gate: Arc<Gate>,
}

/// How a request ended, as far as the link is concerned.
type Handled = Result<(), LinkError>;

impl Service {
    /// Starts the thread: it meets the worker, serves it until the link ends, and settles what it leaves.
    pub(crate) fn start(self) -> Result<JoinHandle<()>, Error> {
        let name = format!("syncline-serve-{}", self.worker);
        let thread = std::thread::Builder::new().name(name).spawn(move || self.meet_and_serve());
        thread.map_err(|error| Error::System { operation: "serving a table".into(), detail: error.to_string() })
    }

    fn meet_and_serve(self) {
        let rank = self.places.workers[self.worker as usize];
        // It comes when it likes: the wait ends with the worker, or when this process leaves.
        let link = self.reach.link(rank, self.places.lane(self.index, self.worker), Deadline::never());
        match link {
            Ok(link) => self.serve(link),
            Err(error) => {
                tracing::debug!("{}: worker {} was never met: {error}", self.places.name, self.worker);
                estate::settle(&self, None, false);
            }
        }
    }

    /// Serves over `link` until it ends, then settles what the worker leaves.
    pub(crate) fn serve(&self, link: Link) {
        let severer = link.severer();
        let (send, recv) = link.split();
        let answering = Answering { service: self.clone(), send: Arc::new(Baton::new(send)) };
        let room = WaitingRoom::new(answering.clone(), severer);
        let ward = Ward::new(self.share.published(self.worker));
        let mut session = Session { service: self, answering, room, recv, ward, unapplied: None };
        let goodbye = session.run();
        let held = session.ward.held();
        drop(session);
        estate::settle(self, held, goodbye);
    }

    fn bounds(&self) -> Bounds {
        let rows = self.share.rows();
        Bounds { row_bytes: self.row_bytes as u64, rows: self.keys.is_none().then(|| rows.end - rows.start), floats: self.floats }
    }
}

/// One link's conversation.
struct Session<'a> {
    service: &'a Service,
    answering: Answering,
    room: WaitingRoom,
    recv: Box<dyn RecvHalf>,
    ward: Ward,
    /// The last add, as long as nobody has looked whether it is applied.
    unapplied: Option<u64>,
}

impl Session<'_> {
    /// Answers requests until the link ends. Returns whether the worker said goodbye.
    fn run(&mut self) -> bool {
        loop {
            // The link is severed when the worker dies or this process leaves, so this wait ends.
            let by = if self.unapplied.is_some() { Deadline::after(Duration::ZERO) } else { Deadline::never() };
            let head = match self.recv.head(by) {
                Ok(head) => head,
                Err(LinkError::Timeout { .. }) => {
                    self.apply();
                    continue;
                }
                Err(LinkError::StaleEpoch { .. }) => continue,
                Err(error) => {
                    tracing::debug!("{}: the link with worker {} ended: {error}", self.service.places.name, self.service.worker);
                    return false;
                }
            };
            match head.header.kind {
                Kind::GOODBYE => return true,
                Kind::TABLE_REQUEST => {
                    if let Err(error) = self.handle(&head) {
                        tracing::debug!("{}: worker {}: {error}", self.service.places.name, self.service.worker);
                        return false;
                    }
                }
                other => {
                    tracing::warn!("{}: worker {} sent {other}, which is not for tables", self.service.places.name, self.service.worker)
                }
            }
        }
    }

    fn handle(&mut self, head: &Head) -> Handled {
        if head.header.fingerprint != self.service.places.table {
            return self.refuse(head, &contract("request", "it is for another table"));
        }
        let request = match Request::decode(&head.meta, head.header.payload_len, &self.service.bounds()) {
            Ok(request) => request,
            Err(error) => return self.refuse(head, &contract("request", &error.to_string())),
        };
        match self.answer(head, &request) {
            Err(Trouble::Refuse(error)) => self.refuse(head, &error),
            Err(Trouble::Link(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    fn answer(&mut self, head: &Head, request: &Request) -> Result<(), Trouble> {
        let service = self.service;
        let (share, worker) = (&service.share, service.worker);
        match *request {
            Request::Add { .. } | Request::AddWords { .. } => return self.add(head, request),
            Request::Commit { sequence } => match self.ward.commit(sequence) {
                Answer::Go => {
                    publish(&**share, worker, sequence)?;
                    self.ward.counted(sequence);
                    self.unapplied = Some(sequence);
                }
                Answer::Repeated | Answer::Instead => {}
                Answer::Refuse(why) => return Err(contract("add", &why).into()),
            },
            Request::Drop { sequence } => match self.ward.drop_add(sequence) {
                Answer::Go => {
                    share.discard(worker, sequence);
                    self.ward.dropped();
                }
                Answer::Repeated | Answer::Instead => {}
                Answer::Refuse(why) => return Err(contract("add", &why).into()),
            },
            Request::Get { own_adds, rows, patience, priority } => {
                let ids = self.ids(rows)?;
                return self.receive(head, own_adds, Wish::Rows { ids, priority }, patience);
            }
            Request::GetWords { own_adds, code, patience, priority } => {
                return self.receive(head, own_adds, Wish::Words { code, priority }, patience);
            }
            Request::Changed { own_adds, received, patience } => {
                return self.receive(head, own_adds, Wish::Changed { received }, patience);
            }
            Request::Settle { sequence, patience, ref lost } => {
                return self.receive(head, sequence, Wish::Settled { lost: lost.clone() }, patience);
            }
            Request::Finish => {
                // The reply first: with its last worker finished this process may leave, and its links with it.
                self.reply(head, &Reply::Done)?;
                share.finish(worker);
                return Ok(());
            }
            Request::Clocks => {
                let clocks: Vec<i64> = (0..service.places.workers.len()).map(|worker| share.published(worker as u32) as i64).collect();
                let mut flow = self.answering.outflow(head.header.sequence, clocks.len() as u64, 8);
                let sent = flow.take(&bytes_of_ids(&clocks));
                return flow.end(sent);
            }
            Request::ReadLane { lane, first_row, rows, patience } => {
                return self.read_lane(head, lane as usize, first_row, rows, soon(patience));
            }
            Request::WriteLane { lane, first_row, patience } => self.write_lane(lane as usize, first_row, soon(patience))?,
            Request::Export => {
                let keys = service.keys.as_ref().ok_or_else(|| contract("save", "this is not a key-value table"))?;
                let (keys, values) = keys.export();
                return self.answering.pairs(head.header.sequence, &keys, &values);
            }
            Request::Import { pairs } => {
                let keys = service.keys.as_ref().ok_or_else(|| contract("load", "this is not a key-value table"))?;
                let ids = self.ids(Rows::Listed(pairs))?.unwrap_or_default();
                let values = self.recv.body(self.at_most())?;
                keys.import(&ids, &values);
            }
        }
        self.reply(head, &Reply::Done)?;
        Ok(())
    }

    /// Answers what may have to wait for other workers, now or later.
    fn receive(&mut self, head: &Head, own_adds: u64, wish: Wish, patience: u32) -> Result<(), Trouble> {
        // What a worker sends arrives in order, so an add of its own that does not count was refused, and never will.
        let counts = self.service.share.published(self.service.worker);
        if own_adds > counts {
            return Err(contract("request", &format!("it comes after add {} of this worker, which was refused", counts + 1)).into());
        }
        Ok(self.room.receive(Wanted { number: head.header.sequence, own_adds, wish, by: soon(patience) })?)
    }

    /// Takes an add over: ids into a list, rows straight into the share's memory.
    fn add(&mut self, head: &Head, request: &Request) -> Result<(), Trouble> {
        let (sequence, rows, ref options, hold, patience, code) = match *request {
            Request::Add { sequence, rows, options, hold, patience } => (sequence, rows, options, hold, patience, None),
            Request::AddWords { sequence, code, options, hold, patience } => (sequence, Rows::All, options, hold, patience, Some(code)),
            _ => return Ok(()),
        };
        let done = if hold.is_some() { Reply::Staged } else { Reply::Done };
        match self.ward.add(sequence) {
            Answer::Go => {}
            Answer::Instead => {
                self.service.share.discard(self.service.worker, sequence);
                self.ward.dropped();
            }
            Answer::Repeated => return Ok(self.reply(head, &done)?),
            Answer::Refuse(why) => return Err(contract("add", &why).into()),
        }
        let ids = self.ids(rows)?;
        let selection = ids.as_deref().map_or(Selection::All, Selection::Rows);
        let (share, worker, limit) = (&self.service.share, self.service.worker, self.service.reach.timeout());
        let recv = self.recv.as_mut();
        let mut lost = None;
        let words = recv.body_left() as usize;
        let mut read = |target: &mut [u8]| {
            // The time that it took to find room for the add is not the worker's.
            read_exactly(recv, target, Deadline::after(limit)).map_err(|error| {
                let told = contract("add", &error.to_string());
                lost = Some(error);
                told
            })
        };
        let mut fill = |target: &mut [u8]| match code {
            Some(code) => code.decode_from(words, target, &mut read),
            None => read(target),
        };
        let staged = share.stage(worker, sequence, selection, options, &mut fill, soon(patience));
        if let Some(error) = lost {
            if staged.is_ok() {
                share.discard(worker, sequence);
            }
            return Err(error.into());
        }
        staged?;
        match hold {
            Some(hold) => self.ward.took(sequence, hold),
            None => {
                publish(&**share, worker, sequence)?;
                self.ward.counted(sequence);
                self.unapplied = Some(sequence);
            }
        }
        Ok(self.reply(head, &done)?)
    }

    /// Does now, while the worker asks for nothing, what its next get would wait for.
    fn apply(&mut self) {
        if let Some(sequence) = self.unapplied.take()
            && self.service.consistency != Consistency::Sync
        {
            // A failure shows again, to somebody who waits.
            let _ = self.service.share.settle(self.service.worker, sequence, Deadline::after(self.service.reach.timeout()));
        }
    }

    fn read_lane(&mut self, head: &Head, lane: usize, first_row: u64, rows: u64, by: Deadline) -> Result<(), Trouble> {
        const CHUNK: usize = 1 << 20;
        let share = Arc::clone(&self.service.share);
        let lane_bytes = self.check_lane("save", lane, first_row, rows)?;
        let mut flow = self.answering.outflow(head.header.sequence, rows, lane_bytes);
        let step = (CHUNK / lane_bytes.max(1)).max(1) as u64;
        let mut buffer = vec![0; step.min(rows) as usize * lane_bytes];
        let mut result = Ok(());
        let mut at = 0;
        while at < rows && result.is_ok() {
            let count = step.min(rows - at);
            let piece = &mut buffer[..count as usize * lane_bytes];
            result = share.read_lane(lane, first_row + at, piece, by).and_then(|()| flow.take(piece));
            at += count;
        }
        flow.end(result)
    }

    fn write_lane(&mut self, lane: usize, first_row: u64, by: Deadline) -> Result<(), Trouble> {
        const CHUNK: usize = 1 << 20;
        let lane_bytes = self.check_lane("load", lane, first_row, 0)?;
        let (len, row) = (self.recv.body_left(), lane_bytes.max(1) as u64);
        self.check_lane("load", lane, first_row, len / row)?;
        if len % row != 0 {
            return Err(contract("load", &format!("{len} bytes are no whole rows of {lane_bytes}")).into());
        }
        let step = (CHUNK as u64 / row).max(1) * row;
        let mut buffer = vec![0; step.min(len) as usize];
        let mut at = first_row;
        while self.recv.body_left() > 0 {
            let piece = step.min(self.recv.body_left()) as usize;
            let deadline = self.at_most();
            read_exactly(self.recv.as_mut(), &mut buffer[..piece], deadline)?;
            self.service.share.write_lane(lane, at, &buffer[..piece], by)?;
            at += piece as u64 / row;
        }
        Ok(())
    }

    /// Bytes of a lane's row, if the lane and the rows exist.
    fn check_lane(&self, operation: &str, lane: usize, first_row: u64, rows: u64) -> Result<usize, Error> {
        let held = self.service.share.rows();
        let end = first_row.saturating_add(rows);
        if first_row < held.start || end > held.end {
            return Err(contract(operation, &format!("rows {first_row}..{end} are not among {}..{}", held.start, held.end)));
        }
        let lanes = self.service.share.lanes();
        lanes.get(lane).map(|lane| lane.row_bytes).ok_or_else(|| contract(operation, &format!("lane {lane} of {}", lanes.len())))
    }

    /// The ids in front of the payload.
    fn ids(&mut self, rows: Rows) -> Result<Option<Vec<i64>>, LinkError> {
        const STEP: u64 = 1 << 20;
        let Rows::Listed(count) = rows else { return Ok(None) };
        let (mut ids, mut left, by) = (Vec::new(), count, self.at_most());
        while left > 0 {
            // Grows with what arrives rather than with what was announced.
            let mut bytes = vec![0; (left.min(STEP) * 8) as usize];
            read_exactly(self.recv.as_mut(), &mut bytes, by)?;
            ids.extend(words(&bytes));
            left -= left.min(STEP);
        }
        Ok(Some(ids))
    }

    fn reply(&self, head: &Head, reply: &Reply) -> Handled {
        self.answering.reply(head.header.sequence, reply)
    }

    fn refuse(&self, head: &Head, error: &Error) -> Handled {
        self.answering.refuse(head.header.sequence, error)
    }

    /// How long the worker may take to send the rest of something.
    fn at_most(&self) -> Deadline {
        self.answering.at_most()
    }
}

fn contract(operation: &str, detail: &str) -> Error {
    Error::ContractMismatch { operation: operation.into(), detail: detail.into() }
}
