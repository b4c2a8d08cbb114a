//! Nodes whose program knows a place to leave an address: a database, a name service, a queue.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use syncline_shm::wait::Deadline;

use super::super::{BootstrapError, Environment, Launch};
use super::{fixed, listening_at};

/// How often a node asks: often at first, then seldom enough for a thousand of them.
const FIRST_QUESTION: Duration = Duration::from_millis(5);
const LATER_QUESTION: Duration = Duration::from_millis(200);

/// A port that is taken and not yet listened on. It stays ours until its last copy is dropped, and a listener of this process may have it.
#[derive(Debug, Clone)]
pub struct Reservation {
    _socket: Arc<OwnedFd>,
}

/// Node `node` of `nodes`: node 1 takes `node_host:node_port` (port 0: any) and calls `publish(host, port)`, the others call
/// `query()` until it answers or `deadline` passes.
///
/// # Errors
/// A node outside of 1…`nodes`, a port that is taken, nothing published in time, or why `publish` could not: then nobody would ever come.
#[expect(clippy::too_many_arguments, reason = "the constructor's own, as users of trees know them, and how long to wait")]
pub fn discovered(
    environment: &Environment,
    node: u32,
    nodes: u32,
    node_host: &str,
    node_port: u16,
    publish: impl FnOnce(&str, u16) -> Result<(), String>,
    query: impl FnMut() -> Option<(String, u16)>,
    deadline: Deadline,
) -> Result<Launch, BootstrapError> {
    if node != 1 || nodes == 1 {
        let (host, port) = if node == 1 || node == 0 || node > nodes { Default::default() } else { ask(node, nodes, query, deadline)? };
        return fixed(environment, node, nodes, node_host, node_port, &host, port);
    }
    let (reservation, port) = reserve(listening_at(node_host, node_port))
        .map_err(|source| BootstrapError::PortTaken { address: format!("{node_host}:{node_port}"), source })?;
    let mut launch = fixed(environment, node, nodes, node_host, port, node_host, port)?;
    launch.reserved = Some(reservation);
    publish(node_host, port).map_err(|reason| BootstrapError::NotPublished { address: format!("{node_host}:{port}"), nodes, reason })?;
    Ok(launch)
}

fn ask(
    node: u32,
    nodes: u32,
    mut query: impl FnMut() -> Option<(String, u16)>,
    deadline: Deadline,
) -> Result<(String, u16), BootstrapError> {
    let began = Instant::now();
    let mut pause = FIRST_QUESTION;
    loop {
        if let Some(found) = query() {
            return Ok(found);
        }
        if deadline.interrupted() || deadline.expired() {
            let interrupted = deadline.interrupted();
            return Err(BootstrapError::NothingPublished { node, nodes, waited: began.elapsed(), interrupted });
        }
        std::thread::sleep(deadline.slice(pause)); // Nobody can wake us: what we wait for is the program's own.
        pause = (pause * 2).min(LATER_QUESTION);
    }
}

/// Binds without listening. The kernel gives such a port to nobody else, except to a socket that asks for this very number and
/// shares addresses as this one does: the coordinator's listener.
fn reserve(address: SocketAddr) -> io::Result<(Reservation, u16)> {
    let bound = match bind(address) {
        Err(error) if address.is_ipv6() && address.ip().is_unspecified() && error == rustix::io::Errno::AFNOSUPPORT => {
            bind(SocketAddr::from(([0, 0, 0, 0], address.port())))
        }
        bound => bound,
    };
    let socket = bound?;
    let port = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?.port();
    Ok((Reservation { _socket: Arc::new(socket) }, port))
}

fn bind(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, rustix::net::SocketFlags::CLOEXEC, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}
