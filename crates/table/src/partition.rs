//! Which rows of a table live where: contiguous ranges, one per neighbourhood, by its number of servers.

use std::ops::Range;

use serde::{Deserialize, Serialize};

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
    /// Who claims all memory here of a table that `first`, worker 0, makes by name: it does at home, elsewhere the first server.
    pub(crate) fn maker(&self, first: u32) -> u32 {
        if self.ranks.contains(&first) { first } else { self.servers[0] }
    }

    /// The rank through which `worker` (of rank `rank`) writes here: itself if it lives here, else one of the servers.
    pub(crate) fn owner(&self, worker: u32, rank: u32) -> u32 {
        if self.ranks.contains(&rank) { rank } else { self.servers[worker as usize % self.servers.len()] }
    }
}

/// Where the values of a table live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Rows are cut over the hosts that have servers, by their number.
    #[default]
    Split,
    /// All of them live on the host of one server: number `on`, modulo the number of servers.
    Whole {
        /// Any number, the same on every worker; a hash of the table's name spreads tables evenly.
        on: u64,
    },
}

/// What is left of the homes of all rows when they are placed.
pub(crate) fn placed(homes: Vec<Home>, placement: Placement, rows: u64) -> Vec<Home> {
    let Placement::Whole { on } = placement else { return homes };
    let servers: u64 = homes.iter().map(|home| home.servers.len() as u64).sum();
    let mut left = if servers == 0 { 0 } else { on % servers };
    let holds = |home: &Home| {
        let here = home.servers.len() as u64;
        let found = left < here;
        left = left.wrapping_sub(here);
        found
    };
    let at = homes.iter().position(holds).unwrap_or(0);
    homes.into_iter().nth(at).map(|home| Home { rows: 0..rows, ..home }).into_iter().collect()
}

/// Cuts `rows` over the neighbourhoods that have servers, each server counting the same, between multiples of `grain` rows.
///
/// Every server gets ⌊rows / servers⌋ or about as many; fewer rows than servers leave some with none.
pub(crate) fn homes(rows: u64, grain: u64, neighbourhoods: &[Vec<u32>], is_server: impl Fn(u32) -> bool) -> Vec<Home> {
    let with_servers =
        neighbourhoods.iter().map(|ranks| (ranks, ranks.iter().copied().filter(|rank| is_server(*rank)).collect::<Vec<_>>()));
    let with_servers: Vec<_> = with_servers.filter(|(_, servers)| !servers.is_empty()).collect();
    let all: u128 = with_servers.iter().map(|(_, servers)| servers.len() as u128).sum();
    let cut = |servers: u128| match (u128::from(rows) * servers / all.max(1)) as u64 {
        end if end == rows => rows,
        cut => cut / grain * grain,
    };
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
            homes(rows, 1, hosts, |rank| servers.contains(&rank)).into_iter().map(|home| home.rows).collect::<Vec<_>>()
        };
        let two = [vec![0, 1, 2], vec![3]];
        assert_eq!(cut(100, &two, &[0, 1, 2, 3]), [0..75, 75..100]);
        assert_eq!(cut(100, &two, &[3]), vec![0..100_u64; 1]);
        assert_eq!(cut(1, &two, &[0, 3]), [0..0, 0..1]);
        assert_eq!(cut(0, &two, &[0, 3]), [0..0, 0..0]);
        assert_eq!(cut(u64::MAX, &two, &[0, 3])[1].end, u64::MAX);
    }

    #[test]
    fn cuts_keep_to_the_grain_and_none_is_lost() {
        let hosts = [vec![0], vec![1], vec![2]];
        for (rows, grain) in [(1000, 256), (255, 256), (256, 256), (10_000, 256), (7, 1), (1_000_003, 64)] {
            let homes = homes(rows, grain, &hosts, |_| true);
            assert_eq!((homes[0].rows.start, homes[2].rows.end), (0, rows));
            for pair in homes.windows(2) {
                assert_eq!(pair[0].rows.end, pair[1].rows.start);
                assert!(pair[0].rows.end.is_multiple_of(grain) || pair[0].rows.end == rows);
            }
        }
    }

    #[test]
    fn whole_tables_go_to_one_server_each_in_turn() {
        let hosts = [vec![0, 1, 2], vec![3]];
        let on = |on| {
            let homes = placed(homes(10, 1, &hosts, |rank| rank != 1), Placement::Whole { on }, 10);
            assert_eq!((homes.len(), homes[0].rows.clone()), (1, 0..10));
            homes[0].servers.clone()
        };
        assert_eq!([0, 1, 2, 3, u64::MAX].map(on), [vec![0, 2], vec![0, 2], vec![3], vec![0, 2], vec![0, 2]]);
        assert_eq!(placed(homes(10, 1, &hosts, |_| true), Placement::Split, 10).len(), 2);
    }

    #[test]
    fn workers_elsewhere_are_spread_over_the_servers() {
        let home = Home { ranks: vec![4, 5, 6], servers: vec![5, 6], rows: 0..1 };
        assert_eq!((home.owner(0, 4), home.owner(1, 0), home.owner(2, 1)), (4, 6, 5));
    }
}
