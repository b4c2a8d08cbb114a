//! Notices that any neighbour pins up and all read: numbered, and the newest counts.
//!
//! ```text
//!  [ words: numbers given · newest · bytes used · a count ][ 1024 slots: number · place · length ][ bodies, a ring ]
//!  number   [ chapter: 24 bits ][ page: 40 bits ]      pages are counted through, whatever the chapter
//! ```
//! A writer takes a number, writes the body, then its slot, and raises *newest* last: who reads *newest* finds the whole notice, and a
//! writer that dies earlier leaves a number that nobody hears of. Old notices stay until 1024 newer ones, or 16 MB of them, have
//! come; a reader looks at the slot again after it has copied, so it never takes one for the other.

use std::sync::Arc;

use crate::placed::{AtomicWord, Line, Placed, Region, Shared};
#[cfg(not(loom))]
use crate::segment::Segment;
use crate::sync::{AtomicU64, Ordering};

/// How many notices are kept.
const SLOTS: u64 = if cfg!(loom) { 2 } else { 1024 };
/// How many bytes of them.
const RING: u64 = if cfg!(loom) { 16 } else { 16 << 20 };
#[cfg(not(loom))]
const BODIES_AT: usize = 64 << 10;

#[repr(C)]
#[derive(Default)]
struct Words {
    given: Line<AtomicU64>,
    newest: Line<AtomicU64>,
    used: Line<AtomicU64>,
    count: Line<AtomicWord>,
    slots: Slots,
}

#[repr(C)]
struct Slots([Slot; SLOTS as usize]);

impl Default for Slots {
    fn default() -> Slots {
        Slots(std::array::from_fn(|_| Slot::default()))
    }
}

#[repr(C)]
#[derive(Default)]
struct Slot {
    number: AtomicU64,
    /// Bytes that had been used before it.
    place: AtomicU64,
    len: AtomicU64,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a board with nothing on it.
unsafe impl Placed for Words {}

const PAGE_BITS: u32 = 40;

/// The number of a notice: a page that nobody else has, and the chapter it belongs to. Both only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    /// Its chapter, from 1; it decides which of two is newer.
    pub chapter: u32,
    /// Its page, from 1.
    pub page: u64,
}

impl Number {
    /// In one word; the order is the same.
    pub fn to_word(self) -> u64 {
        u64::from(self.chapter) << PAGE_BITS | self.page
    }

    /// From such a word.
    pub fn of_word(word: u64) -> Number {
        Number { chapter: (word >> PAGE_BITS) as u32, page: word & ((1 << PAGE_BITS) - 1) }
    }
}

/// A board with notices.
#[derive(Clone)]
pub struct Bulletin {
    words: Shared<Words>,
    bodies: Region,
}

impl Bulletin {
    /// The longest notice.
    pub const MOST: usize = RING as usize / 8;

    /// Bytes of a segment for it, of which only what is used costs memory.
    #[cfg(not(loom))]
    pub const fn bytes() -> usize {
        BODIES_AT + RING as usize
    }

    /// The board in `segment`, which is zero when it is new.
    ///
    /// # Panics
    /// When the segment is too small.
    #[cfg(not(loom))]
    pub fn new(segment: &Arc<Segment>) -> Bulletin {
        assert!(segment.len() >= Self::bytes() && size_of::<Words>() <= BODIES_AT, "a board fits its segment");
        Bulletin { words: segment.place(0), bodies: segment.region(BODIES_AT, RING as usize) }
    }

    /// A board for threads of this process.
    pub fn in_private_memory() -> Bulletin {
        Bulletin { words: Shared::in_private_memory(Words::default()), bodies: Region::in_private_memory(RING as usize) }
    }

    /// The number of the newest notice; zeros when there is none.
    #[inline]
    pub fn newest(&self) -> Number {
        Number::of_word(self.words.newest.load(Ordering::Acquire)) // pairs with the raise in `pin`
    }

    /// A number that nobody else has, above all that were given before, in the newest chapter or in a new one.
    pub fn next(&self, new_chapter: bool) -> Number {
        let step = u64::from(new_chapter) << PAGE_BITS | 1;
        Number::of_word(self.words.given.fetch_add(step, Ordering::AcqRel) + step)
    }

    /// A word that belongs to all who use the board, in their terms.
    pub fn count(&self) -> &AtomicWord {
        &self.words.count
    }

    /// Pins up notice `number`, which came from [`next`](Bulletin::next), here or on another host. False when it is too long.
    pub fn pin(&self, number: Number, body: &[u8]) -> bool {
        if body.len() > Self::MOST || number.page == 0 {
            return false;
        }
        let _ = self.words.given.fetch_update(Ordering::AcqRel, Ordering::Acquire, |given| {
            let given = Number::of_word(given);
            Some(Number { chapter: given.chapter.max(number.chapter), page: given.page.max(number.page) }.to_word())
        });
        let len = body.len() as u64;
        let place = self.words.used.fetch_add(len.next_multiple_of(8), Ordering::AcqRel);
        let first = ((RING - place % RING) as usize).min(body.len());
        self.bodies.copy_in((place % RING) as usize, &body[..first]);
        self.bodies.copy_in(0, &body[first..]);
        let slot = &self.words.slots.0[(number.page % SLOTS) as usize];
        if Number::of_word(slot.number.load(Ordering::Acquire)).page > number.page {
            return true; // Long outdated: nobody asks for it any more.
        }
        slot.number.store(0, Ordering::Release);
        slot.place.store(place, Ordering::Release);
        slot.len.store(len, Ordering::Release);
        slot.number.store(number.to_word(), Ordering::Release);
        self.words.newest.fetch_max(number.to_word(), Ordering::AcqRel);
        true
    }

    /// The notice on this page with its whole number, if it hangs (still).
    pub fn read(&self, page: u64) -> Option<(Number, Vec<u8>)> {
        let slot = &self.words.slots.0[(page % SLOTS) as usize];
        let number = slot.number.load(Ordering::Acquire);
        if page == 0 || Number::of_word(number).page != page {
            return None;
        }
        let (place, len) = (slot.place.load(Ordering::Acquire), slot.len.load(Ordering::Acquire));
        if len > Self::MOST as u64 {
            return None; // Somebody overwrote it, or wrote nonsense.
        }
        let mut body = vec![0; len as usize];
        let first = ((RING - place % RING) as usize).min(body.len());
        let (head, tail) = body.split_at_mut(first);
        self.bodies.copy_out((place % RING) as usize, head);
        self.bodies.copy_out(0, tail);
        crate::sync::fence(Ordering::Acquire); // the copies stay before the second look
        let kept = self.words.used.load(Ordering::Acquire).wrapping_sub(place) <= RING;
        (kept && slot.number.load(Ordering::Acquire) == number).then(|| (Number::of_word(number), body))
    }
}

impl std::fmt::Debug for Bulletin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bulletin(newest {:?})", self.newest())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn page(page: u64) -> Number {
        Number { chapter: 1, page }
    }

    #[test]
    fn the_newest_is_known_by_its_number_and_old_ones_stay_for_a_while() {
        let board = Bulletin::in_private_memory();
        assert_eq!((board.newest(), board.read(0), board.read(1)), (Number::default(), None, None));
        let body = |number: u64| number.to_le_bytes().repeat(number as usize % 5);
        for number in 1..=3000_u64 {
            assert_eq!(board.next(number == 1), page(number));
            assert!(board.pin(page(number), &body(number)));
            assert_eq!(board.newest(), page(number));
        }
        for number in 1..=3000_u64 {
            let expected = (number > 3000 - SLOTS).then(|| (page(number), body(number)));
            assert_eq!(board.read(number), expected, "{number}");
        }
    }

    #[test]
    fn long_notices_wrap_around_and_the_overwritten_are_gone() {
        let board = Bulletin::in_private_memory();
        let body = |number: u64| vec![number as u8; Bulletin::MOST - 1];
        for number in 1..=30 {
            assert!(board.pin(board.next(number == 1), &body(number)));
        }
        assert!(!board.pin(page(31), &vec![0; Bulletin::MOST + 1]), "longer than any may be");
        assert_eq!(board.newest(), page(30));
        let found: Vec<u64> = (1..=30).filter(|number| board.read(*number).is_some_and(|(_, found)| found == body(*number))).collect();
        assert_eq!(found, (23..=30).collect::<Vec<_>>());
        assert!((1..23).all(|number| board.read(number).is_none()));
    }

    #[test]
    fn a_number_from_elsewhere_is_not_given_again_and_chapters_decide_which_is_newer() {
        let board = Bulletin::in_private_memory();
        assert!(board.pin(Number { chapter: 3, page: 7 }, b"from another host"));
        assert_eq!(board.next(false), Number { chapter: 3, page: 8 });
        assert!(board.pin(Number { chapter: 2, page: 9 }, b"late"));
        assert_eq!(board.newest(), Number { chapter: 3, page: 7 });
        assert_eq!(board.read(9), Some((Number { chapter: 2, page: 9 }, b"late".to_vec())));
        assert_eq!(board.next(true), Number { chapter: 4, page: 10 });
    }
}
