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
mod racing_copy;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use hand::{HandParts, Record, SCRATCH};
pub use hand::{MOST_LANES, Part};

use crate::mortality::moment;
pub use crate::placed::AtomicWord;
use crate::placed::{Line, Placed, Shared};
use crate::segment::Segment;
pub use crate::stripe::{Busy, StripeWord};
use crate::sync::{Ordering, fence};

/// How a store is laid out; every process that maps it must come to the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many processes may change it.
    pub hands: usize,
    /// How many elements each lane has.
    pub elements: u64,
    /// Bytes of an element of each lane; lane 0 holds the values.
    pub lanes: Vec<usize>,
    /// Elements of one stripe.
    pub stripe: u64,
    /// Rows that carry a stamp of their last change; 0 for none.
    pub stamps: u64,
    /// Lanes whose memory is taken when the store is made; the others take theirs when they are used.
    pub ahead: usize,
    /// Rooms for what was measured of the values; 0 for none.
    pub measures: usize,
}

const PAGE: usize = 4096;
const RECORD: usize = 512;
/// Where in the room of a record its parts stand.
const PARTS_AT: usize = 448;
/// The most lanes of [`Hold::change`]: the values and two of the updater's states.
pub const LANES_OF_A_CHANGE: usize = 3;
const HAND: usize = RECORD + SCRATCH;

impl Layout {
    /// How many stripes there are.
    pub fn stripes(&self) -> usize {
        self.elements.div_ceil(self.stripe) as usize
    }

    /// The segment's size.
    pub fn bytes(&self) -> usize {
        self.measures_at() + (self.measures * size_of::<Measure>()).next_multiple_of(PAGE)
    }

    fn stripes_at(&self) -> usize {
        (PAGE + self.hands * HAND).next_multiple_of(PAGE)
    }

    fn lane_at(&self, lane: usize) -> usize {
        let before: usize = self.lanes[..lane].iter().map(|size| (self.elements as usize * size).next_multiple_of(PAGE)).sum();
        (self.stripes_at() + self.stripes() * size_of::<Stripe>()).next_multiple_of(PAGE) + before
    }

    fn stamps_at(&self) -> usize {
        self.lane_at(self.lanes.len())
    }

    fn measures_at(&self) -> usize {
        self.stamps_at() + (self.stamps as usize * size_of::<Stamp>()).next_multiple_of(PAGE)
    }
}

/// The words of one stripe, alone on a line.
#[repr(C, align(64))]
#[derive(Default)]
pub struct Stripe {
    /// Who changes it.
    pub word: StripeWord,
    /// How far its rounds have come, in the terms of whoever uses the store.
    pub progress: AtomicWord,
    /// Which generation its states belong to, in the same terms.
    pub generation: AtomicWord,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is an untouched stripe.
unsafe impl Placed for Stripe {}

/// When a row was last changed, and by whom: two words so that each worker can tell others' changes from its own.
#[repr(C)]
#[derive(Default)]
pub struct Stamp {
    /// `epoch << 16 | worker + 1` of the last change.
    pub last: AtomicWord,
    /// The epoch of the last change by somebody other than that worker.
    pub other: AtomicWord,
}

/// What was measured of some of the values, and when: the words stand once the tag does.
#[repr(C, align(64))]
pub struct Measure {
    /// In which round.
    pub tag: AtomicWord,
    /// What, in the terms of whoever uses the store.
    pub words: [AtomicWord; MEASURE_WORDS],
}

/// Words of one [`Measure`].
pub const MEASURE_WORDS: usize = 71;

/// Words that belong to the store as a whole, each on a line of its own.
#[repr(C)]
#[derive(Default)]
pub struct Header {
    ready: Line<AtomicWord>,
    rounds: Line<AtomicWord>,
    epoch: Line<AtomicWord>,
    count: Line<AtomicWord>,
    reserved: Line<AtomicWord>,
    notes: [Line<[AtomicWord; 8]>; 2],
}

impl Header {
    /// Rounds that are applied on every stripe.
    pub fn rounds(&self) -> &AtomicWord {
        &self.rounds
    }

    /// Moves on with every reader of changed rows; 0 while nobody asked for any, and then no row is stamped.
    pub fn epoch(&self) -> &AtomicWord {
        &self.epoch
    }

    /// Updates so far, in the terms of whoever uses the store.
    pub fn count(&self) -> &AtomicWord {
        &self.count
    }

    /// How many lanes have taken their memory after the store was made.
    pub fn reserved(&self) -> &AtomicWord {
        &self.reserved
    }

    /// What is to be remembered from round to round: even rounds write the one, odd rounds the other.
    pub fn notes(&self, round: u64) -> &[AtomicWord; 8] {
        &self.notes[(round % 2) as usize].0
    }
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a store that is not ready.
unsafe impl Placed for Header {}

/// A mapped store.
pub struct Store {
    layout: Layout,
    /// Where stripes have a power of two of elements, its logarithm: rows by the thousand are found by it.
    shift: Option<u32>,
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
        assert!(index < self.layout.stripes(), "stripe {index} exists");
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
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
            let stripe = self.stripes.as_ptr().wrapping_add(self.stripe_of(elements.start));
            let bytes = (elements.end - elements.start) as usize * self.layout.lanes[lane];
            // SAFETY: a prefetch reads nothing and cannot fault; the addresses lie inside the mapping anyway.
            unsafe {
                if to_change {
                    _mm_prefetch::<_MM_HINT_ET0>(stripe.cast());
                    for line in (0..bytes.min(512)).step_by(64) {
                        _mm_prefetch::<_MM_HINT_ET0>(at.as_ptr().wrapping_add(line).cast());
                    }
                } else {
                    _mm_prefetch::<_MM_HINT_T0>(stripe.cast());
                    for line in (0..bytes.min(512)).step_by(64) {
                        _mm_prefetch::<_MM_HINT_T0>(at.as_ptr().wrapping_add(line).cast());
                    }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, to_change);
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
        if of == 0 { self.stripe(index).progress.set(value) } else { outbox(of, value) }
    }
}

/// One process's means to change stripes.
pub struct Hand {
    number: u32,
    record: Shared<Record>,
    scratch: NonNull<u8>,
    /// The stripe that it held last, and what its word said then.
    left: (usize, u64),
    _segment: Arc<Segment>,
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
    pub fn was_followed(&self, store: &Store, index: usize) -> bool {
        self.left.0 == index && !store.stripe(index).word.is_as_left(self.left.1)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// A stripe in hand. Dropping it lets go.
pub struct Hold<'a> {
    store: &'a Store,
    hand: &'a mut Hand,
    index: usize,
}

/// Where a change writes how far it has come.
#[derive(Clone, Copy)]
pub enum Progress<'a> {
    /// The stripe's own word.
    Stripe(u64),
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
        let (of, value) = match &progress {
            Progress::Stripe(value) => (0, *value),
            Progress::Outbox { worker, value, .. } => (u64::from(*worker) + 1, *value),
        };
        record.progress_of.store(of, Ordering::Relaxed);
        record.progress.store(value, Ordering::Relaxed);
        moment();
        record.armed.store(self.index as u64 + 1, Ordering::Release);
        moment();
        // SAFETY: as in `change`. Whole lines at once, which the library's copy of a few KB does not promise.
        unsafe { racing_copy::copy_racing(self.hand.scratch.as_ptr(), at.as_ptr(), len) };
        moment();
        match progress {
            Progress::Stripe(value) => self.store.stripe(self.index).progress.set(value),
            Progress::Outbox { word, value, .. } => word.set(value),
        }
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

    /// Arms the record, whose copies are written down and whose new contents stand in the scratch, and does what it says.
    #[inline]
    fn carry_out(&mut self, elements: Range<u64>, lanes: &[usize], progress: Progress<'_>) {
        let record = &*self.hand.record;
        let count = (elements.end - elements.start) as usize;
        let (of, value) = match &progress {
            Progress::Stripe(value) => (0, *value),
            Progress::Outbox { worker, value, .. } => (u64::from(*worker) + 1, *value),
        };
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
        match progress {
            Progress::Stripe(value) => self.store.stripe(self.index).progress.set(value),
            Progress::Outbox { word, value, .. } => word.set(value),
        }
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

#[cfg(test)]
mod tests;
