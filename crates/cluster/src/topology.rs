//! Who sits where: the members of a job grouped by host.
//!
//! Two ranks share a host when they run under the same kernel *and* in the same network namespace, because only
//! then can they meet on an abstract Unix socket and share memory. The host's name is a label, never a criterion:
//! names repeat, and many resolve to 127.0.1.1.

use std::fmt;

use syncline_wire::message::{HostId, MemberInfo};

use crate::{Role, Who};

/// The members of a job and the hosts they run on, the same on every rank.
#[derive(Debug, Clone)]
pub struct Topology {
    members: Vec<MemberInfo>,
    hosts: Vec<Host>,
    host_of: Vec<usize>,
}

/// One machine of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// What it calls itself; only for people.
    pub name: String,
    /// Its ranks, ascending. The first one leads: it makes the host's board and speaks for it to other hosts.
    pub ranks: Vec<u32>,
}

impl Topology {
    /// Groups a complete roster, which must be sorted by rank without gaps. Hosts are ordered by their lowest rank.
    pub(crate) fn new(members: Vec<MemberInfo>) -> Self {
        debug_assert!(members.iter().enumerate().all(|(index, member)| member.rank as usize == index));
        let mut ids: Vec<&HostId> = Vec::new();
        let mut hosts: Vec<Host> = Vec::new();
        let mut host_of = Vec::with_capacity(members.len());
        for member in &members {
            let index = ids.iter().position(|id| **id == member.host).unwrap_or_else(|| {
                ids.push(&member.host);
                hosts.push(Host { name: member.host_name.clone(), ranks: Vec::new() });
                hosts.len() - 1
            });
            hosts[index].ranks.push(member.rank);
            host_of.push(index);
        }
        Topology { members, hosts, host_of }
    }

    /// How many ranks the job has.
    pub fn world(&self) -> u32 {
        self.members.len() as u32
    }

    /// The hosts of the job, ordered by their lowest rank.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The index in [`hosts`](Self::hosts) of the host that `rank` runs on.
    pub fn host_of(&self, rank: u32) -> usize {
        self.host_of[rank as usize]
    }

    /// Whether two ranks can share memory.
    pub fn same_host(&self, a: u32, b: u32) -> bool {
        self.host_of(a) == self.host_of(b)
    }

    /// The position of `rank` among the ranks of its host.
    pub fn local_rank(&self, rank: u32) -> u32 {
        let host = &self.hosts[self.host_of(rank)];
        host.ranks.iter().position(|other| *other == rank).expect("a rank is listed on its own host") as u32
    }

    /// `rank` with its host and process id, as errors name it.
    pub fn who(&self, rank: u32) -> Who {
        let member = &self.members[rank as usize];
        Who { rank, host: member.host_name.clone(), pid: member.pid }
    }

    /// What `rank` does in the job.
    pub fn role(&self, rank: u32) -> Role {
        crate::roster::role(self.members[rank as usize].role)
    }

    /// The ranks that are workers, ascending: position in this list is the worker id.
    pub fn workers(&self) -> Vec<u32> {
        self.in_role(Role::works)
    }

    /// The ranks that hold shards, ascending: position in this list is the server id.
    pub fn servers(&self) -> Vec<u32> {
        self.in_role(Role::serves)
    }

    pub(crate) fn member(&self, rank: u32) -> &MemberInfo {
        &self.members[rank as usize]
    }

    fn in_role(&self, wanted: fn(Role) -> bool) -> Vec<u32> {
        (0..self.world()).filter(|rank| wanted(self.role(*rank))).collect()
    }
}

/// A picture for people, one line per host.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        writeln!(f, "{} on {}", plural(self.members.len(), "rank"), plural(self.hosts.len(), "host"))?;
        for (index, host) in self.hosts.iter().enumerate() {
            let branch = if index + 1 == self.hosts.len() { "└─" } else { "├─" };
            let ranks: Vec<String> = host.ranks.iter().map(|rank| self.seat(*rank)).collect();
            writeln!(f, "{branch} {}: {}", host.name, ranks.join("  "))?;
        }
        Ok(())
    }
}

impl Topology {
    fn seat(&self, rank: u32) -> String {
        let note = match self.role(rank) {
            Role::Both | Role::Coordinator => "",
            Role::Worker => ", worker",
            Role::Server => ", server",
        };
        format!("{rank} (pid {}{note})", self.members[rank as usize].pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::tests::member_on;

    fn layout(hosts: &[u64]) -> Topology {
        Topology::new(hosts.iter().enumerate().map(|(rank, host)| member_on(rank as u32, *host)).collect())
    }

    #[test]
    fn ranks_are_grouped_by_host_in_order_of_their_lowest_rank() {
        let topology = layout(&[7, 3, 7, 3, 3]);
        assert_eq!(topology.hosts().iter().map(|host| host.ranks.clone()).collect::<Vec<_>>(), [vec![0, 2], vec![1, 3, 4]]);
        assert_eq!(topology.local_rank(4), 2);
        assert!(topology.same_host(0, 2) && !topology.same_host(0, 1));
    }

    #[test]
    fn the_picture_names_hosts_ranks_and_processes() {
        let picture = layout(&[7, 3, 7]).to_string();
        assert_eq!(picture, "3 ranks on 2 hosts\n├─ host7: 0 (pid 100)  2 (pid 102)\n└─ host3: 1 (pid 101)\n");
    }
}
