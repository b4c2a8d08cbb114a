//! Up a tree and down again: the plan of torch-ipc, right for every base.
//!
//! Written in the tree's base, a position's parent is itself with its last digit that is not 0 made 0:
//! ```text
//!  base 2, 8 positions          base 4, 8 positions
//!  0 ─┬─ 1                      0 ─┬─ 1
//!     ├─ 2 ─── 3                   ├─ 2
//!     └─ 4 ─┬─ 5                   ├─ 3
//!           └─ 6 ─── 7             └─ 4 ─┬─ 5
//!                                        ├─ 6
//!                                        └─ 7
//! ```
//! Every subtree is a row of neighbours, so folding children in ascending order keeps the order of the group; how it associates
//! depends on the base. Cost for S bytes: 2·⌈log₂ n⌉ steps in base 2; a rank moves S per child and S for its parent, at most
//! ⌈log₂ n⌉·S each way. Wins where a call is short and the links are few and far.

use super::{Plan, Then};

/// The parent of a position; none of the root.
pub fn parent(position: usize, base: u32) -> Option<usize> {
    let base = base as usize;
    let mut place = 1;
    while (position / place).is_multiple_of(base) {
        if position < place {
            return None;
        }
        place *= base;
    }
    Some(position - position / place % base * place)
}

/// The children of a position among `ranks`, ascending.
pub fn children(position: usize, ranks: usize, base: u32) -> Vec<usize> {
    let base = base as usize;
    let mut found = Vec::new();
    let mut place = 1;
    // Digits below the last one that is not 0 are free.
    while position + place < ranks && (position == 0 || (position / place).is_multiple_of(base)) {
        found.extend((1..base).map(|digit| position + digit * place).take_while(|child| *child < ranks));
        place *= base;
    }
    found
}

/// How many positions hang below `position`, itself included: they are the ones that follow it.
pub fn subtree(position: usize, ranks: usize, base: u32) -> usize {
    1 + children(position, ranks, base).into_iter().map(|child| subtree(child, ranks, base)).sum::<usize>()
}

/// An all-reduce: folds go up, the result comes down.
pub fn all_reduce(ranks: usize, base: u32) -> Plan {
    let mut plan = Plan::new(format!("tree:{base} of {ranks}"), ranks, 1);
    let children = |position: usize| children(position, ranks, base);
    up(&mut plan, &children);
    down(&mut plan, &children, ranks);
    plan
}

/// A reduction to `root`: folds go up to position 0, the result from there to the root.
pub fn reduce(ranks: usize, base: u32, root: usize) -> Plan {
    let mut plan = Plan::new(format!("tree:{base} of {ranks} to {root}"), ranks, 1);
    up(&mut plan, &|position| children(position, ranks, base));
    if root != 0 {
        plan.transfer(0, root, 0..1, ranks, Then::Replace);
    }
    plan
}

/// A broadcast from position 0, as one step per child, the largest subtree first.
pub fn broadcast(ranks: usize, base: u32) -> Plan {
    let mut plan = Plan::new(format!("tree:{base} broadcast of {ranks}"), ranks, 1);
    down(&mut plan, &|position| children(position, ranks, base), 1);
    plan
}

/// Folds go up the tree from `children` to parents, who come before them.
pub(super) fn up(plan: &mut Plan, children: &impl Fn(usize) -> Vec<usize>) {
    // Everybody has heard its children before it speaks; a parent hears its children from the first to the last.
    fn visit(plan: &mut Plan, position: usize, children: &impl Fn(usize) -> Vec<usize>) -> usize {
        let mut size = 1;
        for child in children(position) {
            let below = visit(plan, child, children);
            plan.transfer(child, position, 0..1, below, Then::FoldRight);
            size += below;
        }
        size
    }
    visit(plan, 0, children);
}

/// What the root has, with `brings` contributions in it, comes down the tree.
pub(super) fn down(plan: &mut Plan, children: &impl Fn(usize) -> Vec<usize>, brings: usize) {
    for position in 0..plan.ranks {
        for child in children(position).into_iter().rev() {
            plan.transfer(position, child, 0..1, brings, Then::Replace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_two_is_the_tree_of_torch_ipc() {
        let mut links: Vec<(usize, usize)> = (1..8).map(|node| (parent(node, 2).expect("not the root") + 1, node + 1)).collect();
        links.sort_unstable();
        assert_eq!(links, [(1, 2), (1, 3), (1, 5), (3, 4), (5, 6), (5, 7), (7, 8)]);
        assert_eq!(children(0, 8, 2), [1, 2, 4]);
    }

    #[test]
    fn nobody_is_orphaned_in_any_base() {
        for base in 2..=9 {
            for ranks in 1..=82 {
                assert_eq!(subtree(0, ranks, base), ranks, "base {base}, {ranks} ranks");
                for position in 0..ranks {
                    let family = children(position, ranks, base);
                    assert!(family.is_sorted() && family.iter().all(|child| parent(*child, base) == Some(position)));
                }
            }
        }
        assert_eq!(parent(0, 2), None);
    }
}
