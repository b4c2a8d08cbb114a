//! Frames over a connected socket: what Unix sockets and TCP have in common.
//!
//! A send is one vectored write of header, meta and payload pieces straight from the caller's memory. A receive
//! goes through a buffer of 64 KiB as long as it wants little (headers, small frames), and straight into the caller's
//! memory when it wants much. Waiting is done by `poll`, in slices when an interrupt must be heard; only in the middle of
//! much data a call may block in the kernel, for a slice at most, since it moves a megabyte with one wake-up where `poll`
//! needs one per filled buffer.

use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{Timeout, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown};
use rustix::process::{Pid, getpid};

use syncline_metrics::{Counter, LinkStats};

use crate::framing::{ByteInlet, Bytes, Outlet, Stamp, Stopped, link};
use crate::link::{Link, LinkInfo, TransportKind};
use crate::{Deadline, LinkError};

/// A connected stream socket that ends for the peer when it ends here, even if a forked child still holds a copy.
pub(crate) struct Socket {
    fd: OwnedFd,
    owner: Pid,
    /// It blocks, but for no longer than a [`SLICE`].
    blocks_for_a_slice: bool,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd) -> Socket {
        Socket { fd, owner: getpid(), blocks_for_a_slice: false }
    }

    /// A socket that may block in the middle of much data; see the top of this file.
    fn new_for_much(fd: OwnedFd) -> Socket {
        let timeout = |which| set_socket_timeout(&fd, which, Some(SLICE));
        let prepared = timeout(Timeout::Recv).and_then(|()| timeout(Timeout::Send)).and_then(|()| ioctl_fionbio(&fd, false));
        let blocks_for_a_slice = prepared.is_ok();
        Socket { fd, owner: getpid(), blocks_for_a_slice }
    }

    /// Whether the kernel may be trusted with the wait for `bytes`: they are many, and the deadline is further off
    /// than it may take.
    fn may_block_for(&self, bytes: usize, deadline: Deadline) -> bool {
        self.blocks_for_a_slice && bytes >= MUCH && deadline.slice(SLICE) >= SLICE
    }

    pub(crate) fn shut(&self, how: Shutdown) {
        // A forked child that drops its copy must not end its parent's connection.
        if getpid() == self.owner {
            let _ = shutdown(&self.fd, how); // fails if the peer was faster, which is as good
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shut(Shutdown::Both);
    }
}

/// How long the kernel may keep a thread that moves much data before it looks at its deadline again.
const SLICE: Duration = Duration::from_millis(100);
/// Pieces of one system call. The kernel takes 1024, but the list is built anew after each partial write.
const WINDOW: usize = 64;
/// From so many bytes on it pays to let the kernel do the waiting.
const MUCH: usize = 128 << 10;

/// Makes a link of a connected stream socket whose traffic is not sealed.
pub(crate) fn clear_link(fd: OwnedFd, stamp: Stamp, info: LinkInfo) -> Link {
    if info.transport == TransportKind::Unix {
        // Twice the usual buffer: fewer wake-ups per megabyte. TCP finds its own size, and asking would stop it.
        let _ = set_socket_send_buffer_size(&fd, 1 << 20);
    }
    let socket = Arc::new(Socket::new_for_much(fd));
    let wake = waker(&socket);
    let stats = Arc::new(LinkStats::new());
    link(
        SocketOutlet::new(Arc::clone(&socket), Arc::clone(&stats)),
        Bytes::new(SocketInlet::new(socket, Arc::clone(&stats))),
        stamp,
        info,
        stats,
        wake,
    )
}

/// What a severer does to a socket; it does not keep the socket open.
pub(crate) fn waker(socket: &Arc<Socket>) -> impl Fn() + Send + Sync + 'static {
    let socket = Arc::downgrade(socket);
    move || {
        if let Some(socket) = socket.upgrade() {
            socket.shut(Shutdown::Both);
        }
    }
}

/// One call's patience: remembers when the waiting began, for the error, and counts the sleeps.
pub(crate) struct Wait<'a> {
    deadline: Deadline,
    since: Option<Instant>,
    sleeps: Option<&'a Counter>,
}

impl<'a> Wait<'a> {
    pub(crate) fn until(deadline: Deadline) -> Wait<'a> {
        Wait { deadline, since: None, sleeps: None }
    }

    pub(crate) fn counted(deadline: Deadline, sleeps: &'a Counter) -> Wait<'a> {
        Wait { deadline, since: None, sleeps: Some(sleeps) }
    }

    /// Returns when `socket` may be ready for `events`, or with the reason to stop waiting.
    #[cold]
    pub(crate) fn ready(&mut self, socket: impl AsFd, events: PollFlags) -> Result<(), LinkError> {
        const LONGEST: Duration = Duration::from_secs(3600);
        let since = *self.since.get_or_insert_with(Instant::now);
        self.sleeps.inspect(|sleeps| sleeps.increment());
        loop {
            let slice = self.deadline.slice(LONGEST);
            let timeout = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
            match poll(&mut [PollFd::new(&socket, events)], Some(&timeout)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(LinkError::Io(errno.into())),
            }
            if self.deadline.interrupted() {
                return Err(LinkError::Interrupted);
            }
            if self.deadline.expired() {
                return Err(LinkError::Timeout { waited: since.elapsed(), half_written: false });
            }
        }
    }
}

/// Writes to a socket what it borrows from the caller.
pub(crate) struct SocketOutlet {
    pub(crate) socket: Arc<Socket>,
    stats: Arc<LinkStats>,
}

impl SocketOutlet {
    pub(crate) fn new(socket: Arc<Socket>, stats: Arc<LinkStats>) -> SocketOutlet {
        SocketOutlet { socket, stats }
    }
}

impl SocketOutlet {
    /// `much`: more of the same frame went before or follows, so the kernel may do the waiting.
    fn write(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], much: bool, deadline: Deadline) -> Result<(), Stopped> {
        let parts = payload.len() + 2;
        let part = |index: usize| match index {
            0 => header,
            1 => meta,
            more => payload[more - 2],
        };
        let mut wait = Wait::counted(deadline, &self.stats.send_parks);
        let (mut index, mut offset, mut written) = (0, 0, 0usize);
        loop {
            let mut window = [IoSlice::new(&[]); WINDOW];
            let (mut used, mut next, mut skip) = (0, index, offset);
            while used < WINDOW && next < parts {
                let rest = &part(next)[skip..];
                if !rest.is_empty() {
                    window[used] = IoSlice::new(rest);
                    used += 1;
                }
                (next, skip) = (next + 1, 0);
            }
            if used == 0 {
                return Ok(());
            }
            let left: usize = window[..used].iter().map(|piece| piece.len()).sum();
            let waiting = if self.socket.may_block_for(if much { left.max(MUCH) } else { left }, deadline) {
                SendFlags::empty()
            } else {
                SendFlags::DONTWAIT
            };
            let flags = SendFlags::NOSIGNAL | waiting;
            match sendmsg(&self.socket, &window[..used], &mut SendAncillaryBuffer::default(), flags) {
                Ok(mut sent) => {
                    written += sent;
                    while index < parts && sent >= part(index).len() - offset {
                        sent -= part(index).len() - offset;
                        (index, offset) = (index + 1, 0);
                    }
                    offset += sent;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    wait.ready(&self.socket, PollFlags::OUT).map_err(|error| Stopped { error, half_written: written > 0 })?
                }
                Err(errno) => {
                    return Err(Stopped { error: LinkError::from_errno(errno), half_written: written > 0 });
                }
            }
        }
    }
}

impl Outlet for SocketOutlet {
    fn write_all(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], deadline: Deadline) -> Result<(), Stopped> {
        self.write(header, meta, payload, false, deadline)
    }

    fn write_more(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), Stopped> {
        self.write(&[], &[], &[bytes], true, deadline)
    }

    fn write_some(&mut self, header: &[u8], meta: &[u8], payload: &[&[u8]], gone: u64) -> Result<(u64, bool), Stopped> {
        let mut window = [IoSlice::new(&[]); WINDOW];
        let mut used = 0;
        for rest in after(gone, header, meta, payload).take(WINDOW) {
            window[used] = IoSlice::new(rest);
            used += 1;
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&self.socket, &window[..used], &mut SendAncillaryBuffer::default(), flags) {
            Ok(sent) => Ok((gone + sent as u64, gone + sent as u64 > 0)),
            Err(Errno::INTR | Errno::AGAIN) => Ok((gone, gone > 0)),
            Err(errno) => Err(Stopped { error: LinkError::from_errno(errno), half_written: gone > 0 }),
        }
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    const TAKES_OFFERS: bool = true;

    fn write_offered(&mut self, bytes: &[u8], patience: Duration) -> Result<usize, LinkError> {
        let (mut written, mut patience) = (0, patience);
        while written < bytes.len() {
            match send(&self.socket, &bytes[written..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => written += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let start = Instant::now();
                    match Wait::counted(Deadline::after(patience), &self.stats.send_parks).ready(&self.socket, PollFlags::OUT) {
                        Ok(()) => patience = patience.saturating_sub(start.elapsed()),
                        Err(LinkError::Timeout { .. }) => break,
                        Err(error) => return Err(error),
                    }
                }
                Err(errno) => return Err(LinkError::from_errno(errno)),
            }
        }
        Ok(written)
    }

    fn abandon(&mut self) {
        self.socket.shut(Shutdown::Write);
    }
}

/// What follows the first `gone` bytes of a frame, piece by piece and none of them empty.
pub(crate) fn after<'a>(
    mut gone: u64,
    header: &'a [u8],
    meta: &'a [u8],
    payload: &'a [&'a [u8]],
) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    [header, meta].into_iter().chain(payload.iter().copied()).filter_map(move |part| {
        let skipped = gone.min(part.len() as u64);
        gone -= skipped;
        Some(&part[skipped as usize..]).filter(|rest| !rest.is_empty())
    })
}

impl Drop for SocketOutlet {
    fn drop(&mut self) {
        self.socket.shut(Shutdown::Write); // the peer's receiver sees the end although our receiver may go on
    }
}

/// Reads from a socket, small things through a buffer.
pub(crate) struct SocketInlet {
    socket: Arc<Socket>,
    stats: Arc<LinkStats>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Reads of at least this size skip the buffer.
const DIRECT: usize = 16 << 10;
const BUFFER: usize = 64 << 10;

impl SocketInlet {
    pub(crate) fn new(socket: Arc<Socket>, stats: Arc<LinkStats>) -> SocketInlet {
        SocketInlet { socket, stats, buffer: vec![0; BUFFER].into_boxed_slice(), start: 0, end: 0 }
    }
}

impl ByteInlet for SocketInlet {
    fn read_some(&mut self, target: &mut [u8], deadline: Deadline) -> Result<usize, LinkError> {
        if self.start == self.end {
            if target.len() >= DIRECT {
                return receive(&self.socket, target, deadline, &self.stats);
            }
            self.start = 0;
            self.end = 0; // stays so if the next line fails
            self.end = receive(&self.socket, &mut self.buffer, deadline, &self.stats)?;
        }
        let ready = &self.buffer[self.start..self.end];
        let taken = ready.len().min(target.len());
        target[..taken].copy_from_slice(&ready[..taken]);
        self.start += taken;
        Ok(taken)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Waits for bytes on the socket; 0 is its end.
pub(crate) fn receive(socket: &Socket, buffer: &mut [u8], deadline: Deadline, stats: &LinkStats) -> Result<usize, LinkError> {
    let mut wait = Wait::counted(deadline, &stats.parks);
    loop {
        let flags = if socket.may_block_for(buffer.len(), deadline) { RecvFlags::WAITALL } else { RecvFlags::DONTWAIT };
        match recv(socket, &mut *buffer, flags) {
            Ok((read, _)) => return Ok(read),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait.ready(socket, PollFlags::IN)?,
            Err(errno) => return Err(LinkError::from_errno(errno)),
        }
    }
}
