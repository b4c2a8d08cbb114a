//! Finds ranks of one host that wait for each other in a circle.
//!
//! ```text
//!   rank 0 ── barrier ──▶ rank 1 ── get ──▶ rank 2 ── get ──▶ rank 0      nobody dies, and nothing moves
//! ```
//! Whoever waits long writes on the host's board for whom, and clears it when the wait is over. Each wait has a word of
//! its own, so a circle that shows the same words twice consists of the same waits. Costs a store when a wait goes to
//! sleep, another when it ends, and one load per rank of the circle for a look.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_shm::board::Waiting;

use crate::seat::Seat;

/// In what a rank waits, for those who find it in a circle.
pub mod waits {
    /// A barrier.
    pub const BARRIER: u16 = 1;
    /// A fetch from a table.
    pub const GET: u16 = 2;
    /// A change of a table.
    pub const ADD: u16 = 3;
    /// An operation over all workers.
    pub const AGGREGATE: u16 = 4;

    pub(crate) fn name(code: u16) -> &'static str {
        match code {
            BARRIER => "a barrier",
            GET => "a get",
            ADD => "an add",
            AGGREGATE => "an aggregate",
            _ => "a wait",
        }
    }
}

/// How long a circle must stand before it is told.
const STANDING: Duration = Duration::from_millis(50);

/// By the rank a look began with: what was seen first, and when.
pub(crate) type Circles = HashMap<u32, (Instant, Vec<Waiting>)>;

/// Tells the neighbours that this process waits, until it is dropped.
#[must_use = "the wait is told only while the guard lives"]
pub struct WaitGuard {
    seat: Arc<Seat>,
    wait: Option<Waiting>,
}

impl WaitGuard {
    pub(crate) fn new(seat: Arc<Seat>, rank: u32, code: u16) -> Self {
        let wait = seat.begin_waiting(rank, code);
        WaitGuard { seat, wait }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        if let Some(wait) = self.wait {
            self.seat.end_waiting(wait);
        }
    }
}

impl fmt::Debug for WaitGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WaitGuard({:?})", self.wait)
    }
}

/// The wait of a barrier, told again whenever the first that is missing changes.
#[derive(Default)]
pub(crate) struct Announced {
    told: Cell<Option<Waiting>>,
    last_index: Cell<Option<usize>>,
}

impl Announced {
    /// Tells of `rank` if it is the first of a pass over the missing: its index is not above the one before.
    pub(crate) fn wait_for(&self, seat: &Seat, index: usize, rank: u32) {
        let is_first = self.last_index.replace(Some(index)).is_none_or(|before| index <= before);
        if is_first && self.told.get().map(Waiting::rank) != Some(rank) {
            self.end(seat);
            self.told.set(seat.begin_waiting(rank, waits::BARRIER));
        }
    }

    #[inline]
    pub(crate) fn end(&self, seat: &Seat) {
        if let Some(wait) = self.told.take() {
            seat.end_waiting(wait);
        }
    }
}

impl Seat {
    fn begin_waiting(&self, rank: u32, code: u16) -> Option<Waiting> {
        Some(self.board()?.slot(self.my_slot()).begin_waiting(rank, code))
    }

    fn end_waiting(&self, wait: Waiting) {
        // A forked child inherits the mapping, and its drops write nothing.
        if let Some(board) = self.board().filter(|_| self.fork.is_original()) {
            board.slot(self.my_slot()).end_waiting(wait);
        }
    }

    /// A circle through `from` that has stood for a while.
    pub(crate) fn circle(&self, from: u32) -> Option<Vec<u32>> {
        let mut seen = self.circles.lock().expect("no panic while held");
        let Some((ranks, words)) = self.follow(from) else {
            seen.remove(&from);
            return None;
        };
        match seen.get(&from) {
            Some((since, before)) if *before == words => (since.elapsed() >= STANDING).then_some(ranks),
            _ => {
                seen.insert(from, (Instant::now(), words));
                None
            }
        }
    }

    /// A circle through `from` as it is at this moment, as the rest of a sentence about a wait of kind `code` that timed out.
    pub(crate) fn circle_at_a_glance(&self, from: u32, code: u16) -> Option<String> {
        let (ranks, words) = self.follow(from)?;
        let codes = std::iter::once(code).chain(words.iter().rev().take(ranks.len() - 1).rev().map(|wait| wait.code()));
        let steps: Vec<String> = ranks.iter().zip(codes).map(|(rank, code)| format!("rank {rank} in {}", waits::name(code))).collect();
        Some(format!(", and they wait in a circle: {}, each for the next and the last for the first", steps.join(", ")))
    }

    /// This rank, `from` and whoever follows until this rank is reached again, with their words (this rank's too, if it
    /// has one).
    fn follow(&self, from: u32) -> Option<(Vec<u32>, Vec<Waiting>)> {
        let board = self.board()?;
        let waiting = |rank: u32| board.slot(self.topology.local_rank(rank) as usize).waiting();
        let mut ranks = vec![self.me];
        let mut words: Vec<Waiting> = waiting(self.me).into_iter().collect();
        let mut next = from;
        while next != self.me {
            // A word of a neighbour is input: the rank may not exist, or the words may run in a circle without this rank.
            let known = next < self.topology.world() && self.topology.same_host(self.me, next) && !ranks.contains(&next);
            if !known || self.fates.is_over(next) {
                return None;
            }
            let wait = waiting(next)?;
            ranks.push(next);
            words.push(wait);
            next = wait.rank();
        }
        (ranks.len() > 1).then_some((ranks, words))
    }
}
