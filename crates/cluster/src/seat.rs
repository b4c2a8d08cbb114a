//! What the threads of a seat share: who the others are, whether they live, and how to reach them.

use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use syncline_shm::Shared;
use syncline_shm::bell::Bell;
use syncline_shm::board::Board;
use syncline_shm::fork::ForkGuard;
use syncline_shm::wait::{Deadline, Patience};
use syncline_transport::{Link, SendHalf, Severer};
use syncline_wire::message::Blame;

use crate::agree::Ledger;
use crate::bootstrap::Launcher;
use crate::circle::Circles;
use crate::fate::{Fate, Fates};
use crate::notices::Notices;
use crate::switchboard::{CallError, Lane, Switchboard};
use crate::{Error, Settings, Topology, TransportChoice};

/// What the threads of a seat share.
pub(crate) struct Seat {
    pub(crate) me: u32,
    pub(crate) topology: Topology,
    pub(crate) fates: Fates,
    pub(crate) timeout: Duration,
    pub(crate) launcher: Launcher,
    /// What may carry links, and with it whether neighbours share memory.
    pub(crate) transport: TransportChoice,
    /// Whether the job goes on when a worker dies: all workers said so.
    pub(crate) goes_on: bool,
    /// Tells this process from its forked children, which are no members.
    pub(crate) fork: ForkGuard,
    pub(crate) board: OnceLock<Arc<Board>>,
    pub(crate) switchboard: Option<Switchboard>,
    pub(crate) control: Option<ControlLine>,
    /// The coordinator is gone, and no rank with it: the launcher died.
    pub(crate) orphaned: AtomicBool,
    /// Set when this seat leaves, so that its own threads take closing links for what they are.
    pub(crate) leaving: AtomicBool,
    pub(crate) news: (Mutex<()>, Condvar),
    /// Nobody will answer on the control link any more.
    pub(crate) coordinator_lost: AtomicBool,
    /// Whom this process blamed last for a failure of its own.
    pub(crate) blamed: Mutex<Option<Blame>>,
    /// The coordinator has told everybody of a death; this process, if it hosts it, last of all.
    pub(crate) told: AtomicBool,
    /// The calls that all workers make alike, as far as this process knows of them.
    pub(crate) ledger: Mutex<Ledger>,
    /// What members said to all, and what was answered.
    pub(crate) notices: Mutex<Notices>,
    /// Circles of waits that were seen and may be gone at the next look.
    pub(crate) circles: Mutex<Circles>,
    /// Where this process sleeps when it has no slot on a board.
    pub(crate) own_bell: Shared<Bell>,
}

/// This member's end of the control link.
pub(crate) struct ControlLine {
    pub(crate) sender: Mutex<Box<dyn SendHalf>>,
    pub(crate) severer: Severer,
    /// Whether the coordinator runs on this host, where its death closes the socket at once.
    pub(crate) local: bool,
    pub(crate) last_heard: Mutex<Instant>,
}

impl Seat {
    /// A seat whose board is still to come.
    pub(crate) fn new(
        me: u32,
        topology: Topology,
        settings: &Settings,
        goes_on: bool,
        launcher: Launcher,
        switchboard: Option<Switchboard>,
        control: Option<ControlLine>,
    ) -> Result<Seat, Error> {
        let fork = ForkGuard::new().map_err(|error| Error::system("start: the page that notices forks", error))?;
        Ok(Seat {
            me,
            fates: Fates::new(topology.world(), me),
            topology,
            timeout: settings.timeout,
            launcher,
            transport: settings.transport,
            goes_on,
            fork,
            board: OnceLock::new(),
            switchboard,
            control,
            orphaned: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            news: Default::default(),
            coordinator_lost: AtomicBool::new(false),
            blamed: Mutex::default(),
            told: AtomicBool::new(false),
            ledger: Mutex::default(),
            notices: Mutex::default(),
            circles: Mutex::default(),
            own_bell: Bell::private(),
        })
    }

    /// Whether the coordinator is a thread of this process and ends with it.
    pub(crate) fn hosts_coordinator(&self) -> bool {
        self.me == 0 && self.control.is_some() && !self.launcher.hosts_coordinator()
    }

    /// Whether `operation` may begin: in the process that joined, before it left.
    pub(crate) fn usable(&self, operation: &str) -> Result<(), Error> {
        if !self.fork.is_original() {
            return Err(Error::Forked { operation: operation.into() });
        }
        if self.leaving.load(Acquire) {
            return Err(Error::Closed { operation: operation.into() });
        }
        Ok(())
    }

    pub(crate) fn notices(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().expect("no panic while held")
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no panic while held")
    }

    /// Whether waits for all workers are in vain: somebody whom they need is gone.
    pub(crate) fn hopeless(&self) -> bool {
        self.orphaned.load(Acquire) || self.leaving.load(Acquire) || self.needed_is_down()
    }

    fn needed_is_down(&self) -> bool {
        self.fates.any_down()
            && (!self.goes_on || (0..self.topology.world()).any(|rank| self.fates.is_down(rank) && !self.is_missed_by_nobody(rank)))
    }

    /// Whether `rank` died and the others go on without it.
    pub(crate) fn is_missed_by_nobody(&self, rank: u32) -> bool {
        self.goes_on && self.topology.role(rank).works() && self.fates.is_down(rank)
    }

    /// Whether the ranks of this host share memory, as opposed to each being alone.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.transport, TransportChoice::Auto | TransportChoice::Shm)
    }

    /// How long a wait keeps its core: the ranks of this host share them.
    pub(crate) fn patience(&self) -> Patience {
        // Asked once: the answer is read from files of the control group, which takes 30 µs, and every barrier wants it.
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |cores| cores.get()));
        Patience::new(self.topology.hosts()[self.topology.host_of(self.me)].ranks.len(), cores)
    }

    /// The bell that wakes the waits of this process.
    pub(crate) fn bell(&self) -> Shared<Bell> {
        match self.board() {
            Some(board) => board.slot(self.my_slot()).bell(),
            None => self.own_bell.clone(),
        }
    }

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
        self.bell().ring();
        let _held = self.news.0.lock().expect("no panic while held");
        self.news.1.notify_all();
    }

    pub(crate) fn link(&self, peer: u32, lane: Lane, deadline: Deadline) -> Result<Link, Error> {
        self.link_unless(peer, lane, deadline, &|| false)
    }

    /// The same, until `vain` says that `peer` will not ask for it any more, because of somebody else.
    pub(crate) fn link_unless(&self, peer: u32, lane: Lane, deadline: Deadline, vain: &dyn Fn() -> bool) -> Result<Link, Error> {
        let operation = format!("link with rank {peer}");
        let started = Instant::now();
        let Some(switchboard) = self.switchboard.as_ref().filter(|_| peer < self.topology.world() && peer != self.me) else {
            return Err(Error::Configuration {
                detail: format!("{operation}: rank {} of {} has no link with it", self.me, self.topology.world()),
            });
        };
        let member = self.topology.member(peer);
        let gone = || self.fates.is_over(peer) || self.orphaned.load(Acquire) || self.leaving.load(Acquire) || vain();
        switchboard.link(member, self.topology.same_host(self.me, peer), lane, deadline, &gone).map_err(|error| match error {
            CallError::Interrupted => Error::Interrupted { operation, waited: started.elapsed() },
            CallError::NoCall(_) => self.late(&operation, &[peer], started, ""),
            CallError::Gone if vain() => self.explain(&operation, &self.suspects(&[peer]), started, &error.to_string()),
            CallError::Gone | CallError::Dial(_) => self.explain(&operation, &[peer], started, &error.to_string()),
            CallError::Other(detail) => Error::System { operation, detail },
        })
    }

    /// Writes down the end of `rank` and ends the links with it and with whom it blames.
    pub(crate) fn bury(&self, rank: u32, mut fate: Fate) {
        if self.goes_on {
            // Where life goes on, nobody is dead on hearsay: the one it blamed may only have been slow.
            fate.blames = None;
        }
        let blamed = fate.blames;
        if self.fates.mark_down(rank, fate)
            && let Some(switchboard) = &self.switchboard
        {
            switchboard.sever(rank);
            blamed.into_iter().filter(|culprit| *culprit != self.me).for_each(|culprit| switchboard.sever(culprit));
        }
    }

    /// Waits until each of `ranks` has left or died; the death of one is no error here.
    pub(crate) fn wait_until_over(&self, ranks: &[u32], operation: &str, deadline: Deadline) -> Result<(), Error> {
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
