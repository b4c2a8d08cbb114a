//! Recursive halving and doubling: partners swap halves, then quarters, and the way back.
//!
//! ```text
//!  4 ranks, 4 pieces       with 1 away: halves     with 2 away: quarters    then the same exchanges backwards, with results
//!  0 ⇄ 1, 2 ⇄ 3                                    0 ⇄ 2, 1 ⇄ 3
//! ```
//! Who is too many for a power of two folds into its neighbour first and hears the result at the end. Cost for S bytes and
//! n = 2ᵏ ranks: 2k steps; a rank sends and receives 2·S·(n-1)/n. Otherwise two steps more, and up to S more each way. The order of
//! the group is kept, and the folds associate as those of the binomial tree do where n is a power of two.

use super::{Deed, Load, Plan, Then};

/// An all-reduce in as many pieces as the largest power of two that is not above `ranks`.
pub fn all_reduce(ranks: usize) -> Plan {
    let pieces = 1 << ranks.ilog2();
    let mut plan = Plan::new(format!("halving of {ranks}"), ranks, pieces);
    let extra = ranks - pieces;
    // Of the first 2·extra positions every second one folds into the one before it.
    let place = |player: usize| if player < extra { 2 * player } else { player + extra };
    for player in 0..extra {
        plan.transfer(place(player) + 1, place(player), 0..pieces, 1, Then::FoldRight);
    }
    // How many contributions players first..first + count stand for.
    let weight = |first: usize, count: usize| count + extra.saturating_sub(first).min(count);
    for player in 0..pieces {
        let mut mine = 0..pieces;
        let mut back = Vec::new();
        let mut away = 1;
        while away < pieces {
            let partner = player ^ away;
            let middle = (mine.start + mine.end) / 2;
            let (kept, given) =
                if player < partner { (mine.start..middle, middle..mine.end) } else { (middle..mine.end, mine.start..middle) };
            let block = player / away * away;
            let brings = |block: usize| weight(block, away);
            let peer = place(partner);
            let then = if partner < player { Then::FoldLeft } else { Then::FoldRight };
            plan.steps[place(player)].push(vec![
                Deed::Send { to: peer, load: Load::Pieces { pieces: given.clone(), brings: brings(block) } },
                Deed::Receive { from: peer, load: Load::Pieces { pieces: kept.clone(), brings: brings(block ^ away) }, then },
            ]);
            back.push(vec![
                Deed::Send { to: peer, load: Load::Pieces { pieces: kept.clone(), brings: ranks } },
                Deed::Receive { from: peer, load: Load::Pieces { pieces: given, brings: ranks }, then: Then::Replace },
            ]);
            mine = kept;
            away *= 2;
        }
        plan.steps[place(player)].extend(back.into_iter().rev());
    }
    for player in 0..extra {
        plan.transfer(place(player), place(player) + 1, 0..pieces, ranks, Then::Replace);
    }
    plan
}
