//! What a wait of the layers above needs: whose turn it is, who is gone, where to sleep, and whom to name.
//!
//! A [`Vigil`] is a handle on the seat that may be cloned into service threads and outlives the borrow of its
//! [`Job`](crate::Job). It keeps nothing open: once the job has left, its calls answer `Closed`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

use syncline_shm::Shared;
use syncline_shm::bell::Bell;
use syncline_shm::wait::{Deadline, Patience};
use syncline_transport::{Link, LinkError};

use crate::seat::Seat;
use crate::{Error, ErrorKind, Lane, Topology, WaitGuard};

/// A handle for waits.
#[derive(Clone)]
pub struct Vigil {
    seat: Arc<Seat>,
    patience: Patience,
}

impl Vigil {
    pub(crate) fn new(seat: Arc<Seat>) -> Self {
        Vigil { patience: seat.patience(), seat }
    }

    pub(crate) fn seat(&self) -> &Seat {
        &self.seat
    }

    /// This process's number.
    pub fn me(&self) -> u32 {
        self.seat.me
    }

    /// How long a wait lasts when the caller names no deadline.
    pub fn timeout(&self) -> Duration {
        self.seat.timeout
    }

    /// Who sits where.
    pub fn topology(&self) -> &Topology {
        &self.seat.topology
    }

    /// Whether `operation` may begin: `Forked` in a forked child, `Closed` after the job was left.
    pub fn usable(&self, operation: &str) -> Result<(), Error> {
        self.seat.usable(operation)
    }

    /// The bell that wakes `rank`, which must be a neighbour with a place on this host's board (or this process itself).
    pub fn bell(&self, rank: u32) -> Option<Shared<Bell>> {
        if rank == self.seat.me {
            return Some(self.my_bell());
        }
        let neighbour = rank < self.seat.topology.world() && self.seat.topology.same_host(self.seat.me, rank);
        let board = self.seat.board().filter(|_| neighbour)?;
        Some(board.slot(self.seat.topology.local_rank(rank) as usize).bell())
    }

    /// The bell this process sleeps on. It rings with every piece of news about the others.
    pub fn my_bell(&self) -> Shared<Bell> {
        self.seat.bell()
    }

    /// How long a wait keeps its core before it sleeps.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Whether anybody died, was cut off or fell silent.
    pub fn any_down(&self) -> bool {
        self.seat.fates.any_down()
    }

    /// Whether nothing more will come from `rank`: it left, or it is down.
    pub fn is_over(&self, rank: u32) -> bool {
        self.seat.fates.is_over(rank)
    }

    /// Whether `rank` left politely.
    pub fn has_left(&self, rank: u32) -> bool {
        self.seat.fates.has_left(rank)
    }

    /// Whether the process of `rank` is certainly gone and writes nothing any more: the kernel or the launcher said so.
    ///
    /// A rank that is silent, or whose connection closed, is [over](Vigil::is_over) and may still be running.
    pub fn has_ended(&self, rank: u32) -> bool {
        self.seat.fates.has_ended(rank)
    }

    /// A count that grows with every death and whenever the end of a process becomes certain. One load.
    pub fn deaths(&self) -> u32 {
        self.seat.fates.deaths()
    }

    /// Whether the launcher is gone, or this process is leaving: no wait will be fulfilled any more.
    pub fn orphaned_or_leaving(&self) -> bool {
        self.seat.orphaned.load(Acquire) || self.seat.leaving.load(Acquire)
    }

    /// Whether the others go on when a worker dies.
    pub fn goes_on(&self) -> bool {
        self.seat.goes_on
    }

    /// Whether a wait that needs all workers, or all who must live where the others [go on](Vigil::goes_on), is in vain.
    pub fn hopeless(&self) -> bool {
        self.seat.hopeless()
    }

    /// Tells the neighbours that this process waits for `rank`, in what `code` says (see [`waits`](crate::waits)), while
    /// the guard lives. For the slow part of a wait; of several threads that wait at once the last one is shown.
    pub fn waiting(&self, rank: u32, code: u16) -> WaitGuard {
        WaitGuard::new(Arc::clone(&self.seat), rank, code)
    }

    /// The ranks of a circle of waits that goes from this process through `from` back to it, if the very same waits were
    /// already seen by an earlier call, at least 50 ms ago. To be asked now and then in the slow part of a wait for `from`.
    ///
    /// Only waits inside this host that were [announced](Vigil::waiting) are seen. A circle of waits is no proof where
    /// other threads of its processes may still do what is waited for; the caller knows.
    pub fn circle(&self, from: u32) -> Option<Vec<u32>> {
        self.seat.circle(from)
    }

    /// A circle as [`circle`](Vigil::circle) finds it, as the end of a sentence about a wait of kind `code` for `from`.
    pub fn circle_in_words(&self, from: u32, code: u16) -> Option<String> {
        self.seat.circle(from).and_then(|_| self.seat.circle_at_a_glance(from, code))
    }

    /// Wakes all waits of this process, so that they look again.
    pub fn ring(&self) {
        self.seat.ring();
    }

    /// The error for an `operation` that waited for `missing` from `started` until its deadline; `extra` goes behind their names.
    ///
    /// Whoever is known to be dead or frozen is named in their place, because they may only wait for that one.
    pub fn late(&self, operation: &str, missing: &[u32], started: Instant, extra: &str) -> Error {
        self.seat.late(operation, missing, started, extra)
    }

    /// The error for an `operation` that failed because somebody is gone, one of `peers` most likely. Waits a moment for
    /// the news of a death; `detail` is told when none comes.
    pub fn explain(&self, operation: &str, peers: &[u32], started: Instant, detail: &str) -> Error {
        self.seat.explain(operation, &self.seat.suspects(peers), started, detail)
    }

    /// Turns the failure of a frame of `operation` with `peer` into an error that names the culprit.
    pub fn link_failed(&self, operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        self.seat.link_failed(operation, peer, started, error)
    }

    /// The link between this rank and `peer` on `lane`, as [`Job::link`](crate::Job::link).
    pub fn link(&self, peer: u32, lane: Lane, deadline: Deadline) -> Result<Link, Error> {
        self.usable("link")?;
        self.seat.link(peer, lane, deadline)
    }

    /// The same, until `vain` says that `peer` will not ask for the link any more. It is asked now and then while waiting; the
    /// error names whoever is known to be gone.
    pub fn link_unless(&self, peer: u32, lane: Lane, deadline: Deadline, vain: &dyn Fn() -> bool) -> Result<Link, Error> {
        self.usable("link")?;
        self.seat.link_unless(peer, lane, deadline, vain)
    }

    /// The first of `members` that is known to have died. What needs all of them is in vain then, also between two who live: who meets the dead one first gives up,
    /// and everybody else waits for those who did.
    pub fn first_down(&self, members: &[u32]) -> Option<u32> {
        members.iter().copied().find(|rank| self.any_down() && self.seat.fates.is_down(*rank))
    }

    /// [`link`](Vigil::link) for what needs all of `members`, until one of them is dead: that one is then named, whoever `peer` is.
    pub fn link_among(&self, members: &[u32], peer: u32, lane: Lane, deadline: Deadline) -> Result<Link, Error> {
        let started = Instant::now();
        let link = self.link_unless(peer, lane, deadline, &|| self.first_down(members).is_some());
        link.map_err(|error| match (error.kind(), self.first_down(members)) {
            (ErrorKind::PeerLost, Some(down)) => self.explain(&format!("link with rank {peer}"), &[down, peer], started, "it is needed"),
            _ => error,
        })
    }

    /// [`link_failed`](Vigil::link_failed) in what needs all of `members`. Names the dead one also where `peer` only gave up because of it and closed its links.
    pub fn link_failed_among(&self, members: &[u32], operation: &str, peer: u32, started: Instant, error: &LinkError) -> Error {
        match (error, self.first_down(members)) {
            (LinkError::Timeout { .. } | LinkError::Interrupted, _) | (_, None) => self.link_failed(operation, peer, started, error),
            (_, Some(down)) => self.explain(operation, &[down, peer], started, &error.to_string()),
        }
    }
}

impl fmt::Debug for Vigil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Vigil(rank {} of {})", self.seat.me, self.seat.topology.world())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Job;

    #[test]
    fn a_vigil_outlives_its_job_and_says_that_it_is_closed() {
        let job = Job::alone(Duration::from_secs(5)).expect("a world of one");
        let vigil = job.vigil();
        assert!(vigil.usable("get").is_ok() && !vigil.orphaned_or_leaving());
        job.leave(Deadline::never()).expect("nobody to wait for");
        drop(job);
        assert_eq!(vigil.usable("get").map_err(|error| error.kind()), Err(ErrorKind::Closed));
        assert!(vigil.orphaned_or_leaving());
    }

    #[test]
    fn who_is_alone_has_private_memory_and_a_bell_that_news_ring() {
        let job = Job::alone(Duration::from_secs(5)).expect("a world of one");
        assert_eq!(job.neighbourhoods(), [[0]]);
        job.heap().claim([1, 1], 4096).expect("memory of its own");
        let vigil = job.vigil();
        let heard = std::sync::atomic::AtomicBool::new(false);
        let bell = vigil.my_bell();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let poll = || heard.load(Acquire).then_some(());
                syncline_shm::wait::wait_for(poll, &bell, Patience::none(), Deadline::after(Duration::from_secs(20)), &|| true)
            });
            heard.store(true, Release);
            vigil.ring();
            assert_eq!(sleeper.join().expect("no panic"), Ok(()));
        });
        assert!(vigil.bell(1).is_none());
    }
}
