//! Which rows of a table live where: contiguous ranges, one per neighbourhood, by its number of servers.

use std::ops::Range;

/// The part of a table that one neighbourhood keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Home {
    /// All ranks of the neighbourhood.
    pub(crate) ranks: Vec<u32>,
    /// Those of them that are servers, ascending; the first one makes the store.
    pub(crate) servers: Vec<u32>,
    pub(crate) rows: Range<u64>,
}

impl Home {
    /// The rank through which `worker` (of rank `rank`) writes here: itself if it lives here, else one of the servers.
    pub(crate) fn owner(&self, worker: u32, rank: u32) -> u32 {
        if self.ranks.contains(&rank) { rank } else { self.servers[worker as usize % self.servers.len()] }
    }
}

/// Cuts `rows` over the neighbourhoods that have servers, each server counting the same.
///
/// Every server gets ⌊rows / servers⌋ or one more; fewer rows than servers leave some with none.
pub(crate) fn homes(rows: u64, neighbourhoods: &[Vec<u32>], is_server: impl Fn(u32) -> bool) -> Vec<Home> {
    let with_servers =
        neighbourhoods.iter().map(|ranks| (ranks, ranks.iter().copied().filter(|rank| is_server(*rank)).collect::<Vec<_>>()));
    let with_servers: Vec<_> = with_servers.filter(|(_, servers)| !servers.is_empty()).collect();
    let all: u128 = with_servers.iter().map(|(_, servers)| servers.len() as u128).sum();
    let cut = |servers: u128| (u128::from(rows) * servers / all.max(1)) as u64;
    let mut before = 0;
    with_servers
        .into_iter()
        .map(|(ranks, servers)| {
            let first = cut(before);
            before += servers.len() as u128;
            Home { ranks: ranks.clone(), servers, rows: first..cut(before) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_by_servers_and_none_is_lost() {
        let cut = |rows, hosts: &[Vec<u32>], servers: &[u32]| {
            homes(rows, hosts, |rank| servers.contains(&rank)).into_iter().map(|home| home.rows).collect::<Vec<_>>()
        };
        let two = [vec![0, 1, 2], vec![3]];
        assert_eq!(cut(100, &two, &[0, 1, 2, 3]), [0..75, 75..100]);
        assert_eq!(cut(100, &two, &[3]), vec![0..100_u64; 1]);
        assert_eq!(cut(1, &two, &[0, 3]), [0..0, 0..1]);
        assert_eq!(cut(0, &two, &[0, 3]), [0..0, 0..0]);
        assert_eq!(cut(u64::MAX, &two, &[0, 3])[1].end, u64::MAX);
    }

    #[test]
    fn workers_elsewhere_are_spread_over_the_servers() {
        let home = Home { ranks: vec![4, 5, 6], servers: vec![5, 6], rows: 0..1 };
        assert_eq!((home.owner(0, 4), home.owner(1, 0), home.owner(2, 1)), (4, 6, 5));
    }
}
