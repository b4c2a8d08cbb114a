//! The handle on this process's seat in its job: made by joining, ended by leaving.
//!
//! A seat has up to three threads, all asleep unless something happens: the *door* (members that call), the *control
//! link* (words of the coordinator) and the *watcher* (processes of this host that end). A world of one has none.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline_shm::board::State;
use syncline_shm::heap::Heap;
use syncline_shm::wait::Deadline;
use syncline_transport::{DoorWaker, Link, LinkError};
use syncline_wire::message::Control;

use crate::barrier::{Barrier, GroupBarrier};
use crate::bootstrap::{Launch, Launcher};
use crate::control::send_control;
use crate::coordinator::Coordinator;
use crate::seat::Seat;
use crate::settings::Settings;
use crate::switchboard::Lane;
use crate::vigil::Vigil;
use crate::watcher::WatcherHandle;
use crate::{Error, Group, Role, Topology, roster};

/// A seat in a job. Dropping it without [`leave`](Job::leave) looks to the others like a death.
pub struct Job {
    pub(crate) seat: Arc<Seat>,
    barrier: Mutex<Barrier>,
    groups: Mutex<HashMap<Group, Arc<Mutex<GroupBarrier>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    watcher: Option<WatcherHandle>,
    door: Option<DoorWaker>,
    coordinator: Mutex<Option<Coordinator>>,
    /// None only while a failed start is cleaned up.
    heap: Option<Arc<Heap>>,
}

pub(crate) struct Parts {
    pub(crate) seat: Arc<Seat>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    pub(crate) watcher: Option<WatcherHandle>,
    pub(crate) door: Option<DoorWaker>,
    pub(crate) coordinator: Option<Coordinator>,
    pub(crate) heap: Option<Arc<Heap>>,
}

impl Job {
    /// Joins the job that `launch` describes: meets the others, maps the host's board, starts to watch.
    ///
    /// Returns when everybody is there. After `settings.timeout` without somebody: [`Error::Missing`], which says who
    /// came and how the others were expected to start.
    pub fn join(launch: &Launch, settings: &Settings, deadline: Deadline) -> Result<Job, Error> {
        crate::join::join(launch, settings, deadline)
    }

    /// A world of one: no threads, no sockets, no memory that others see.
    pub fn alone(timeout: Duration) -> Result<Job, Error> {
        let settings = Settings { timeout, ..Settings::default() };
        let topology = Topology::new(vec![roster::introduce_alone()]);
        let seat = Seat::new(0, topology, &settings, false, Launcher::Solo, None, None)?;
        Job::assemble(Parts {
            seat: Arc::new(seat),
            threads: Vec::new(),
            watcher: None,
            door: None,
            coordinator: None,
            heap: Some(private_heap()?),
        })
    }

    pub(crate) fn assemble(parts: Parts) -> Result<Job, Error> {
        let barrier = Barrier::new(&parts.seat);
        Ok(Job {
            seat: parts.seat,
            barrier: Mutex::new(barrier),
            groups: Mutex::default(),
            threads: Mutex::new(parts.threads),
            watcher: parts.watcher,
            door: parts.door,
            coordinator: Mutex::new(parts.coordinator),
            heap: parts.heap,
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

    /// The memory of this rank's neighbourhood; private to this process when it is alone in it.
    pub fn heap(&self) -> &Arc<Heap> {
        self.heap.as_ref().expect("a job that was joined has memory")
    }

    /// The ranks that share memory, each list ascending, ordered by their first ranks.
    ///
    /// These are the hosts, or each rank alone when the transport is forced to sockets.
    pub fn neighbourhoods(&self) -> Vec<Vec<u32>> {
        if self.seat.shares_memory() {
            return self.seat.topology.hosts().iter().map(|host| host.ranks.clone()).collect();
        }
        (0..self.world()).map(|rank| vec![rank]).collect()
    }

    /// What a wait needs to know of the others, in a handle that may go to other threads and outlive this borrow.
    pub fn vigil(&self) -> Vigil {
        Vigil::new(Arc::clone(&self.seat))
    }

    /// Waits until every worker of the job has called it; dedicated servers take no part.
    ///
    /// On one host this is a round of counters in shared memory (one store, one load per neighbour, no system call
    /// while all are running). Between hosts one rank per host exchanges ⌈log₂ hosts⌉ frames. Between hosts whose workers
    /// go on when one dies, all meet at the coordinator.
    pub fn barrier(&self, deadline: Deadline) -> Result<(), Error> {
        self.usable("barrier")?;
        if !self.role().works() {
            return Err(Error::Configuration {
                detail: format!(
                    "barrier: rank {} is a server, and servers take no part in barriers\nhint: a server stays with `syncline server` until the workers have left",
                    self.rank()
                ),
            });
        }
        if self.seat.goes_on && self.seat.topology.hosts().len() > 1 {
            // Whoever speaks for a host may die; the coordinator knows at any time who is left. One round trip to it.
            let fingerprint = syncline_wire::Fingerprint::of("barrier").finish();
            return self.agree("barrier", fingerprint, "barrier", &[], deadline).map(drop);
        }
        match self.barrier.try_lock() {
            Ok(mut barrier) => barrier.pass(&self.seat, deadline),
            Err(_) => self.barrier_after_another_thread(deadline),
        }
    }

    /// The group of `ranks`, in this order, of which this process must be one.
    pub fn group(&self, ranks: &[u32]) -> Result<Group, Error> {
        let world = self.world();
        let known = ranks.iter().all(|rank| *rank < world);
        known.then(|| Group::new(ranks.to_vec(), self.rank())).flatten().ok_or_else(|| Error::Configuration {
            detail: format!("group {ranks:?}: its ranks must be different, below {world}, and rank {} one of them", self.rank()),
        })
    }

    /// Waits until every member of `group` has called it; ranks outside of the group take no part.
    pub fn group_barrier(&self, group: &Group, deadline: Deadline) -> Result<(), Error> {
        self.usable("barrier")?;
        let mut groups = self.groups.lock().expect("no panic while held");
        let barrier = Arc::clone(groups.entry(group.clone()).or_insert_with(|| Arc::new(Mutex::new(GroupBarrier::new(group.clone())))));
        drop(groups);
        let mut barrier = barrier.lock().map_err(|_| Error::Closed { operation: "barrier".into() })?;
        barrier.pass(&self.seat, deadline)
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

    /// Turns the failure of a frame of `operation` with `peer` into an error that names the culprit.
    pub fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        self.seat.link_failed(operation, peer, started, error)
    }

    /// Leaves the job politely: nobody takes this process's end for a death. A second call does nothing.
    ///
    /// The rank that hosts the coordinator stays until the others have left or died.
    pub fn leave(&self, deadline: Deadline) -> Result<(), Error> {
        if !self.seat.fork.is_original() || self.seat.leaving.swap(true, AcqRel) {
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
        if !self.seat.fork.is_original() || self.seat.leaving.swap(true, AcqRel) {
            return;
        }
        if let Some(line) = &self.seat.control {
            let blame = self.seat.whom_to_blame();
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

    pub(crate) fn usable(&self, operation: &str) -> Result<(), Error> {
        self.seat.usable(operation)
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

/// Memory for the tables of a rank that shares none.
pub(crate) fn private_heap() -> Result<Arc<Heap>, Error> {
    Ok(Arc::new(Heap::private("syncline-heap").map_err(|error| Error::system("start: memory for tables", error))?))
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.seat.fork.is_original() {
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
