//! Words to all members that need no call of theirs: who posts one waits only for the answers it asked for.
//!
//! ```text
//!   rank 0 ── Post 1: make table w ──▶ coordinator ──▶ Posted 1 by rank 0 ──▶ all members, all notices in one order
//!   rank 2 ── Answer 1: done ────────▶ coordinator ──▶ rank 0
//! ```
//! Each process has one reader of notices, a thread of the layer above, so that it answers whatever its user does. Cost: one
//! small message to the coordinator and one to each member. It is for making and changing things, not for every step.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use syncline_shm::wait::Deadline;
use syncline_wire::message::{Control, MAX_NOTICE, clip_text};

use crate::control::send_control;
use crate::seat::Seat;
use crate::{Error, Vigil};

/// What a member said to all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Who posted it.
    pub from: u32,
    /// Which of that member's notices, from 1.
    pub number: u64,
    /// What it says.
    pub payload: Vec<u8>,
}

/// What this process has heard and not yet read.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    posted: u64,
    arrived: u64,
    unread: VecDeque<Notice>,
    /// By number of this member's notice: who answered, and with what refusal. Only of those that are waited for.
    answers: BTreeMap<u64, Vec<(u32, String)>>,
}

impl Notices {
    pub(crate) fn posted(&mut self, notice: Notice) {
        self.arrived += 1;
        self.unread.push_back(notice);
    }

    pub(crate) fn answered(&mut self, rank: u32, number: u64, refusal: String) {
        if let Some(answers) = self.answers.get_mut(&number) {
            answers.push((rank, refusal));
        }
    }
}

/// The longest sleep without a look at the deadline and at an interrupt.
const LOOK: Duration = Duration::from_millis(100);
/// How long the coordinator may take to accept a message.
const PATIENCE: Duration = Duration::from_secs(2);

impl Vigil {
    /// The most bytes of a notice.
    pub const MOST_IN_NOTICE: usize = MAX_NOTICE;

    /// Says something to all members, this one too, and returns when each of `asked` has answered.
    ///
    /// A refusal is an error that names who refused and why; somebody who is gone, or does not answer in time, is named. Who is alone
    /// has nobody to tell.
    pub fn post(&self, operation: &str, payload: &[u8], asked: &[u32], deadline: Deadline) -> Result<(), Error> {
        self.post_and_wait(operation, payload, asked, true, deadline)
    }

    /// The same, without an answer of those of `asked` who are gone: what is said does not concern them any more.
    pub fn post_to_living(&self, operation: &str, payload: &[u8], asked: &[u32], deadline: Deadline) -> Result<(), Error> {
        self.post_and_wait(operation, payload, asked, false, deadline)
    }

    fn post_and_wait(&self, operation: &str, payload: &[u8], asked: &[u32], all: bool, deadline: Deadline) -> Result<(), Error> {
        self.usable(operation)?;
        let seat = self.seat();
        if seat.control.is_none() {
            return Ok(());
        }
        if payload.len() > MAX_NOTICE {
            let detail = format!("{operation}: a notice of {} bytes, {MAX_NOTICE} is the most", payload.len());
            return Err(Error::Configuration { detail });
        }
        let number = {
            let mut notices = seat.notices();
            notices.posted += 1;
            let number = notices.posted;
            if !asked.is_empty() {
                notices.answers.insert(number, Vec::new());
            }
            number
        };
        let waiting = Waiting { seat, operation, number, started: Instant::now() };
        let posted = waiting.say(&Control::Post { number, payload: payload.to_vec() });
        let answered = posted.and_then(|()| waiting.for_answers(asked, all, deadline));
        seat.notices().answers.remove(&number);
        answered
    }

    /// The next notice of any member, for the one reader that this process has. `Closed` once it leaves or nobody is left to post.
    pub fn next_notice(&self) -> Result<Notice, Error> {
        const OPERATION: &str = "listening";
        let seat = self.seat();
        let mut held = seat.news.0.lock().expect("no panic while held");
        loop {
            self.usable(OPERATION)?;
            if let Some(notice) = seat.notices().unread.pop_front() {
                return Ok(notice);
            }
            if self.orphaned_or_leaving() || seat.coordinator_lost.load(Acquire) {
                return Err(Error::Closed { operation: OPERATION.into() });
            }
            held = seat.news.1.wait_timeout(held, LOOK * 10).expect("no panic while held").0;
        }
    }

    /// How many notices have come, read or not. What a member said before it left has come before the news of that.
    pub fn notices_arrived(&self) -> u64 {
        self.seat().notices().arrived
    }

    /// Tells who posted `notice` that what it asks for is done, or why not. If that cannot be told, the asker finds out by itself.
    pub fn answer(&self, notice: &Notice, done: Result<(), String>) {
        let refusal = done.err().map_or_else(String::new, |why| clip_text(if why.is_empty() { "it could not".into() } else { why }));
        let waiting = Waiting { seat: self.seat(), operation: "answer", number: notice.number, started: Instant::now() };
        if let Err(error) = waiting.say(&Control::Answer { rank: notice.from, number: notice.number, refusal }) {
            tracing::debug!("rank {} hears no answer: {error}", notice.from);
        }
    }
}

/// One member and its notice.
struct Waiting<'a> {
    seat: &'a Seat,
    operation: &'a str,
    number: u64,
    started: Instant,
}

impl Waiting<'_> {
    fn say(&self, message: &Control) -> Result<(), Error> {
        let Some(line) = self.seat.control.as_ref() else { return Ok(()) };
        let mut sender = line.sender.lock().expect("no panic while held");
        let sent = send_control(sender.as_mut(), message, Deadline::after(PATIENCE));
        drop(sender);
        sent.map_err(|error| {
            let detail = format!("the coordinator cannot be told: {error}");
            self.seat.explain(self.operation, &self.seat.suspects(&[]), self.started, &detail)
        })
    }

    fn for_answers(&self, asked: &[u32], all: bool, deadline: Deadline) -> Result<(), Error> {
        let mut held = self.seat.news.0.lock().expect("no panic while held");
        loop {
            let answers = self.seat.notices().answers.get(&self.number).cloned().unwrap_or_default();
            if let Some((rank, refusal)) = answers.iter().find(|(_, refusal)| !refusal.is_empty()) {
                let detail = format!("{} refuses: {refusal}", self.seat.topology.who(*rank));
                return Err(Error::System { operation: self.operation.into(), detail });
            }
            let needed = |rank: &u32| (all || !self.seat.fates.is_over(*rank)) && !answers.iter().any(|(by, _)| by == rank);
            let missing: Vec<u32> = asked.iter().copied().filter(needed).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let gone = self.seat.orphaned.load(Acquire) || self.seat.leaving.load(Acquire) || self.seat.coordinator_lost.load(Acquire);
            if gone || missing.iter().any(|rank| self.seat.fates.is_over(*rank)) {
                drop(held);
                return Err(self.seat.explain(self.operation, &missing, self.started, "it did not answer"));
            }
            if deadline.interrupted() {
                return Err(Error::Interrupted { operation: self.operation.into(), waited: self.started.elapsed() });
            }
            if deadline.expired() {
                drop(held);
                return Err(self.seat.late(self.operation, &missing, self.started, " to answer"));
            }
            held = self.seat.news.1.wait_timeout(held, deadline.slice(LOOK)).expect("no panic while held").0;
        }
    }
}
