//! Workers that add to the same few kilobytes in tight loops, and whose adds cannot be put together (`tally`), take turns.
//!
//! They would otherwise hand the cache lines to and fro with every add, which costs far more than the adds. So who finds that another hand has
//! been at the table since its last add, and has been adding without pause itself, leaves it alone for some microseconds. Who adds now and then never waits.
//!
//! A get in such a loop follows the same rule. A look without taking the stripe would hardly ever find it at rest, and would take the lines away from who works
//! there: it waits for its turn and then takes the stripe as if to change it, which tells the other that its turn is over.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use syncline_cluster::{Deadline, Error};
use syncline_shm::store::Hand;

use super::LocalShare;
use super::tally::Tally;
use crate::Consistency;

/// Tables up to this size stay in a core's own cache for a turn, together with what is added and fetched.
const LARGEST: usize = 128 << 10;

/// How long a worker is left alone with a table that several want, in nanoseconds: long beside the handing over of its lines, of which a large one has more.
fn turn(bytes: usize) -> u64 {
    40_000 + bytes as u64
}

/// Who adds less often than this, in nanoseconds, has other things to do: waiting for its turn would cost it more than the lines.
fn hurry(bytes: usize) -> u64 {
    2_500 + bytes as u64 / 4
}

/// When this process last found that another had been at a table of its own, and which of its adds that was.
pub(super) struct Turns {
    since: Instant,
    met: AtomicU64,
    sequence: AtomicU64,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { since: Instant::now(), met: AtomicU64::new(0), sequence: AtomicU64::new(0) }
    }

    /// Another hand has been there since add `sequence` or just before it: lets it go on for a moment if both are in a hurry. True when it did.
    #[cold]
    pub(super) fn met(&self, sequence: u64, bytes: usize) -> bool {
        let hurries = self.hurries(sequence, bytes);
        if hurries {
            let start = self.now();
            while self.now() < start + turn(bytes) {
                (0..8).for_each(|_| std::hint::spin_loop());
            }
            self.met.store(self.now(), Relaxed);
        }
        hurries
    }

    /// Another hand has been there: whether this worker has been adding without pause since the last one was.
    #[cold]
    pub(super) fn hurries(&self, sequence: u64, bytes: usize) -> bool {
        let now = self.now();
        let adds = sequence.saturating_sub(self.sequence.swap(sequence, Relaxed));
        is_in_a_hurry(now.saturating_sub(self.met.swap(now, Relaxed)), adds, bytes)
    }

    fn now(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }
}

/// Whether so many adds of so many bytes in so many nanoseconds are all that a worker does.
fn is_in_a_hurry(elapsed: u64, adds: u64, bytes: usize) -> bool {
    elapsed < adds.saturating_mul(hurry(bytes))
}

impl LocalShare {
    /// Leaves the share alone for a turn if others were at it since this worker's last add of all of it. Where adds are not applied at once, lines travel anyway.
    pub(super) fn take_turns(&self, hand: &Hand, worker: u32, sequence: u64) {
        let stripes = self.store.layout().stripes();
        if stripes == 0 || !self.has_turns() {
            return;
        }
        let last = (self.first_stripe(worker) + stripes - 1) % stripes;
        if hand.was_followed_at(&self.store, last) {
            self.turns.met(sequence, self.bytes());
        }
    }

    /// Reads elements of a stripe that somebody else is at, after a turn. False when this worker takes none.
    pub(super) fn read_in_turn(&self, elements: Range<u64>, out: &mut [u8], by: Deadline) -> Result<bool, Error> {
        let me = self.place.vigil.me();
        let worker = self.place.workers.iter().position(|rank| *rank == me).filter(|_| self.has_turns());
        let Some(worker) = worker else { return Ok(false) };
        if !self.turns.met(self.outboxes[worker].published(), self.bytes()) {
            return Ok(false);
        }
        let mut hand = self.hand(by)?;
        let hold = self.take(&mut hand, self.store.stripe_of(elements.start), by)?;
        out.copy_from_slice(hold.contents(0, elements));
        Ok(true)
    }

    fn has_turns(&self) -> bool {
        self.place.spec.consistency == Consistency::Async && !self.puts_adds_together() && self.bytes() <= LARGEST
    }

    /// Whether whole adds of a crowd go into tallies.
    pub(super) fn puts_adds_together(&self) -> bool {
        self.tally.as_ref().is_some_and(Tally::is_in_use)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_adds_without_pause_takes_turns() {
        let (small, large) = (4 << 10, 256 << 10);
        assert!(is_in_a_hurry(2_000, 1, small) && is_in_a_hurry(2 * turn(small), 40, small));
        assert!(!is_in_a_hurry(2 * turn(small), 1, small) && !is_in_a_hurry(40_000 * 10, 10, small) && !is_in_a_hurry(0, 0, small));
        assert!(is_in_a_hurry(20_000, 1, large) && !is_in_a_hurry(20_000, 1, small), "a large add takes longer");
        let turns = Turns::new();
        let waited = |sequence: u64| {
            let start = Instant::now();
            (turns.met(sequence, small), start.elapsed().as_nanos() as u64)
        };
        waited(1);
        let (met, time) = waited(1_000_000);
        assert!(met && time >= turn(small), "a million adds since just now");
        assert!(turns.met.load(Relaxed) >= turn(small) && turns.sequence.load(Relaxed) == 1_000_000);
    }
}
