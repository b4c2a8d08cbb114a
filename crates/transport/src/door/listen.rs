//! Opens the listening sockets of a door.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, ipproto, listen,
    socket_with, sockopt,
};

use crate::Address;

/// Callers that the kernel keeps waiting for us: a whole world may knock at once.
const BACKLOG: i32 = 4096;

/// A listening, non-blocking socket and where it really listens.
pub(crate) struct Listener {
    pub(crate) fd: OwnedFd,
    pub(crate) address: Address,
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

pub(crate) fn bind_unix(name: &str) -> io::Result<Listener> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None)?;
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    Ok(Listener {
        fd,
        address: Address::Unix(name.to_owned()),
    })
}

pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let fd = socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?; // a restarted job may find connections of its past in TIME_WAIT
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, true)?; // so that both families can have the same port
    }
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    let address = SocketAddr::try_from(getsockname(&fd)?)?;
    Ok(Listener {
        fd,
        address: Address::Tcp(address),
    })
}
