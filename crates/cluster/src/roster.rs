//! How a process introduces itself to the coordinator, and through it to everybody.

use std::fs;
use std::net::SocketAddr;

use syncline_transport::Door;
use syncline_wire::message::{HostId, MAX_NAME, MemberInfo, RoleCode};

use crate::bootstrap::Launch;
use crate::Role;
use crate::bootstrap::address::{host_identity, host_label};

/// This process, as the others will know it, reachable from other hosts at `addresses`.
pub(crate) fn introduce(launch: &Launch, door: &Door, instance: [u8; 16], addresses: Vec<SocketAddr>) -> MemberInfo<Option<u32>> {
    MemberInfo {
        rank: launch.rank,
        role: code(launch.role),
        pid: std::process::id(),
        pid_space: pid_space(),
        host: host_identity(),
        host_name: host_name(),
        unix_name: door.unix_name().unwrap_or_default().to_owned(),
        addresses,
        instance,
        local_rank_hint: launch.local_rank,
    }
}

/// A member of a world of one.
pub(crate) fn introduce_alone() -> MemberInfo {
    MemberInfo {
        rank: 0,
        role: code(Role::Both),
        pid: std::process::id(),
        pid_space: pid_space(),
        host: HostId { boot: [0; 16], network: 0 },
        host_name: host_name(),
        unix_name: String::new(),
        addresses: Vec::new(),
        instance: [0; 16],
        local_rank_hint: None,
    }
}

/// The namespace in which this process's id means something; zero when the system does not say.
pub(crate) fn pid_space() -> u64 {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap_or(0)
}

fn host_name() -> String {
    let mut name = host_label();
    while name.len() > MAX_NAME {
        name.pop();
    }
    name
}

fn code(role: Role) -> RoleCode {
    match role {
        Role::Worker => RoleCode::Worker,
        Role::Server => RoleCode::Server,
        Role::Both | Role::Coordinator => RoleCode::Both,
    }
}

/// What the others' role code means here.
pub(crate) fn role(code: RoleCode) -> Role {
    match code {
        RoleCode::Worker => Role::Worker,
        RoleCode::Server => Role::Server,
        RoleCode::Both => Role::Both,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up member of the host with number `host`.
    pub(crate) fn member_on(rank: u32, host: u64) -> MemberInfo {
        MemberInfo {
            rank,
            pid: 100 + rank,
            host: HostId { boot: [1; 16], network: host },
            host_name: format!("host{host}"),
            ..introduce_alone()
        }
    }
}
