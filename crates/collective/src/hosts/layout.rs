//! Which members of a group sit where.

use syncline_cluster::Group;

use crate::plan::hosts::in_a_row;

/// Positions by host, hosts in order of their first members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) hosts: Vec<Vec<usize>>,
    /// This rank's host.
    pub(super) host: usize,
    /// This rank's position in the group.
    pub(super) position: usize,
    /// Whether host by host is another order than that of the group.
    pub(super) interleaved: bool,
}

impl Layout {
    pub(super) fn of(group: &Group, neighbourhoods: &[Vec<u32>]) -> Layout {
        let hosts = by_host(group, neighbourhoods);
        let position = group.position();
        let host = hosts.iter().position(|members| members.contains(&position)).expect("everybody has a host");
        Layout { interleaved: !in_a_row(&hosts), hosts, host, position }
    }

    /// The first member of each host.
    pub(super) fn leaders(&self) -> Vec<usize> {
        self.hosts.iter().map(|members| members[0]).collect()
    }

    /// The host of a position, and its place there.
    pub(super) fn place(&self, position: usize) -> (usize, usize) {
        let found = self
            .hosts
            .iter()
            .enumerate()
            .find_map(|(host, members)| members.iter().position(|member| *member == position).map(|place| (host, place)));
        found.expect("positions are in the group")
    }

    /// Members of the largest host.
    pub(super) fn largest(&self) -> usize {
        self.hosts.iter().map(Vec::len).max().unwrap_or_default()
    }

    /// Members on the hosts before this one, on this one, and on all.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let count = |hosts: &[Vec<usize>]| hosts.iter().map(Vec::len).sum();
        (count(&self.hosts[..self.host]), self.hosts[self.host].len(), count(&self.hosts))
    }
}

/// The positions of a group by host, hosts in order of their first members; who is on none of `hosts` is alone on its own.
pub(crate) fn by_host(group: &Group, hosts: &[Vec<u32>]) -> Vec<Vec<usize>> {
    let home = |rank: u32| hosts.iter().position(|ranks| ranks.contains(&rank));
    let mut found: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
    for (position, rank) in group.ranks().iter().enumerate() {
        let home = home(*rank);
        match found.iter_mut().find(|(known, _)| known.is_some() && *known == home) {
            Some((_, members)) => members.push(position),
            None => found.push((home, vec![position])),
        }
    }
    found.into_iter().map(|(_, members)| members).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_in_order_of_their_first_members() {
        let group = Group::new(vec![5, 0, 4, 1, 9], 1).expect("1 is in it");
        let layout = Layout::of(&group, &[vec![0, 1, 2], vec![3, 4, 5]]);
        assert_eq!(layout.hosts, [vec![0, 2], vec![1, 3], vec![4]]);
        assert_eq!((layout.host, layout.leaders(), layout.place(3)), (1, vec![0, 1, 4], (1, 1)));
        assert_eq!((layout.counts(), layout.largest(), layout.interleaved), ((2, 2, 5), 2, true));
        let row = Group::new(vec![5, 4, 0, 1, 9], 1).expect("1 is in it");
        assert!(!Layout::of(&row, &[vec![0, 1, 2], vec![3, 4, 5]]).interleaved);
    }
}
