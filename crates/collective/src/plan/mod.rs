//! Plans: who tells whom what and when, as plain data, before any byte moves.
//!
//! A [`Plan`] lists for every position of a group the steps that it takes. The deeds of one step happen at once; the next
//! step begins when they are done. An array is cut into the plan's pieces; a deed moves some of them, and says what the
//! receiver does with them. So a plan can be printed, counted and [checked](check) without a network:
//! ```text
//!   0: ←1 fold; ←2 fold; →2; →1        position 0 folds what 1 and then 2 send, and hands the result to both
//! ```
//! What a plan costs stands at the top of its file and in [`cost`], which also chooses. This module is pure: no socket, no thread, no clock.

pub mod chain;
pub mod check;
pub mod cost;
pub mod doubling;
pub mod grades;
pub mod halving;
pub mod host_tree;
pub mod hosts;
pub mod memory;
mod name;
pub mod ring;
mod text;
pub mod tree;

use std::ops::Range;

pub use name::{PlanName, PlanNameError, PlanSettings};

/// The steps of all positions of a group for one collective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What it is called; its parameters are part of the name.
    pub title: String,
    /// How many positions there are.
    pub ranks: usize,
    /// How many pieces an array is cut into.
    pub pieces: usize,
    /// Steps by position.
    pub steps: Vec<Vec<Step>>,
}

/// Deeds that happen at once.
pub type Step = Vec<Deed>;

/// What a position does in a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Sends to another position.
    Send {
        /// Whom.
        to: usize,
        /// What.
        load: Load,
    },
    /// Receives from another position.
    Receive {
        /// From whom.
        from: usize,
        /// What.
        load: Load,
        /// What becomes of it.
        then: Then,
    },
    /// Folds all contributions held for these pieces, and its own, in order of position.
    Fold(Range<usize>),
}

/// What travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    /// Some pieces as they are at the sender.
    Pieces {
        /// Which.
        pieces: Range<usize>,
        /// Contributions of how many positions are folded into each: sums of some, but not all, may travel in a wider type.
        brings: usize,
    },
    /// The same pieces of several contributions, not folded: those of `count` positions from `first` on, beyond the last
    /// position again from 0.
    Contributions {
        /// Which pieces.
        pieces: Range<usize>,
        /// The first position.
        first: usize,
        /// How many positions.
        count: usize,
    },
}

/// What a receiver does with what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It replaces what was there.
    Replace,
    /// mine := theirs ∘ mine.
    FoldLeft,
    /// mine := mine ∘ theirs.
    FoldRight,
    /// It is kept beside mine until a [`Deed::Fold`].
    Hold,
}

impl Load {
    /// Which pieces travel.
    pub fn pieces(&self) -> &Range<usize> {
        match self {
            Load::Pieces { pieces, .. } | Load::Contributions { pieces, .. } => pieces,
        }
    }

    /// How many pieces travel, each contribution counted.
    pub fn len(&self) -> usize {
        match self {
            Load::Pieces { pieces, .. } => pieces.len(),
            Load::Contributions { pieces, count, .. } => pieces.len() * count,
        }
    }

    /// Whether nothing travels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Plan {
    fn new(title: String, ranks: usize, pieces: usize) -> Plan {
        Plan { title, ranks, pieces, steps: vec![Vec::new(); ranks] }
    }

    /// A step of both: `from` sends `pieces`, with `brings` contributions folded into each, and `to` does `then` with them.
    fn transfer(&mut self, from: usize, to: usize, pieces: Range<usize>, brings: usize, then: Then) {
        let load = Load::Pieces { pieces, brings };
        self.steps[from].push(vec![Deed::Send { to, load: load.clone() }]);
        self.steps[to].push(vec![Deed::Receive { from, load, then }]);
    }

    /// The same plan with position `p` doing what `(p - by) mod ranks` did: what begins at 0 begins at `by`.
    #[must_use]
    pub fn rotated(mut self, by: usize) -> Plan {
        let ranks = self.ranks;
        let place = |position: usize| (position + by) % ranks;
        for deed in self.steps.iter_mut().flatten().flatten() {
            match deed {
                Deed::Send { to, .. } => *to = place(*to),
                Deed::Receive { from, .. } => *from = place(*from),
                Deed::Fold(_) => {}
            }
        }
        self.steps.rotate_right(by % ranks.max(1));
        self.title.push_str(&format!(" from {by}"));
        self
    }
}
