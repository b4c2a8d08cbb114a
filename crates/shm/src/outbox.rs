//! Where a worker leaves its adds until they are part of the table.
//!
//! ```text
//!  [ words: published · finished │ applied · progress │ rescuer ][ 256 entries ][ body: row ids and deltas ]
//! ```
//! The owner writes an entry and its bytes, then raises *published*: from that store on the add counts, even if the
//! owner dies in the next instruction, because everyone else has the outbox mapped too. What is published does not move
//! or change until it is applied. *applied* counts whole adds, *progress* how far the next one has come; both are
//! written by whoever applies, normally the owner, after its death a survivor that put itself down as *rescuer*.
//!
//! Whole adds of a small table stand in *slots*, which are used in turn: so a neighbour may still copy one that is applied already, and ask
//! afterwards whether its slot was needed again meanwhile ([`Outbox::copy_slot`]).
//!
//! A delta of the whole table may instead be *lent*: the entry says in which array of shared memory it stands.
//!
//! Cost: one copy of the delta (the stage; none when it is lent), three stores. Memory: what the largest add needed, taken when first used.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mapping::HUGE;
use crate::mortality::moment;
use crate::placed::{AtomicWord, Line, Placed, Shared};
use crate::racing_copy::copy_racing;
use crate::segment::Segment;
use crate::sync::{Ordering, fence};

/// Adds that may wait in one outbox.
pub const ENTRIES: u64 = 256;
const ENTRIES_AT: usize = 4096;
const BODY_AT: usize = ENTRIES_AT + ENTRIES as usize * size_of::<EntryWords>();
/// Slots of a small table's adds. Of a worker that is further ahead of what is applied, adds stand behind them.
pub const SLOTS: u64 = 64;
/// Pieces of the body begin on cache lines.
const ALIGN: usize = 64;
/// Progress says which add it belongs to by the low bits of its number, so that a stale word is known as such.
const PROGRESS_BITS: u32 = 48;

#[repr(C)]
#[derive(Default)]
struct Words {
    owner: Line<OwnerWords>,
    applier: Line<ApplierWords>,
    rescuer: Line<AtomicWord>,
    notes: Line<[AtomicWord; 4]>,
}

#[repr(C)]
#[derive(Default)]
struct OwnerWords {
    published: AtomicWord,
    finished: AtomicWord,
}

#[repr(C)]
#[derive(Default)]
struct ApplierWords {
    applied: AtomicWord,
    progress: AtomicWord,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is an outbox that was never used.
unsafe impl Placed for Words {}

#[repr(C, align(64))]
#[derive(Default)]
struct EntryWords {
    sequence: AtomicWord,
    /// Row ids, or `WHOLE`.
    rows: AtomicWord,
    /// Where the row ids stand; of a delta that is lent, where it begins in its array.
    ids_at: AtomicWord,
    delta_at: AtomicWord,
    delta_len: AtomicWord,
    options: [AtomicWord; 2],
    /// The array that the delta is lent from, plus one; zero when it stands in the body.
    lent: AtomicWord,
}

// SAFETY: as for `Words`.
unsafe impl Placed for EntryWords {}

const WHOLE: u64 = u64::MAX;

/// One add as it stands in an outbox.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its number among the adds of its worker, from 1.
    pub sequence: u64,
    /// Where its row ids stand in the body; none for the whole table.
    pub ids: Option<Range<usize>>,
    /// Where its delta stands, or has room.
    pub delta: Range<usize>,
    /// Where it stands instead, if it is lent.
    pub lent: Option<LentDelta>,
    /// Four numbers for the updater.
    pub options: [u32; 4],
}

/// A delta of the whole table that was not copied into the outbox: its owner changes nothing there until it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentDelta {
    /// The number of the array, in the terms of whoever keeps them.
    pub array: u64,
    /// Where in the array it begins.
    pub offset: u64,
}

/// A mapped outbox.
pub struct Outbox {
    words: Shared<Words>,
    entries: Vec<Shared<EntryWords>>,
    body: NonNull<u8>,
    body_len: usize,
    segment: Arc<Segment>,
}

// SAFETY: the body pointer leads into the segment, which is mapped while `segment` lives. Who may touch which bytes
// when is ordered by `published` and `applied`, both atomic.
unsafe impl Send for Outbox {}
// SAFETY: as above.
unsafe impl Sync for Outbox {}

impl Outbox {
    /// Bytes of a segment for an outbox with `body` bytes of deltas; pages are taken only when used.
    pub const fn bytes(body: usize) -> usize {
        BODY_AT + body
    }

    /// The outbox in `segment`.
    ///
    /// # Panics
    /// When the segment is too small for the words.
    pub fn new(segment: Arc<Segment>) -> Outbox {
        assert!(segment.len() >= BODY_AT, "an outbox fits its segment");
        let body_len = segment.len() - BODY_AT;
        Outbox {
            words: segment.place(0),
            entries: (0..ENTRIES as usize).map(|index| segment.place(ENTRIES_AT + index * size_of::<EntryWords>())).collect(),
            body: segment.address(BODY_AT, body_len),
            body_len,
            segment,
        }
    }

    /// Adds that count.
    #[inline]
    pub fn published(&self) -> u64 {
        self.words.owner.published.get()
    }

    /// Adds that are applied (where adds are applied one by one).
    #[inline]
    pub fn applied(&self) -> u64 {
        self.words.applier.applied.get()
    }

    /// Whether no more adds will come.
    pub fn is_finished(&self) -> bool {
        self.words.owner.finished.get() != 0
    }

    /// Says that no more adds will come.
    pub fn finish(&self) {
        self.words.owner.finished.publish(1);
    }

    /// How many bytes of add `sequence` are applied.
    #[inline]
    pub fn progress(&self, sequence: u64) -> u64 {
        let word = self.words.applier.progress.get();
        if word >> PROGRESS_BITS == sequence & 0xffff { word & ((1 << PROGRESS_BITS) - 1) } else { 0 }
    }

    /// The word for [`progress`](Outbox::progress).
    #[inline]
    pub fn progress_word(&self) -> &AtomicWord {
        &self.words.applier.progress
    }

    /// What the word says when `bytes` of add `sequence` are applied.
    #[inline]
    pub fn progress_value(sequence: u64, bytes: u64) -> u64 {
        (sequence & 0xffff) << PROGRESS_BITS | bytes
    }

    /// Counts add `sequence` as applied.
    #[inline]
    pub fn set_applied(&self, sequence: u64) {
        moment();
        self.words.applier.applied.publish(sequence);
        moment();
    }

    /// Counts add `sequence`, which went into the table without standing here, as published and applied. Only its owner does, one thread at a time.
    #[inline]
    pub fn pass(&self, sequence: u64) {
        // In this order nobody ever finds an add that is published, not applied, and not here.
        self.words.applier.applied.set(sequence);
        moment();
        self.words.owner.published.set(sequence);
        moment();
    }

    /// Who looks after the outbox of a dead owner: 0 is nobody, otherwise a rank plus one.
    pub fn rescuer(&self) -> &AtomicWord {
        &self.words.rescuer
    }

    /// What the applier of an add must remember before it begins, so that a rescuer can go on: in the terms of the updater.
    pub fn notes(&self) -> &[AtomicWord; 4] {
        &self.words.notes.0
    }

    /// Add `sequence`, if it stands here and makes sense: its ranges lie inside the body.
    #[inline]
    pub fn entry(&self, sequence: u64) -> Option<Entry> {
        let words = &self.entries[(sequence % ENTRIES) as usize];
        if words.sequence.get() != sequence {
            return None;
        }
        let range = |at: u64, len: u64| {
            let end = at.checked_add(len)?;
            (end <= self.body_len as u64).then_some(at as usize..end as usize)
        };
        let ids = match words.rows.get() {
            WHOLE => None,
            rows => {
                let ids = range(words.ids_at.get(), rows.checked_mul(8)?)?;
                Some(ids).filter(|ids| ids.start.is_multiple_of(8))
            }
        };
        if words.rows.get() != WHOLE && ids.is_none() {
            return None;
        }
        let options = words.options.each_ref().map(AtomicWord::get);
        let lent = words.lent.get().checked_sub(1).map(|array| LentDelta { array, offset: words.ids_at.get() });
        Some(Entry {
            sequence,
            lent: lent.filter(|_| ids.is_none()),
            ids,
            delta: range(words.delta_at.get(), words.delta_len.get())?,
            options: [options[0] as u32, (options[0] >> 32) as u32, options[1] as u32, (options[1] >> 32) as u32],
        })
    }

    /// Bytes of a published add.
    #[inline]
    pub fn delta(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.body_len, "inside the body");
        // SAFETY: inside the mapping (checked). What is published stays unchanged until it is applied, and callers use
        // the bytes only until then; they are numbers, so a neighbour that breaks the rule makes wrong sums, no more.
        unsafe { std::slice::from_raw_parts(self.body.as_ptr().add(range.start), range.len()) }
    }

    /// Copies the delta of whole add `sequence` out of its slot. False when it does not stand in one, or not any more.
    #[inline]
    pub fn copy_slot(&self, sequence: u64, out: &mut [u8]) -> bool {
        let Some(entry) = self.entry(sequence) else { return false };
        if entry.ids.is_some() || entry.lent.is_some() || entry.delta != slot_of(sequence, out.len()) {
            return false;
        }
        // SAFETY: `entry` checked that the range lies inside the body; `out` is the caller's own and as long. The bytes may change
        // under the copy, which it allows; the look below tells.
        unsafe { copy_racing(self.body.as_ptr().add(entry.delta.start), out.as_mut_ptr(), out.len()) };
        fence(Ordering::Acquire); // the copy's loads stay before the look; pairs with the fence in `publish`, behind which a slot is filled again
        // The next to stand there is add `sequence + SLOTS`, and its owner begins with it after it has published the one before.
        self.published() < sequence + SLOTS - 1
    }

    /// Asks for some bytes ahead of their use; a hint that changes nothing.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        if range.start > range.end || range.end > self.body_len {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        for line in range.step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing and cannot fault; the address lies inside the mapping anyway.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.body.as_ptr().add(line).cast()) };
        }
    }

    /// Row ids of a published add. Each must be checked before it is used.
    #[inline]
    pub fn ids(&self, range: Range<usize>) -> &[i64] {
        assert!(range.start <= range.end && range.end <= self.body_len && range.start.is_multiple_of(8), "inside the body");
        // SAFETY: as for `delta`; the body begins on a multiple of 64 and the range on one of 8, so the ids are aligned.
        unsafe { std::slice::from_raw_parts(self.body.as_ptr().add(range.start).cast(), range.len() / 8) }
    }

    /// The owner's end. A process makes it once.
    pub fn post(self: &Arc<Self>) -> Post {
        Post { outbox: Arc::clone(self), slot: 0, behind_slots: 0, used: 0, budget: 0, staged: None }
    }
}

/// Where a whole add of `bytes` bytes stands in the body, in slots of that size.
fn slot_of(sequence: u64, bytes: usize) -> Range<usize> {
    let start = (sequence % SLOTS) as usize * bytes.next_multiple_of(ALIGN);
    start..start + bytes
}

/// The owner's end of an outbox.
pub struct Post {
    outbox: Arc<Outbox>,
    /// Bytes of a whole add where those have slots, else 0.
    slot: usize,
    /// Where the body begins for all other adds.
    behind_slots: usize,
    /// Bytes of the body in use, from its beginning.
    used: usize,
    /// The largest amount that may be in use before the outbox has to run empty.
    budget: usize,
    staged: Option<u64>,
}

/// Why an add cannot be staged now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Earlier adds must be applied first.
    Wait,
    /// It is larger than the outbox can ever hold.
    Never {
        /// What fits.
        room: usize,
    },
}

impl Post {
    /// Keeps the beginning of the body for slots of `bytes` bytes, in which whole adds stand from now on. Before the first add only.
    ///
    /// # Panics
    /// When the body is too small, or was used already.
    pub fn set_slots(&mut self, bytes: usize) {
        let end = slot_of(SLOTS - 1, bytes).end.next_multiple_of(ALIGN);
        assert!(
            self.used == 0 && self.outbox.published() == 0 && end <= self.outbox.body_len,
            "slots are set apart in a new outbox, and fit"
        );
        (self.slot, self.behind_slots, self.used) = (bytes, end, end);
    }

    /// Asks for the slot of a whole add that may come, ahead of its being written: whoever read it last lets go of its lines meanwhile.
    #[inline]
    pub fn prefetch_slot(&self, sequence: u64) {
        #[cfg(target_arch = "x86_64")]
        for line in slot_of(sequence, self.slot).step_by(ALIGN) {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: a prefetch writes nothing and cannot fault; the address lies inside the body (`set_slots`).
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(self.outbox.body.as_ptr().add(line).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = sequence;
    }

    /// Makes room for add `sequence` with `ids` row ids and `delta` bytes, when `applied` adds are applied.
    ///
    /// What is in flight is kept to one buffer of about the largest add (at least `least` bytes): when more is asked
    /// for, the outbox must run empty first and is then used from its beginning again, so that its pages stay few.
    pub fn room(&mut self, sequence: u64, applied: u64, ids: Option<usize>, delta: usize, least: usize) -> Result<Room<'_>, Full> {
        let need = ids.map_or(0, |ids| (ids * 8).next_multiple_of(ALIGN)) + delta.next_multiple_of(ALIGN);
        let room = self.outbox.body_len - self.behind_slots;
        if need > room {
            return Err(Full::Never { room });
        }
        let empty = applied + 1 >= sequence;
        if empty {
            self.used = self.behind_slots;
        }
        if ids.is_none() && delta == self.slot && self.slot > 0 && sequence <= applied + SLOTS {
            let slot = slot_of(sequence, delta);
            return Ok(self.room_at(sequence, None, slot.start..slot.start, slot, self.used));
        }
        let budget = self.budget.max(need).max(least).min(room);
        if budget > self.budget && need >= HUGE {
            // Only saves time: huge pages where there are some. Without them, or without memory, pages come as they are touched.
            let _ = self.outbox.segment.reserve(BODY_AT + self.behind_slots, need);
        }
        self.budget = budget;
        if self.used + need > self.behind_slots + self.budget || sequence > applied + ENTRIES {
            return Err(Full::Wait);
        }
        let ids_at = self.used;
        let delta_at = ids_at + ids.map_or(0, |ids| (ids * 8).next_multiple_of(ALIGN));
        Ok(self.room_at(sequence, ids, ids_at..delta_at, delta_at..delta_at + delta, ids_at + need))
    }

    /// The entry of add `sequence` with these places in the body, which nothing published uses.
    fn room_at(&mut self, sequence: u64, ids: Option<usize>, ids_room: Range<usize>, delta_room: Range<usize>, end: usize) -> Room<'_> {
        let words = &self.outbox.entries[(sequence % ENTRIES) as usize];
        words.sequence.set(0);
        words.rows.set(ids.map_or(WHOLE, |ids| ids as u64));
        words.ids_at.set(ids_room.start as u64);
        words.delta_at.set(delta_room.start as u64);
        words.delta_len.set(delta_room.len() as u64);
        words.lent.set(0);
        assert!(
            ids.unwrap_or(0) * 8 <= ids_room.len() && ids_room.end <= delta_room.start && delta_room.end <= self.outbox.body_len,
            "room in the body"
        );
        // SAFETY: both ranges lie inside the body and apart (checked above). Nothing published that is not applied stands there: behind the slots either
        // the outbox is empty or `used` is behind all that is in flight, and a slot was last used for an add that is applied; whoever still copies
        // from it throws the copy away (`copy_slot`). The borrow of `self` keeps others of this process out.
        let (ids, delta) = unsafe {
            let at = self.outbox.body.as_ptr();
            (
                std::slice::from_raw_parts_mut(at.add(ids_room.start).cast::<i64>(), ids.unwrap_or(0)),
                std::slice::from_raw_parts_mut(at.add(delta_room.start), delta_room.len()),
            )
        };
        Room { ids, delta, end }
    }

    /// Completes the entry whose room was filled up to `end` ([`Room::end`]); it does not count yet.
    pub fn stage(&mut self, sequence: u64, options: [u32; 4], end: usize) {
        let words = &self.outbox.entries[(sequence % ENTRIES) as usize];
        words.options[0].set(u64::from(options[0]) | u64::from(options[1]) << 32);
        words.options[1].set(u64::from(options[2]) | u64::from(options[3]) << 32);
        words.sequence.set(sequence);
        self.used = end;
        self.staged = Some(sequence);
        moment();
    }

    /// As [`stage`](Post::stage), for a delta of the whole table that stands elsewhere; its room is left untouched.
    pub fn stage_lent(&mut self, sequence: u64, options: [u32; 4], lent: LentDelta, end: usize) {
        let words = &self.outbox.entries[(sequence % ENTRIES) as usize];
        assert_eq!(words.rows.get(), WHOLE, "only the whole table is lent");
        words.ids_at.set(lent.offset);
        words.lent.set(lent.array + 1);
        self.stage(sequence, options, end);
    }

    /// Copies the delta of a published add that was lent into its room, so that its owner may have it back.
    pub fn take_over(&mut self, sequence: u64, delta: &[u8]) {
        let Some(entry) = self.outbox.entry(sequence).filter(|entry| entry.lent.is_some() && entry.delta.len() == delta.len()) else {
            return;
        };
        // SAFETY: the room was checked by `entry` to lie inside the body and belongs to this add alone (`room`); nobody
        // reads it before the word below says that the delta is there.
        unsafe { std::ptr::copy_nonoverlapping(delta.as_ptr(), self.outbox.body.as_ptr().add(entry.delta.start), delta.len()) };
        moment();
        self.outbox.entries[(sequence % ENTRIES) as usize].lent.publish(0);
        moment();
    }

    /// Makes the staged add count. False when `sequence` is not the staged one.
    pub fn publish(&mut self, sequence: u64) -> bool {
        if self.staged != Some(sequence) || sequence != self.outbox.published() + 1 {
            return false;
        }
        self.staged = None;
        moment();
        self.outbox.words.owner.published.publish(sequence);
        moment();
        true
    }

    /// [`Outbox::pass`], by its owner.
    #[inline]
    pub fn pass(&mut self, sequence: u64) {
        self.outbox.pass(sequence);
    }

    /// Forgets the staged add.
    pub fn discard(&mut self, sequence: u64) {
        if self.staged == Some(sequence) {
            self.staged = None;
        }
    }

    /// The outbox.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }
}

/// Room for one add.
pub struct Room<'a> {
    /// For its row ids.
    pub ids: &'a mut [i64],
    /// For its delta.
    pub delta: &'a mut [u8],
    /// What to tell [`Post::stage`].
    pub end: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox(body: usize) -> Arc<Outbox> {
        Arc::new(Outbox::new(Segment::create("test", Outbox::bytes(body)).unwrap()))
    }

    #[test]
    fn an_add_counts_only_when_published() {
        let outbox = outbox(4096);
        let mut post = outbox.post();
        let room = post.room(1, 0, Some(2), 16, 1024).unwrap();
        room.ids.copy_from_slice(&[5, -1]);
        room.delta.copy_from_slice(&[7; 16]);
        let end = room.end;
        post.stage(1, [1, 2, 3, 4], end);
        assert_eq!(outbox.published(), 0);
        assert!(!post.publish(2) && post.publish(1) && !post.publish(1), "once, and only the staged one");
        let entry = outbox.entry(1).unwrap();
        assert_eq!((outbox.ids(entry.ids.unwrap()), outbox.delta(entry.delta), entry.options), (&[5, -1][..], &[7; 16][..], [1, 2, 3, 4]));
        assert!(outbox.entry(2).is_none());
    }

    #[test]
    fn a_full_outbox_waits_and_then_begins_anew() {
        let outbox = outbox(1 << 20);
        let mut post = outbox.post();
        for sequence in 1..=2 {
            let end = post.room(sequence, 0, None, 500, 1024).unwrap().end;
            post.stage(sequence, [0; 4], end);
            assert!(post.publish(sequence));
        }
        assert_eq!(post.room(3, 1, None, 500, 1024).err(), Some(Full::Wait));
        assert_eq!(post.room(3, 2, None, 1 << 30, 1024).err(), Some(Full::Never { room: 1 << 20 }));
        let end = post.room(3, 2, None, 500, 1024).unwrap().end;
        post.stage(3, [0; 4], end);
        assert_eq!(outbox.entry(3).unwrap().delta.start, 0);
    }

    #[test]
    fn a_slot_is_read_until_it_is_needed_again() {
        let outbox = outbox(1 << 20);
        let mut post = outbox.post();
        post.set_slots(100);
        let mut add = |sequence: u64, applied: u64| {
            let room = post.room(sequence, applied, None, 100, 1024)?;
            room.delta.fill(sequence as u8);
            let end = room.end;
            post.stage(sequence, [0; 4], end);
            assert!(post.publish(sequence));
            Ok::<(), Full>(())
        };
        let mut copy = [0; 100];
        assert!(!outbox.copy_slot(1, &mut copy), "nothing stands there yet");
        (1..SLOTS).for_each(|sequence| add(sequence, sequence - 1).unwrap());
        assert!(outbox.copy_slot(1, &mut copy) && copy == [1; 100], "it is applied, and still there");
        add(SLOTS, 0).unwrap();
        assert!(!outbox.copy_slot(1, &mut copy), "its owner may be writing there");
        assert!(outbox.copy_slot(2, &mut copy) && copy == [2; 100]);
        add(SLOTS + 1, 0).unwrap();
        assert!(!outbox.copy_slot(SLOTS + 1, &mut copy), "the slot is taken by one that is not applied: it stands elsewhere");
        assert_eq!(outbox.delta(outbox.entry(1).unwrap().delta), [1; 100]);
        let ids = post.room(SLOTS + 2, SLOTS + 1, Some(2), 100, 1024).unwrap();
        ids.delta.fill(0xee);
        let end = ids.end;
        post.stage(SLOTS + 2, [0; 4], end);
        assert!(post.publish(SLOTS + 2) && !outbox.copy_slot(SLOTS + 2, &mut copy), "so do rows");
        assert!(outbox.copy_slot(4, &mut copy) && copy == [4; 100], "and disturb no slot");
    }

    #[test]
    fn a_lent_delta_stays_where_it_is_until_it_is_taken_over() {
        let outbox = outbox(4096);
        let mut post = outbox.post();
        let end = post.room(1, 0, None, 100, 1024).unwrap().end;
        let lent = LentDelta { array: 0, offset: 77 };
        post.stage_lent(1, [0; 4], lent, end);
        assert!(post.publish(1));
        assert_eq!(outbox.entry(1).unwrap().lent, Some(lent));
        post.take_over(1, &[5; 100]);
        let entry = outbox.entry(1).unwrap();
        assert_eq!((entry.lent, outbox.delta(entry.delta)), (None, &[5; 100][..]));
        let end = post.room(257, 256, None, 8, 1024).unwrap().end;
        post.stage(257, [0; 4], end);
        assert_eq!(outbox.entry(257).unwrap().lent, None);
    }

    #[test]
    fn progress_of_an_earlier_add_is_not_taken_for_this_ones() {
        let outbox = outbox(64);
        outbox.progress_word().set(Outbox::progress_value(7, 4096));
        assert_eq!((outbox.progress(7), outbox.progress(8)), (4096, 0));
    }

    #[test]
    fn entries_that_point_outside_are_not_believed() {
        let outbox = outbox(4096);
        let words = &outbox.entries[1];
        words.sequence.set(1);
        words.rows.set(WHOLE);
        words.delta_at.set(u64::MAX);
        words.delta_len.set(8);
        assert!(outbox.entry(1).is_none());
        words.delta_at.set(0);
        assert!(outbox.entry(1).is_some());
        words.rows.set(1 << 61);
        assert!(outbox.entry(1).is_none());
    }
}
