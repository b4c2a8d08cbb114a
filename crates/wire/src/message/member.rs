//! Who a member of the job is and where it can be reached.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::cap;
use crate::error::Result;

/// The longest name of a host, of a Unix socket or of a launcher, in bytes.
pub const MAX_NAME: usize = 255;
/// The most addresses a member may offer.
pub const MAX_ADDRESSES: usize = 64;
/// The most members a job may have.
pub const MAX_ROSTER: usize = 65_536;

/// What makes two processes neighbours that can share memory: one running kernel, one network namespace.
///
/// A host name is no such thing: containers share it, and clones of a virtual machine keep it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct HostId {
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// The inode of the network namespace.
    pub network: u64,
}

/// What a member does in the job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "u8", try_from = "u8")]
#[repr(u8)]
pub enum RoleCode {
    /// Computes, holds no shard.
    Worker = 1,
    /// Holds shards, does not compute.
    Server = 2,
    /// Does both, as is the default.
    Both = 3,
}

impl RoleCode {
    /// Whether it computes.
    pub fn works(self) -> bool {
        self != RoleCode::Server
    }

    /// Whether it holds shards.
    pub fn serves(self) -> bool {
        self != RoleCode::Worker
    }
}

impl From<RoleCode> for u8 {
    fn from(role: RoleCode) -> u8 {
        role as u8
    }
}

impl TryFrom<u8> for RoleCode {
    type Error = &'static str;

    fn try_from(code: u8) -> Result<RoleCode, &'static str> {
        match code {
            1 => Ok(RoleCode::Worker),
            2 => Ok(RoleCode::Server),
            3 => Ok(RoleCode::Both),
            _ => Err("roles are 1 (worker), 2 (server) and 3 (both)"),
        }
    }
}

/// One member as the others know it. While it asks to join, its rank may still be open: `MemberInfo<Option<u32>>`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberInfo<R = u32> {
    /// Its number in the job.
    pub rank: R,
    /// What it does.
    pub role: RoleCode,
    /// Its process id, as its own host sees it.
    pub pid: u32,
    /// The inode of the namespace in which that id means something; 0 if the system does not say.
    pub pid_space: u64,
    /// Where it runs, for deciding who shares memory with whom.
    pub host: HostId,
    /// Where it runs, for people to read.
    pub host_name: String,
    /// The abstract Unix socket it listens on for its neighbours; empty if there is none.
    pub unix_name: String,
    /// Every address at which another host might reach it, to be tried in this order.
    pub addresses: Vec<SocketAddr>,
    /// Drawn at random when the process joined, so that a restarted process is never taken for its predecessor.
    pub instance: [u8; 16],
    /// Its number on its host according to the launcher, if that said so.
    pub local_rank_hint: Option<u32>,
}

impl<R> MemberInfo<R> {
    /// The same member with another rank, as the coordinator decides it.
    pub fn with_rank<S>(self, rank: S) -> MemberInfo<S> {
        MemberInfo {
            rank,
            role: self.role,
            pid: self.pid,
            pid_space: self.pid_space,
            host: self.host,
            host_name: self.host_name,
            unix_name: self.unix_name,
            addresses: self.addresses,
            instance: self.instance,
            local_rank_hint: self.local_rank_hint,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        cap("host name", self.host_name.len(), MAX_NAME)?;
        cap("name of a Unix socket", self.unix_name.len(), MAX_NAME)?;
        cap(
            "list of a member's addresses",
            self.addresses.len(),
            MAX_ADDRESSES,
        )
    }
}
