//! This process's seat in its job: who the others are, whether they live, and how to reach them.
//!
//! A seat has up to three threads, all asleep unless something happens: the *door* (members that call), the *control
//! link* (words of the coordinator) and the *watcher* (processes of this host that end). A world of one has none.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, OnceLock, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline_shm::board::{Board, State};
use syncline_shm::fork::ForkGuard;
use syncline_shm::wait::Deadline;
use syncline_transport::{DoorWaker, Link, LinkError, SendHalf, Severer};
use syncline_wire::message::{Blame, Control};

use crate::barrier::Barrier;
use crate::bootstrap::{Launch, Launcher};
use crate::control::send_control;
use crate::coordinator::Coordinator;
use crate::fate::{Fate, Fates};
use crate::settings::Settings;
use crate::switchboard::{CallError, Lane, Switchboard};
use crate::watcher::{self, WatcherHandle};
use crate::{Error, Role, Topology, roster};

/// A seat in a job. Dropping it without [`leave`](Job::leave) looks to the others like a death.
pub struct Job {
    pub(crate) seat: Arc<Seat>,
    barrier: Mutex<Barrier>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    watcher: Option<WatcherHandle>,
    door: Option<DoorWaker>,
    coordinator: Mutex<Option<Coordinator>>,
    fork: ForkGuard,
}

/// What the threads of a seat share.
pub(crate) struct Seat {
    pub(crate) me: u32,
    pub(crate) topology: Topology,
    pub(crate) fates: Fates,
    pub(crate) timeout: Duration,
    pub(crate) launcher: Launcher,
    pub(crate) board: OnceLock<Arc<Board>>,
    pub(crate) switchboard: Option<Switchboard>,
    pub(crate) control: Option<ControlLine>,
    /// The coordinator is gone, and no rank with it: the launcher died.
    pub(crate) orphaned: AtomicBool,
    /// Set when this seat leaves, so that its own threads take closing links for what they are.
    pub(crate) leaving: AtomicBool,
    pub(crate) news: (Mutex<()>, Condvar),
}

/// This member's end of the control link.
pub(crate) struct ControlLine {
    pub(crate) sender: Mutex<Box<dyn SendHalf>>,
    pub(crate) severer: Severer,
    /// Whether the coordinator runs on this host, where its death closes the socket at once.
    pub(crate) local: bool,
    pub(crate) last_heard: Mutex<Instant>,
}

pub(crate) struct Parts {
    pub(crate) seat: Arc<Seat>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) watcher: Option<WatcherHandle>,
    pub(crate) door: Option<DoorWaker>,
    pub(crate) coordinator: Option<Coordinator>,
}

impl Job {
    /// Joins the job that `launch` describes: meets the others, maps the host's board, starts to watch.
    ///
    /// Returns when everybody is there. After `settings.timeout` without somebody: [`Error::Missing`], which says who
    /// came and how the others were expected to start.
    pub fn join(launch: &Launch, settings: &Settings, deadline: Deadline) -> Result<Job, Error> {
        crate::join::join(launch, settings, deadline)
    }

    /// A world of one: no threads, no sockets, no shared memory.
    pub fn alone(timeout: Duration) -> Result<Job, Error> {
        let seat = Seat {
            me: 0,
            topology: Topology::new(vec![roster::introduce_alone()]),
            fates: Fates::new(1),
            timeout,
            launcher: Launcher::Solo,
            board: OnceLock::new(),
            switchboard: None,
            control: None,
            orphaned: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            news: Default::default(),
        };
        Job::assemble(Parts { seat: Arc::new(seat), threads: Vec::new(), watcher: None, door: None, coordinator: None })
    }

    pub(crate) fn assemble(parts: Parts) -> Result<Job, Error> {
        let fork = ForkGuard::new().map_err(|error| Error::system("start: the page that notices forks", error))?;
        let barrier = Barrier::new(&parts.seat);
        Ok(Job {
            seat: parts.seat,
            barrier: Mutex::new(barrier),
            threads: Mutex::new(parts.threads),
            watcher: parts.watcher,
            door: parts.door,
            coordinator: Mutex::new(parts.coordinator),
            fork,
        })
    }

    /// This process's number.
    pub fn rank(&self) -> u32 {
        self.seat.me
    }

    /// How many ranks the job has.
    pub fn world(&self) -> u32 {
        self.seat.topology.world()
    }

    /// What this process does in the job.
    pub fn role(&self) -> Role {
        self.seat.topology.role(self.seat.me)
    }

    /// Who sits where.
    pub fn topology(&self) -> &Topology {
        &self.seat.topology
    }

    /// How long a wait lasts when the caller names no deadline.
    pub fn timeout(&self) -> Duration {
        self.seat.timeout
    }

    /// What started this process.
    pub fn launcher(&self) -> Launcher {
        self.seat.launcher
    }

    /// Waits until every rank of the job has called it.
    ///
    /// On one host this is a round of counters in shared memory (one store, one load per neighbour, no system call
    /// while all are running). Between hosts one rank per host exchanges ⌈log₂ hosts⌉ frames.
    pub fn barrier(&self, deadline: Deadline) -> Result<(), Error> {
        self.usable("barrier")?;
        match self.barrier.try_lock() {
            Ok(mut barrier) => barrier.pass(&self.seat, deadline),
            Err(_) => self.barrier_after_another_thread(deadline),
        }
    }

    /// Threads of one process pass one after the other. Waiting for the turn keeps the deadline and hears an interrupt.
    #[cold]
    fn barrier_after_another_thread(&self, deadline: Deadline) -> Result<(), Error> {
        const LOOK: Duration = Duration::from_millis(1);
        loop {
            match self.barrier.try_lock() {
                Ok(mut barrier) => return barrier.pass(&self.seat, deadline),
                Err(TryLockError::Poisoned(_)) => return Err(Error::Closed { operation: "barrier".into() }),
                Err(TryLockError::WouldBlock) => {}
            }
            self.usable("barrier")?;
            if deadline.interrupted() {
                return Err(Error::Interrupted { operation: "barrier".into(), waited: deadline.waited() });
            }
            if deadline.expired() {
                let detail = format!("another thread of this process is still in a barrier after {:.1} s", deadline.waited().as_secs_f64());
                return Err(Error::Timeout {
                    operation: "barrier".into(),
                    missing: vec![self.seat.topology.who(self.seat.me)],
                    detail: format!(": {detail}"),
                    waited: deadline.waited(),
                    hint: "each rank calls a barrier once".into(),
                });
            }
            std::thread::park_timeout(deadline.slice(LOOK));
        }
    }

    /// The link between this rank and `peer` on `lane`. Both ends must ask for it; each call makes a new one.
    pub fn link(&self, peer: u32, lane: Lane, deadline: Deadline) -> Result<Link, Error> {
        self.usable("link")?;
        self.seat.link(peer, lane, deadline)
    }

    /// Whether `rank` is known to be dead or unreachable.
    pub fn is_down(&self, rank: u32) -> bool {
        self.seat.fates.is_down(rank)
    }

    /// Turns the failure of a frame of `operation` with `peer` into an error that names the culprit.
    pub fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        self.seat.link_failed(operation, peer, started, error)
    }

    /// Leaves the job politely: nobody takes this process's end for a death. A second call does nothing.
    ///
    /// The rank that hosts the coordinator stays until the others have left or died.
    pub fn leave(&self, deadline: Deadline) -> Result<(), Error> {
        if !self.fork.is_original() || self.seat.leaving.swap(true, AcqRel) {
            return Ok(());
        }
        let seat = &self.seat;
        if let Some(board) = seat.board() {
            board.slot(seat.my_slot()).set_state(State::Left);
        }
        let told = match &seat.control {
            Some(line) => {
                let mut sender = line.sender.lock().expect("no panic while held");
                send_control(sender.as_mut(), &Control::Leaving, Deadline::after(Duration::from_secs(2))).is_ok()
            }
            None => false,
        };
        let others: Vec<u32> = (0..self.world()).filter(|rank| *rank != seat.me).collect();
        let hosts = self.coordinator.lock().expect("no panic while held").is_some();
        let result = if told && hosts { seat.wait_until_over(&others, "shutdown", deadline) } else { Ok(()) };
        self.close();
        result
    }

    /// Stays until every worker has left or died: what a dedicated server does between its requests.
    pub fn stay_for_workers(&self, deadline: Deadline) -> Result<(), Error> {
        self.usable("serving")?;
        let workers: Vec<u32> = self.seat.topology.workers().into_iter().filter(|rank| *rank != self.seat.me).collect();
        self.seat.wait_until_over(&workers, "serving", deadline)
    }

    /// Tells the others that this process fails, and because of whom if not by itself, then closes everything.
    pub fn abort(&self, reason: &str) {
        if !self.fork.is_original() || self.seat.leaving.swap(true, AcqRel) {
            return;
        }
        let everybody: Vec<u32> = (0..self.world()).collect();
        let culprit = self.seat.fates.culprit(&everybody);
        if let Some(line) = &self.seat.control {
            let blame = culprit.map(|(rank, fate)| Blame { rank, silent: fate.silent });
            let reason: String = reason.chars().take(1000).collect();
            if let Some(coordinator) = &*self.coordinator.lock().expect("no panic while held") {
                // It ends with this process, so it must have told the others before.
                coordinator.member_aborted(self.seat.me, blame, reason.clone());
            }
            let message = Control::Abort { blame, reason };
            let mut sender = line.sender.lock().expect("no panic while held");
            let _ = send_control(sender.as_mut(), &message, Deadline::after(Duration::from_secs(1)));
        }
        self.close();
    }

    fn usable(&self, operation: &str) -> Result<(), Error> {
        if !self.fork.is_original() {
            return Err(Error::Forked { operation: operation.into() });
        }
        if self.seat.leaving.load(Acquire) {
            return Err(Error::Closed { operation: operation.into() });
        }
        Ok(())
    }

    fn close(&self) {
        self.seat.leaving.store(true, Release);
        if let Some(watcher) = &self.watcher {
            watcher.stop();
        }
        if let Some(door) = &self.door {
            door.wake();
        }
        if let Some(line) = &self.seat.control {
            line.severer.sever();
        }
        if let Some(switchboard) = &self.seat.switchboard {
            (0..self.world()).for_each(|rank| switchboard.sever(rank));
        }
        for thread in self.threads.lock().expect("no panic while held").drain(..) {
            let _ = thread.join();
        }
        drop(self.coordinator.lock().expect("no panic while held").take());
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.fork.is_original() {
            self.close();
        } else {
            // A forked child holds copies of descriptors but none of the threads; joining them would never end.
            std::mem::forget(std::mem::take(&mut *self.threads.lock().expect("no panic while held")));
            std::mem::forget(self.coordinator.lock().expect("no panic while held").take());
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job(rank {} of {}, {})", self.rank(), self.world(), self.seat.launcher)
    }
}

impl Seat {
    /// The host's board; none for a rank that is alone on its host.
    pub(crate) fn board(&self) -> Option<&Arc<Board>> {
        self.board.get()
    }

    /// This rank's slot on its host's board.
    pub(crate) fn my_slot(&self) -> usize {
        self.topology.local_rank(self.me) as usize
    }

    /// Wakes every wait of this process, so that it looks at the fates again.
    pub(crate) fn ring(&self) {
        if let Some(board) = self.board() {
            board.slot(self.my_slot()).bell().ring();
        }
        let _held = self.news.0.lock().expect("no panic while held");
        self.news.1.notify_all();
    }

    pub(crate) fn link(&self, peer: u32, lane: Lane, deadline: Deadline) -> Result<Link, Error> {
        let operation = format!("link with rank {peer}");
        let started = Instant::now();
        let Some(switchboard) = self.switchboard.as_ref().filter(|_| peer < self.topology.world() && peer != self.me) else {
            return Err(Error::Configuration {
                detail: format!("{operation}: rank {} of {} has no link with it", self.me, self.topology.world()),
            });
        };
        let member = self.topology.member(peer);
        let gone = || self.fates.is_over(peer) || self.orphaned.load(Acquire) || self.leaving.load(Acquire);
        switchboard.link(member, self.topology.same_host(self.me, peer), lane, deadline, &gone).map_err(|error| match error {
            CallError::Interrupted => Error::Interrupted { operation, waited: started.elapsed() },
            CallError::NoCall(_) => self.late(&operation, &[peer], started, ""),
            CallError::Gone | CallError::Dial(_) => self.explain(&operation, &[peer], started, &error.to_string()),
            CallError::Other(detail) => Error::System { operation, detail },
        })
    }

    /// Names the culprit of an operation that needed `peers` and failed because somebody is gone.
    ///
    /// The news of a death may still be on its way when a link breaks, so this waits for it a moment.
    pub(crate) fn explain(&self, operation: &str, peers: &[u32], started: Instant, detail: &str) -> Error {
        const NEWS: Duration = Duration::from_millis(300);
        let deadline = Instant::now() + NEWS;
        let mut held = self.news.0.lock().expect("no panic while held");
        loop {
            // Under `syncline run` the launcher says how the process ended, a moment after its socket closed.
            let worth_waiting =
                |fate: &Fate| self.launcher == Launcher::SynclineRun && !fate.exact && !fate.silent && Instant::now() < deadline;
            if let Some((rank, fate)) = self.fates.culprit(peers).filter(|(_, fate)| !worth_waiting(fate)) {
                drop(held);
                return self.accuse(operation, rank, fate.how, fate.silent, started);
            }
            if let Some(rank) = peers.iter().copied().find(|rank| self.fates.has_left(*rank)) {
                drop(held);
                return self.accuse(operation, rank, "has left the job before this operation".into(), false, started);
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

    fn accuse(&self, operation: &str, rank: u32, how: String, silent: bool, started: Instant) -> Error {
        self.write_blame(rank, silent);
        let who = self.topology.who(rank);
        let waited = started.elapsed();
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

    /// The members that `operation` still waits for when its deadline passed, and what is known about them.
    pub(crate) fn late(&self, operation: &str, missing: &[u32], started: Instant, done: &str) -> Error {
        // Whoever is known to be gone or silent holds up the others too: they are not to blame.
        let everybody: Vec<u32> = missing.iter().copied().chain(0..self.topology.world()).collect();
        if let Some((rank, fate)) = self.fates.culprit(&everybody) {
            return self.accuse(operation, rank, fate.how, fate.silent, started);
        }
        // Who waits for a rank that itself waits for a frozen one should hear of the frozen one.
        let frozen: Vec<u32> = self.frozen_neighbours();
        let through = missing.iter().all(|rank| !frozen.contains(rank)) && !frozen.is_empty();
        let waited_for = missing;
        let missing = if through { &frozen[..] } else { missing };
        if let Some(first) = missing.first() {
            self.write_blame(*first, true);
        }
        let mut known: Vec<String> = missing.iter().filter_map(|rank| self.sign_of_life(*rank)).collect();
        if through {
            known.push(format!("this wait was for rank {}, which waits too", waited_for.first().copied().unwrap_or(self.me)));
        }
        let mut detail = done.to_owned();
        if !known.is_empty() {
            detail.push_str(&format!(" ({})", known.join("; ")));
        }
        Error::Timeout {
            operation: operation.into(),
            missing: missing.iter().map(|rank| self.topology.who(*rank)).collect(),
            detail,
            waited: started.elapsed(),
            hint: "every rank must make the same calls in the same order; raise SYNCLINE_TIMEOUT if it only needs longer".into(),
        }
    }

    /// Frozen or merely busy? A neighbour's watcher renews its sign of life all the time.
    fn sign_of_life(&self, rank: u32) -> Option<String> {
        let silence = self.silence(rank)?;
        Some(if silence > watcher::frozen_after(self.timeout) {
            format!("rank {rank} is frozen: no sign of life for {:.1} s", silence.as_secs_f64())
        } else {
            format!("rank {rank} is alive but has not come here")
        })
    }

    fn frozen_neighbours(&self) -> Vec<u32> {
        let host = &self.topology.hosts()[self.topology.host_of(self.me)];
        let is_frozen =
            |rank: &u32| *rank != self.me && self.silence(*rank).is_some_and(|silence| silence > watcher::frozen_after(self.timeout));
        host.ranks.iter().copied().filter(is_frozen).collect()
    }

    /// How long nothing was heard of a neighbour; none for ranks of other hosts and for those that have left.
    fn silence(&self, rank: u32) -> Option<Duration> {
        let board = self.board().filter(|_| self.topology.same_host(self.me, rank) && !self.fates.is_over(rank))?;
        let beat = board.slot(self.topology.local_rank(rank) as usize).heartbeat();
        (beat != 0).then(|| Duration::from_nanos(monotonic_nanos().saturating_sub(beat)))
    }

    /// What a failed frame of `operation` with `peer` means.
    pub(crate) fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        match error {
            LinkError::Timeout { .. } => self.late(operation, &[peer], started, ""),
            LinkError::Interrupted => Error::Interrupted { operation: operation.into(), waited: started.elapsed() },
            other => {
                let everybody: Vec<u32> =
                    std::iter::once(peer).chain((0..self.topology.world()).filter(|rank| *rank != peer && *rank != self.me)).collect();
                self.explain(operation, &everybody, started, &other.to_string())
            }
        }
    }

    /// Leaves a note for whoever sees this process end: on the board for neighbours, with the coordinator for the rest.
    fn write_blame(&self, rank: u32, silent: bool) {
        if rank == self.me {
            return;
        }
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

    /// Writes down the end of `rank` and ends the links with it and with whom it blames.
    pub(crate) fn bury(&self, rank: u32, fate: Fate) {
        let blamed = fate.blames;
        if self.fates.mark_down(rank, fate)
            && let Some(switchboard) = &self.switchboard
        {
            switchboard.sever(rank);
            blamed.into_iter().for_each(|culprit| switchboard.sever(culprit));
        }
    }

    /// Waits until each of `ranks` has left or died; the death of one is no error here.
    fn wait_until_over(&self, ranks: &[u32], operation: &str, deadline: Deadline) -> Result<(), Error> {
        const LOOK: Duration = Duration::from_millis(200);
        let started = Instant::now();
        let mut warned = false;
        let mut held = self.news.0.lock().expect("no panic while held");
        loop {
            // A neighbour that has been frozen for a whole timeout will not say goodbye either.
            let frozen = |rank: u32| self.silence(rank).is_some_and(|silence| silence > self.timeout);
            let staying = || ranks.iter().copied().filter(|rank| !self.fates.is_over(*rank) && !frozen(*rank));
            if !warned && started.elapsed() > self.timeout {
                warned = true;
                let names: Vec<_> = staying().map(|rank| self.topology.who(rank)).collect();
                tracing::warn!("rank {} is done and waits for {} to leave, which still need it", self.me, crate::error::list(&names));
            }
            if self.orphaned.load(Acquire) || staying().next().is_none() {
                return Ok(());
            }
            if deadline.interrupted() {
                return Err(Error::Interrupted { operation: operation.into(), waited: started.elapsed() });
            }
            if deadline.expired() {
                let missing: Vec<u32> = staying().collect();
                return Err(self.late(operation, &missing, started, " to leave"));
            }
            held = self.news.1.wait_timeout(held, deadline.slice(LOOK)).expect("no panic while held").0;
        }
    }
}

/// The clock that all processes of a host share.
pub(crate) fn monotonic_nanos() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
