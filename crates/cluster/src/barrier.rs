//! The barrier of all workers of a job: inside a host over shared counters, between hosts over links of one rank per host.
//!
//! ```text
//!   host A                 host B                 host C
//!   0   1   2              3   4                  5
//!   └───┴─▶ 0 ────────────▶ 3 ◀─┘  ───────────────▶ 5      gather: counters on each host's board
//!           0 ◀═══════════ 3 ═══ dissemination ═══▶ 5      ⌈log₂ hosts⌉ rounds of one frame each way
//!   ┌───┬── 0              3 ──┐                  5      release: one store per host
//! ```
//! Cost: on one host a store and n − 1 loads, no system call while all run. Between hosts ⌈log₂ h⌉ frames of 64 bytes
//! sent and received by the first worker of each host. Dedicated servers take no part. A wait always names whom it waits for.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use syncline_shm::meeting::{MeetError, Meeting};
use syncline_shm::wait::{Deadline, WaitError};
use syncline_transport::{Head, Link, LinkError, OutFrame};
use syncline_wire::{Fingerprint, Kind};

use crate::circle::{Announced, waits};
use crate::seat::Seat;
use crate::{Error, Group, Host, Lane};

/// One worker's part in the barriers of its job.
pub(crate) struct Barrier {
    /// The counters of this host's workers; none for a rank that is alone on its host.
    meeting: Option<Meeting>,
    /// The workers of this host, by their place in the meeting. The first one leads.
    local: Vec<u32>,
    /// The leaders of all hosts, if there are several and this is one of them.
    exchange: Option<Exchange>,
    /// The first workers of all hosts that have some.
    leaders: Vec<u32>,
    round: u64,
    /// How many deaths were known when the dead were last skipped.
    deaths: u32,
}

impl Barrier {
    pub(crate) fn new(seat: &Seat) -> Self {
        let topology = &seat.topology;
        let workers_of = |host: &Host| host.ranks.iter().copied().filter(|rank| topology.role(*rank).works()).collect::<Vec<u32>>();
        let leaders: Vec<u32> = topology.hosts().iter().filter_map(|host| workers_of(host).first().copied()).collect();
        let local = workers_of(&topology.hosts()[topology.host_of(seat.me)]);
        let slots: Vec<usize> = local.iter().map(|rank| topology.local_rank(*rank) as usize).collect();
        let place = local.iter().position(|rank| *rank == seat.me);
        let meeting = place.and_then(|place| Some(seat.board()?.meeting_of(&slots, place, seat.patience())));
        let exchange = Group::new(leaders.clone(), seat.me).filter(|_| leaders.len() > 1).map(Exchange::new);
        Barrier { meeting, local, exchange, leaders, round: 0, deaths: 0 }
    }

    /// Arrives, and returns when everybody has.
    pub(crate) fn pass(&mut self, seat: &Seat, deadline: Deadline) -> Result<(), Error> {
        self.round += 1;
        let Some(meeting) = &mut self.meeting else {
            return match &mut self.exchange {
                Some(leaders) => leaders.meet(seat, self.round, Instant::now(), deadline),
                None => Ok(()),
            };
        };
        if seat.goes_on && seat.fates.deaths() != self.deaths {
            self.deaths = seat.fates.deaths();
            skip_the_dead(meeting, seat, &self.local);
        }
        let round = meeting.arrive();
        if self.leaders.len() == 1 {
            // The common case: everything below happens in a few loads.
            return match gather(meeting, seat, &self.local, round, deadline, Until::Everybody) {
                Ok(()) => Ok(()),
                Err(error) => Err(failure(seat, meeting, &self.local, round, error, deadline)),
            };
        }
        let started = Instant::now();
        let outcome = match &mut self.exchange {
            Some(leaders) => {
                let local = gather(meeting, seat, &self.local, round, deadline, Until::Everybody);
                if local.is_ok() {
                    leaders.meet(seat, round, started, deadline)?;
                    meeting.release(round);
                }
                local
            }
            None => gather(meeting, seat, &self.local, round, deadline, Until::Released),
        };
        match outcome {
            Ok(()) => Ok(()),
            // Everybody here has come, so the leader waits for another host: look for the culprit among all.
            Err(error) if meeting.missing(round).is_empty() => Err(elsewhere(seat, &self.leaders, round, error, started)),
            Err(error) => Err(failure(seat, meeting, &self.local, round, error, deadline)),
        }
    }
}

/// What a wait inside a host waits for.
#[derive(Clone, Copy)]
enum Until {
    Everybody,
    Released,
}

/// The wait inside a host. Where the others go on, it passes over those who died, but for a leader who must release.
#[inline]
fn gather(meeting: &mut Meeting, seat: &Seat, local: &[u32], round: u64, deadline: Deadline, until: Until) -> Result<(), MeetError> {
    loop {
        let announced = Announced::default();
        // Asked in the slow part of a wait only, before each sleep, of those who are missing in ascending order.
        let gone = |index: usize| {
            announced.wait_for(seat, index, local[index]);
            seat.hopeless() || seat.fates.is_over(local[index])
        };
        let outcome = match until {
            Until::Everybody => meeting.wait(round, deadline, &gone),
            Until::Released => meeting.wait_released(round, 0, deadline, &gone),
        };
        announced.end(seat);
        match outcome {
            Err(MeetError { cause: WaitError::Gone, .. }) if !seat.hopeless() && skip_the_dead(meeting, seat, local) => {}
            outcome => return outcome,
        }
    }
}

/// Skips those who died; whether there was somebody new among them.
#[cold]
fn skip_the_dead(meeting: &mut Meeting, seat: &Seat, local: &[u32]) -> bool {
    let mut news = false;
    for index in (0..local.len()).filter(|index| seat.is_missed_by_nobody(local[*index])) {
        news |= meeting.skip(index);
    }
    news
}

#[cold]
fn failure(seat: &Seat, meeting: &Meeting, local: &[u32], round: u64, error: MeetError, deadline: Deadline) -> Error {
    let operation = format!("barrier {round}");
    let started = Instant::now().checked_sub(deadline.waited()).unwrap_or_else(Instant::now);
    let missing: Vec<u32> = meeting.missing(round).into_iter().map(|index| local[index]).collect();
    match error.cause {
        WaitError::Timeout => {
            let circle = missing.first().and_then(|first| seat.circle_at_a_glance(*first, waits::BARRIER)).unwrap_or_default();
            seat.late(&operation, &missing, started, &circle)
        }
        WaitError::Interrupted => Error::Interrupted { operation, waited: started.elapsed() },
        WaitError::Gone => seat.explain(&operation, &seat.suspects(&missing), started, "it did not come"),
    }
}

#[cold]
fn elsewhere(seat: &Seat, leaders: &[u32], round: u64, error: MeetError, started: Instant) -> Error {
    let operation = format!("barrier {round}");
    let others: Vec<u32> = leaders.iter().copied().filter(|rank| *rank != seat.me).collect();
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
        Ok(link(&mut self.links, self.lane, seat, to, deadline)?.send(&frame, deadline)?)
    }

    fn hear(&mut self, seat: &Seat, from: u32, word: u64, deadline: Deadline) -> Result<(), Failure> {
        while !self.early.remove(&(from, word)) {
            let ours = self.fingerprint;
            let link = link(&mut self.links, self.lane, seat, from, deadline)?;
            let head = await_head(link, seat, &self.group, deadline)?;
            if head.header.kind != Kind::BARRIER || head.header.fingerprint != ours {
                return Err(Failure::Mismatch(format!("rank {from} sent a frame of kind {:?} instead", head.header.kind)));
            }
            self.early.insert((from, head.header.sequence));
        }
        Ok(())
    }
}

fn link<'a>(links: &'a mut HashMap<u32, Link>, lane: Lane, seat: &Seat, peer: u32, deadline: Deadline) -> Result<&'a mut Link, Failure> {
    match links.entry(peer) {
        Entry::Occupied(link) => Ok(link.into_mut()),
        Entry::Vacant(place) => Ok(place.insert(seat.link(peer, lane, deadline).map_err(Failure::Link)?)),
    }
}

/// The next head, unless somebody dies first: who sends it may itself wait for the dead one, and then it never comes.
fn await_head(link: &mut Link, seat: &Seat, group: &Group, deadline: Deadline) -> Result<Head, LinkError> {
    const LOOK: Duration = Duration::from_millis(100);
    let in_vain = || seat.hopeless() || group.ranks().iter().any(|rank| seat.fates.is_down(*rank));
    loop {
        match link.head(deadline.within(LOOK)) {
            Err(LinkError::Timeout { .. }) if in_vain() => return Err(LinkError::Severed),
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
