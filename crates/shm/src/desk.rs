//! Where a rank lays what it brings to the meetings of its group.
//!
//! ```text
//!   [ side 0: come · left · words ][ side 1: the same ][ bytes of side 0 ][ bytes of side 1 ]
//! ```
//! Meetings have numbers from 1 on; what is brought to meeting m lies on side m mod 2. A rank writes words and bytes, then
//! says by one store that it has *come*; whoever sees that sees everything before it. Two sides are enough: a rank lays
//! something down for meeting m + 2 only when all have come to m + 1, and they came there after they had read m. So each
//! word and byte has one writer, its owner, and nobody reads a byte that is being written.
//!
//! An *answer* to meeting m (a part of what all brought to it, combined) is laid on the same side beside what was brought,
//! after all have come to m. The others read it once its author has come to m + 1, and before they come to m + 2; so the
//! place of an answer is free again, for the one to m + 2, when all have come there. Both rules hold for each place of a
//! side on its own: callers keep the places of what is brought and of answers apart.
//!
//! A rank that gives up waiting for the others may *leave* a meeting it has come to (see [`presence`](crate::presence)).
//!
//! Cost of a meeting: one line written, one line read per other member, no system call while all run.
//! A rank that dies leaves its desk as it was: what it came with stays readable, and it never comes again.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mortality::moment;
use crate::placed::{AtomicWord, Line, Placed, Shared};
use crate::presence::Presence;
use crate::segment::Segment;

/// Words that go with what is brought to a meeting.
pub const WORDS: usize = 11;

/// A desk's first bytes: the words of both sides, on a page of their own.
const BYTES_AT: usize = 4096;

#[repr(C)]
#[derive(Default)]
struct Side {
    /// The last meetings of this side that the owner came to and left.
    presence: Presence,
    words: [AtomicWord; WORDS],
}

#[repr(C)]
#[derive(Default)]
struct Sides([Line<Side>; 2]);

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a desk whose owner never came to a meeting.
unsafe impl Placed for Sides {}

/// A desk as everybody sees it.
pub struct Desk {
    sides: Shared<Sides>,
    start: NonNull<u8>,
    /// Bytes of each side.
    room: usize,
    _segment: Arc<Segment>,
}

// SAFETY: the pointer leads into the segment, which is mapped while it is held here. Who may touch which bytes when is
// ordered by the meetings, which are atomic words.
unsafe impl Send for Desk {}
// SAFETY: as above.
unsafe impl Sync for Desk {}

impl Desk {
    /// Bytes of a segment for a desk with `room` bytes on each side.
    pub const fn bytes(room: usize) -> usize {
        BYTES_AT + 2 * room
    }

    /// The desk in `segment`.
    ///
    /// # Panics
    /// When the segment is too small for the words.
    pub fn new(segment: Arc<Segment>) -> Desk {
        assert!(segment.len() >= BYTES_AT, "a desk fits its segment");
        let room = (segment.len() - BYTES_AT) / 2;
        Desk { sides: segment.place(0), start: segment.address(BYTES_AT, 2 * room), room, _segment: segment }
    }

    /// Whether its owner has come to `meeting`.
    #[inline(always)]
    pub fn has_come(&self, meeting: u64) -> bool {
        self.presence(meeting).has_come(meeting)
    }

    /// Whether its owner came to `meeting`, or left it.
    #[inline(always)]
    pub fn presence(&self, meeting: u64) -> &Presence {
        &self.side(meeting).presence
    }

    /// The last meeting its owner came to.
    pub fn last(&self) -> u64 {
        self.presence(0).last().max(self.presence(1).last())
    }

    /// The words brought to a meeting to which the owner has come, and to whose successor this rank has not.
    #[inline]
    pub fn words(&self, meeting: u64) -> [u64; WORDS] {
        std::array::from_fn(|index| self.side(meeting).words[index].get())
    }

    /// One of them.
    #[inline]
    pub fn word(&self, meeting: u64, index: usize) -> u64 {
        self.side(meeting).words[index].get()
    }

    /// Bytes laid down for a meeting to which the owner has come, and to whose successor this rank has not.
    #[inline]
    pub fn read(&self, meeting: u64, range: Range<usize>) -> &[u8] {
        let at = self.place(meeting, &range);
        // SAFETY: inside the mapping (`place`). The owner changes nothing on this side before everybody came to the next
        // meeting, and callers use the bytes only until they do; they are numbers and text, so a neighbour that breaks the
        // rule makes wrong ones, no more.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), range.len()) }
    }

    /// Bytes of each side.
    pub fn room(&self) -> usize {
        self.room
    }

    #[inline(always)]
    fn side(&self, meeting: u64) -> &Side {
        &self.sides.0[(meeting % 2) as usize]
    }

    #[inline]
    fn place(&self, meeting: u64, range: &Range<usize>) -> NonNull<u8> {
        assert!(range.start <= range.end && range.end <= self.room, "inside of a side");
        // SAFETY: the offset lies inside the bytes of both sides, which are mapped (`new`).
        unsafe { self.start.add((meeting % 2) as usize * self.room + range.start) }
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Desk(2 sides of {} bytes)", self.room)
    }
}

/// The owner's end of a desk. A process makes it once.
#[derive(Debug)]
pub struct OwnDesk {
    desk: Arc<Desk>,
}

impl OwnDesk {
    /// The owner's end of `desk`.
    pub fn new(desk: Arc<Desk>) -> OwnDesk {
        OwnDesk { desk }
    }

    /// Room on the side of `meeting`: for what is brought to it, when all have come to the one before; for an answer to it,
    /// when all have come to it.
    #[inline]
    pub fn room_for(&mut self, meeting: u64, range: Range<usize>) -> &mut [u8] {
        let at = self.desk.place(meeting, &range);
        // SAFETY: inside the mapping (`place`). Nobody reads here: the others did so before they came to the meeting that
        // the caller has seen them come to (see the head of this file); the borrow of `self` keeps other threads of this
        // process out. A caller that breaks the rule makes wrong numbers in its neighbours, no more.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), range.len()) }
    }

    /// Lays down the words for `meeting`.
    #[inline]
    pub fn lay(&mut self, meeting: u64, words: &[u64; WORDS]) {
        for (place, word) in self.desk.side(meeting).words.iter().zip(words) {
            place.set(*word);
        }
    }

    /// Comes to `meeting`: from here on everybody may read what lies on its side.
    #[inline]
    pub fn come(&mut self, meeting: u64) {
        moment();
        self.desk.presence(meeting).come(meeting);
        moment();
    }

    /// Gives up on `meeting` after having come to it.
    pub fn leave(&mut self, meeting: u64, why: u64) {
        moment();
        self.desk.presence(meeting).leave(meeting, why);
        moment();
    }

    /// The desk as the others see it.
    pub fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_laid_down_is_seen_on_its_side_only() {
        let desk = Arc::new(Desk::new(Segment::create("test", Desk::bytes(1000)).unwrap()));
        let mut own = OwnDesk::new(Arc::clone(&desk));
        assert!(!desk.has_come(1) && desk.room() == 1000);
        own.room_for(1, 10..14).copy_from_slice(b"side");
        own.lay(1, &[7; WORDS]);
        own.come(1);
        assert!(desk.has_come(1) && !desk.has_come(2) && !desk.has_come(3));
        assert_eq!((desk.read(1, 10..14), desk.words(1), desk.word(1, 10)), (&b"side"[..], [7; WORDS], 7));
        assert_eq!((desk.read(2, 10..14), desk.words(2)), (&[0; 4][..], [0; WORDS]));
        own.leave(1, 9);
        assert!(desk.presence(1).has_left(1) && !desk.presence(2).has_left(2) && !desk.presence(3).has_left(3));
        assert_eq!(desk.presence(1).why(), 9);
        assert!(desk.has_come(1), "what was brought stays readable");
    }

    #[test]
    #[should_panic(expected = "inside of a side")]
    fn a_side_has_an_end() {
        let desk = Desk::new(Segment::create("test", Desk::bytes(1000)).unwrap());
        desk.read(1, 990..1001);
    }
}
