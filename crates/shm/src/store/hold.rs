//! A hand and the stripe it holds: the one way to change what a store keeps.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::hand::{MOST_LANES, OF_ROUNDS, Record, SCRATCH};
use super::{LANES_OF_A_CHANGE, Store};
use crate::mortality::moment;
use crate::placed::{AtomicWord, Shared};
use crate::racing_copy;
use crate::segment::Segment;
use crate::stripe::Busy;
use crate::sync::Ordering;

/// One process's means to change stripes.
pub struct Hand {
    pub(super) number: u32,
    pub(super) record: Shared<Record>,
    pub(super) scratch: NonNull<u8>,
    /// The stripe that it held last, and what its word said then.
    pub(super) left: (usize, u64),
    pub(super) _segment: Arc<Segment>,
}

// SAFETY: the scratch lies in the segment that `_segment` keeps mapped, and only the owner of the hand writes it.
unsafe impl Send for Hand {}

impl Hand {
    /// The stripe that was taken or inherited for this hand.
    ///
    /// # Panics
    /// When it was not.
    #[inline]
    pub fn hold<'a>(&'a mut self, store: &'a Store, index: usize) -> Hold<'a> {
        assert_eq!(store.stripe(index).word.holder(), Some(Busy { hand: self.number }), "a stripe is taken before it is held");
        Hold { store, hand: self, index }
    }

    /// Whether another hand took the stripe that this one held last, since then.
    #[inline]
    pub fn was_followed(&self, store: &Store) -> bool {
        let (index, left) = self.left;
        index < store.stripe_count && !store.stripe(index).word.is_as_left(left)
    }

    /// The same, if that was stripe `index`.
    #[inline]
    pub fn was_followed_at(&self, store: &Store, index: usize) -> bool {
        self.left.0 == index && self.was_followed(store)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// A stripe in hand. Dropping it lets go.
pub struct Hold<'a> {
    store: &'a Store,
    pub(super) hand: &'a mut Hand,
    index: usize,
}

/// Where a change writes how far it has come.
#[derive(Clone, Copy)]
pub enum Progress<'a> {
    /// The stripe's own word.
    Stripe(u64),
    /// The rounds of the store, of which this stripe is all.
    Rounds(u64),
    /// The outbox of worker `worker`.
    Outbox {
        /// Whose.
        worker: u32,
        /// Its word.
        word: &'a AtomicWord,
        /// What it will say.
        value: u64,
    },
}

impl Progress<'_> {
    /// Which word a record names, and what it will say.
    #[inline]
    fn in_a_record(&self) -> (u64, u64) {
        match self {
            Progress::Stripe(value) => (0, *value),
            Progress::Rounds(value) => (OF_ROUNDS, *value),
            Progress::Outbox { worker, value, .. } => (u64::from(*worker) + 1, *value),
        }
    }
}

impl<'a> Hold<'a> {
    /// The stripe's number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// What the stripe's own word says of its progress.
    pub fn progress(&self) -> u64 {
        self.store.stripe(self.index).progress.get()
    }

    /// Which generation the stripe's states belong to.
    pub fn generation(&self) -> u64 {
        self.store.stripe(self.index).generation.get()
    }

    /// Says which, once they do.
    pub fn set_generation(&mut self, value: u64) {
        moment();
        self.store.stripe(self.index).generation.set(value);
        moment();
    }

    /// Sets the stripe's own progress outside of a change.
    pub fn set_progress(&mut self, value: u64) {
        self.store.stripe(self.index).progress.set(value);
    }

    /// The current contents of some of the stripe's elements.
    #[inline]
    pub fn contents(&self, lane: usize, elements: Range<u64>) -> &[u8] {
        let at = self.inside(lane, &elements);
        // SAFETY: inside the lane (`inside`); this hand holds the stripe and writes only through `&mut self`, so nobody
        // changes the bytes while the borrow lasts.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), (elements.end - elements.start) as usize * self.store.layout.lanes[lane]) }
    }

    /// The elements themselves, to be changed in place: whoever dies meanwhile leaves half of it behind, so this is for
    /// a process that is alone with its store, and for copies nobody else reads.
    #[inline]
    pub fn contents_mut(&mut self, lane: usize, elements: Range<u64>) -> &mut [u8] {
        let at = self.inside(lane, &elements);
        // SAFETY: as in `contents`, and the exclusive borrow of the hold makes it the only reference. Readers in other
        // threads copy with `copy_racing` and throw the copy away when the stripe's word names a hand.
        unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), (elements.end - elements.start) as usize * self.store.layout.lanes[lane]) }
    }

    #[inline]
    fn inside(&self, lane: usize, elements: &Range<u64>) -> NonNull<u8> {
        let mine = self.store.elements_of(self.index);
        assert!(elements.start >= mine.start && elements.end <= mine.end, "elements of the stripe in hand");
        self.store.checked(lane, elements).expect("a stripe's elements lie inside the store")
    }

    /// [`change`](Hold::change) of the values alone, which most adds are: fewer words to write.
    #[inline]
    pub fn change_values(&mut self, elements: Range<u64>, progress: Progress<'_>, compute: impl FnOnce(&[u8], &mut [u8])) {
        let at = self.inside(0, &elements);
        let len = (elements.end - elements.start) as usize * self.store.layout.lanes[0];
        assert!(len <= SCRATCH, "a block fits the scratch");
        // SAFETY: as in `change`: old bytes of the stripe in hand, and this hand's own scratch, apart from each other.
        let (old, new) =
            unsafe { (std::slice::from_raw_parts(at.as_ptr(), len), std::slice::from_raw_parts_mut(self.hand.scratch.as_ptr(), len)) };
        compute(old, new);
        let record = &*self.hand.record;
        record.copy[0].to.store((at.as_ptr().addr() - self.store.base.as_ptr().addr()) as u64, Ordering::Relaxed);
        record.copy[0].len.store(len as u64, Ordering::Relaxed);
        record.copy[0].from.store(0, Ordering::Relaxed);
        record.copies.store(1, Ordering::Relaxed);
        let (of, value) = progress.in_a_record();
        record.progress_of.store(of, Ordering::Relaxed);
        record.progress.store(value, Ordering::Relaxed);
        moment();
        record.armed.store(self.index as u64 + 1, Ordering::Release);
        moment();
        let scratch = self.hand.scratch.as_ptr();
        // SAFETY: as in `change`.
        unsafe {
            match len < racing_copy::OF_THE_LIBRARY {
                true => racing_copy::copy_racing(scratch, at.as_ptr(), len),
                false => std::ptr::copy_nonoverlapping(scratch, at.as_ptr(), len),
            }
        };
        moment();
        self.say(progress);
        moment();
        record.armed.store(0, Ordering::Release);
        moment();
    }

    /// Changes `elements` in the given lanes: `compute` gets the old contents and room for the new ones, lane by lane.
    ///
    /// From the moment it is armed, the change happens even if this process dies, and `progress` with it.
    ///
    /// # Panics
    /// When the new contents do not fit the scratch ([`block_elements`] tells how many do) or there are too many lanes.
    #[inline]
    pub fn change(
        &mut self,
        elements: Range<u64>,
        lanes: &[usize],
        progress: Progress<'_>,
        compute: impl FnOnce([&[u8]; LANES_OF_A_CHANGE], [&mut [u8]; LANES_OF_A_CHANGE]),
    ) {
        assert!(lanes.len() <= LANES_OF_A_CHANGE && !lanes.is_empty(), "one to three lanes");
        let count = (elements.end - elements.start) as usize;
        let mut old: [&[u8]; LANES_OF_A_CHANGE] = [&[]; LANES_OF_A_CHANGE];
        let mut new: [&mut [u8]; LANES_OF_A_CHANGE] = [&mut [], &mut [], &mut []];
        let record = &*self.hand.record;
        let mut used = 0;
        for (index, &lane) in lanes.iter().enumerate() {
            let len = count * self.store.layout.lanes[lane];
            assert!(len <= SCRATCH - used, "a block fits the scratch");
            let at = self.inside(lane, &elements);
            // SAFETY: the old bytes lie inside the lane and nobody changes them while the stripe is in hand (the copy
            // below comes after the last use of these borrows). The scratch piece is this hand's own, inside its room,
            // and the pieces do not overlap.
            unsafe {
                old[index] = std::slice::from_raw_parts(at.as_ptr(), len);
                new[index] = std::slice::from_raw_parts_mut(self.hand.scratch.as_ptr().add(used), len);
            }
            let copy = &record.copy[index];
            copy.to.store((at.as_ptr().addr() - self.store.base.as_ptr().addr()) as u64, Ordering::Relaxed);
            copy.len.store(len as u64, Ordering::Relaxed);
            copy.from.store(used as u64, Ordering::Relaxed);
            used += len.next_multiple_of(64);
        }
        compute(old, new);
        self.carry_out(elements, lanes, progress);
    }

    /// As [`change`](Hold::change) for any lanes, of which the values are the first: `compute` gets the old values, and copies of all
    /// the lanes to change in place.
    ///
    /// # Panics
    /// As `change`; there may be [`MOST_LANES`].
    #[inline]
    pub fn rewrite(
        &mut self,
        elements: Range<u64>,
        lanes: &[usize],
        progress: Progress<'_>,
        compute: impl FnOnce(&[u8], &mut [u8], &mut [&mut [u8]]),
    ) {
        assert!(lanes.len() <= MOST_LANES && lanes.first() == Some(&0), "the values and up to nine more lanes");
        let count = (elements.end - elements.start) as usize;
        let mut old: &[u8] = &[];
        let mut new: [&mut [u8]; MOST_LANES] = Default::default();
        let record = &*self.hand.record;
        let mut used = 0;
        for (index, &lane) in lanes.iter().enumerate() {
            let len = count * self.store.layout.lanes[lane];
            assert!(len <= SCRATCH - used, "a block fits the scratch");
            let at = self.inside(lane, &elements);
            // SAFETY: as in `change`: the old bytes of the stripe in hand, and pieces of this hand's own scratch that do not overlap.
            unsafe {
                let piece = self.hand.scratch.as_ptr().add(used);
                std::ptr::copy_nonoverlapping(at.as_ptr(), piece, len);
                if index == 0 {
                    old = std::slice::from_raw_parts(at.as_ptr(), len);
                }
                new[index] = std::slice::from_raw_parts_mut(piece, len);
            }
            let copy = &record.copy[index];
            copy.to.store((at.as_ptr().addr() - self.store.base.as_ptr().addr()) as u64, Ordering::Relaxed);
            copy.len.store(len as u64, Ordering::Relaxed);
            copy.from.store(used as u64, Ordering::Relaxed);
            used += len.next_multiple_of(64);
        }
        let [values, states @ ..] = &mut new;
        compute(old, values, &mut states[..lanes.len() - 1]);
        self.carry_out(elements, lanes, progress);
    }

    /// Changes elements of the values and of other lanes in place: as [`contents_mut`](Hold::contents_mut), half of it may stay behind.
    #[inline]
    pub fn change_in_place(&mut self, elements: Range<u64>, lanes: &[usize], compute: impl FnOnce(&mut [u8], &mut [&mut [u8]])) {
        assert!(lanes.len() <= MOST_LANES && lanes.first() == Some(&0), "the values and up to nine more lanes");
        assert!(lanes.windows(2).all(|pair| pair[0] < pair[1]), "each lane once");
        let mut new: [&mut [u8]; MOST_LANES] = Default::default();
        for (index, &lane) in lanes.iter().enumerate() {
            let len = (elements.end - elements.start) as usize * self.store.layout.lanes[lane];
            // SAFETY: as in `contents_mut`; lanes do not overlap and each comes once.
            new[index] = unsafe { std::slice::from_raw_parts_mut(self.inside(lane, &elements).as_ptr(), len) };
        }
        let [values, states @ ..] = &mut new;
        compute(values, &mut states[..lanes.len() - 1]);
    }

    #[inline]
    fn say(&self, progress: Progress<'_>) {
        match progress {
            Progress::Stripe(value) => self.store.stripe(self.index).progress.set(value),
            Progress::Rounds(value) => self.store.header.rounds().raise(value),
            Progress::Outbox { word, value, .. } => word.set(value),
        }
    }

    /// Arms the record, whose copies are written down and whose new contents stand in the scratch, and does what it says.
    #[inline]
    fn carry_out(&mut self, elements: Range<u64>, lanes: &[usize], progress: Progress<'_>) {
        let record = &*self.hand.record;
        let count = (elements.end - elements.start) as usize;
        let (of, value) = progress.in_a_record();
        record.copies.store(lanes.len() as u64, Ordering::Relaxed);
        record.progress_of.store(of, Ordering::Relaxed);
        record.progress.store(value, Ordering::Relaxed);
        moment();
        record.armed.store(self.index as u64 + 1, Ordering::Release);
        moment();
        let mut from = 0;
        for &lane in lanes {
            let to = self.inside(lane, &elements);
            let len = count * self.store.layout.lanes[lane];
            // SAFETY: scratch and lane are inside their rooms and apart; the borrows given to `compute` have ended. Racing
            // readers in other threads or processes discard what they copied (`copy_racing`).
            unsafe { std::ptr::copy_nonoverlapping(self.hand.scratch.as_ptr().add(from), to.as_ptr(), len) };
            from += len.next_multiple_of(64);
            moment();
        }
        self.say(progress);
        moment();
        record.armed.store(0, Ordering::Release);
        moment();
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        self.hand.left = (self.index, self.store.stripe(self.index).word.let_go());
        moment();
    }
}

/// How many elements of lanes this wide one change may touch.
pub fn block_elements(widths: &[usize]) -> u64 {
    let width: usize = widths.iter().sum::<usize>().max(1);
    ((SCRATCH - 64 * widths.len()) / width) as u64
}
