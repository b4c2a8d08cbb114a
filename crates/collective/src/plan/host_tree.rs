//! A tree inside each host, and one over the leaders of the hosts: the way of what cannot be cut into pieces.
//!
//! ```text
//!        0 ═════════ 3        ═  between hosts, one link for each host but the first
//!      ┌─┴─┐       ┌─┴─┐      ─  inside a host
//!      1   2       4   5
//! ```
//! A member's children are those of the [tree] of its own host and then, if it leads the host, the leaders of the
//! hosts below in the tree of hosts. Where hosts stand [in a row](super::hosts::in_a_row) every subtree is a row of neighbours, so
//! folding children in ascending order keeps the order of the group. Where they interleave no tree does both; then
//! [`rows`] takes all members for one host, whose tree keeps the order and crosses more often.
//!
//! Cost for S bytes over h hosts of at most m ranks in base 2: 2(⌈log₂ h⌉ + ⌈log₂ m⌉) steps; h - 1 links between hosts carry S
//! once in each direction, and no other one is used.

use super::hosts::in_a_row;
use super::{Plan, tree};

/// Who tells a position what, and whom it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kin {
    /// None of the root.
    pub parent: Option<usize>,
    /// Ascending where hosts stand in a row.
    pub children: Vec<usize>,
}

/// The hosts among which a tree keeps the order of the group: these, or all members as one where these interleave.
pub fn rows(hosts: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    if in_a_row(&hosts) {
        return hosts;
    }
    vec![(0..hosts.iter().map(Vec::len).sum()).collect()]
}

/// The kin of a position that is on one of `hosts`.
pub fn kin(hosts: &[Vec<usize>], base: u32, position: usize) -> Kin {
    let found = hosts.iter().enumerate().find_map(|(host, members)| Some((host, members.iter().position(|member| *member == position)?)));
    let (host, place) = found.expect("positions are on a host");
    let members = &hosts[host];
    let leader = |host: usize| hosts[host][0];
    let mut children: Vec<usize> = tree::children(place, members.len(), base).into_iter().map(|place| members[place]).collect();
    if place > 0 {
        return Kin { parent: tree::parent(place, base).map(|place| members[place]), children };
    }
    children.extend(tree::children(host, hosts.len(), base).into_iter().map(leader));
    Kin { parent: tree::parent(host, base).map(leader), children }
}

/// An all-reduce over `hosts` that stand in a row: folds go up, the result comes down.
pub fn all_reduce(hosts: &[Vec<usize>], base: u32) -> Plan {
    let ranks = hosts.iter().map(Vec::len).sum();
    let sizes: Vec<String> = hosts.iter().map(|host| host.len().to_string()).collect();
    let mut plan = Plan::new(format!("tree:{base} over hosts {} of {ranks}", sizes.join(",")), ranks, 1);
    let children = |position: usize| kin(hosts, base, position).children;
    tree::up(&mut plan, &children);
    tree::down(&mut plan, &children, ranks);
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_s_own_tree_comes_before_the_hosts_below() {
        let hosts = [vec![0, 1, 2], vec![3], vec![4, 5], vec![6, 7, 8, 9]];
        assert_eq!(kin(&hosts, 2, 0), Kin { parent: None, children: vec![1, 2, 3, 4] });
        assert_eq!(kin(&hosts, 2, 4), Kin { parent: Some(0), children: vec![5, 6] });
        assert_eq!(kin(&hosts, 2, 6), Kin { parent: Some(4), children: vec![7, 8] });
        assert_eq!(kin(&hosts, 2, 8), Kin { parent: Some(6), children: vec![9] });
    }

    #[test]
    fn one_host_and_hosts_that_interleave_have_the_flat_tree() {
        for hosts in [vec![vec![0, 1, 2, 3, 4, 5, 6]], vec![vec![0, 2, 4, 6], vec![1, 3, 5]]] {
            let rows = rows(hosts);
            for (position, base) in (0..7).flat_map(|position| [(position, 2), (position, 3)]) {
                let flat = Kin { parent: tree::parent(position, base), children: tree::children(position, 7, base) };
                assert_eq!(kin(&rows, base, position), flat);
            }
        }
    }
}
