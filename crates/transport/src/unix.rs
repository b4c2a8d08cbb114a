//! Links over Unix sockets: the fall-back inside a host, where memory cannot be shared.
//!
//! Cost: a payload is copied into the kernel and out of it. Nothing is sealed, since nobody can listen.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::framing::Stamp;
use crate::link::{Link, LinkInfo, TransportKind};
use crate::stream;

/// A link over one end of a connected Unix stream socket.
pub fn link(fd: OwnedFd, peer: impl Into<String>, epoch: u32, rank: u32) -> io::Result<Link> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    let info = LinkInfo { transport: TransportKind::Unix, peer: peer.into(), encrypted: false };
    Ok(stream::clear_link(fd, Stamp { epoch, rank }, info))
}

/// Two connected links in one process, of ranks 0 and 1 of `epoch`.
pub fn pair(epoch: u32) -> io::Result<(Link, Link)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (zero, one) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((link(zero, "rank 1 of this process", epoch, 0)?, link(one, "rank 0 of this process", epoch, 1)?))
}
