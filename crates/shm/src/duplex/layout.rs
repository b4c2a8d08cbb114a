//! Where everything lies in a duplex segment, and how the opener checks that it is one.
//!
//! ```text
//!   0      header    magic · version · slots · ring size · slot size     written by A, once
//!   128    side A    bell · departed                                     see `SideControl`
//!          side B
//!          ring A→B  tail · head               ring B→A
//!          slots A→B filled · freed, each      slots B→A
//!   page   ring bytes A→B, B→A                 pages taken when the segment is made
//!   page   arena bytes A→B, B→A                pages taken slot by slot, when first used
//! ```

use std::sync::Arc;

use super::OpenError;
use crate::arena::SlotControl;
use crate::bell::Bell;
use crate::placed::{Line, Placed, Region, Shared};
use crate::ring::RingControl;
use crate::segment::Segment;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"SLN-dplx");
const VERSION: u32 = 1;
const PAGE: usize = 4096;

/// The sizes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the ring: a power of two, 4 KiB to 1 GiB.
    pub ring: usize,
    /// Slots of the arena: 1 to 256.
    pub slots: usize,
    /// Bytes of a slot: a multiple of 4 KiB, up to 1 GiB.
    pub slot_size: usize,
}

impl Default for Geometry {
    /// 256 KiB of ring, 8 slots of 1 MiB: larger than a core's L2, and only what is used is taken.
    fn default() -> Self {
        Geometry { ring: 256 << 10, slots: 8, slot_size: 1 << 20 }
    }
}

/// A half of a side that its owner has dropped.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Departed {
    Outlet = 1,
    Inlet = 2,
}

/// What one side writes, or has written to wake it.
#[repr(C)]
#[derive(Default)]
pub(super) struct SideControl {
    /// This side sleeps here; the other rings.
    pub(super) bell: Line<Bell>,
    /// Bits of [`Departed`], set by this side and never cleared.
    departed: Line<AtomicU32>,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a side that is there.
unsafe impl Placed for SideControl {}

impl SideControl {
    pub(super) fn leave(&self, half: Departed) {
        // Release pairs with the Acquire below: what was published before leaving is seen.
        self.departed.fetch_or(half as u32, Ordering::Release);
    }

    #[inline]
    pub(super) fn has_left(&self, half: Departed) -> bool {
        self.departed.load(Ordering::Acquire) & half as u32 != 0
    }
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    slots: AtomicU32,
    ring: AtomicU64,
    slot_size: AtomicU64,
}

// SAFETY: `repr(C)`, atomics only, no drop glue; zero is a header nobody wrote, which is refused.
unsafe impl Placed for Header {}

/// Offsets that follow from a geometry.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) geometry: Geometry,
    slots: [usize; 2],
    ring_data: [usize; 2],
    arena_data: [usize; 2],
    /// The part whose pages are taken at once: everything but the arenas.
    pub(super) small: usize,
    /// All of it.
    pub(super) len: usize,
}

/// The shared parts of one direction.
pub(super) struct Direction {
    pub(super) ring: Shared<RingControl>,
    pub(super) ring_data: Region,
    pub(super) slots: Vec<Shared<SlotControl>>,
    pub(super) arena_data: Region,
    pub(super) arena_offset: usize,
}

impl Layout {
    /// Bytes that must be there before the header can be read.
    pub(super) const HEADER: usize = PAGE;

    const SIDES: usize = 128;
    const RINGS: usize = Self::SIDES + 2 * size_of::<SideControl>();
    const SLOTS: usize = Self::RINGS + 2 * size_of::<RingControl>();

    /// The layout of `geometry`, or the field that is out of bounds.
    pub(super) fn of(geometry: Geometry) -> Result<Layout, (&'static str, u64)> {
        let Geometry { ring, slots, slot_size } = geometry;
        if !ring.is_power_of_two() || !(4 << 10..=1 << 30).contains(&ring) {
            return Err(("ring size", ring as u64));
        }
        if !(1..=256).contains(&slots) {
            return Err(("slot count", slots as u64));
        }
        if !slot_size.is_multiple_of(PAGE) || !(PAGE..=1 << 30).contains(&slot_size) {
            return Err(("slot size", slot_size as u64));
        }
        // The bounds above keep all of this far from overflow on 64 bits.
        let controls = slots * size_of::<SlotControl>();
        let rings = (Self::SLOTS + 2 * controls).next_multiple_of(PAGE);
        let arenas = rings + 2 * ring;
        let arena = slots * slot_size;
        Ok(Layout {
            geometry,
            slots: [Self::SLOTS, Self::SLOTS + controls],
            ring_data: [rings, rings + ring],
            arena_data: [arenas, arenas + arena],
            small: arenas,
            len: arenas + 2 * arena,
        })
    }

    pub(super) fn write_header(&self, segment: &Arc<Segment>) {
        let header: Shared<Header> = segment.place(0);
        let Geometry { ring, slots, slot_size } = self.geometry;
        header.version.store(VERSION, Ordering::Relaxed);
        header.slots.store(slots as u32, Ordering::Relaxed);
        header.ring.store(ring as u64, Ordering::Relaxed);
        header.slot_size.store(slot_size as u64, Ordering::Relaxed);
        // The descriptor is handed over later, through a socket, which orders all of this.
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Reads each field once, checks it, and computes everything else from the copies.
    pub(super) fn read_header(segment: &Arc<Segment>) -> Result<Layout, OpenError> {
        let foreign = |(what, found)| OpenError::Foreign { what, found };
        let header: Shared<Header> = segment.place(0);
        let magic = header.magic.load(Ordering::Acquire);
        if magic != MAGIC {
            return Err(foreign(("magic", magic)));
        }
        let version = header.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(foreign(("version", version.into())));
        }
        let sized = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let layout = Layout::of(Geometry {
            ring: sized(header.ring.load(Ordering::Relaxed)),
            slots: header.slots.load(Ordering::Relaxed) as usize,
            slot_size: sized(header.slot_size.load(Ordering::Relaxed)),
        })
        .map_err(foreign)?;
        if segment.len() < layout.len {
            return Err(foreign(("segment length", segment.len() as u64)));
        }
        Ok(layout)
    }

    /// Our side and the other.
    pub(super) fn sides(&self, segment: &Arc<Segment>, is_a: bool) -> (Shared<SideControl>, Shared<SideControl>) {
        let a = segment.place(Self::SIDES);
        let b = segment.place(Self::SIDES + size_of::<SideControl>());
        if is_a { (a, b) } else { (b, a) }
    }

    /// The way out and the way in.
    pub(super) fn directions(&self, segment: &Arc<Segment>, is_a: bool) -> (Direction, Direction) {
        let from_a = self.direction(segment, 0);
        let from_b = self.direction(segment, 1);
        if is_a { (from_a, from_b) } else { (from_b, from_a) }
    }

    fn direction(&self, segment: &Arc<Segment>, which: usize) -> Direction {
        let Geometry { ring, slots, slot_size } = self.geometry;
        Direction {
            ring: segment.place(Self::RINGS + which * size_of::<RingControl>()),
            ring_data: segment.region(self.ring_data[which], ring),
            slots: (0..slots).map(|slot| segment.place(self.slots[which] + slot * size_of::<SlotControl>())).collect(),
            arena_data: segment.region(self.arena_data[which], slots * slot_size),
            arena_offset: self.arena_data[which],
        }
    }
}

/// What a message record begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Preface {
    pub(super) head_len: u32,
    /// Bits: the head, the body come through slots and not in this record.
    pub(super) through_slots: u32,
    pub(super) body_len: u64,
}

impl Preface {
    pub(super) const LEN: usize = 16;
    pub(super) const HEAD: u32 = 1;
    pub(super) const BODY: u32 = 2;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.head_len.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.through_slots.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.body_len.to_ne_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Preface {
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        Preface { head_len: word(0), through_slots: word(4), body_len: u64::from_ne_bytes(bytes[8..].try_into().expect("8 bytes")) }
    }
}
