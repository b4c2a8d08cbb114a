//! Inside each host first, then one leader per host: what keeps slow links quiet.
//!
//! ```text
//!        0 ═══════════▶ 4         ═  between hosts: prefix up the chain of leaders, result down
//!      ┌─┴─┐ ◀═════════┌┴┐        ─  inside a host: shared memory
//!      1   2           5 6
//! ```
//! A leader is the first of its host, hosts come in order of their leaders. It folds what its neighbours left in memory onto the
//! prefix one after the other: the left fold over the hosts' members, one host after the other. That is the order of the group where
//! hosts stand [in a row](in_a_row); where they interleave it is not, and this plan serves only what no order shows in (whole numbers,
//! min, max, and, or), all else goes by the chain over all members. Cost for S bytes in K pieces over h hosts of at most m ranks:
//! 2(h-1) + 2(m-1) + K-1 steps; every link between hosts carries S once in each direction.

use super::{Deed, Load, Plan, Then};

/// Whether the members of each host follow each other in the group, so that host by host is the order of the group.
/// ```
/// use syncline_collective::plan::hosts::in_a_row;
///
/// assert!(in_a_row(&[vec![0, 1], vec![2, 3, 4]]));
/// assert!(!in_a_row(&[vec![0, 2], vec![1, 3, 4]])); // dealt out in turn, as `srun --distribution=cyclic` does
/// ```
pub fn in_a_row(hosts: &[Vec<usize>]) -> bool {
    hosts.iter().flatten().is_sorted()
}

/// An all-reduce over `hosts`, the members' positions by host, in `pieces` pieces.
pub fn all_reduce(hosts: &[Vec<usize>], pieces: usize) -> Plan {
    let ranks = hosts.iter().map(Vec::len).sum();
    let sizes: Vec<String> = hosts.iter().map(|host| host.len().to_string()).collect();
    let mut plan = Plan::new(format!("hosts {} of {ranks}", sizes.join(",")), ranks, pieces);
    let mut before = 0;
    let last = hosts.len() - 1;
    for (place, host) in hosts.iter().enumerate() {
        let leader = host[0];
        for piece in 0..pieces {
            let load = |brings| Load::Pieces { pieces: piece..piece + 1, brings };
            let steps = &mut plan.steps[leader];
            if place > 0 {
                steps.push(vec![Deed::Receive { from: hosts[place - 1][0], load: load(before), then: Then::FoldLeft }]);
            }
            steps.extend(host[1..].iter().map(|member| vec![Deed::Receive { from: *member, load: load(1), then: Then::FoldRight }]));
            if place < last {
                steps.push(vec![Deed::Send { to: hosts[place + 1][0], load: load(before + host.len()) }]);
            }
        }
        // Results come back behind all prefixes in program order; a runner need not wait for that.
        for piece in 0..pieces {
            let load = || Load::Pieces { pieces: piece..piece + 1, brings: ranks };
            let steps = &mut plan.steps[leader];
            if place < last {
                steps.push(vec![Deed::Receive { from: hosts[place + 1][0], load: load(), then: Then::Replace }]);
            }
            let mut told: Vec<usize> = host[1..].to_vec();
            told.extend((place > 0).then(|| hosts[place - 1][0]));
            if !told.is_empty() {
                steps.push(told.into_iter().map(|to| Deed::Send { to, load: load() }).collect());
            }
        }
        for member in &host[1..] {
            for piece in 0..pieces {
                plan.steps[*member].push(vec![Deed::Send { to: leader, load: Load::Pieces { pieces: piece..piece + 1, brings: 1 } }]);
            }
            for piece in 0..pieces {
                let load = Load::Pieces { pieces: piece..piece + 1, brings: ranks };
                plan.steps[*member].push(vec![Deed::Receive { from: leader, load, then: Then::Replace }]);
            }
        }
        before += host.len();
    }
    plan
}
