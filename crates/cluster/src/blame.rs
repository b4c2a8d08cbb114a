//! Finds the culprit: turns the failure of an operation into an error that names the right rank.
//!
//! A wait can fail because a rank is dead, because it is frozen, because it left, or because it itself waits for such
//! a one. What is known comes from the fates, from the signs of life on the host's board, and from the blame that others
//! wrote down before they ended.

use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use syncline_shm::wait::Deadline;
use syncline_transport::LinkError;
use syncline_wire::message::{Blame, Control};

use crate::bootstrap::Launcher;
use crate::circle::waits;
use crate::control::send_control;
use crate::fate::Fate;
use crate::seat::{Seat, monotonic_nanos};
use crate::{Error, watcher};

/// How long the failure of an operation may wait for what others have to say about it.
const NEWS: Duration = Duration::from_millis(300);

/// Where blame leads that goes on behind the last fate that is known.
enum Beyond {
    Nobody,
    /// A rank that left in good order, but too early for others.
    Left(u32),
    /// This process: it lives, and the others gave it up.
    ThisProcess,
}

impl Seat {
    /// Names the culprit of an operation that needed `peers` and failed because somebody is gone.
    ///
    /// The news of a death may still be on its way when a link breaks, so this waits for it a moment.
    pub(crate) fn explain(&self, operation: &str, peers: &[u32], started: Instant, detail: &str) -> Error {
        let deadline = Instant::now() + NEWS;
        let mut held = self.news.0.lock().expect("no panic while held");
        loop {
            // Under `syncline run` the launcher says how the process ended, a moment after its socket closed.
            let worth_waiting =
                |fate: &Fate| self.launcher == Launcher::SynclineRun && !fate.exact && !fate.silent && Instant::now() < deadline;
            if let Some((rank, fate)) = self.fates.culprit(peers).filter(|(_, fate)| !worth_waiting(fate)) {
                drop(held);
                return self.accuse_by(operation, rank, fate, started);
            }
            if let Some(rank) = peers.iter().copied().find(|rank| self.fates.has_left(*rank)) {
                drop(held);
                return self.accuse_of_leaving(operation, rank, started);
            }
            if self.orphaned.load(Acquire) {
                return Error::LauncherLost { operation: operation.into(), waited: started.elapsed() };
            }
            if self.leaving.load(Acquire) {
                return Error::Closed { operation: operation.into() };
            }
            let now = Instant::now();
            if now >= deadline {
                drop(held);
                let rank = peers.first().copied().unwrap_or(self.me);
                return self.accuse(operation, rank, format!("cannot be reached any more ({detail})"), false, started);
            }
            held = self.news.1.wait_timeout(held, deadline - now).expect("no panic while held").0;
        }
    }

    /// Accuses `rank` of its fate, or whom it failed because of where that one has no fate of its own.
    fn accuse_by(&self, operation: &str, rank: u32, fate: Fate, started: Instant) -> Error {
        match self.beyond(&fate) {
            Beyond::Nobody => self.accuse(operation, rank, fate.how, fate.silent, started),
            Beyond::Left(left) => self.accuse_of_leaving(operation, left, started),
            Beyond::ThisProcess => self.accuse(operation, rank, fate.how, false, started).with_hint(
                "it gave up waiting for this process, which came too late: raise SYNCLINE_TIMEOUT if the work before this call takes that long",
            ),
        }
    }

    fn accuse_of_leaving(&self, operation: &str, rank: u32, started: Instant) -> Error {
        self.accuse(operation, rank, "has left the job before this operation".into(), false, started)
            .with_hint("its program ended or called shutdown() while others still needed it: did it make fewer calls than this one?")
    }

    /// Whom the last known of a chain of blame blames in its turn.
    fn beyond(&self, fate: &Fate) -> Beyond {
        match fate.blames {
            Some(blamed) if blamed == self.me => Beyond::ThisProcess,
            Some(blamed) if self.fates.has_left(blamed) => Beyond::Left(blamed),
            _ => Beyond::Nobody,
        }
    }

    /// Because of whom this process fails, if it fails now: what the fates tell, otherwise whom it blamed itself.
    pub(crate) fn whom_to_blame(&self) -> Option<Blame> {
        let Some((rank, fate)) = self.fates.culprit(&self.suspects(&[])) else {
            return *self.blamed.lock().expect("no panic while held");
        };
        Some(match self.beyond(&fate) {
            Beyond::Nobody => Blame { rank, silent: fate.silent },
            Beyond::Left(left) => Blame { rank: left, silent: false },
            Beyond::ThisProcess => Blame { rank, silent: false },
        })
    }

    fn accuse(&self, operation: &str, rank: u32, how: String, silent: bool, started: Instant) -> Error {
        self.write_blame(rank, silent);
        let who = self.topology.who(rank);
        let waited = started.elapsed();
        if !silent {
            self.let_others_hear();
        }
        if silent {
            let hint = "it may be stopped, swapping or cut off; look at it on its host, or raise SYNCLINE_TIMEOUT".into();
            return Error::Timeout { operation: operation.into(), missing: vec![who], detail: format!(", which {how}"), waited, hint };
        }
        let hint = match self.launcher {
            Launcher::SynclineRun => {
                format!("look at the last lines of rank {rank} above or in --log-dir; the kernel log tells of the out-of-memory killer")
            }
            _ => format!("look at the output of rank {rank} and at the kernel log of {} (out of memory?)", who.host),
        };
        Error::PeerLost { operation: operation.into(), who, how, waited, hint }
    }

    /// Where this process hosts the coordinator, its user may end it as soon as it fails: whom to blame must have reached
    /// the others by then, or they would see this one end and blame it.
    fn let_others_hear(&self) {
        if !self.hosts_coordinator() || !self.fates.any_down() {
            return;
        }
        let deadline = Instant::now() + NEWS;
        let mut held = self.news.0.lock().expect("no panic while held");
        while !self.told.load(Acquire) && !self.coordinator_lost.load(Acquire) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return };
            held = self.news.1.wait_timeout(held, left).expect("no panic while held").0;
        }
    }

    /// The members that `operation` still waits for when its deadline passed, and what is known about them.
    pub(crate) fn late(&self, operation: &str, missing: &[u32], started: Instant, done: &str) -> Error {
        // Whoever is known to be gone or silent holds up the others too: they are not to blame.
        if let Some((rank, fate)) = self.fates.culprit(&self.suspects(missing)) {
            return self.accuse_by(operation, rank, fate, started);
        }
        // A frozen neighbour holds up those who wait for it, so it is named rather than they.
        let frozen = self.frozen_neighbours();
        let named = if frozen.is_empty() { missing } else { &frozen[..] };
        if let Some(first) = named.first() {
            self.write_blame(*first, true);
        }
        let mut known: Vec<String> = named.iter().filter_map(|rank| self.sign_of_life(*rank)).collect();
        let behind: Vec<String> = missing.iter().filter(|rank| !named.contains(rank)).map(|rank| format!("rank {rank}")).collect();
        if !behind.is_empty() {
            known.push(format!("{} did not come either, probably because of it", behind.join(", ")));
        }
        let mut detail = done.to_owned();
        if !known.is_empty() {
            detail.push_str(&format!(" ({})", known.join("; ")));
        }
        Error::Timeout {
            operation: operation.into(),
            missing: named.iter().map(|rank| self.topology.who(*rank)).collect(),
            detail,
            waited: started.elapsed(),
            hint: "every rank must make the same calls in the same order; raise SYNCLINE_TIMEOUT if it only needs longer".into(),
        }
    }

    /// Frozen or merely busy? A neighbour's watcher renews its sign of life all the time.
    fn sign_of_life(&self, rank: u32) -> Option<String> {
        let silence = self.silence(rank)?;
        if silence > watcher::frozen_after(self.timeout) {
            return Some(format!("rank {rank} is frozen: no sign of life for {:.1} s", silence.as_secs_f64()));
        }
        // Two that wait for each other in different calls are the usual mistake: both calls are named.
        let elsewhere = self.board().and_then(|board| board.slot(self.topology.local_rank(rank) as usize).waiting());
        let elsewhere = elsewhere.filter(|wait| wait.rank() != rank).map(|wait| {
            let whom = if wait.rank() == self.me { "this one".into() } else { format!("rank {}", wait.rank()) };
            format!(": it waits for {whom} in {}", waits::name(wait.code()))
        });
        Some(format!("rank {rank} is alive but has not come here{}", elsewhere.unwrap_or_default()))
    }

    fn frozen_neighbours(&self) -> Vec<u32> {
        let host = &self.topology.hosts()[self.topology.host_of(self.me)];
        let is_frozen =
            |rank: &u32| *rank != self.me && self.silence(*rank).is_some_and(|silence| silence > watcher::frozen_after(self.timeout));
        host.ranks.iter().copied().filter(is_frozen).collect()
    }

    /// How long nothing was heard of a neighbour; none for ranks of other hosts and for those that have left.
    pub(crate) fn silence(&self, rank: u32) -> Option<Duration> {
        let board = self.board().filter(|_| self.topology.same_host(self.me, rank) && !self.fates.is_over(rank))?;
        let beat = board.slot(self.topology.local_rank(rank) as usize).heartbeat();
        (beat != 0).then(|| Duration::from_nanos(monotonic_nanos().saturating_sub(beat)))
    }

    /// What a failed frame of `operation` with `peer` means.
    pub(crate) fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        match error {
            LinkError::Timeout { .. } => self.late(operation, &[peer], started, ""),
            LinkError::Interrupted => Error::Interrupted { operation: operation.into(), waited: started.elapsed() },
            // Nobody is to blame who is alive: this process broke off in the middle of a message.
            LinkError::Broken { since } if !self.fates.is_over(peer) && !self.hopeless() => Error::System {
                operation: operation.into(),
                detail: format!(
                    "the link with {} cannot be used any more: an earlier call was interrupted or out of time when {since}\n\
                     hint: start the job again from its last checkpoint, and let large calls come to their end",
                    self.topology.who(peer)
                ),
            },
            other => self.explain(operation, &self.suspects(&[peer]), started, &other.to_string()),
        }
    }

    /// All other ranks, those of `first` before the rest, so that the most likely culprit is named.
    pub(crate) fn suspects(&self, first: &[u32]) -> Vec<u32> {
        let concerns = |rank: &u32| *rank != self.me && !first.contains(rank) && !self.is_missed_by_nobody(*rank);
        let rest = (0..self.topology.world()).filter(concerns);
        first.iter().copied().chain(rest).collect()
    }

    /// Leaves a note for whoever sees this process end: on the board for neighbours, with the coordinator for the rest.
    fn write_blame(&self, rank: u32, silent: bool) {
        if rank == self.me {
            return;
        }
        *self.blamed.lock().expect("no panic while held") = Some(Blame { rank, silent });
        if let Some(board) = self.board() {
            board.slot(self.my_slot()).blame_once(rank, silent);
        }
        if let Some(line) = &self.control {
            let mut sender = line.sender.lock().expect("no panic while held");
            let _ = send_control(sender.as_mut(), &Control::Blaming(Blame { rank, silent }), Deadline::after(Duration::from_millis(200)));
        }
    }

    /// Whom a neighbour blamed before it ended; never itself, and never this rank, which knows better.
    pub(crate) fn blame_on_board(&self, rank: u32) -> Option<Blame> {
        let board = self.board().filter(|_| self.topology.same_host(self.me, rank))?;
        let (blamed, silent) = board.slot(self.topology.local_rank(rank) as usize).blame()?;
        (blamed != rank && blamed != self.me && blamed < self.topology.world()).then_some(Blame { rank: blamed, silent })
    }
}
