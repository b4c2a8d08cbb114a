//! Numbers that many processes read and change, and that survive the death of whoever changes them.
//!
//! ```text
//!  [ header ][ hand 0 ][ hand 1 ] …   [ stripe words ][ lane 0: values ][ lane 1: a state ] … [ stamps of rows ]
//! ```
//! The elements are cut into stripes; a stripe is read without a lock and changed by one [`Hand`] at a time (see
//! [`stripe`](crate::stripe)). A change never lets anyone see or inherit half of it: new contents are written beside the old ones first
//! and copied over under a redo record (see `hand`).
//!
//! Cost: a read is one copy and two loads per stripe. A change is one pass over the old contents, one write to a
//! scratch that stays in the first-level cache, and one copy from there: the memory behind the stripe is read once and
//! written once. A take and a let-go are one atomic exchange and one store.

mod hand;
mod hold;
mod layout;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use hand::{HandParts, OF_ROUNDS, Record, SCRATCH};
pub use hand::{MOST_LANES, Part};
pub use hold::{Hand, Hold, Progress, block_elements};
use layout::{HAND, PAGE, PARTS_AT, RECORD};
pub use layout::{Header, LANES_OF_A_CHANGE, Layout, MEASURE_WORDS, Measure, Stamp, Stripe};

use crate::mortality::moment;
pub use crate::placed::AtomicWord;
use crate::placed::Shared;
use crate::prefetch;
use crate::racing_copy;
use crate::segment::Segment;
pub use crate::stripe::{Busy, StripeWord};
use crate::sync::{Ordering, fence};

/// A mapped store.
pub struct Store {
    layout: Layout,
    /// Where stripes have a power of two of elements, its logarithm: rows by the thousand are found by it.
    shift: Option<u32>,
    /// As the layout says; divided once and not at every look.
    stripe_count: usize,
    header: Shared<Header>,
    records: Vec<Shared<Record>>,
    parts: Vec<Shared<Part>>,
    stripes: NonNull<Stripe>,
    stamps: NonNull<Stamp>,
    measures: NonNull<Measure>,
    lanes: Vec<NonNull<u8>>,
    base: NonNull<u8>,
    segment: Arc<Segment>,
}

// SAFETY: the pointers lead into the segment, which is mapped while `segment` lives; stripes and stamps are atomics,
// lane bytes are reached only by racing copies and by the hand that holds their stripe.
unsafe impl Send for Store {}
// SAFETY: as above.
unsafe impl Sync for Store {}

impl Store {
    /// The store in `segment`, which has at least `layout.bytes()` bytes, zero when it is new.
    ///
    /// # Panics
    /// When the segment is too small for the layout.
    pub fn new(segment: Arc<Segment>, layout: Layout) -> Store {
        assert!(segment.len() >= layout.bytes(), "a store fits its segment");
        assert!(size_of::<Header>() <= PAGE && size_of::<Record>() <= PARTS_AT, "the words have the room the layout gives them");
        let base = segment.address(0, layout.bytes());
        // SAFETY: all offsets of a layout lie below its `bytes()`, which were just checked to be mapped.
        let at = |offset: usize| unsafe { base.add(offset) };
        let parts = |hand: usize| {
            let parts: Shared<HandParts> = segment.place(PAGE + hand * HAND + PARTS_AT);
            (0..hand::PARTS).map(move |part| parts.part(|parts| &parts.0[part]))
        };
        Store {
            header: segment.place(0),
            parts: (0..layout.hands).flat_map(parts).collect(),
            records: (0..layout.hands).map(|hand| segment.place(PAGE + hand * HAND)).collect(),
            stripes: at(layout.stripes_at()).cast(),
            stamps: at(layout.stamps_at()).cast(),
            measures: at(layout.measures_at()).cast(),
            lanes: (0..layout.lanes.len()).map(|lane| at(layout.lane_at(lane))).collect(),
            base,
            shift: layout.stripe.is_power_of_two().then(|| layout.stripe.trailing_zeros()),
            stripe_count: layout.stripes(),
            layout,
            segment,
        }
    }

    /// Takes the memory of the lanes that want it ahead and maps it here, so that no later access waits for pages.
    pub fn reserve(&self) -> Result<(), crate::segment::SegmentError> {
        self.reserve_lanes(0..self.layout.ahead)
    }

    /// Takes the memory of these lanes now and maps it here.
    pub fn reserve_lanes(&self, lanes: Range<usize>) -> Result<(), crate::segment::SegmentError> {
        let bytes = self.layout.lane_at(lanes.start)..self.layout.lane_at(lanes.end);
        self.segment.reserve(bytes.start, bytes.len())
    }

    /// Maps here what another process has reserved.
    pub fn populate(&self) {
        let lanes = self.layout.lane_at(0)..self.layout.lane_at(self.layout.ahead);
        self.segment.populate(lanes.start, lanes.len());
    }

    /// How it is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The parts that the work of a round may be shared out in, those of each hand together.
    pub fn parts(&self) -> &[Shared<Part>] {
        &self.parts
    }

    /// Its common words.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Says that the initial contents are in place.
    pub fn set_ready(&self) {
        self.header.ready.set(1);
    }

    /// Whether they are.
    pub fn is_ready(&self) -> bool {
        self.header.ready.get() != 0
    }

    /// The words of stripe `index`.
    #[inline]
    pub fn stripe(&self, index: usize) -> &Stripe {
        assert!(index < self.stripe_count, "stripe {index} exists");
        // SAFETY: `index` was just checked, the layout reserves that many stripes in the mapping, aligned to 64 because
        // they begin on a page, and a `Stripe` is nothing but atomics.
        unsafe { self.stripes.add(index).as_ref() }
    }

    /// The stripe that an element lies in.
    #[inline]
    pub fn stripe_of(&self, element: u64) -> usize {
        match self.shift {
            Some(shift) => (element >> shift) as usize,
            None => (element / self.layout.stripe) as usize,
        }
    }

    /// The elements of stripe `index`.
    #[inline]
    pub fn elements_of(&self, index: usize) -> Range<u64> {
        let first = index as u64 * self.layout.stripe;
        first..(first + self.layout.stripe).min(self.layout.elements)
    }

    /// The stamp of a row.
    #[inline]
    pub fn stamp(&self, row: u64) -> &Stamp {
        assert!(row < self.layout.stamps, "row {row} has a stamp");
        // SAFETY: as for `stripe`: checked, mapped, aligned to a page and made of atomics.
        unsafe { self.stamps.add(row as usize).as_ref() }
    }

    /// Room for what is measured of some values.
    pub fn measure(&self, index: usize) -> &Measure {
        assert!(index < self.layout.measures, "measure {index} has room");
        // SAFETY: as for `stripe`: checked, mapped, aligned to a page and made of atomics.
        unsafe { self.measures.add(index).as_ref() }
    }

    /// Asks for the stripe's words and the first bytes of the elements ahead of their use, to be changed or only read.
    #[inline]
    pub fn prefetch(&self, lane: usize, elements: Range<u64>, to_change: bool) {
        let Some(at) = self.checked(lane, &elements) else { return };
        let stripe = self.stripes.as_ptr().wrapping_add(self.stripe_of(elements.start));
        let bytes = (elements.end - elements.start) as usize * self.layout.lanes[lane];
        let lines = (0..bytes.min(512)).step_by(64).map(|line| at.as_ptr().cast_const().wrapping_add(line));
        if to_change {
            prefetch::to_write(stripe);
            lines.for_each(prefetch::to_write);
        } else {
            prefetch::to_read(stripe);
            lines.for_each(prefetch::to_read);
        }
    }

    /// Copies elements of one stripe, if nobody changes it meanwhile; tries again a few times before it says who does.
    #[inline]
    pub fn try_read(&self, lane: usize, elements: Range<u64>, out: &mut [u8]) -> Result<(), Busy> {
        self.read_by(racing_copy::copy_racing, lane, elements, out)
    }

    /// As [`try_read`](Store::try_read) into an array that no cache is to hold.
    pub fn try_read_past_cache(&self, lane: usize, elements: Range<u64>, out: &mut [u8]) -> Result<(), Busy> {
        self.read_by(racing_copy::copy_racing_past_cache, lane, elements, out)
    }

    #[inline(always)]
    fn read_by(&self, copy: unsafe fn(*const u8, *mut u8, usize), lane: usize, elements: Range<u64>, out: &mut [u8]) -> Result<(), Busy> {
        let from = self.checked(lane, &elements).expect("elements lie inside the store");
        assert_eq!(out.len(), (elements.end - elements.start) as usize * self.layout.lanes[lane], "room for the elements");
        if elements.is_empty() {
            return Ok(());
        }
        let stripe = self.stripe_of(elements.start);
        assert_eq!(self.stripe_of(elements.end - 1), stripe, "one stripe at a time");
        let word = &self.stripe(stripe).word;
        loop {
            let begun = word.begin()?;
            // SAFETY: `checked` keeps the source inside the mapped lane, `out` is the caller's own and exactly as long.
            // The source may change under the copy, which both copies allow; the second look tells.
            unsafe { copy(from.as_ptr(), out.as_mut_ptr(), out.len()) };
            if word.unchanged(begun) {
                return Ok(());
            }
        }
    }

    /// Writes elements without any lock or record: only while nobody else uses the store, before it is ready.
    pub fn write_unguarded(&self, lane: usize, elements: Range<u64>, bytes: &[u8]) {
        let to = self.checked(lane, &elements).expect("elements lie inside the store");
        assert_eq!(bytes.len(), (elements.end - elements.start) as usize * self.layout.lanes[lane], "bytes for the elements");
        // SAFETY: the target lies inside the mapped lane and is as long as `bytes`, which is private memory. Should
        // somebody else touch it after all, the bytes become a mixture of numbers; nothing else depends on them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// The address of the first of `elements`, if all lie inside the lane.
    #[inline]
    fn checked(&self, lane: usize, elements: &Range<u64>) -> Option<NonNull<u8>> {
        let inside = elements.start <= elements.end && elements.end <= self.layout.elements;
        // SAFETY: the offset lies inside the lane, whose bytes the layout reserves in the mapping.
        inside.then(|| unsafe { self.lanes[lane].add(elements.start as usize * self.layout.lanes[lane]) })
    }

    /// The hand of the process with this number. A process makes it once and keeps it to itself.
    pub fn hand(&self, number: u32) -> Hand {
        let record = self.records[number as usize].clone();
        // SAFETY: the layout reserves the scratch right behind the record.
        let scratch = unsafe { self.base.add(PAGE + number as usize * HAND + RECORD) };
        Hand { number, record, scratch, left: (usize::MAX, 0), _segment: Arc::clone(&self.segment) }
    }

    /// Takes a stripe for a hand, which then [`hold`](Hand::hold)s it.
    #[inline]
    pub fn take(&self, index: usize, hand: &Hand) -> Result<(), Busy> {
        self.stripe(index).word.try_take(hand.number)?;
        moment();
        Ok(())
    }

    /// Takes a stripe over from the dead hand that held it, for `heir`, finishing what the dead one had begun.
    ///
    /// `progress` writes the word that a record names: w + 1 is the outbox of worker w. `is_dead` says which hands are
    /// dead for certain. False when somebody else inherited it or it is free again.
    pub fn inherit(&self, index: usize, dead: u32, heir: &Hand, is_dead: &dyn Fn(u32) -> bool, progress: &dyn Fn(u64, u64)) -> bool {
        if !self.stripe(index).word.inherit(dead, heir.number) {
            return false;
        }
        fence(Ordering::SeqCst); // everything the dead process stored is visible: its end was reported after it
        // An earlier heir may have died in the middle of this, so every dead hand's record is looked at.
        for (hand, record) in self.records.iter().enumerate() {
            if record.armed.load(Ordering::Acquire) == index as u64 + 1 && is_dead(hand as u32) {
                self.replay(hand, record, index, progress);
            }
        }
        true
    }

    /// The stripe that a hand is changing right now, or was when it died.
    pub fn under_change(&self, hand: u32) -> Option<usize> {
        let armed = self.records[hand as usize].armed.load(Ordering::Acquire);
        (1..=self.layout.stripes() as u64).contains(&armed).then(|| armed as usize - 1)
    }

    fn replay(&self, hand: usize, record: &Record, index: usize, progress: &dyn Fn(u64, u64)) {
        let copies = (record.copies.load(Ordering::Acquire) as usize).min(MOST_LANES);
        for copy in &record.copy[..copies] {
            let (to, len, from) = (
                copy.to.load(Ordering::Relaxed) as usize,
                copy.len.load(Ordering::Relaxed) as usize,
                copy.from.load(Ordering::Relaxed) as usize,
            );
            // A record is written by a process of the same job, but its numbers are checked before they become addresses.
            let lanes = self.layout.lane_at(0)..self.layout.stamps_at();
            if from > SCRATCH || len > SCRATCH - from || to < lanes.start || to > lanes.end || len > lanes.end - to {
                continue;
            }
            // SAFETY: both ranges were just checked to lie inside the mapping, in the scratch and in the lanes, which
            // do not overlap. The stripe is held by this process, so nobody else writes there.
            unsafe {
                let scratch = self.base.as_ptr().add(PAGE + hand * HAND + RECORD + from);
                std::ptr::copy_nonoverlapping(scratch, self.base.as_ptr().add(to), len);
            }
        }
        self.say_progress(index, record.progress_of.load(Ordering::Relaxed), record.progress.load(Ordering::Relaxed), progress);
        record.armed.store(0, Ordering::Release);
    }

    #[inline]
    fn say_progress(&self, index: usize, of: u64, value: u64, outbox: &dyn Fn(u64, u64)) {
        match of {
            0 => self.stripe(index).progress.set(value),
            OF_ROUNDS => self.header.rounds().raise(value),
            _ => outbox(of, value),
        }
    }
}

#[cfg(test)]
mod tests;
