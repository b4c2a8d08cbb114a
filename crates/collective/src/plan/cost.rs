//! What plans cost, and which one is the cheapest.
//!
//! The model is the usual one: a step costs α however little travels, a byte costs β, and what a rank moves each way shares
//! its wire. So a plan of so many steps in which the busiest rank sends or receives so many bytes takes
//! steps·α + bytes·β. It is asked which plan is better, not how long one takes.
//!
//! α and β are those of the slowest link between neighbours of the group. Its members measure them in the first call that has
//! a choice, round them to powers of two ([`grades`](super::grades)) and agree on them, so all ranks choose alike. Nothing is
//! measured for a plan that is forced or [settled] otherwise.

use std::fmt;

use super::{PlanName, tree};

/// What a plan costs for a given number of ranks and bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Steps on the longest path.
    pub steps: usize,
    /// The most bytes that one rank sends, or receives.
    pub bytes: f64,
}

/// What is known of the links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Seconds that a step takes before the first byte arrives: system calls, wake-ups, the wire.
    pub alpha: f64,
    /// Seconds per byte.
    pub beta: f64,
}

impl Figures {
    /// TCP between hosts of one room, and on one host, as a measure for texts and tests: some 30 µs and 1.5 GB/s.
    pub const TCP: Figures = Figures { alpha: 30e-6, beta: 1.0 / 1.5e9 };
    /// Rings in shared memory.
    pub const MEMORY: Figures = Figures { alpha: 1e-6, beta: 1.0 / 8e9 };
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} µs a step, {:.3} GB/s", self.alpha * 1e6, 1e-9 / self.beta)
    }
}

/// What one segment of a pipeline holds, in bytes.
pub const SEGMENT: usize = 256 << 10;

/// How many pieces a chain cuts an array into.
pub fn chain_pieces(bytes: usize) -> usize {
    bytes.div_ceil(SEGMENT).max(1)
}

/// Up to this size contributions travel with the roll call, whatever they cost there: it is under way anyway.
pub const INLINE: usize = 16 << 10;

/// The most that doubling is chosen to keep in memory, in bytes.
const MOST_HELD: usize = 1 << 20;

impl Cost {
    /// The α-β time in seconds.
    pub fn seconds(&self, figures: Figures) -> f64 {
        self.steps as f64 * figures.alpha + self.bytes * figures.beta
    }

    /// The cost of an all-reduce over links by the plan of this name. Memory and hosts are no plans over links: none.
    pub fn of(name: PlanName, base: u32, ranks: usize, bytes: usize) -> Option<Cost> {
        let size = bytes as f64;
        let share = |pieces: f64| size * pieces / ranks as f64;
        if ranks == 1 && !matches!(name, PlanName::Memory | PlanName::Hosts) {
            return Some(Cost { steps: 0, bytes: 0.0 });
        }
        Some(match name {
            PlanName::Tree { base: own } => {
                let base = own.unwrap_or(base);
                let most = (0..ranks).map(|position| tree::children(position, ranks, base).len() + usize::from(position > 0));
                // A pipelined tree is limited by the rank with the most links, whichever way the bytes go.
                Cost { steps: 2 * tree_rounds(0, ranks, base), bytes: size * most.max().unwrap_or(0) as f64 }
            }
            PlanName::Ring => Cost { steps: 2 * (ranks - 1), bytes: share(2.0 * (ranks - 1) as f64) },
            PlanName::Halving => {
                let power = 1usize << ranks.ilog2();
                let exchanged = 2.0 * size * (power - 1) as f64 / power as f64;
                let extra = usize::from(power < ranks);
                Cost { steps: 2 * power.ilog2() as usize + 2 * extra, bytes: exchanged + size * extra as f64 }
            }
            PlanName::Chain => {
                let pieces = chain_pieces(bytes);
                Cost { steps: 2 * (ranks - 1) + pieces - 1, bytes: if ranks == 2 { size } else { 2.0 * size } }
            }
            PlanName::Doubling => Cost { steps: ranks.next_power_of_two().ilog2() as usize, bytes: size * (ranks - 1) as f64 },
            PlanName::Memory | PlanName::Hosts => return None,
        })
    }
}

/// Rounds until the fold of a subtree is at its root: one per child, each when that child is ready.
fn tree_rounds(position: usize, ranks: usize, base: u32) -> usize {
    tree::children(position, ranks, base).into_iter().fold(0, |now, child| now.max(tree_rounds(child, ranks, base)) + 1)
}

/// Whether doubling may be considered: it keeps all contributions in memory and folds them on every rank, which beyond the
/// caches is no bargain.
fn may_double(bytes: usize, ranks: usize) -> bool {
    bytes.saturating_mul(ranks) <= MOST_HELD
}

/// The plan for an all-reduce over links where there is but one to consider, whatever the links cost.
pub fn settled(bytes: usize, ranks: usize, exact: bool) -> Option<PlanName> {
    match bytes {
        ..=INLINE => Some(PlanName::Doubling),
        _ if ranks == 1 || !exact && !may_double(bytes, ranks) => Some(PlanName::Chain),
        _ => None,
    }
}

/// The cheapest plan for an all-reduce over links. Where the operation is not exact only plans with the bits of the left
/// fold are considered.
pub fn choose(bytes: usize, ranks: usize, exact: bool, base: u32, figures: Figures) -> PlanName {
    if let Some(name) = settled(bytes, ranks, exact) {
        return name;
    }
    let left_fold = [PlanName::Chain].into_iter().chain(Some(PlanName::Doubling).filter(|_| may_double(bytes, ranks)));
    let others = [PlanName::Halving, PlanName::Ring, PlanName::Tree { base: Some(base) }];
    let candidates = left_fold.chain(others.into_iter().filter(|_| exact));
    let time = |name: &PlanName| match (name, Cost::of(*name, base, ranks, bytes)) {
        // Segments overlap, so all but the first cost their bytes only.
        (PlanName::Chain, Some(cost)) => {
            Cost { steps: 2 * (ranks - 1), bytes: cost.bytes + bytes.min(SEGMENT) as f64 * ranks as f64 }.seconds(figures)
        }
        (_, cost) => cost.map_or(f64::INFINITY, |cost| cost.seconds(figures)),
    };
    candidates.min_by(|one, other| time(one).total_cmp(&time(other))).expect("there are candidates")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, chain, check, doubling, halving, ring};

    #[test]
    fn the_formulas_are_what_the_plans_do() {
        let bytes = 1 << 20;
        for ranks in 1..=33 {
            let plans: Vec<(PlanName, Plan)> = [
                (PlanName::Ring, ring::all_reduce(ranks)),
                (PlanName::Halving, halving::all_reduce(ranks)),
                (PlanName::Chain, chain::all_reduce(ranks, chain_pieces(bytes))),
                (PlanName::Doubling, doubling::all_reduce(ranks)),
            ]
            .into_iter()
            .chain([2, 3, 4, 8].map(|base| (PlanName::Tree { base: Some(base) }, tree::all_reduce(ranks, base))))
            .collect();
            for (name, plan) in plans {
                let cost = Cost::of(name, 2, ranks, bytes).expect("a plan over links");
                let outcome = check::run(&plan).expect("a sound plan");
                let most = outcome.sent.iter().chain(&outcome.received).max().copied().unwrap_or(0);
                let moved = most as f64 / plan.pieces as f64 * bytes as f64;
                assert_eq!(cost.steps, outcome.rounds, "{}", plan.title);
                assert!((cost.bytes - moved).abs() < 1.0, "{}: {} and {moved}", plan.title, cost.bytes);
            }
        }
    }

    #[test]
    fn small_arrays_double_large_ones_go_along_the_chain_and_exact_ones_may_go_anywhere() {
        for ranks in [2, 3, 8, 33] {
            assert_eq!(choose(1024, ranks, true, 2, Figures::TCP), PlanName::Doubling);
            assert_eq!(choose(64 << 20, ranks, false, 2, Figures::TCP), PlanName::Chain);
        }
        assert_eq!(choose(64 << 20, 8, true, 2, Figures::TCP), PlanName::Halving);
        assert_eq!(choose(64 << 20, 33, true, 2, Figures::TCP), PlanName::Ring);
    }

    #[test]
    fn far_links_want_few_steps_and_thin_ones_few_bytes() {
        let far = Figures { alpha: 10e-3, ..Figures::TCP };
        let thin = Figures { beta: 1e-6, ..Figures::TCP };
        let chosen = |figures| choose(200 << 10, 4, true, 2, figures);
        assert_eq!([Figures::TCP, far, thin].map(chosen), [PlanName::Halving, PlanName::Doubling, PlanName::Halving]);
        let among_left_folds = |figures| choose(100 << 10, 8, false, 2, figures);
        assert_eq!([far, thin].map(among_left_folds), [PlanName::Doubling, PlanName::Doubling]);
    }

    #[test]
    fn what_is_settled_does_not_depend_on_the_links() {
        for (bytes, ranks, exact) in [(1, 8, true), (INLINE, 2, false), (64 << 20, 3, false), (64 << 20, 1, true)] {
            let name = settled(bytes, ranks, exact).expect("one candidate");
            for figures in [Figures::TCP, Figures::MEMORY, Figures { alpha: 1.0, beta: 1.0 }] {
                assert_eq!(choose(bytes, ranks, exact, 2, figures), name);
            }
        }
        assert_eq!(settled(64 << 20, 3, true), None);
        assert_eq!(settled(INLINE + 1, 3, false), None);
    }
}
