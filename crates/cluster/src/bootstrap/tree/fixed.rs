//! Nodes that were all told where node 1 is: torch-ipc's StaticTree.

use super::super::{BootstrapError, Environment, HostSpan, Launch, Meeting, derive};
use super::{listening_at, node_of, settled};

/// Node `node` of `nodes`, whose node 1 listens at `root_host:root_port`.
///
/// The others reach this node at `node_host:node_port`; port 0 lets the system choose. On node 1 that is a second port: where both
/// are the same, the system chooses. Loopback as root means that all nodes share this host, and then no port but the root's is used.
///
/// # Errors
/// A node outside of 1…`nodes`, or no port to find node 1 at.
pub fn fixed(
    environment: &Environment,
    node: u32,
    nodes: u32,
    node_host: &str,
    node_port: u16,
    root_host: &str,
    root_port: u16,
) -> Result<Launch, BootstrapError> {
    let mut launch = node_of(node, nodes, format!("node {node} of {nodes}, told that node 1 is at {root_host}:{root_port}"))?;
    if root_port == 0 && nodes > 1 {
        return Err(BootstrapError::Rendezvous { value: format!("{root_host}:0"), problem: "port 0 cannot be found by the others" });
    }
    if derive::is_loopback(root_host) {
        launch.hosts = HostSpan::One;
    }
    // A name may be spelled differently on each host; the port is the same everywhere.
    launch.job = format!("tree of {nodes} at port {root_port}");
    launch.meeting = Meeting::Tcp { host: root_host.to_owned(), port: root_port, spare_ports: Vec::new() };
    let own_port = if node == 1 && node_port == root_port { 0 } else { node_port };
    launch.door = Some(listening_at(node_host, own_port));
    settled(launch, environment)
}
