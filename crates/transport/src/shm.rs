//! Links over memory shared with a neighbour: the path inside a host.
//!
//! Header, meta and payloads up to 16 KiB are one record of a ring; larger payloads go through an arena. Either way a payload is
//! copied in by the sender and out by the receiver, large ones in pieces that overlap. Nobody is woken who is not asleep.
//!
//! Memory does not tell when its other user dies. The Unix socket over which the memory was handed over does: it is kept, and
//! asked (one `poll` that does not wait) in the slow path of waits only.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socketpair};
use syncline_metrics::{Counter, LinkStats};
use syncline_shm::duplex::{self, Duplex, DuplexError, OpenError};
use syncline_shm::segment::SegmentError;
use syncline_wire::{FrameHeader, HEADER_LEN, Limits, WireError};

use crate::framing::{Inlet, Outlet, Stamp, Stopped, link, zeroed};
use crate::link::{Head, Link, LinkInfo, TransportKind};
use crate::stream::Socket;
use crate::{Address, Connection, Deadline, DialConfig, DialError, LinkError, dial};

/// Makes shared memory, dials the neighbour at `address` (a Unix one) and hands it over with the hello.
///
/// The other side passes what its door reports to [`accept_link`].
pub fn dial_link(
    address: &Address,
    config: &DialConfig,
    hello: &[u8],
    epoch: u32,
    my_rank: u32,
    deadline: Deadline,
) -> Result<Link, ShmError> {
    let (duplex, fd) = Duplex::create()?;
    let connection = dial::dial_until(address, config, hello, Some(fd.as_fd()), deadline)?;
    Ok(connection.into_shm_link(duplex, epoch, my_rank))
}

/// The other end of [`dial_link`]: `connection` and `fd` come from a door's visitor.
pub fn accept_link(connection: Connection, fd: OwnedFd, epoch: u32, my_rank: u32) -> Result<Link, ShmError> {
    let duplex = Duplex::open(fd)?;
    Ok(connection.into_shm_link(duplex, epoch, my_rank))
}

/// Two connected links in one process, of ranks 0 and 1 of `epoch`.
pub fn pair(epoch: u32) -> Result<(Link, Link), ShmError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (zero, one) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(std::io::Error::from)?;
    let (duplex, fd) = Duplex::create()?;
    let other = Duplex::open(fd)?;
    Ok((
        build(Some(zero), duplex, "rank 1 of this process".to_owned(), Stamp { epoch, rank: 0 }),
        build(Some(one), other, "rank 0 of this process".to_owned(), Stamp { epoch, rank: 1 }),
    ))
}

/// Why memory could not be shared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmError {
    /// No memory.
    #[error(transparent)]
    Memory(#[from] SegmentError),
    /// What came is not memory for a link.
    #[error("the descriptor that came with the hello cannot be used")]
    Open(#[from] OpenError),
    /// The neighbour was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// No socket pair.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

pub(crate) fn build(probe: Option<OwnedFd>, duplex: Duplex, peer: String, stamp: Stamp) -> Link {
    let probe = Arc::new(Probe(probe.map(Socket::new)));
    let waker = duplex.waker();
    let watched = Arc::downgrade(&probe);
    let wake = move || {
        waker.sever();
        if let Some(probe) = watched.upgrade() {
            probe.shut(Shutdown::Both); // so that the neighbour notices too
        }
    };
    let (outlet, inlet) = duplex.split();
    let stats = Arc::new(LinkStats::new());
    let outlet = DuplexOutlet { stats: Arc::clone(&stats), duplex: outlet, probe: Arc::clone(&probe) };
    let inlet = DuplexInlet { stats: Arc::clone(&stats), duplex: inlet, probe, head: Vec::new(), staged: Vec::new(), given: 0 };
    let info = LinkInfo { transport: TransportKind::Shm, peer, encrypted: false };
    link(outlet, inlet, stamp, info, stats, wake)
}

/// The socket that ends when the neighbour does.
struct Probe(Option<Socket>);

impl Probe {
    /// Whether none of `ends` has happened to the socket.
    fn none_of(&self, ends: PollFlags) -> bool {
        let Some(socket) = &self.0 else { return true };
        let mut asked = [PollFd::new(socket, ends)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut asked, Some(&at_once)) {
            Ok(0) | Err(_) => true,
            Ok(_) => !asked[0].revents().intersects(ends | PollFlags::HUP | PollFlags::ERR),
        }
    }

    fn shut(&self, how: Shutdown) {
        if let Some(socket) = &self.0 {
            socket.shut(how);
        }
    }
}

/// One call's look at the neighbour: asked in the slow path only, which is also where the clock is read.
struct Watch<'a> {
    probe: &'a Probe,
    ends: PollFlags,
    since: Cell<Option<Instant>>,
    sleeps: &'a Counter,
}

impl<'a> Watch<'a> {
    fn new(probe: &'a Probe, ends: PollFlags, sleeps: &'a Counter) -> Watch<'a> {
        Watch { probe, ends, since: Cell::new(None), sleeps }
    }

    fn still_there(&self) -> bool {
        if self.since.get().is_none() {
            self.since.set(Some(Instant::now()));
            self.sleeps.increment();
        }
        self.probe.none_of(self.ends)
    }

    fn waited(&self) -> Duration {
        self.since.get().map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// What an error of the duplex means for a call that waited so long.
fn fault(error: DuplexError, waited: Duration) -> LinkError {
    match error {
        DuplexError::Timeout => LinkError::Timeout { waited, half_written: false },
        DuplexError::Interrupted => LinkError::Interrupted,
        DuplexError::Gone => LinkError::PeerGone { detail: "its process ended or left the shared memory".to_owned() },
        DuplexError::Broken => LinkError::Broken { since: "a frame could only be moved in part" },
        DuplexError::WrongLength { body, buffer } => LinkError::WrongLength { expected: body, got: buffer as u64 },
        DuplexError::HeadTooLong { len } => {
            LinkError::Corrupt(WireError::TooLarge { part: "meta", len: len as u64, max: duplex::LONGEST_HEAD as u64 })
        }
        other => LinkError::Io(std::io::Error::other(other)),
    }
}

struct DuplexOutlet {
    stats: Arc<LinkStats>,
    duplex: duplex::Outlet,
    probe: Arc<Probe>,
}

impl Outlet for DuplexOutlet {
    const IN_MEMORY: bool = true;
    const IN_PIECES: bool = false;

    fn write_all(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], deadline: Deadline) -> Result<(), Stopped> {
        let watch = Watch::new(&self.probe, PollFlags::HUP, &self.stats.send_parks);
        let sent = self.duplex.send(&[header, meta], payload, deadline, &|| watch.still_there());
        sent.map_err(|error| Stopped { error: fault(error, watch.waited()), half_written: self.duplex.is_broken() })
    }

    fn abandon(&mut self) {
        // The neighbour's receiver takes this for the end; its sender goes on, as ours asks for both directions.
        self.probe.shut(Shutdown::Write);
    }
}

struct DuplexInlet {
    stats: Arc<LinkStats>,
    duplex: duplex::Inlet,
    probe: Arc<Probe>,
    head: Vec<u8>,
    // A body that is read in pieces is fetched whole first.
    staged: Vec<u8>,
    given: usize,
}

impl DuplexInlet {
    const ENDS: PollFlags = PollFlags::HUP.union(PollFlags::RDHUP);
}

impl Inlet for DuplexInlet {
    fn next_head(&mut self, limits: &Limits, deadline: Deadline) -> Result<Head, LinkError> {
        (self.staged, self.given) = (Vec::new(), 0);
        let watch = Watch::new(&self.probe, DuplexInlet::ENDS, &self.stats.parks);
        let received = self.duplex.recv_head(&mut self.head, deadline, &|| watch.still_there());
        let body = received.map_err(|error| fault(error, watch.waited()))?;
        let Some((header, meta)) = self.head.split_first_chunk::<HEADER_LEN>() else {
            let (needed, available) = (HEADER_LEN as u64, self.head.len() as u64);
            return Err(WireError::Truncated { part: "header", at: available, needed, available }.into());
        };
        let header = FrameHeader::decode_in_memory(header, limits)?;
        header.check_meta_len(meta)?;
        if header.payload_len != body {
            return Err(WireError::PartLength { part: "payload", announced: header.payload_len, given: body }.into());
        }
        Ok(Head { header, meta: meta.to_vec() })
    }

    fn read_body(&mut self, buffer: &mut [u8], left: u64, deadline: Deadline) -> Result<usize, LinkError> {
        if self.staged.is_empty() {
            let watch = Watch::new(&self.probe, DuplexInlet::ENDS, &self.stats.parks);
            let in_one_go = buffer.len() as u64 == left;
            if !in_one_go {
                self.staged = zeroed(left)?;
            }
            let target = if in_one_go { &mut *buffer } else { &mut self.staged[..] };
            let received = self.duplex.recv_body(target, deadline, &|| watch.still_there());
            received.map_err(|error| fault(error, watch.waited()))?;
            if in_one_go {
                return Ok(buffer.len());
            }
        }
        let ready = &self.staged[self.given..];
        let taken = ready.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&ready[..taken]);
        self.given += taken;
        if self.given == self.staged.len() {
            (self.staged, self.given) = (Vec::new(), 0);
        }
        Ok(taken)
    }

    fn skip_body(&mut self, left: &mut u64, deadline: Deadline) -> Result<(), LinkError> {
        if self.staged.is_empty() {
            let watch = Watch::new(&self.probe, DuplexInlet::ENDS, &self.stats.parks);
            let skipped = self.duplex.skip_body(deadline, &|| watch.still_there());
            skipped.map_err(|error| fault(error, watch.waited()))?;
        }
        (self.staged, self.given, *left) = (Vec::new(), 0, 0);
        Ok(())
    }

    fn is_broken(&self) -> bool {
        self.duplex.is_broken()
    }

    fn prefers_whole_bodies(&self) -> bool {
        true
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
