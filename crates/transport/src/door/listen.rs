//! Opens the listening sockets of a door.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, ipproto, listen, socket_with, sockopt};

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
    Ok(Listener { fd, address: Address::Unix(name.to_owned()) })
}

/// Listens at `address`. All of IPv6 (`[::]`) means all of IPv4 too; where a kernel has no IPv6, it means only that.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<Listener> {
    let anywhere = address.ip() == Ipv6Addr::UNSPECIFIED;
    match bind_family(address) {
        Err(error) if anywhere && lacks_ipv6(&error) => bind_family((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        outcome => outcome,
    }
}

fn lacks_ipv6(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

fn bind_family(address: SocketAddr) -> io::Result<Listener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::STREAM, FLAGS, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&fd, true)?; // a restarted job may find connections of its past in TIME_WAIT
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, false)?; // whatever the machine's default is: members offer their IPv4 addresses too
    }
    bind(&fd, &address)?;
    listen(&fd, BACKLOG)?;
    let address = SocketAddr::try_from(getsockname(&fd)?)?;
    Ok(Listener { fd, address: Address::Tcp(address) })
}
