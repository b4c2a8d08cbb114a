//! A barrier that does not count the dead: whoever waits at it has a place that names it.
//!
//! ```text
//!   word    round (20) · how many (14) · arrived (14) · the place of the last who arrived (14)
//!   place   round (20) · counted (1) · member (32)                   0 is free
//!
//!   arrive   take a place ──► confirm the last one's place ──► word: arrived + 1, last = mine ──► … round is over
//!                                                                └ or the next round, if that makes all of them
//! ```
//! The word alone says how many have arrived, so one exchange arrives and one ends a round. A place is taken before that and
//! confirmed after it, by its owner or by whoever arrives next: so of a dead member's places it is known whether they were counted.
//! A confirmed one was; one that is not was counted only if the word names it as the last. Whoever buries a member frees its places, and takes
//! off what was counted. A burial that is itself cut off between these two leaves one counted too many.

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
const COUNTED: u64 = 1 << 32;

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
}

impl Crowd {
    fn of(word: u64) -> Crowd {
        Crowd { round: word >> 42 & ROUNDS, of: word >> 28 & FIELD, arrived: word >> 14 & FIELD, last: word & FIELD }
    }

    fn word(self) -> u64 {
        (self.round & ROUNDS) << 42 | self.of << 28 | self.arrived << 14 | self.last
    }

    fn place(self, member: u32) -> u64 {
        self.round << 33 | u64::from(member)
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
        let (index, round) = loop {
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
                let next = Crowd { round: seen.round + 1, of: 0, arrived: 0, last: NOBODY };
                if self.change(seen, next) {
                    self.words.passed.ring_if_waiting();
                    return Ok(());
                }
                continue;
            }
            let index = self.take_place(&places, seen)?;
            moment();
            if seen.arrived > 0 {
                confirm(&places, seen);
            }
            let next = Crowd { of: count, arrived: seen.arrived + 1, last: index as u64, ..seen };
            if self.change(seen, next) {
                moment();
                confirm(&places, next);
                break (index, seen.round);
            }
            places.word(index * 8).store(0, Ordering::Release);
        };
        // The round is looked at, not the waking: who wakes for no reason waits on.
        let passed = || (Crowd::of(self.words.word.load(Ordering::Acquire)).round != round).then_some(());
        let look = || {
            self.estate.look_around();
            true
        };
        let waited = wait_for(passed, &self.words.passed, Patience::unknown(), by, &look);
        places.word(index * 8).store(0, Ordering::Release);
        match waited {
            Ok(()) => Ok(()),
            // Whoever gives up takes its arrival back, unless the others have gone on meanwhile.
            Err(cause) => match self.take_off(round) {
                Some(arrived) => Err(BarrierError::Wait { arrived, of: count, cause }),
                None => Ok(()),
            },
        }
    }

    /// Frees the places of a dead member, and takes off what was counted of it.
    pub(crate) fn forget(&self, dead: u32) {
        let places = self.places();
        for index in 0..self.places_used() {
            let place = places.word(index * 8).load(Ordering::Acquire);
            if place as u32 != dead {
                continue;
            }
            let crowd = Crowd::of(self.words.word.load(Ordering::Acquire));
            let here = place >> 33 == crowd.round && crowd.arrived > 0;
            let counted = here && (place & COUNTED != 0 || crowd.last == index as u64);
            places.word(index * 8).store(0, Ordering::Release);
            moment();
            if counted {
                self.take_off(crowd.round);
            }
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
    fn take_place(&self, places: &Region, crowd: Crowd) -> Result<usize, BarrierError> {
        let mine = crowd.place(self.estate.me());
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
            if word.load(Ordering::Relaxed) == 0 && word.compare_exchange(0, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return Ok(index);
            }
        }
        Err(BarrierError::Wait { arrived: crowd.arrived, of: crowd.of, cause: WaitError::Timeout })
    }

    /// A member with a place in this round that is dead; this process lives.
    fn somebody_dead(&self, places: &Region, round: u64) -> Option<u32> {
        let mut asked = vec![self.estate.me()];
        (0..self.places_used()).find_map(|index| {
            let place = places.word(index * 8).load(Ordering::Acquire);
            let member = place as u32;
            if place == 0 || place >> 33 != round || asked.contains(&member) {
                return None;
            }
            asked.push(member);
            self.estate.is_dead(member).then_some(member)
        })
    }

    /// One arrival less, unless the round is over; returns how many there were.
    fn take_off(&self, round: u64) -> Option<u64> {
        loop {
            let seen = Crowd::of(self.words.word.load(Ordering::Acquire));
            if seen.round != round {
                return None;
            }
            // The last one's place is confirmed before nobody is the last any more.
            confirm(&self.places(), seen);
            if self.change(seen, Crowd { arrived: seen.arrived.saturating_sub(1), last: NOBODY, ..seen }) {
                return Some(seen.arrived);
            }
        }
    }

    fn change(&self, from: Crowd, to: Crowd) -> bool {
        self.words.word.compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Notes in the last one's place that it was counted, if it is still there.
fn confirm(places: &Region, crowd: Crowd) {
    if crowd.last < MOST_AT_BARRIER {
        let word = places.word(crowd.last as usize * 8);
        let place = word.load(Ordering::Acquire);
        if place != 0 && place >> 33 == crowd.round {
            let _ = word.compare_exchange(place, place | COUNTED, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}
