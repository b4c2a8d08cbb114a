//! Links over TCP: between hosts, sealed unless both sides say otherwise.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use syncline_metrics::LinkStats;

use crate::framing::{self, Bytes, Stamp};
use crate::link::{Link, LinkInfo, TransportKind};
use crate::sealed::{SealedInlet, SealedOutlet, Session};
use crate::stream::{self, Socket};

/// An idle connection is probed after this long, so that a host that vanished is noticed although nothing is sent.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// How long sent bytes may stay unacknowledged, or the peer's window closed, before the kernel gives the connection up.
///
/// Longer than a job's usual timeout on purpose: a peer that lives but does not read for this long is killed too,
/// and the deadlines of the calls above are the ones that should speak first.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

/// Sets what every TCP socket of Syncline wants.
pub(crate) fn prepare(socket: impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(&socket, PROBE_EVERY)?;
    sockopt::set_tcp_user_timeout(&socket, GIVE_UP_AFTER.as_millis() as u32)?;
    Ok(())
}

/// A link over a connected TCP socket, not sealed. For sealed ones go through a door.
pub fn link(fd: OwnedFd, peer: impl Into<String>, epoch: u32, rank: u32) -> io::Result<Link> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    prepare(&fd)?;
    Ok(build(fd, peer.into(), Stamp { epoch, rank }, None))
}

pub(crate) fn build(fd: OwnedFd, peer: String, stamp: Stamp, session: Option<Session>) -> Link {
    let info = LinkInfo {
        transport: TransportKind::Tcp,
        peer,
        encrypted: session.is_some(),
    };
    match session {
        None => stream::clear_link(fd, stamp, info),
        Some(session) => {
            let socket = Arc::new(Socket::new(fd));
            let wake = stream::waker(&socket);
            let stats = Arc::new(LinkStats::new());
            let (outgoing, incoming) = session.split();
            let outlet = SealedOutlet::new(Arc::clone(&socket), outgoing, Arc::clone(&stats));
            let inlet = Bytes::new(SealedInlet::new(socket, incoming, Arc::clone(&stats)));
            framing::link(outlet, inlet, stamp, info, stats, wake)
        }
    }
}
