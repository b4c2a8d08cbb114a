//! Through memory that all ranks of a host share: everybody folds one piece of all contributions and reads the others' results.
//!
//! ```text
//!  copy in · meet · rank p folds piece p of all, in order · meet · copy out
//! ```
//! Cost for S bytes and n ranks: two meetings; each rank writes S and reads 2·S, and no byte goes through the kernel. "Sending" is
//! leaving something where the other reads it. One process sees all contributions to a piece: left-fold bits.

use super::{Deed, Load, Plan, Then};

/// An all-reduce in `ranks` pieces.
pub fn all_reduce(ranks: usize) -> Plan {
    let mut plan = Plan::new(format!("memory of {ranks}"), ranks, ranks);
    if ranks == 1 {
        return plan;
    }
    for position in 0..ranks {
        let others = || (0..ranks).filter(move |other| *other != position);
        let contribution = |piece: usize, whose: usize| Load::Contributions { pieces: piece..piece + 1, first: whose, count: 1 };
        let result = |piece: usize| Load::Pieces { pieces: piece..piece + 1, brings: ranks };
        let out = others().map(|to| Deed::Send { to, load: contribution(to, position) });
        let back = others().map(|from| Deed::Receive { from, load: contribution(position, from), then: Then::Hold });
        plan.steps[position].push(out.chain(back).collect());
        plan.steps[position].push(vec![Deed::Fold(position..position + 1)]);
        let out = others().map(|to| Deed::Send { to, load: result(position) });
        let back = others().map(|from| Deed::Receive { from, load: result(from), then: Then::Replace });
        plan.steps[position].push(out.chain(back).collect());
    }
    plan
}
