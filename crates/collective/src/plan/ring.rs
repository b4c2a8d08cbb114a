//! Around a ring: each of n pieces collects contributions on its way round, then goes round once more as the result.
//!
//! ```text
//!  step 1    step 2    …    step n-1         step n … 2n-2
//!  0 → 1 → 2 → … → n-1 → 0                   the same way, nothing is folded any more
//! ```
//! Cost for S bytes: 2(n-1) steps; every rank sends and receives 2·S·(n-1)/n, the least there is, always to and from the same two
//! neighbours. Each piece is folded from another beginning, so it wants an operation that commutes, as all built-in ones do.

use super::{Deed, Load, Plan, Then};

/// An all-reduce in `ranks` pieces.
pub fn all_reduce(ranks: usize) -> Plan {
    let mut plan = Plan::new(format!("ring of {ranks}"), ranks, ranks);
    if ranks == 1 {
        return plan;
    }
    for position in 0..ranks {
        let (next, before) = ((position + 1) % ranks, (position + ranks - 1) % ranks);
        for step in 0..2 * (ranks - 1) {
            // Piece p begins at position p, and is complete before it gets there again.
            let sent = (position + 2 * ranks - step) % ranks;
            let came = (before + 2 * ranks - step) % ranks;
            let (brings, then) = if step < ranks - 1 { (step + 1, Then::FoldLeft) } else { (ranks, Then::Replace) };
            plan.steps[position].push(vec![
                Deed::Send { to: next, load: Load::Pieces { pieces: sent..sent + 1, brings } },
                Deed::Receive { from: before, load: Load::Pieces { pieces: came..came + 1, brings }, then },
            ]);
        }
    }
    plan
}
