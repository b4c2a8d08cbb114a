//! The answers of a share to one worker, given by whichever thread of its service can.
//!
//! What may have to wait for other workers is here as a whole, because it is answered by the thread that reads requests or, later, by the
//! one of the [waiting room](super::waiting_room). Replies go out one at a time; who waits does not hold the link.

use std::sync::Arc;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};
use syncline_transport::{LinkError, OutFrame, SendHalf};
use syncline_wire::Kind;

use super::baton::{Baton, Held, NoTurn};
use super::estate;
use super::messages::{Refusal, Reply};
use super::moving::bytes_of_ids;
use super::outflow::Outflow;
use super::server::Service;
use super::words::{Code, Making};
use crate::Consistency;
use crate::share::Selection;

/// The sending half of a link, which the threads of a service use in turn.
pub(crate) type Sender = Baton<Box<dyn SendHalf>>;

/// Takes the turn to send.
pub(crate) fn sending(send: &Sender, by: Deadline) -> Result<Held<'_, Box<dyn SendHalf>>, LinkError> {
    send.take(by).map_err(|why| match why {
        NoTurn::Late => LinkError::Timeout { waited: by.waited(), half_written: false },
        NoTurn::Interrupted => LinkError::Interrupted,
    })
}

/// A request that may have to wait for other workers.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Rows: all, or these.
    Rows { ids: Option<Vec<i64>>, priority: Option<i32> },
    /// All rows, in fewer bits.
    Words { code: Code, priority: Option<i32> },
    /// What others changed, from the answer of this number on.
    Changed { received: u64 },
    /// To hear that adds are applied, and that what these lost workers left is decided.
    Settled { lost: Vec<u32> },
}

/// Who asks for it, and after how many adds.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The number of the request.
    pub(crate) number: u64,
    pub(crate) own_adds: u64,
    pub(crate) wish: Wish,
    /// How long it may wait for others.
    pub(crate) by: Deadline,
}

/// A service and the link on which it answers.
#[derive(Clone)]
pub(crate) struct Answering {
    pub(crate) service: Service,
    pub(crate) send: Arc<Sender>,
}

impl Answering {
    /// Whether everybody whom a get after `own_adds` adds waits for has added.
    pub(crate) fn is_ready(&self, wanted: &Wanted) -> bool {
        let service = &self.service;
        let goal = match (service.consistency, &wanted.wish) {
            (Consistency::Async, _) | (Consistency::Bounded(_), Wish::Settled { .. }) => return true,
            (Consistency::Sync, _) => wanted.own_adds,
            (Consistency::Bounded(bound), _) => wanted.own_adds.saturating_sub(bound.into()),
        };
        let is_behind = |worker: u32| service.share.published(worker) < goal;
        let workers = service.places.workers.len() as u32;
        !(0..workers).any(is_behind) || !service.share.unfinished().into_iter().any(is_behind)
    }

    /// Answers, or refuses with what went wrong.
    pub(crate) fn answer(&self, wanted: &Wanted) -> Result<(), LinkError> {
        match self.fulfil(wanted) {
            Err(Trouble::Refuse(error)) => self.refuse(wanted.number, &error),
            Err(Trouble::Link(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    fn fulfil(&self, wanted: &Wanted) -> Result<(), Trouble> {
        let service = &self.service;
        let (share, worker, number, own_adds, by) = (&service.share, service.worker, wanted.number, wanted.own_adds, wanted.by);
        match &wanted.wish {
            Wish::Rows { ids, priority } => {
                let count = ids.as_ref().map_or_else(|| share.rows().end - share.rows().start, |ids| ids.len() as u64);
                let selection = ids.as_deref().map_or(Selection::All, Selection::Rows);
                let mut flow = self.outflow(number, count, service.row_bytes).in_turn(&service.gate, *priority);
                let read = share.read(worker, own_adds, selection, &mut |bytes| flow.take(bytes), by);
                flow.end(read)
            }
            Wish::Words { code, priority } => {
                let numbers = (share.rows().end - share.rows().start) * (service.row_bytes / 4) as u64;
                let bytes = code.quantizer().encoded_len(numbers as usize) as u64;
                let flow = Outflow::new(&self.send, number, service.places.table, numbers, bytes, service.reach.timeout());
                let (mut flow, mut making) = (flow.in_turn(&service.gate, *priority), Making::new(*code));
                let mut sink = |bytes: &[u8]| making.take(bytes, &mut |words| flow.take(words));
                let read = share.read(worker, own_adds, Selection::All, &mut sink, by);
                let read = read.and_then(|()| making.end(&mut |words| flow.take(words)));
                flow.end(read)
            }
            Wish::Changed { received } => {
                let (ids, rows) = share.read_changed(worker, own_adds, Some(*received), by)?;
                self.pairs(number, &ids, &rows)
            }
            Wish::Settled { lost } => {
                share.settle(worker, own_adds, by)?;
                estate::wait_for_verdicts(worker, &service.places.workers, lost, &**share, &*service.reach, by)?;
                Ok(self.reply(number, &Reply::Done)?)
            }
        }
    }

    /// Sends ids and their rows.
    pub(crate) fn pairs(&self, number: u64, ids: &[i64], rows: &[u8]) -> Result<(), Trouble> {
        let mut flow = self.outflow(number, ids.len() as u64, 8 + self.service.row_bytes);
        let sent = flow.take(&bytes_of_ids(ids)).and_then(|()| flow.take(rows));
        flow.end(sent)
    }

    /// A reply of so many rows that is sent while it is made.
    pub(crate) fn outflow(&self, number: u64, rows: u64, row_bytes: usize) -> Outflow<'_> {
        // Rows and their size were checked against what a frame may carry.
        Outflow::new(&self.send, number, self.service.places.table, rows, rows * row_bytes as u64, self.service.reach.timeout())
    }

    /// Sends a reply without a payload.
    pub(crate) fn reply(&self, number: u64, reply: &Reply) -> Result<(), LinkError> {
        let meta = reply.encode();
        let fingerprint = self.service.places.table;
        let frame = OutFrame { sequence: number, fingerprint, meta: &meta, ..OutFrame::new(Kind::TABLE_REPLY) };
        let by = self.at_most();
        sending(&self.send, by)?.send(&frame, by)
    }

    /// Tells the worker why nothing was done.
    pub(crate) fn refuse(&self, number: u64, error: &Error) -> Result<(), LinkError> {
        if matches!(error, Error::Closed { .. }) {
            // It is this process that ends, not the worker's: whoever loses the link asks who is to blame.
            return Err(LinkError::Severed);
        }
        self.reply(number, &Reply::Refused(Refusal::of(error)))
    }

    /// How long the worker may take to send or to read the rest of something.
    pub(crate) fn at_most(&self) -> Deadline {
        Deadline::after(self.service.reach.timeout())
    }
}

/// Why a request was not answered as asked.
pub(crate) enum Trouble {
    /// The worker is told.
    Refuse(Error),
    /// There is no telling.
    Link(LinkError),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Refuse(error)
    }
}

impl From<LinkError> for Trouble {
    fn from(error: LinkError) -> Trouble {
        Trouble::Link(error)
    }
}

/// A deadline for what may wait so many milliseconds.
pub(crate) fn soon(patience: u32) -> Deadline {
    Deadline::after(Duration::from_millis(patience.into()))
}
