//! The coordinator's decisions as a plain value: events and the time go in, messages come out.
//!
//! No socket, no thread, no clock: see `README.md` in this folder for the states, and `testkit::sim` for the
//! thousands of histories this is driven through.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use syncline_wire::message::{Blame, Control, DownCause, MemberInfo, clip_text};

use super::agreements::{Agreements, Proposal, Verdict};
use super::events::{Action, ConnectionId, Event, Spec};
use super::pulse::{heartbeat_interval, silent_after};

#[cfg(test)]
mod tests;

/// How long a closed connection waits for the launcher's word on how the process ended.
const EXIT_NEWS: Duration = Duration::from_millis(150);

/// Nobody waits longer for the others, whatever it says.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug)]
struct Seat {
    info: MemberInfo,
    connection: Option<ConnectionId>,
    local: bool,
    left: bool,
    /// When a worker dies, it goes on.
    goes_on: bool,
    /// Whom it last blamed for a failure: the reason, should it end.
    blames: Option<Blame>,
    /// Its connection closed, and the launcher has not yet said why.
    closed: Option<(Duration, String)>,
    /// Its process ended well, and when, while its last words may still be on their way.
    ended_well: Option<Duration>,
    last_heard: Duration,
    /// When it stops waiting for those who have not come.
    gives_up: Duration,
}

#[derive(Debug, PartialEq)]
enum Phase {
    Waiting,
    Gathering,
    Running,
    Finished,
}

/// A death everybody is told about, those who come later too.
#[derive(Debug, Clone)]
struct Death {
    rank: u32,
    cause: DownCause,
    detail: String,
    reported_by: Option<u32>,
}

impl Death {
    /// Workers that finish without ever joining do not use Syncline: other workers would wait for them in vain, but
    /// servers have nothing to complain of and stay until the launcher sends them home.
    fn concerns<R>(&self, member: &MemberInfo<R>) -> bool {
        self.cause != DownCause::Exited { code: 0 } || member.role.works()
    }
}

/// The coordinator's memory. Times are durations since any fixed moment.
#[derive(Debug)]
pub struct State {
    spec: Spec,
    phase: Phase,
    seats: BTreeMap<u32, Seat>,
    /// Who said, before they joined, that they go on when a worker dies: once all have joined, that is known of all.
    going_on: BTreeSet<ConnectionId>,
    deaths: Vec<Death>,
    agreements: Agreements,
    beats: u64,
    next_beat: Duration,
}

impl State {
    /// An empty job.
    pub fn new(spec: Spec) -> Self {
        State {
            spec,
            phase: Phase::Waiting,
            seats: BTreeMap::new(),
            going_on: BTreeSet::new(),
            deaths: Vec::new(),
            agreements: Agreements::default(),
            beats: 0,
            next_beat: Duration::ZERO,
        }
    }

    /// What follows from `event` at time `now`.
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = match event {
            Event::Said { connection, local, message } => self.hear(connection, local, message, now),
            Event::Closed { connection, detail } => self.lose(connection, detail, now),
            Event::ProcessEnded { rank, cause } => self.process_ended(rank, cause, now),
            Event::HostAborted { rank, blame, reason } => self.aborted(rank, blame, reason),
            Event::Tick => Vec::new(),
        };
        actions.extend(self.tick(now));
        if self.phase == Phase::Running && self.seats.values().all(|seat| seat.left || seat.connection.is_none()) {
            self.phase = Phase::Finished;
            actions.push(Action::Finished);
        }
        actions
    }

    /// When `Event::Tick` is next needed; nothing happens by itself before that.
    pub fn next_tick(&self) -> Option<Duration> {
        let gathering = self.first_gives_up();
        let beating = self.seats.values().any(|seat| !seat.local && seat.connection.is_some()).then_some(self.next_beat);
        let closed = self.seats.values().filter_map(|seat| seat.closed.as_ref()).map(|(since, _)| *since + EXIT_NEWS).min();
        let ended = self.seats.values().filter_map(|seat| seat.ended_well).map(|since| since + EXIT_NEWS).min();
        [gathering, beating, closed, ended].into_iter().flatten().min()
    }

    /// The rank all trouble began with: the first that died, or whom it blames.
    pub fn culprit(&self) -> Option<u32> {
        let first = self.deaths.first()?.rank;
        Some(self.seats.get(&first).and_then(|seat| seat.blames).map_or(first, |blame| blame.rank))
    }

    /// Whether everybody has come.
    pub fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether somebody may still come.
    pub fn is_gathering(&self) -> bool {
        matches!(self.phase, Phase::Waiting | Phase::Gathering)
    }

    fn hear(&mut self, connection: ConnectionId, local: bool, message: Control, now: Duration) -> Vec<Action> {
        let speaker = self.seat_of(connection);
        if let Some(seat) = speaker.and_then(|rank| self.seats.get_mut(&rank)) {
            seat.last_heard = now;
        }
        match (message, speaker) {
            (Control::Join { member, world, epoch, patience_ms, .. }, None) => {
                let patience = patience_ms.map_or(self.spec.timeout, |millis| Duration::from_millis(millis).min(A_YEAR));
                let rank = match self.seat_for(&member, world, epoch) {
                    Ok(rank) => rank,
                    Err(reason) => return Self::refuse(connection, reason),
                };
                self.admit(connection, local, member.with_rank(rank), now, now + patience)
            }
            (Control::Leaving, Some(rank)) => self.leave(rank),
            (Control::Abort { blame, reason }, Some(rank)) => self.aborted(rank, blame, reason),
            (Control::Blaming(blame), Some(rank)) => {
                self.seats.get_mut(&rank).expect("the speaker has a seat").blames = Some(blame);
                Vec::new()
            }
            (Control::Heartbeat { .. }, Some(_)) => Vec::new(),
            (Control::GoesOn, None) => {
                self.going_on.insert(connection);
                Vec::new()
            }
            (Control::Propose { number, fingerprint, call, payload }, Some(rank)) => {
                let sound = self.seats[&rank].info.role.works()
                    && self.phase == Phase::Running
                    && self.agreements.propose(rank, number, Proposal { fingerprint, call, payload });
                if sound { self.settle_agreements() } else { Self::refuse(connection, format!("cannot take its proposal {number}")) }
            }
            (Control::AskMissing { number }, Some(_)) => {
                let ranks = self.agreements.missing(number, &self.proposers());
                vec![Action::Send { connection, message: Control::Missing { number, ranks } }]
            }
            (Control::Post { number, payload }, Some(from)) if self.phase == Phase::Running => {
                self.tell_all(&Control::Posted { from, number, payload })
            }
            (Control::Answer { rank, number, refusal }, Some(by)) => {
                let asker = self.seats.get(&rank).and_then(|seat| seat.connection);
                let message = Control::Answer { rank: by, number, refusal };
                asker.map(|connection| Action::Send { connection, message }).into_iter().collect()
            }
            (other, _) => Self::refuse(connection, format!("did not expect {other:?} at this point")),
        }
    }

    fn refuse(connection: ConnectionId, reason: String) -> Vec<Action> {
        let reason = clip_text(reason);
        vec![Action::Send { connection, message: Control::Refused { reason } }, Action::Close { connection }]
    }

    /// Whether all workers that are left of a running job go on when one dies. Dedicated servers do as the workers say.
    pub fn goes_on(&self) -> bool {
        let mut left = self.seats.iter().filter(|(rank, seat)| seat.info.role.works() && !seat.left && !self.is_dead(**rank)).peekable();
        self.phase == Phase::Running && left.peek().is_some() && left.all(|(_, seat)| seat.goes_on)
    }

    fn is_dead(&self, rank: u32) -> bool {
        self.deaths.iter().any(|death| death.rank == rank)
    }

    /// The workers whose proposals are waited for: those that have not left, and where the others go on, those that live.
    fn proposers(&self) -> Vec<u32> {
        let goes_on = self.goes_on();
        let waited_for = |rank: u32, seat: &Seat| seat.info.role.works() && !seat.left && !(goes_on && self.is_dead(rank));
        self.seats.iter().filter(|(rank, seat)| waited_for(**rank, seat)).map(|(rank, _)| *rank).collect()
    }

    fn settle_agreements(&mut self) -> Vec<Action> {
        let verdicts = self.agreements.settle(&self.proposers());
        let tell = |verdict| match verdict {
            Verdict::Agreed(message) => self.tell_all(&message),
            Verdict::Disagreed(message) => self.tell(&message, |seat| seat.info.role.works()),
        };
        verdicts.into_iter().flat_map(tell).collect()
    }

    fn admit(&mut self, connection: ConnectionId, local: bool, member: MemberInfo, now: Duration, gives_up: Duration) -> Vec<Action> {
        let rank = member.rank;
        self.seats.insert(
            rank,
            Seat {
                info: member,
                connection: Some(connection),
                local,
                left: false,
                goes_on: self.going_on.remove(&connection),
                blames: None,
                closed: None,
                ended_well: None,
                last_heard: now,
                gives_up,
            },
        );
        if self.phase == Phase::Waiting {
            self.phase = Phase::Gathering;
        }
        let info = &self.seats[&rank].info;
        if let Some(death) = self.deaths.iter().find(|death| death.concerns(info)) {
            return vec![Action::Send { connection, message: self.down(death) }];
        }
        if self.seats.len() as u32 == self.spec.world() {
            self.phase = Phase::Running;
            self.seats.values_mut().for_each(|seat| seat.last_heard = now); // Heartbeats begin with the welcome.
            return self.welcome();
        }
        Vec::new()
    }

    fn seat_for(&self, member: &MemberInfo<Option<u32>>, world: u32, epoch: u32) -> Result<u32, String> {
        let ours = self.spec.world();
        if epoch != self.spec.epoch {
            return Err(format!(
                "it belongs to start number {epoch} of the job, and this is number {}; it is a straggler of an earlier start",
                self.spec.epoch
            ));
        }
        if world != ours {
            return Err(format!("it expects {world} ranks and this job has {ours}; all processes need the same world size"));
        }
        let Some(rank) = member.rank else {
            let seats = if member.role.works() { 0..self.spec.workers } else { self.spec.workers..ours };
            return seats
                .clone()
                .find(|rank| !self.seats.contains_key(rank))
                .ok_or_else(|| format!("all {} seats of its role are taken", seats.len()));
        };
        if rank >= ours {
            return Err(format!("rank {rank} does not exist in a job of {ours}"));
        }
        match self.seats.get(&rank) {
            Some(seat) => {
                Err(format!("rank {rank} is taken by pid {} on {}; was the same rank started twice?", seat.info.pid, seat.info.host_name))
            }
            None => Ok(rank),
        }
    }

    fn welcome(&self) -> Vec<Action> {
        let roster: Vec<MemberInfo> = self.seats.values().map(|seat| seat.info.clone()).collect();
        // Before the welcome, as the members said it: a death may follow that at once.
        let mut actions = if self.goes_on() { self.tell_all(&Control::GoesOn) } else { Vec::new() };
        actions.extend(self.seats.iter().filter_map(|(rank, seat)| {
            let message = Control::Welcome {
                rank: *rank,
                epoch: self.spec.epoch,
                job: self.spec.job,
                timeout_ms: self.spec.timeout.as_millis() as u64,
                roster: roster.clone(),
            };
            Some(Action::Send { connection: seat.connection?, message })
        }));
        actions
    }

    fn leave(&mut self, rank: u32) -> Vec<Action> {
        if let Some(seat) = self.seats.get_mut(&rank) {
            seat.left = true;
        }
        let mut actions = self.tell_all(&Control::Left { rank });
        actions.extend(self.settle_agreements());
        if self.everybody_is_done() {
            actions.extend(self.tell_all(&Control::AllLeft));
        }
        actions
    }

    fn aborted(&mut self, rank: u32, blame: Option<Blame>, reason: String) -> Vec<Action> {
        if let Some(seat) = self.seats.get_mut(&rank) {
            seat.blames = blame.filter(|blame| blame.rank != rank).or(seat.blames);
        }
        self.bury(Death { rank, cause: DownCause::Exited { code: 1 }, detail: reason, reported_by: None })
    }

    fn lose(&mut self, connection: ConnectionId, detail: String, now: Duration) -> Vec<Action> {
        self.going_on.remove(&connection);
        let Some(rank) = self.seat_of(connection) else { return Vec::new() };
        let seat = self.seats.get_mut(&rank).expect("seat_of returns ranks that have one");
        seat.connection = None;
        if seat.left {
            return if self.everybody_is_done() { self.tell_all(&Control::AllLeft) } else { Vec::new() };
        }
        if seat.ended_well.is_some() {
            return self.process_ended(rank, DownCause::Exited { code: 0 }, now);
        }
        if self.spec.knows_exits && !self.deaths.iter().any(|death| death.rank == rank) {
            seat.closed = Some((now, detail));
            return Vec::new();
        }
        self.bury(Death { rank, cause: DownCause::Disconnected, detail, reported_by: None })
    }

    /// Buries those whose connection closed before `moment` and of whom the launcher has said nothing.
    fn bury_closed(&mut self, moment: Duration, except: Option<u32>) -> Vec<Action> {
        let silent: Vec<u32> = self
            .seats
            .iter()
            .filter(|(rank, seat)| Some(**rank) != except && seat.closed.as_ref().is_some_and(|(since, _)| *since <= moment))
            .map(|(rank, _)| *rank)
            .collect();
        let mut actions = Vec::new();
        for rank in silent {
            let (_, detail) = self.seats.get_mut(&rank).and_then(|seat| seat.closed.take()).expect("just seen");
            actions.extend(self.bury(Death { rank, cause: DownCause::Disconnected, detail, reported_by: None }));
        }
        actions
    }

    fn process_ended(&mut self, rank: u32, cause: DownCause, now: Duration) -> Vec<Action> {
        if self.seats.get(&rank).is_some_and(|seat| seat.left) || rank >= self.spec.world() {
            return Vec::new();
        }
        // The launcher may see the end of a process before its goodbye is read, which then stands in the connection.
        if let Some(seat) = self.seats.get_mut(&rank).filter(|seat| seat.connection.is_some() && cause == DownCause::Exited { code: 0 }) {
            let since = *seat.ended_well.get_or_insert(now);
            if now < since + EXIT_NEWS {
                return Vec::new();
            }
        }
        // Whose connection closed earlier died earlier, even if the launcher hears of it later.
        let mut actions = self.bury_closed(Duration::MAX, Some(rank));
        if let Some(seat) = self.seats.get_mut(&rank) {
            seat.closed = None;
        }
        actions.extend(self.bury(Death { rank, cause, detail: String::new(), reported_by: None }));
        actions.extend(self.tell_all(&Control::Ended { rank }));
        actions
    }

    /// Tells everybody of a death, once per rank: the first report is kept, a more exact one later changes nothing.
    fn bury(&mut self, death: Death) -> Vec<Action> {
        if self.deaths.iter().any(|known| known.rank == death.rank) {
            return Vec::new();
        }
        let mut actions = self.tell(&self.down(&death), |seat| death.concerns(&seat.info));
        self.deaths.push(death);
        if self.goes_on() {
            actions.extend(self.settle_agreements());
        }
        if self.everybody_is_done() {
            actions.extend(self.tell_all(&Control::AllLeft));
        }
        actions
    }

    fn tick(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.first_gives_up().is_some_and(|moment| now >= moment) {
            // Whoever heard of a death meanwhile knows why the job does not start.
            if self.deaths.is_empty() {
                actions.extend(self.tell_all(&self.start_timeout()));
            }
            self.phase = Phase::Finished;
            actions.push(Action::Finished);
            return actions;
        }
        if let Some(moment) = now.checked_sub(EXIT_NEWS) {
            actions.extend(self.bury_closed(moment, None));
            let gone: Vec<u32> =
                self.seats.iter().filter(|(_, seat)| seat.ended_well.is_some_and(|since| since <= moment)).map(|(rank, _)| *rank).collect();
            for rank in gone {
                actions.extend(self.process_ended(rank, DownCause::Exited { code: 0 }, now));
                self.seats.get_mut(&rank).expect("just seen").ended_well = None;
            }
        }
        let silent: Vec<(u32, Duration)> = self
            .seats
            .iter()
            .filter(|(_, seat)| self.phase == Phase::Running && !seat.local && !seat.left && seat.connection.is_some())
            .map(|(rank, seat)| (*rank, now.saturating_sub(seat.last_heard)))
            .filter(|(_, silence)| *silence >= silent_after(self.spec.timeout))
            .collect();
        for (rank, silence) in silent {
            let cause = DownCause::Silent { millis: silence.as_millis() as u64 };
            actions.extend(self.bury(Death { rank, cause, detail: "it sent no heartbeat".into(), reported_by: None }));
        }
        if now >= self.next_beat {
            self.beats += 1;
            self.next_beat = now + heartbeat_interval(self.spec.timeout);
            let count = self.beats;
            actions.extend(
                self.seats
                    .values()
                    .filter(|seat| !seat.local)
                    .filter_map(|seat| Some(Action::Send { connection: seat.connection?, message: Control::Heartbeat { count } })),
            );
        }
        actions
    }

    /// When the first of those who gather has waited long enough; without it the job cannot begin.
    fn first_gives_up(&self) -> Option<Duration> {
        self.seats.values().map(|seat| seat.gives_up).min().filter(|_| self.phase == Phase::Gathering)
    }

    fn start_timeout(&self) -> Control {
        let missing: Vec<u32> = (0..self.spec.world()).filter(|rank| !self.seats.contains_key(rank)).collect();
        let text = missing
            .iter()
            .take(12)
            .map(|rank| match self.spec.how_ranks_start.get(*rank as usize) {
                Some(how) => format!("  rank {rank}: {how}"),
                None => format!("  rank {rank}"),
            })
            .collect::<Vec<_>>()
            .join("\n");
        let arrived = self.seats.values().map(|seat| seat.info.clone()).collect();
        Control::StartTimeout { arrived, missing, text }
    }

    fn down(&self, death: &Death) -> Control {
        let seat = self.seats.get(&death.rank);
        let Death { rank, cause, detail, reported_by } = death.clone();
        Control::Down {
            rank,
            cause,
            detail,
            reported_by,
            blames: seat.and_then(|seat| seat.blames).filter(|blame| blame.rank < self.spec.world()),
            host_name: seat.map(|seat| seat.info.host_name.clone()).unwrap_or_default(),
            pid: seat.map_or(0, |seat| seat.info.pid),
        }
    }

    fn everybody_is_done(&self) -> bool {
        self.seats.len() as u32 == self.spec.world() && self.seats.iter().all(|(rank, seat)| seat.left || self.is_dead(*rank))
    }

    fn tell_all(&self, message: &Control) -> Vec<Action> {
        self.tell(message, |_| true)
    }

    /// Rank 0 comes last: it may host this coordinator, and what it hears may make it end and the coordinator with it.
    fn tell(&self, message: &Control, whom: impl Fn(&Seat) -> bool) -> Vec<Action> {
        let listening = self.seats.values().rev().filter(|seat| whom(seat));
        listening.filter_map(|seat| Some(Action::Send { connection: seat.connection?, message: message.clone() })).collect()
    }

    fn seat_of(&self, connection: ConnectionId) -> Option<u32> {
        self.seats.iter().find(|(_, seat)| seat.connection == Some(connection)).map(|(rank, _)| *rank)
    }
}
