//! Everybody gets all contributions and folds them: what small messages want.
//!
//! What a rank holds doubles with every step (Bruck's all-gather), for any number of ranks:
//! ```text
//!  5 ranks, at 0:   has 0 · from 1: 1 · from 2: 2 3 · from 4: 4      then folds 0 1 2 3 4 in order
//! ```
//! Cost for S bytes: ⌈log₂ n⌉ steps; every rank sends and receives (n-1)·S and folds n·S. One process sees all contributions, so
//! the bits are those of the left fold. The default for small arrays, which travel with the roll call.

use super::{Deed, Load, Plan, Then};

/// Whom a position exchanges with in one step, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Who gets what this position has, the contributions from itself on.
    pub to: usize,
    /// Who sends.
    pub from: usize,
    /// How many contributions go each way.
    pub count: usize,
}

/// The exchanges of one position.
pub fn rounds(position: usize, ranks: usize) -> impl Iterator<Item = Round> {
    std::iter::successors(Some(1), |away| Some(away * 2)).take_while(move |away| *away < ranks).map(move |away| Round {
        to: (position + ranks - away) % ranks,
        from: (position + away) % ranks,
        count: away.min(ranks - away),
    })
}

/// An all-reduce.
pub fn all_reduce(ranks: usize) -> Plan {
    let mut plan = Plan::new(format!("doubling of {ranks}"), ranks, 1);
    for position in 0..ranks {
        for Round { to, from, count } in rounds(position, ranks) {
            plan.steps[position].push(vec![
                Deed::Send { to, load: Load::Contributions { pieces: 0..1, first: position, count } },
                Deed::Receive { from, load: Load::Contributions { pieces: 0..1, first: from, count }, then: Then::Hold },
            ]);
        }
        plan.steps[position].push(vec![Deed::Fold(0..1)]);
    }
    plan
}
