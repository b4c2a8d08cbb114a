//! A socket whose other end has proven the job's token, before it becomes a link.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt;
use syncline_shm::duplex::Duplex;

use crate::framing::Stamp;
use crate::link::{Link, LinkInfo, TransportKind};
use crate::noise::Keys;
use crate::sealed::Session;
use crate::{shm, stream, tcp};

/// An authenticated connection: what a [`Door`](crate::Door) hands over and [`dial`](crate::dial()) returns.
pub struct Connection {
    fd: OwnedFd,
    transport: TransportKind,
    peer: String,
    session: Option<Session>,
}

impl Connection {
    pub(crate) fn new(fd: OwnedFd, transport: TransportKind, peer: String, keys: Option<Keys>, sent: u64, received: u64) -> Connection {
        let session = keys.map(|keys| Session { keys, sent, received });
        Connection { fd, transport, peer, session }
    }

    /// The other end, for logs and errors.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// [`Unix`](TransportKind::Unix) or [`Tcp`](TransportKind::Tcp).
    pub fn transport(&self) -> TransportKind {
        self.transport
    }

    /// Whether what follows is sealed.
    pub fn encrypted(&self) -> bool {
        self.session.is_some()
    }

    /// The process at the other end of a Unix socket (the one that connected, or that listens), as the kernel knows it.
    pub fn peer_pid(&self) -> Option<u32> {
        match self.transport {
            TransportKind::Unix => {
                let credentials = sockopt::socket_peercred(&self.fd).ok()?;
                Some(credentials.pid.as_raw_nonzero().get() as u32)
            }
            _ => None,
        }
    }

    /// A link over memory shared with the other end. The socket stays open as a sign of life.
    pub fn into_shm_link(self, duplex: Duplex, epoch: u32, my_rank: u32) -> Link {
        shm::build(Some(self.fd), duplex, self.peer, Stamp { epoch, rank: my_rank })
    }

    /// A link over this very socket.
    pub fn into_stream_link(self, epoch: u32, my_rank: u32) -> Link {
        let stamp = Stamp { epoch, rank: my_rank };
        match self.transport {
            TransportKind::Tcp => tcp::build(self.fd, self.peer, stamp, self.session),
            transport => {
                let info = LinkInfo { transport, peer: self.peer, encrypted: false };
                stream::clear_link(self.fd, stamp, info)
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("transport", &self.transport)
            .field("peer", &self.peer)
            .field("encrypted", &self.encrypted())
            .finish_non_exhaustive()
    }
}
