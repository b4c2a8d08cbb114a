//! A barrier of all ranks of a host, over one counter per rank.
//!
//! ```text
//!   counter of rank 0  [ 7 ]   each rank writes its own and reads the others';
//!   counter of rank 1  [ 7 ]   a meeting of round 7 is over once all are ≥ 7
//!   counter of rank 2  [ 6 ]◄─ so whoever waits can say for whom
//!   release            [ 6 ]   written by the host's leader when other hosts have met too
//! ```
//! Nobody is woken who need not be: only the last to arrive looks whether someone sleeps, since
//! only its arrival lets anyone go. Of several last arrivals at once the fence picks one: each
//! stores its counter, fences, then reads all others, so at least one of them sees everyone.
//!
//! Cost for n ranks: each writes one line and reads n − 1; a wake-up for each rank that sleeps.
//! A rank that dies leaves its counter behind; the waits of the others ask `gone` about those
//! that are missing, and a counter that runs ahead (garbage) only lets its readers go early. Where the others go on
//! without it, each of them skips it from then on.

use crate::bell::Bell;
use crate::placed::{Line, Placed, Shared};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, publish};
use crate::wait::{Deadline, Patience, WaitError, wait_announced};

/// One rank's words for meeting: its counter, its bell, and what it sleeps for.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Seat {
    /// Rounds this rank has arrived at. Written by the rank itself.
    counter: Line<AtomicU64>,
    /// Where the rank sleeps. Rung by anyone.
    pub(crate) bell: Line<Rest>,
}

impl Seat {
    /// The round this rank has arrived at.
    #[cfg(not(loom))]
    pub(crate) fn round(&self) -> u64 {
        self.counter.load(Ordering::Acquire)
    }
}

/// The lines of a seat that are quiet while nobody sleeps.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Rest {
    pub(crate) bell: Bell,
    /// `AWAKE`, or which meeting word this rank sleeps for. Written by the rank itself; if it
    /// dies asleep, it is rung for nothing.
    sleeps_for: AtomicU32,
}

const AWAKE: u32 = 0;
const FOR_ALL: u32 = 1;
const FOR_RELEASE: u32 = 2;

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a rank that never arrived.
unsafe impl Placed for Seat {}

/// The leader's word. Written by the host's leader only.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Release {
    round: Line<AtomicU64>,
}

// SAFETY: `repr(C)`, one atomic and padding, no drop glue, zero is before the first release.
unsafe impl Placed for Release {}

/// Who was missing when a wait ended early, and why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("local rank {missing} did not come: {cause}")]
pub struct MeetError {
    /// The lowest local index that was missing; the one that is gone, if `cause` is `Gone`.
    pub missing: usize,
    /// Why the wait ended.
    pub cause: WaitError,
}

/// One rank's part in the meetings of its host.
pub struct Meeting {
    seats: Vec<Shared<Seat>>,
    release: Shared<Release>,
    /// Those that this rank waits for no more.
    skipped: Vec<bool>,
    me: usize,
    round: u64,
    patience: Patience,
}

impl Meeting {
    pub(crate) fn over(seats: Vec<Shared<Seat>>, release: Shared<Release>, me: usize, patience: Patience) -> Meeting {
        assert!(me < seats.len(), "local rank {me} of {}", seats.len());
        // A process that takes part again goes on from where its counter stands.
        let round = seats[me].counter.load(Ordering::Relaxed);
        let skipped = vec![false; seats.len()];
        Meeting { seats, release, skipped, me, round, patience }
    }

    /// The parts of `ranks` threads of this process, for threads and tests.
    pub fn private(ranks: usize, patience: Patience) -> Vec<Meeting> {
        let seats: Vec<_> = (0..ranks).map(|_| Shared::in_private_memory(Seat::default())).collect();
        let release = Shared::in_private_memory(Release::default());
        (0..ranks).map(|me| Meeting::over(seats.clone(), release.clone(), me, patience)).collect()
    }

    /// The last round this rank arrived at.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Arrives at the next round and returns its number, without waiting.
    #[inline]
    pub fn arrive(&mut self) -> u64 {
        self.round += 1;
        // Its Release pairs with the Acquire in `has_arrived`: what this rank did before the
        // meeting is seen by everyone after it.
        // `publish` also fences: with the same of the other ranks, and with the fence in
        // `Bell::register`. So the last of us sees all counters, and every sleeper.
        publish(&self.seats[self.me].counter, self.round);
        if self.first_missing(self.round, 0).is_none() {
            self.wake(FOR_ALL);
        }
        self.round
    }

    /// Waits until every rank has arrived at `round`.
    ///
    /// `gone` is asked about each missing rank in the slow part of the wait; a rank that is gone
    /// ends it at once.
    #[inline]
    pub fn wait(&self, round: u64, deadline: Deadline, gone: &dyn Fn(usize) -> bool) -> Result<(), MeetError> {
        let mut next = match self.first_missing(round, 0) {
            None => return Ok(()),
            Some(missing) => missing,
        };
        let poll = || match self.first_missing(round, next) {
            None => Some(()),
            Some(missing) => {
                next = missing;
                None
            }
        };
        let nobody_gone = || !self.missing_from(round).any(gone);
        self.sleep_for(FOR_ALL, poll, deadline, &nobody_gone).map_err(|cause| MeetError { missing: self.blame(round, cause, gone), cause })
    }

    /// Waits for `rank` no more, in this round and all later ones: it is dead, and the others go on without it.
    ///
    /// Each rank decides this for itself, when it hears of the death. False when it was skipped before.
    pub fn skip(&mut self, rank: usize) -> bool {
        if std::mem::replace(&mut self.skipped[rank], true) {
            return false;
        }
        // Those who knew earlier may sleep: for the last to arrive, this rank among them, the dead one was still missing.
        if self.first_missing(self.round, 0).is_none() {
            fence(Ordering::SeqCst); // pairs with the fence in `Bell::register`, as in `arrive`
            self.wake(FOR_ALL);
        }
        true
    }

    /// Lets the ranks go that wait for `round` to be released. Only the host's leader calls this.
    pub fn release(&self, round: u64) {
        // Its Release pairs with the Acquire in `is_released`.
        // `publish` also fences, with `Bell::register`, as in `arrive`.
        publish(&self.release.round, round);
        self.wake(FOR_RELEASE);
    }

    /// Waits until the leader has released `round`.
    pub fn wait_released(&self, round: u64, leader: usize, deadline: Deadline, gone: &dyn Fn(usize) -> bool) -> Result<(), MeetError> {
        let poll = || self.is_released(round).then_some(());
        // A rank that never arrives is as fatal here as a leader that never releases.
        let nobody_gone = || !gone(leader) && !self.missing_from(round).any(gone);
        self.sleep_for(FOR_RELEASE, poll, deadline, &nobody_gone).map_err(|cause| MeetError {
            missing: match cause {
                WaitError::Gone if gone(leader) => leader,
                _ if self.first_missing(round, 0).is_none() => leader,
                _ => self.blame(round, cause, gone),
            },
            cause,
        })
    }

    /// Whether the leader has released `round`.
    #[inline]
    pub fn is_released(&self, round: u64) -> bool {
        self.release.round.load(Ordering::Acquire) >= round
    }

    /// Local indices of the ranks that have not arrived at `round`.
    pub fn missing(&self, round: u64) -> Vec<usize> {
        self.missing_from(round).collect()
    }

    fn missing_from(&self, round: u64) -> impl Iterator<Item = usize> {
        (0..self.seats.len()).filter(move |&rank| !self.has_arrived(rank, round))
    }

    #[inline]
    fn has_arrived(&self, rank: usize, round: u64) -> bool {
        self.seats[rank].counter.load(Ordering::Acquire) >= round || self.skipped[rank]
    }

    /// The first rank from `from` on that has not arrived; arrivals are never taken back, so a
    /// later look may begin where the last one ended.
    #[inline]
    fn first_missing(&self, round: u64, from: usize) -> Option<usize> {
        (from..self.seats.len()).find(|&rank| !self.has_arrived(rank, round))
    }

    /// The one to name: a rank that is gone before one that is only late.
    fn blame(&self, round: u64, cause: WaitError, gone: &dyn Fn(usize) -> bool) -> usize {
        let dead = match cause {
            WaitError::Gone => self.missing_from(round).find(|&rank| gone(rank)),
            _ => None,
        };
        dead.or_else(|| self.first_missing(round, 0)).unwrap_or(self.me)
    }

    /// Rings for the ranks that sleep for `what`. Comes after `publish`.
    #[inline]
    fn wake(&self, what: u32) {
        for (rank, seat) in self.seats.iter().enumerate() {
            if rank != self.me && seat.bell.sleeps_for.load(Ordering::Relaxed) == what {
                seat.bell.bell.ring();
            }
        }
    }

    fn sleep_for(
        &self,
        what: u32,
        poll: impl FnMut() -> Option<()>,
        deadline: Deadline,
        still_there: &dyn Fn() -> bool,
    ) -> Result<(), WaitError> {
        let rest = &*self.seats[self.me].bell;
        wait_announced(
            poll,
            &rest.bell,
            self.patience,
            deadline,
            still_there,
            // Relaxed: the fence of `Bell::register` comes next.
            || rest.sleeps_for.store(what, Ordering::Relaxed),
            || rest.sleeps_for.store(AWAKE, Ordering::Relaxed),
        )
    }
}
