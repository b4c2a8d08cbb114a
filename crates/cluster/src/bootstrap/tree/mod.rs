//! Launches that a program describes itself: the constructors of trees.
//!
//! | constructor | node 1 | the others |
//! |---|---|---|
//! | [`localhost`] | writes a file that only this user reads, named after a common process id | wait for it |
//! | [`fixed`] | listens at an address that all were told | dial it |
//! | [`discovered`] | takes a port and publishes it through the program | ask the program until it knows |
//! | [`slurm`] | meets through PMI or a file on shared storage, named after job, step and restart | the same |
//!
//! Each describes how to join and joins nobody. Nodes are numbered from 1, as trees always did; ranks from 0.
//! The token is `SYNCLINE_TOKEN`; without it a file or PMI carries a random one, and elsewhere it is derived from the user's key.

mod discovered;
mod fixed;
mod localhost;
mod slurm;

pub use discovered::{Reservation, discovered};
pub use fixed::fixed;
pub(super) use localhost::LOCALHOST_NAMES;
pub use localhost::localhost;
pub use slurm::{SlurmNode, slurm};

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::explicit::Wishes;
use super::{BootstrapError, Environment, Launch, Launcher, TokenOrigin, derive};

/// A launch of node `node` of `nodes`, about which nothing else is known yet.
fn node_of(node: u32, nodes: u32, because: String) -> Result<Launch, BootstrapError> {
    if node == 0 || node > nodes {
        return Err(BootstrapError::NoSuchNode { node, nodes });
    }
    Ok(Launch::new(Launcher::Tree, node - 1, nodes, because))
}

/// What every constructor ends with: a tree of one meets nobody, and the token is given or found.
fn settled(mut launch: Launch, environment: &Environment) -> Result<Launch, BootstrapError> {
    launch.settle_hosts()?;
    launch.token = match Wishes::read(environment)?.token {
        Some(token) => TokenOrigin::Given(token),
        None => launch.token_origin(environment),
    };
    Ok(launch)
}

/// Where to listen when told to be reachable at `host`: a number means that interface; a name may resolve to 127.0.1.1
/// on its own host, so it means all of them.
fn listening_at(host: &str, port: u16) -> SocketAddr {
    let everywhere = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let loopback = IpAddr::from([127, 0, 0, 1]);
    let otherwise = if derive::is_loopback(host) { loopback } else { everywhere };
    SocketAddr::new(host.parse().unwrap_or(otherwise), port)
}
