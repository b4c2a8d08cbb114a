//! Turns at the way to one peer: of the large frames that wait, the one with the highest priority goes next, equal ones in
//! the order they came.
//!
//! Every table has a link of its own, and the network would share itself out among all that send at once: each frame would arrive
//! late. Behind a gate they go one after the other. Who holds it and gets nothing sent (its receiver has no room, which may depend on
//! others) loses it after a moment, so that nobody waits for a standstill; then the network shares itself out as before.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_cluster::Deadline;

/// Frames with less payload do not wait: they are gone before it matters.
pub(crate) const SMALL: u64 = 16 << 10;
/// How much is sent between two signs of progress.
pub(crate) const CHUNK: usize = 64 << 10;
/// A holder without progress for so long holds nobody up any more.
const STANDSTILL: Duration = Duration::from_millis(500);

/// The gates of one process, by rank of the peer.
#[derive(Default)]
pub(crate) struct Gates {
    by_peer: Mutex<HashMap<u32, Arc<Gate>>>,
}

impl Gates {
    pub(crate) fn to(&self, peer: u32) -> Arc<Gate> {
        let mut gates = self.by_peer.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry(peer).or_default())
    }
}

/// The turns at one peer.
#[derive(Default)]
pub(crate) struct Gate {
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Default)]
struct Turns {
    tickets: u64,
    waiting: BTreeSet<(Reverse<i32>, u64)>,
    /// Who sends, and when something of it last went.
    holder: Option<(u64, Instant)>,
}

impl Gate {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn. Nobody waits beyond the deadline: who comes too late goes without one, and its send tells what is wrong.
    pub(crate) fn enter(&self, priority: i32, by: Deadline) -> Pass<'_> {
        let mut turns = self.turns();
        turns.tickets += 1;
        let place = (Reverse(priority), turns.tickets);
        turns.waiting.insert(place);
        loop {
            let blocked = turns.holder.is_some_and(|(_, last)| last.elapsed() < STANDSTILL);
            let first = turns.waiting.first() == Some(&place);
            let late = by.expired() || by.interrupted();
            if late || (first && !blocked) {
                turns.waiting.remove(&place);
                if !late || !blocked {
                    turns.holder = Some((place.1, Instant::now()));
                }
                return Pass { gate: self, ticket: place.1 };
            }
            turns = self.changed.wait_timeout(turns, by.slice(STANDSTILL / 5)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether nobody sends or waits.
    pub(crate) fn is_free(&self) -> bool {
        let turns = self.turns();
        turns.waiting.is_empty() && turns.holder.is_none_or(|(_, last)| last.elapsed() >= STANDSTILL)
    }

    /// How many wait for their turn.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.turns().waiting.len()
    }
}

/// A turn, while it lives.
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    ticket: u64,
}

impl Pass<'_> {
    /// Something went.
    pub(crate) fn progress(&self) {
        let mut turns = self.gate.turns();
        if let Some((_, last)) = turns.holder.as_mut().filter(|(holder, _)| *holder == self.ticket) {
            *last = Instant::now();
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut turns = self.gate.turns();
        if turns.holder.is_some_and(|(holder, _)| holder == self.ticket) {
            turns.holder = None;
            self.gate.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use syncline_testkit::ranks::eventually;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn the_highest_goes_first_and_equal_ones_in_order() {
        let (gate, order) = (Gate::default(), Mutex::new(Vec::new()));
        let held = gate.enter(0, Deadline::after(SOON));
        std::thread::scope(|scope| {
            for (came, priority) in [0, -3, 7, 0, 7].into_iter().enumerate() {
                let (gate, order) = (&gate, &order);
                scope.spawn(move || {
                    let pass = gate.enter(priority, Deadline::after(SOON));
                    order.lock().unwrap().push((priority, came));
                    drop(pass);
                });
                eventually("it waits", SOON, || {
                    held.progress();
                    gate.waiting() == came + 1
                });
            }
            drop(held);
        });
        assert_eq!(*order.lock().unwrap(), [(7, 2), (7, 4), (0, 0), (0, 3), (-3, 1)]);
        assert!(gate.is_free());
    }

    #[test]
    fn who_stands_still_holds_nobody_up() {
        let gate = Gate::default();
        let _stuck = gate.enter(9, Deadline::after(SOON));
        let started = Instant::now();
        drop(gate.enter(-9, Deadline::after(SOON)));
        assert!(started.elapsed() >= STANDSTILL && started.elapsed() < SOON);
        let impatient = Instant::now();
        let _second = gate.enter(1, Deadline::after(SOON));
        drop(gate.enter(5, Deadline::after(Duration::from_millis(10))));
        assert!(impatient.elapsed() < STANDSTILL, "a deadline ends the wait");
    }
}
