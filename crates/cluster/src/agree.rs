//! Calls that all workers must make alike: each proposes, the coordinator compares, everybody hears the outcome.
//!
//! ```text
//!   worker 0 ── Propose 1: array of 10 ──▶ coordinator ──▶ Agreed 1, with the payload of worker 0 ──▶ all members
//!   worker 1 ── Propose 1: array of 10 ──▶
//!   worker 0 ── Propose 2: array of 10 ──▶
//!   worker 1 ── Propose 2: matrix 3 x 4 ─▶ coordinator ──▶ Disagreed 2, both calls and where they stand ──▶ all workers
//! ```
//! Cost: one small message to the coordinator and one back. It is for making things, not for the steps of a training loop.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use syncline_shm::wait::Deadline;
use syncline_wire::Fingerprint;
use syncline_wire::message::{Call, Control, MAX_PROPOSAL, clip_text};

use crate::control::send_control;
use crate::seat::Seat;
use crate::{Error, Job};

/// What all workers agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// Which agreement of the job, from 1.
    pub number: u64,
    /// What the lowest worker brought.
    pub payload: Vec<u8>,
    /// The call in the words of the lowest worker.
    pub operation: String,
}

/// What a member knows of the agreements of its job.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    proposed: u64,
    outcomes: BTreeMap<u64, Outcome>,
    /// For a dedicated server, which proposes nothing: what the workers agreed on.
    heard: VecDeque<Agreement>,
    /// Who had not come when this process last asked, and to which call.
    missing: Option<(u64, Vec<u32>)>,
}

#[derive(Debug)]
enum Outcome {
    Agreed(Agreement),
    Disagreed { one: (u32, Call), other: (u32, Call) },
}

impl Ledger {
    pub(crate) fn agreed(&mut self, agreement: Agreement, works: bool) {
        if works {
            self.outcomes.insert(agreement.number, Outcome::Agreed(agreement));
        } else {
            self.heard.push_back(agreement);
        }
    }

    pub(crate) fn disagreed(&mut self, number: u64, one: (u32, Call), other: (u32, Call)) {
        self.outcomes.insert(number, Outcome::Disagreed { one, other });
    }

    pub(crate) fn missing(&mut self, number: u64, ranks: Vec<u32>) {
        self.missing = Some((number, ranks));
    }
}

impl Job {
    /// Makes a call that every worker must make as its n-th such call, and returns when all have.
    ///
    /// All must bring the same `fingerprint`; `operation` and `site` (where the call stands in the user's program) are what
    /// an error shows. On a difference every worker gets [`Error::ContractMismatch`] with both calls, as soon as two differ.
    /// The `payload` of the lowest worker, up to 64 KiB, goes to all members, dedicated servers too.
    pub fn agree(
        &self,
        operation: &str,
        fingerprint: Fingerprint,
        site: &str,
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<Agreement, Error> {
        self.usable(operation)?;
        if !self.role().works() {
            return Err(Error::Configuration { detail: format!("{operation}: rank {} is a server and makes no such calls", self.rank()) });
        }
        if payload.len() > MAX_PROPOSAL {
            let detail = format!("{operation}: {} bytes are to go with it, {MAX_PROPOSAL} is the most", payload.len());
            return Err(Error::Configuration { detail });
        }
        let number = {
            let mut ledger = self.seat.ledger();
            ledger.proposed += 1;
            ledger.proposed
        };
        if self.seat.control.is_none() {
            return Ok(Agreement { number, payload: payload.to_vec(), operation: operation.into() });
        }
        let call = Call { operation: clip_text(operation), site: clip_text(site) };
        let waiting = Waiting { seat: &self.seat, what: describe(&call), number, started: Instant::now(), deadline };
        waiting.send(&Control::Propose { number, fingerprint: fingerprint.0, call, payload: payload.to_vec() })?;
        waiting.outcome()
    }

    /// The next thing the workers agreed on, in their order: how a dedicated server hears of it.
    ///
    /// `Closed` once all workers have left or died.
    pub fn next_agreement(&self, deadline: Deadline) -> Result<Agreement, Error> {
        const OPERATION: &str = "serving";
        self.usable(OPERATION)?;
        if self.role().works() {
            return Err(Error::Configuration { detail: format!("rank {} is a worker: it hears of an agreement by agreeing", self.rank()) });
        }
        let seat = &self.seat;
        let workers = seat.topology.workers();
        let started = Instant::now();
        let mut held = seat.news.0.lock().expect("no panic while held");
        loop {
            if let Some(agreement) = seat.ledger().heard.pop_front() {
                return Ok(agreement);
            }
            if seat.orphaned.load(Acquire) {
                return Err(Error::LauncherLost { operation: OPERATION.into(), waited: started.elapsed() });
            }
            if seat.leaving.load(Acquire) || workers.iter().all(|rank| seat.fates.is_over(*rank)) {
                return Err(Error::Closed { operation: OPERATION.into() });
            }
            if deadline.interrupted() {
                return Err(Error::Interrupted { operation: OPERATION.into(), waited: started.elapsed() });
            }
            if deadline.expired() {
                drop(held);
                let living: Vec<u32> = workers.into_iter().filter(|rank| !seat.fates.is_over(*rank)).collect();
                return Err(seat.late(OPERATION, &living, started, " to make something"));
            }
            held = seat.news.1.wait_timeout(held, deadline.slice(LOOK)).expect("no panic while held").0;
        }
    }
}

/// The longest sleep without a look at the deadline and at an interrupt.
const LOOK: Duration = Duration::from_millis(100);

/// One worker in one call.
struct Waiting<'a> {
    seat: &'a Seat,
    /// The call and its place, as errors begin.
    what: String,
    number: u64,
    started: Instant,
    deadline: Deadline,
}

impl Waiting<'_> {
    fn outcome(&self) -> Result<Agreement, Error> {
        let mut asked: Option<Instant> = None;
        let mut held = self.seat.news.0.lock().expect("no panic while held");
        loop {
            if let Some(outcome) = self.seat.ledger().outcomes.remove(&self.number) {
                return self.judge(outcome);
            }
            if self.hopeless() {
                drop(held);
                return Err(self.seat.explain(
                    &self.what,
                    &self.seat.suspects(&self.others()),
                    self.started,
                    "it did not make the same call",
                ));
            }
            if self.deadline.interrupted() {
                return Err(Error::Interrupted { operation: self.what.clone(), waited: self.started.elapsed() });
            }
            let mut slice = self.deadline.slice(LOOK);
            if self.deadline.expired() {
                // Only the coordinator knows who has not come; it answers at once or not at all.
                const ANSWER: Duration = Duration::from_millis(500);
                let answer = self.seat.ledger().missing.take_if(|(number, _)| *number == self.number);
                match (answer, asked) {
                    (Some((_, ranks)), _) if !ranks.is_empty() => {
                        drop(held);
                        return Err(self.late(&ranks, " to make the same call"));
                    }
                    (_, Some(moment)) if moment.elapsed() > ANSWER => {
                        drop(held);
                        return Err(self.late(&self.others(), " to make the same call (the coordinator does not say which of them has)"));
                    }
                    (_, None) => {
                        drop(held);
                        asked = Some(Instant::now());
                        self.send(&Control::AskMissing { number: self.number })?;
                        held = self.seat.news.0.lock().expect("no panic while held");
                        continue; // The answer may be there already, and nobody rings twice.
                    }
                    _ => slice = ANSWER / 10,
                }
            }
            held = self.seat.news.1.wait_timeout(held, slice).expect("no panic while held").0;
        }
    }

    /// Whether no outcome will come: somebody who is needed is gone.
    fn hopeless(&self) -> bool {
        self.seat.hopeless() || self.seat.coordinator_lost.load(Acquire)
    }

    fn judge(&self, outcome: Outcome) -> Result<Agreement, Error> {
        match outcome {
            Outcome::Agreed(agreement) => Ok(agreement),
            Outcome::Disagreed { one, other } => {
                let said = |(rank, call): (u32, Call)| format!("rank {rank} called {}", describe(&call));
                let detail = format!("{}, {}\nhint: all workers must make the same calls in the same order", said(one), said(other));
                Err(Error::ContractMismatch { operation: format!("agreement {}", self.number), detail })
            }
        }
    }

    fn late(&self, missing: &[u32], extra: &str) -> Error {
        self.seat.late(&self.what, missing, self.started, extra)
    }

    fn send(&self, message: &Control) -> Result<(), Error> {
        const PATIENCE: Duration = Duration::from_secs(2);
        let line = self.seat.control.as_ref().expect("asked before");
        let mut sender = line.sender.lock().expect("no panic while held");
        let sent = send_control(sender.as_mut(), message, Deadline::after(PATIENCE));
        drop(sender);
        sent.map_err(|error| {
            let detail = format!("the coordinator cannot be told: {error}");
            self.seat.explain(&self.what, &self.seat.suspects(&self.others()), self.started, &detail)
        })
    }

    /// The other workers that are still there.
    fn others(&self) -> Vec<u32> {
        let workers = self.seat.topology.workers().into_iter();
        workers.filter(|rank| *rank != self.seat.me && !self.seat.fates.is_over(*rank)).collect()
    }
}

fn describe(call: &Call) -> String {
    if call.site.is_empty() { call.operation.clone() } else { format!("{} at {}", call.operation, call.site) }
}
