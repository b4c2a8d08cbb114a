//! The barrier of a whole job: inside a host over shared counters, between hosts over links of one rank per host.
//!
//! ```text
//!   host A                 host B                 host C
//!   0   1   2              3   4                  5
//!   └───┴─▶ 0 ────────────▶ 3 ◀─┘  ───────────────▶ 5      gather: counters on each host's board
//!           0 ◀═══════════ 3 ═══ dissemination ═══▶ 5      ⌈log₂ hosts⌉ rounds of one frame each way
//!   ┌───┬── 0              3 ──┐                  5      release: one store per host
//! ```
//! Cost: on one host a store and n − 1 loads, no system call while all run. Between hosts ⌈log₂ h⌉ frames of 64 bytes
//! sent and received by the first rank of each host. A wait always names whom it waits for.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use syncline_shm::meeting::{MeetError, Meeting};
use syncline_shm::wait::{Deadline, WaitError};
use syncline_transport::{Head, Link, LinkError, OutFrame};
use syncline_wire::{Fingerprint, Kind};

use crate::seat::Seat;
use crate::{Error, Group, Lane};

/// One process's part in the barriers of its job.
pub(crate) struct Barrier {
    /// The counters of this host; none for a rank that is alone on it.
    meeting: Option<Meeting>,
    /// Ranks of this host, by local index.
    local: Vec<u32>,
    /// The first ranks of all hosts, if there are several and this is one of them.
    leaders: Option<Exchange>,
    several_hosts: bool,
    round: u64,
}

impl Barrier {
    pub(crate) fn new(seat: &Seat) -> Self {
        let hosts = seat.topology.hosts();
        let local = hosts[seat.topology.host_of(seat.me)].ranks.clone();
        let leaders: Vec<u32> = hosts.iter().map(|host| host.ranks[0]).collect();
        let several_hosts = hosts.len() > 1;
        Barrier {
            meeting: seat.board().map(|board| board.meeting(seat.my_slot(), seat.patience())),
            leaders: Group::new(leaders, seat.me).filter(|_| several_hosts).map(Exchange::new),
            local,
            several_hosts,
            round: 0,
        }
    }

    /// Arrives, and returns when everybody has.
    pub(crate) fn pass(&mut self, seat: &Seat, deadline: Deadline) -> Result<(), Error> {
        self.round += 1;
        let Some(meeting) = &mut self.meeting else {
            return match &mut self.leaders {
                Some(leaders) => leaders.meet(seat, self.round, Instant::now(), deadline),
                None => Ok(()),
            };
        };
        let round = meeting.arrive();
        if !self.several_hosts {
            // The common case: everything below happens in a few loads.
            return match meeting.wait(round, deadline, &|index| is_gone(seat, &self.local, index)) {
                Ok(()) => Ok(()),
                Err(error) => Err(failure(seat, meeting, &self.local, round, error, deadline)),
            };
        }
        let started = Instant::now();
        let outcome = match &mut self.leaders {
            Some(leaders) => {
                let local = meeting.wait(round, deadline, &|index| is_gone(seat, &self.local, index));
                if local.is_ok() {
                    leaders.meet(seat, round, started, deadline)?;
                    meeting.release(round);
                }
                local
            }
            None => meeting.wait_released(round, 0, deadline, &|index| is_gone(seat, &self.local, index)),
        };
        match outcome {
            Ok(()) => Ok(()),
            // Everybody here has come, so the leader waits for another host: look for the culprit among all.
            Err(error) if meeting.missing(round).is_empty() => Err(elsewhere(seat, round, error, started)),
            Err(error) => Err(failure(seat, meeting, &self.local, round, error, deadline)),
        }
    }
}

/// Asked in the slow part of a wait only. Any death ends it: a barrier without one of its ranks cannot complete.
fn is_gone(seat: &Seat, local: &[u32], index: usize) -> bool {
    seat.fates.any_down() || seat.fates.is_over(local[index]) || seat.orphaned.load(Acquire) || seat.leaving.load(Acquire)
}

#[cold]
fn failure(seat: &Seat, meeting: &Meeting, local: &[u32], round: u64, error: MeetError, deadline: Deadline) -> Error {
    let operation = format!("barrier {round}");
    let started = Instant::now().checked_sub(deadline.waited()).unwrap_or_else(Instant::now);
    let missing: Vec<u32> = meeting.missing(round).into_iter().map(|index| local[index]).collect();
    match error.cause {
        WaitError::Timeout => seat.late(&operation, &missing, started, ""),
        WaitError::Interrupted => Error::Interrupted { operation, waited: started.elapsed() },
        WaitError::Gone => seat.explain(&operation, &seat.suspects(&missing), started, "it did not come"),
    }
}

#[cold]
fn elsewhere(seat: &Seat, round: u64, error: MeetError, started: Instant) -> Error {
    let operation = format!("barrier {round}");
    let others: Vec<u32> = seat.topology.hosts().iter().map(|host| host.ranks[0]).filter(|rank| *rank != seat.me).collect();
    match error.cause {
        WaitError::Timeout => seat.late(&operation, &others, started, ", one of whose hosts has not come"),
        WaitError::Interrupted => Error::Interrupted { operation, waited: started.elapsed() },
        WaitError::Gone => seat.explain(&operation, &seat.suspects(&[]), started, "its host did not come"),
    }
}

/// The barriers of one group of ranks, over links of their own.
///
/// Cost: ⌈log₂ n⌉ frames of 64 bytes sent and received by each member, whichever hosts they sit on.
pub(crate) struct GroupBarrier {
    exchange: Exchange,
    round: u64,
}

impl GroupBarrier {
    pub(crate) fn new(group: Group) -> Self {
        GroupBarrier { exchange: Exchange::new(group), round: 0 }
    }

    /// Arrives, and returns when every member of the group has.
    pub(crate) fn pass(&mut self, seat: &Seat, deadline: Deadline) -> Result<(), Error> {
        self.round += 1;
        self.exchange.meet(seat, self.round, Instant::now(), deadline)
    }
}

/// A dissemination barrier over links: in step k each sends to the member 2ᵏ places on and hears from the one 2ᵏ back.
struct Exchange {
    group: Group,
    fingerprint: Fingerprint,
    lane: Lane,
    links: HashMap<u32, Link>,
    /// Words that came before their turn: a fast member may be a round ahead.
    early: HashSet<(u32, u64)>,
}

impl Exchange {
    fn new(group: Group) -> Self {
        let fingerprint = group.fingerprint("barrier");
        Exchange { fingerprint, lane: Lane::of(fingerprint), group, links: HashMap::new(), early: HashSet::new() }
    }

    fn meet(&mut self, seat: &Seat, round: u64, started: Instant, deadline: Deadline) -> Result<(), Error> {
        let operation = format!("barrier {round}");
        let size = self.group.len();
        let mut distance = 1;
        let mut step = 0;
        while distance < size {
            let to = self.group.ranks()[(self.group.position() + distance) % size];
            let from = self.group.ranks()[(self.group.position() + size - distance) % size];
            let word = (round << 6) | step;
            self.say(seat, to, word, deadline).map_err(|error| explain(seat, &operation, to, error, started))?;
            self.hear(seat, from, word, deadline).map_err(|error| explain(seat, &operation, from, error, started))?;
            distance *= 2;
            step += 1;
        }
        Ok(())
    }

    fn say(&mut self, seat: &Seat, to: u32, word: u64, deadline: Deadline) -> Result<(), Failure> {
        let frame = OutFrame { sequence: word, fingerprint: self.fingerprint, ..OutFrame::new(Kind::BARRIER) };
        Ok(self.link(seat, to, deadline)?.send(&frame, deadline)?)
    }

    fn hear(&mut self, seat: &Seat, from: u32, word: u64, deadline: Deadline) -> Result<(), Failure> {
        while !self.early.remove(&(from, word)) {
            let ours = self.fingerprint;
            let head = await_head(self.link(seat, from, deadline)?, seat, deadline)?;
            if head.header.kind != Kind::BARRIER || head.header.fingerprint != ours {
                return Err(Failure::Mismatch(format!("rank {from} sent a frame of kind {:?} instead", head.header.kind)));
            }
            self.early.insert((from, head.header.sequence));
        }
        Ok(())
    }

    fn link(&mut self, seat: &Seat, peer: u32, deadline: Deadline) -> Result<&mut Link, Failure> {
        match self.links.entry(peer) {
            Entry::Occupied(link) => Ok(link.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(seat.link(peer, self.lane, deadline).map_err(Failure::Link)?)),
        }
    }
}

/// The next head, unless somebody dies first: who sends it may itself wait for the dead one, and then it never comes.
fn await_head(link: &mut Link, seat: &Seat, deadline: Deadline) -> Result<Head, LinkError> {
    const LOOK: Duration = Duration::from_millis(100);
    loop {
        match link.head(deadline.within(LOOK)) {
            Err(LinkError::Timeout { .. }) if seat.fates.any_down() || seat.orphaned.load(Acquire) => return Err(LinkError::Severed),
            Err(LinkError::Timeout { .. }) if !deadline.expired() => {}
            outcome => return outcome,
        }
    }
}

enum Failure {
    Link(Error),
    Frame(LinkError),
    Mismatch(String),
}

impl From<LinkError> for Failure {
    fn from(error: LinkError) -> Self {
        Failure::Frame(error)
    }
}

fn explain(seat: &Seat, operation: &str, peer: u32, failure: Failure, started: Instant) -> Error {
    match failure {
        Failure::Link(error) => error,
        Failure::Mismatch(detail) => Error::ContractMismatch { operation: operation.into(), detail },
        Failure::Frame(error) => seat.link_failed(operation, peer, started, &error),
    }
}
