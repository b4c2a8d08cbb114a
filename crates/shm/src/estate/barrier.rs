//! A barrier that does not count the dead: whoever waits at it has a place that names it.
//!
//! ```text
//!   word    left (1) · round (20) · how many (14) · arrived (14) · the place of the last who arrived or left (14)
//!   place   uses (11) · round (20) · counted (1) · member (32)                   free without a member
//!
//!   arrive   take a place ──► settle the last one's place ──► word: arrived + 1, last = mine       ──► … round is over
//!                                                                └ or the next round, if that makes all of them
//!   leave                     settle the last one's place ──► word: arrived - 1, last = mine, left ──► free the place
//! ```
//! The word alone says how many have arrived, so one exchange arrives, one leaves and one ends a round. Whether a place is counted is noted
//! in it after that exchange, by its owner or by whoever changes the word next ([`Barrier::settle`]): so it is always known, of the last
//! one by the word and of all others by their places. Whoever buries a member leaves in its name, and whoever does it twice, or goes on after
//! somebody who died over it, finds nothing counted any more. A place's uses tell a late note that it means somebody else.

use std::sync::Arc;

use super::{Estate, EstateError};
use crate::bell::Bell;
use crate::mortality::moment;
use crate::placed::{Line, Placed, Region};
use crate::sync::{AtomicU64, Ordering};
use crate::wait::{Deadline, Patience, WaitError, wait_for};

/// The most that can meet at a barrier.
pub const MOST_AT_BARRIER: u64 = 8_192;

const FIELD: u64 = (1 << 14) - 1;
const ROUNDS: u64 = (1 << 20) - 1;
const NOBODY: u64 = FIELD;
const LEFT: u64 = 1 << 62;
const COUNTED: u64 = 1 << 32;
const ONE_USE: u64 = 1 << 53;

/// Bytes of places that are made sure of at a time.
const PAGE: usize = 4096;

/// Why a barrier could not be passed.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// Others did not come, or the wait was called off.
    #[error("{arrived} of {of} have come: {cause}")]
    Wait {
        /// How many were there, the caller included.
        arrived: u64,
        /// How many are expected.
        of: u64,
        /// The process that came last of those who died here while the others waited.
        lost: Option<u32>,
        /// Why the wait ended.
        cause: WaitError,
    },
    /// Somebody waits at the same barrier for another number.
    #[error("the others wait for {theirs} at this barrier, not for {ours}")]
    Number {
        /// What they said.
        theirs: u64,
        /// What the caller said.
        ours: u64,
    },
    /// No memory for one more who waits.
    #[error(transparent)]
    Memory(#[from] EstateError),
}

/// The words of a barrier.
#[repr(C)]
#[derive(Default)]
pub(crate) struct BarrierWords {
    word: Line<AtomicU64>,
    /// Places that were ever used, from the first on.
    places: AtomicU64,
    /// The round (above) and the process of who was taken off last because it died. Only told to people.
    lost: AtomicU64,
    passed: Line<Bell>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a barrier nobody waits at.
unsafe impl Placed for BarrierWords {}

/// What the word says.
#[derive(Clone, Copy)]
struct Crowd {
    round: u64,
    of: u64,
    arrived: u64,
    last: u64,
    /// Whether the last one is not here any more.
    left: bool,
}

impl Crowd {
    fn of(word: u64) -> Crowd {
        Crowd {
            round: word >> 42 & ROUNDS,
            of: word >> 28 & FIELD,
            arrived: word >> 14 & FIELD,
            last: word & FIELD,
            left: word & LEFT != 0,
        }
    }

    fn word(self) -> u64 {
        let left = if self.left { LEFT } else { 0 };
        left | (self.round & ROUNDS) << 42 | self.of << 28 | self.arrived << 14 | self.last
    }

    /// Whether the place, which has this number, counts among those who have arrived.
    fn counts(self, place: Place, index: usize) -> bool {
        let noted = if self.last == index as u64 { !self.left } else { place.is_counted() };
        noted && self.arrived > 0 && place.round() == self.round
    }
}

/// What the word of a place says.
#[derive(Clone, Copy)]
struct Place(u64);

impl Place {
    fn member(self) -> u32 {
        self.0 as u32
    }

    fn round(self) -> u64 {
        self.0 >> 33 & ROUNDS
    }

    fn is_counted(self) -> bool {
        self.0 & COUNTED != 0
    }

    fn taken(self, round: u64, member: u32) -> Place {
        Place(self.freed().0.wrapping_add(ONE_USE) | round << 33 | u64::from(member))
    }

    fn is_same_use(self, other: Place) -> bool {
        self.0 | COUNTED == other.0 | COUNTED
    }

    fn freed(self) -> Place {
        Place(self.0 & !(ONE_USE - 1))
    }
}

/// A barrier of an object, as one member sees it.
pub(crate) struct Barrier<'a> {
    pub(crate) estate: &'a Arc<Estate>,
    pub(crate) slot: usize,
    pub(crate) words: &'a BarrierWords,
}

impl Barrier<'_> {
    /// Waits until `count` threads have come here, whoever they are; then all pass, and it begins anew.
    pub(crate) fn pass(&self, count: u64, by: Deadline) -> Result<(), BarrierError> {
        let places = self.places();
        let (index, mine) = loop {
            let seen = Crowd::of(self.words.word.load(Ordering::Acquire));
            if seen.arrived > 0 && seen.of != count {
                return Err(BarrierError::Number { theirs: seen.of, ours: count });
            }
            if seen.arrived + 1 >= count {
                // Those who died here are told from those who wait before all go on.
                if let Some(dead) = self.somebody_dead(&places, seen.round) {
                    self.estate.bury_the_dead();
                    self.forget(dead); // Nothing is left to do, unless the place names somebody who never was.
                    continue;
                }
                let next = Crowd { round: seen.round + 1, of: 0, arrived: 0, last: NOBODY, left: false };
                if self.change(seen, next) {
                    self.words.passed.ring_if_waiting();
                    return Ok(());
                }
                continue;
            }
            let (index, mine) = self.take_place(&places, seen)?;
            moment();
            self.settle(&places, seen);
            let next = Crowd { of: count, arrived: seen.arrived + 1, last: index as u64, left: false, ..seen };
            if self.change(seen, next) {
                moment();
                // Without a look at the word: it is counted until it leaves.
                let _ = places.word(index * 8).compare_exchange(mine.0, mine.0 | COUNTED, Ordering::AcqRel, Ordering::Relaxed);
                break (index, mine);
            }
            self.free_place(&places, index, mine);
        };
        // The round is looked at, not the waking: who wakes for no reason waits on.
        let passed = || (Crowd::of(self.words.word.load(Ordering::Acquire)).round != mine.round()).then_some(());
        let look = || {
            self.estate.look_around();
            true
        };
        let waited = wait_for(passed, &self.words.passed, Patience::unknown(), by, &look);
        let arrived = if waited.is_err() { self.leave(&places, index, mine) } else { None };
        moment();
        self.free_place(&places, index, mine);
        match (waited, arrived) {
            (Err(cause), Some(arrived)) => {
                let lost = self.words.lost.load(Ordering::Relaxed);
                let lost = (lost != 0 && lost >> 32 == mine.round()).then_some(lost as u32);
                Err(BarrierError::Wait { arrived, of: count, lost, cause })
            }
            _ => Ok(()), // Also who gave up when the others had gone on.
        }
    }

    /// Frees the places of a dead member, and takes off what was counted of it.
    pub(crate) fn forget(&self, dead: u32) {
        let places = self.places();
        for index in 0..self.places_used() {
            let place = Place(places.word(index * 8).load(Ordering::Acquire));
            if place.member() == dead {
                if self.leave(&places, index, place).is_some()
                    && let Some(pid) = self.estate.pid_of(dead)
                {
                    self.words.lost.store(place.round() << 32 | u64::from(pid), Ordering::Relaxed);
                }
                moment();
                self.free_place(&places, index, place);
            }
        }
    }

    /// Takes the arrival of a place off, if it is still in this use and counted; returns how many had come.
    fn leave(&self, places: &Region, index: usize, whose: Place) -> Option<u64> {
        loop {
            // The word first: who is not the last in it any more was settled before.
            let seen = Crowd::of(self.words.word.load(Ordering::Acquire));
            let place = Place(places.word(index * 8).load(Ordering::Acquire));
            if !place.is_same_use(whose) || !seen.counts(place, index) {
                return None;
            }
            self.settle(places, seen);
            moment();
            if self.change(seen, Crowd { arrived: seen.arrived - 1, last: index as u64, left: true, ..seen }) {
                return Some(seen.arrived);
            }
        }
    }

    /// Frees a place, unless somebody else did so after it was left.
    fn free_place(&self, places: &Region, index: usize, whose: Place) {
        let word = places.word(index * 8);
        let place = Place(word.load(Ordering::Acquire));
        if place.is_same_use(whose) {
            let _ = word.compare_exchange(place.0, place.freed().0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Notes in the last one's place what the word says of it, before the word speaks of somebody else.
    fn settle(&self, places: &Region, seen: Crowd) {
        if seen.last >= MOST_AT_BARRIER {
            return;
        }
        let word = places.word(seen.last as usize * 8);
        let place = Place(word.load(Ordering::Acquire));
        let noted = if seen.left { place.freed() } else { Place(place.0 | COUNTED) };
        let is_due = place.member() != 0 && place.round() == seen.round && place.is_counted() == seen.left;
        // The word must still say so: else the place may be somebody else's, whom the exchange tells from the one it was looked at for.
        if is_due && self.words.word.load(Ordering::Acquire) == seen.word() {
            let _ = word.compare_exchange(place.0, noted.0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn places(&self) -> Region {
        self.estate.segment.region(self.estate.layout.object_area(self.slot), MOST_AT_BARRIER as usize * 8)
    }

    /// How many places were ever used, from the first on.
    fn places_used(&self) -> usize {
        self.words.places.load(Ordering::Acquire).min(MOST_AT_BARRIER) as usize
    }

    /// A place of its own for this caller.
    fn take_place(&self, places: &Region, crowd: Crowd) -> Result<(usize, Place), BarrierError> {
        let used = self.places_used();
        for index in 0..MOST_AT_BARRIER as usize {
            if index >= used {
                if index % (PAGE / 8) == 0 {
                    let at = self.estate.layout.object_area(self.slot) + index * 8;
                    self.estate.segment.reserve(at, PAGE).map_err(EstateError::from)?;
                }
                // Before it is taken: whoever buries looks at all that may be.
                self.words.places.fetch_max(index as u64 + 1, Ordering::AcqRel);
            }
            let word = places.word(index * 8);
            let seen = Place(word.load(Ordering::Relaxed));
            let mine = seen.taken(crowd.round, self.estate.me());
            if seen.member() == 0 && word.compare_exchange(seen.0, mine.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok((index, mine));
            }
        }
        Err(BarrierError::Wait { arrived: crowd.arrived, of: crowd.of, lost: None, cause: WaitError::Timeout })
    }

    /// A member with a place in this round that is dead; this process lives.
    fn somebody_dead(&self, places: &Region, round: u64) -> Option<u32> {
        let mut asked = vec![self.estate.me()];
        (0..self.places_used()).find_map(|index| {
            let place = Place(places.word(index * 8).load(Ordering::Acquire));
            let member = place.member();
            if member == 0 || place.round() != round || asked.contains(&member) {
                return None;
            }
            asked.push(member);
            self.estate.is_dead(member).then_some(member)
        })
    }

    fn change(&self, from: Crowd, to: Crowd) -> bool {
        self.words.word.compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}
