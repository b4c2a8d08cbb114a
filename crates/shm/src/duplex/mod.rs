//! Two directions between two processes in one segment: what a shared-memory link is made of.
//!
//! ```text
//!   side A                              segment                               side B
//!   Outlet ── head and small body ──► ring  A→B (256 KiB) ──────────────────► Inlet
//!          ── large body ───────────► arena A→B (8 slots of 1 MiB) ─────────►
//!   Inlet  ◄────────────────────────  ring, arena B→A  ◄───────────────────── Outlet
//!   sleeps on ► bell A                                   bell B ◄ sleeps on
//! ```
//! A message is a head (a few parts, gathered) and a body of any size. A body of up to 16 KiB
//! travels inside the ring record: one pass in, one pass out, no slot. A larger one goes through
//! slots, whose indices follow in the ring; it is copied twice in all, and both copies run at the
//! same time. At most one wake-up per record or piece, and none while the other side is awake.
//!
//! Both sides sending large bodies at once without receiving is the caller's deadlock; the
//! deadline ends it. Use the two halves from two threads, or take turns.

mod inlet;
mod layout;
mod outlet;

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use inlet::Inlet;
pub use layout::Geometry;
pub use outlet::Outlet;

use crate::arena::{Reader, Writer};
use crate::bell::Bell;
use crate::corrupt::Corrupt;
use crate::placed::Shared;
use crate::ring::{Consumer, Producer};
use crate::segment::{Segment, SegmentError};
use crate::sync::{AtomicBool, Ordering};
use crate::wait::{Deadline, Patience, WaitError, wait_for};
use layout::{Departed, Layout, SideControl};

/// The longest body that travels inside the ring.
pub const INLINE_BODY: usize = 16 << 10;
/// The longest head that travels inside the ring; longer ones take the way of large bodies.
pub const INLINE_HEAD: usize = 32 << 10;
/// The longest head at all.
pub const LONGEST_HEAD: usize = 64 << 20;

/// Why a message did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DuplexError {
    /// The deadline passed.
    #[error("the deadline passed")]
    Timeout,
    /// The interrupt function of the deadline said so.
    #[error("interrupted")]
    Interrupted,
    /// The other side is dead, has dropped its half, or the link was severed.
    #[error("the other side is gone")]
    Gone,
    /// An earlier call gave up in the middle of a message, so the rest makes no sense.
    #[error("an earlier call gave up in the middle of a message")]
    Broken,
    /// The other side's words make no sense.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// No memory for the first slot of the arena.
    #[error(transparent)]
    Memory(#[from] SegmentError),
    /// The head is longer than any head may be.
    #[error("a head of {len} bytes is longer than {LONGEST_HEAD}; the body takes any length")]
    HeadTooLong {
        /// Its length.
        len: usize,
    },
    /// The buffer does not have the length of the body.
    #[error("the body has {body} bytes, the buffer {buffer}")]
    WrongLength {
        /// What was announced.
        body: u64,
        /// What the caller offered.
        buffer: usize,
    },
}

impl From<WaitError> for DuplexError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Timeout => DuplexError::Timeout,
            WaitError::Interrupted => DuplexError::Interrupted,
            WaitError::Gone => DuplexError::Gone,
        }
    }
}

/// Why a segment that was handed over is not a duplex.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It could not be mapped.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// It is something else, or made by another version.
    #[error("the segment is not a duplex of this version: its {what} is {found:#x}")]
    Foreign {
        /// The field that differs.
        what: &'static str,
        /// Its value.
        found: u64,
    },
}

/// One side of the pair, before it is split into its halves.
///
/// ```
/// use std::time::Duration;
/// use syncline_shm::{duplex::Duplex, wait::Deadline};
///
/// let (here, fd) = Duplex::create()?;
/// let there = Duplex::open(fd)?; // usually in another process
/// let (mut out, _) = here.split();
/// let (_, mut inlet) = there.split();
///
/// let soon = Deadline::after(Duration::from_secs(5));
/// out.send(&[b"add"], &[b"12", b"34"], soon, &|| true)?;
///
/// let mut head = Vec::new();
/// let body_len = inlet.recv_head(&mut head, soon, &|| true)?;
/// let mut body = vec![0; body_len as usize];
/// inlet.recv_body(&mut body, soon, &|| true)?;
/// assert_eq!((head.as_slice(), body.as_slice()), (&b"add"[..], &b"1234"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Duplex {
    side: Side,
    producer: Producer,
    consumer: Consumer,
    writer: Writer,
    /// Built late, because it needs to know whose bell to ring.
    layout: Layout,
    segment: Arc<Segment>,
    is_a: bool,
}

impl Duplex {
    /// Makes the segment and side A; the descriptor is for the process that becomes side B.
    pub fn create() -> Result<(Duplex, OwnedFd), SegmentError> {
        Self::create_with(Geometry::default())
    }

    /// As [`Duplex::create`], with other sizes.
    ///
    /// # Panics
    /// When the sizes are not what [`Geometry`] allows.
    pub fn create_with(geometry: Geometry) -> Result<(Duplex, OwnedFd), SegmentError> {
        let layout = Layout::of(geometry).expect("a geometry within its limits");
        let segment = Segment::create("syncline-duplex", layout.len)?;
        segment.reserve(0, layout.small)?;
        layout.write_header(&segment);
        let fd = segment.fd().try_clone_to_owned().map_err(|source| SegmentError::Memory {
            what: "share",
            name: "syncline-duplex".to_owned(),
            asked: layout.len,
            source,
        })?;
        Ok((Self::build(segment, layout, true), fd))
    }

    /// Becomes side B of the segment behind `fd`.
    pub fn open(fd: OwnedFd) -> Result<Duplex, OpenError> {
        let segment = Segment::open(fd, Layout::HEADER)?;
        let layout = Layout::read_header(&segment)?;
        Ok(Self::build(segment, layout, false))
    }

    fn build(segment: Arc<Segment>, layout: Layout, is_a: bool) -> Duplex {
        let (own, peer) = layout.sides(&segment, is_a);
        let (out, into) = layout.directions(&segment, is_a);
        let base = out.arena_offset;
        let slot_size = layout.geometry.slot_size;
        let pages = Arc::clone(&segment);
        let reserve = Box::new(move |slot| pages.reserve(base + slot * slot_size, slot_size));
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        Duplex {
            side: Side {
                own_bell: own.part(|side| &*side.bell),
                peer_bell: peer.part(|side| &*side.bell),
                own,
                peer,
                severed: Arc::new(AtomicBool::new(false)),
                patience: Patience::new(2, cores),
                process: std::process::id(),
            },
            producer: Producer::new(out.ring, out.ring_data),
            consumer: Consumer::new(into.ring, into.ring_data),
            writer: Writer::new(out.slots, out.arena_data, reserve),
            layout,
            segment,
            is_a,
        }
    }

    /// How long waits keep their core (default: as for two ranks on the cores there are).
    pub fn with_patience(mut self, patience: Patience) -> Duplex {
        self.side.patience = patience;
        self
    }

    /// Sleeps on `own` and rings `peer` instead of the segment's own bells, so that one sleep
    /// can cover many links. Both sides must do this, crosswise, before the first message.
    pub fn with_bells(mut self, own: Shared<Bell>, peer: Shared<Bell>) -> Duplex {
        self.side.own_bell = own;
        self.side.peer_bell = peer;
        self
    }

    /// A handle that wakes or ends the waits of this side, from any thread.
    pub fn waker(&self) -> Waker {
        self.side.waker()
    }

    /// The two halves, for one thread or two.
    pub fn split(self) -> (Outlet, Inlet) {
        let (_, into) = self.layout.directions(&self.segment, self.is_a);
        let reader = Reader::new(into.slots, into.arena_data, self.side.peer_bell.clone());
        (Outlet::new(self.side.clone(), self.producer, self.writer), Inlet::new(self.side, self.consumer, reader))
    }
}

/// Wakes or ends the waits of one side; cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Waker {
    bell: Shared<Bell>,
    severed: Arc<AtomicBool>,
}

impl Waker {
    /// Makes a sleeping wait of this side look again, and ask its `still_there`.
    pub fn wake(&self) {
        self.bell.ring_if_waiting();
    }

    /// Ends this side: sends return `Gone` at once, receives when nothing is left to receive.
    pub fn sever(&self) {
        self.severed.store(true, Ordering::Release);
        self.bell.ring_if_waiting();
    }

    /// Whether [`Waker::sever`] was called.
    pub fn is_severed(&self) -> bool {
        self.severed.load(Ordering::Acquire)
    }
}

/// Who may end a wait, and when.
#[derive(Clone, Copy)]
struct Limits<'a> {
    deadline: Deadline,
    still_there: &'a dyn Fn() -> bool,
}

/// What both halves of one side know.
#[derive(Clone)]
struct Side {
    own: Shared<SideControl>,
    peer: Shared<SideControl>,
    own_bell: Shared<Bell>,
    peer_bell: Shared<Bell>,
    severed: Arc<AtomicBool>,
    patience: Patience,
    process: u32,
}

impl Side {
    fn waker(&self) -> Waker {
        Waker { bell: self.own_bell.clone(), severed: Arc::clone(&self.severed) }
    }

    /// Whether the half of the peer that we need has been dropped, or we were severed.
    #[inline]
    fn is_over(&self, needed: Departed) -> bool {
        self.severed.load(Ordering::Acquire) || self.peer.has_left(needed)
    }

    /// Waits on our bell for `poll`, while the peer's half `needed` is there.
    #[inline]
    fn wait<T>(&self, needed: Departed, limits: Limits<'_>, poll: impl FnMut() -> Option<T>) -> Result<T, WaitError> {
        let still_there = || !self.is_over(needed) && (limits.still_there)();
        let bell = &self.own_bell;
        wait_for(poll, bell, self.patience, limits.deadline, &still_there)
    }

    /// Tells the peer that one of our halves is gone. A forked child says nothing: its parent
    /// still uses them.
    fn depart(&self, half: Departed) {
        if self.process == std::process::id() {
            self.own.leave(half);
            self.peer_bell.ring_if_waiting();
        }
    }
}
