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
//! A worker in a hurry keeps a *tally* instead: one sum of all its adds that are not applied. It has two sides; the next add writes old sum plus delta to the other
//! one, and *published* turns it over. So its owner may die at any instruction, and survivors find one sum of whole adds.
//!
//! A delta of the whole table may also be *lent*: the entry says in which array of shared memory it stands.
//!
//! Cost: one copy of the delta (the stage; none when it is lent), three stores. Memory: what the largest add needed, taken when first used.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mapping::HUGE;
use crate::mortality::moment;
use crate::placed::{AtomicWord, Line, Placed, Shared};
use crate::prefetch;
use crate::racing_copy::copy_racing;
use crate::segment::Segment;
use crate::sync::{Ordering, fence};

/// Adds that may wait in one outbox.
pub const ENTRIES: u64 = 256;
const ENTRIES_AT: usize = 4096;
const BODY_AT: usize = ENTRIES_AT + ENTRIES as usize * size_of::<EntryWords>();
/// Slots for whole adds of `bytes` bytes: a megabyte of them, or most of the entries. Of a worker that is further ahead of what is applied, adds stand behind them.
///
/// A slot that is needed again is then in nobody's own cache any more, where that is no larger: taking a line from the last level is quicker than taking it from
/// another core, which has read it a few rounds ago. Two processes that exchange 64 KB a round on two cores with 1 MB each take 14 µs with 512 KB of slots, 8 with 1 MB.
pub const fn slots(bytes: usize) -> u64 {
    const MOST: u64 = ENTRIES / 4 * 3;
    let fit = (1 << 20) / (bytes as u64 + 1);
    if fit > MOST {
        MOST
    } else if fit < 8 {
        8
    } else {
        fit
    }
}
/// Pieces of the body begin on cache lines.
const ALIGN: usize = 64;
/// Bytes that are asked for ahead of the copy that fills them.
const AHEAD: usize = 2 << 10;
/// Progress says which add it belongs to by the low bits of its number, so that a stale word is known as such.
const PROGRESS_BITS: u32 = 48;

#[repr(C)]
#[derive(Default)]
struct Words {
    owner: Line<OwnerWords>,
    applier: Line<ApplierWords>,
    rescuer: Line<AtomicWord>,
    notes: Line<[AtomicWord; 4]>,
    tally: Line<TallyWords>,
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

/// Of a tally, whose entries would otherwise take a line of the cache for every add.
#[repr(C)]
#[derive(Default)]
struct TallyWords {
    /// Of one side.
    bytes: AtomicWord,
    /// The last add on each side.
    sequence: [AtomicWord; 2],
    options: [[AtomicWord; 2]; 2],
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

#[inline]
fn set_options(words: &[AtomicWord; 2], options: [u32; 4]) {
    words[0].set(u64::from(options[0]) | u64::from(options[1]) << 32);
    words[1].set(u64::from(options[2]) | u64::from(options[3]) << 32);
}

#[inline]
fn get_options(words: &[AtomicWord; 2]) -> [u32; 4] {
    let [first, second] = words.each_ref().map(AtomicWord::get);
    [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32]
}

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
        let lent = words.lent.get().checked_sub(1).map(|array| LentDelta { array, offset: words.ids_at.get() });
        Some(Entry {
            sequence,
            lent: lent.filter(|_| ids.is_none()),
            ids,
            delta: range(words.delta_at.get(), words.delta_len.get())?,
            options: get_options(&words.options),
        })
    }

    /// The sum of all adds that are not applied, if they are in a tally. It is numbered as the last of them.
    #[inline]
    pub fn tally(&self) -> Option<Entry> {
        let sequence = self.published();
        let (words, side) = (&self.words.tally, (sequence % 2) as usize);
        if sequence <= self.applied() || words.sequence[side].get() != sequence {
            return None;
        }
        let bytes = words.bytes.get() as usize;
        // Checked by what the owner checked, in case it is not one of ours.
        (bytes <= self.body_len / 4 && sides_end(bytes) <= self.body_len).then(|| Entry {
            sequence,
            ids: None,
            delta: side_of(sequence, bytes),
            lent: None,
            options: get_options(&words.options[side]),
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

    /// Copies some of the delta of whole add `sequence`, which has `bytes` bytes, from `first` on out of its slot. False when it does not stand in one, or not any more.
    #[inline]
    pub fn copy_slot(&self, sequence: u64, bytes: usize, first: usize, out: &mut [u8]) -> bool {
        let Some(entry) = self.entry(sequence) else { return false };
        let inside = first.checked_add(out.len()).is_some_and(|end| end <= bytes);
        if entry.ids.is_some() || entry.lent.is_some() || entry.delta != slot_of(sequence, bytes) || !inside {
            return false;
        }
        // SAFETY: `entry` checked that the slot lies inside the body, and what is wanted lies inside the slot; `out` is the caller's own. The bytes may change
        // under the copy, which it allows; the look below tells.
        unsafe { copy_racing(self.body.as_ptr().add(entry.delta.start + first), out.as_mut_ptr(), out.len()) };
        fence(Ordering::Acquire); // the copy's loads stay before the look; pairs with the fence in `publish`, behind which a slot is filled again
        // The next to stand there is one round of slots later, and its owner begins with it after it has published the one before.
        self.published() < sequence + slots(bytes) - 1
    }

    /// Asks for some bytes ahead of their use; a hint that changes nothing.
    #[inline]
    pub fn prefetch(&self, range: Range<usize>) {
        if range.start > range.end || range.end > self.body_len {
            return;
        }
        range.step_by(ALIGN).for_each(|line| prefetch::to_read(self.body.as_ptr().wrapping_add(line)));
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
        Post { outbox: Arc::clone(self), slot: 0, side: 0, set_apart: 0, used: 0, budget: 0, staged: None }
    }
}

/// Where a whole add of `bytes` bytes stands in the body, in slots of that size.
fn slot_of(sequence: u64, bytes: usize) -> Range<usize> {
    let start = (sequence % slots(bytes)) as usize * bytes.next_multiple_of(ALIGN);
    start..start + bytes
}

/// Where the side of a tally stands whose last add is `sequence`.
///
/// Half a page further than one behind the other: a read whose address ends in the same twelve bits as a write under way would wait for it.
fn side_of(sequence: u64, bytes: usize) -> Range<usize> {
    let start = (sequence % 2) as usize * (bytes.next_multiple_of(4096) + 2048);
    start..start + bytes
}

fn sides_end(bytes: usize) -> usize {
    side_of(1, bytes).end.next_multiple_of(ALIGN)
}

/// The owner's end of an outbox.
pub struct Post {
    outbox: Arc<Outbox>,
    /// Bytes of a whole add where those have slots, else 0.
    slot: usize,
    /// Bytes of a tally where there is room for one, else 0.
    side: usize,
    /// Bytes at the beginning of the body for slots or sides; all other adds stand behind them.
    set_apart: usize,
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
        let end = slot_of(slots(bytes) - 1, bytes).end.next_multiple_of(ALIGN);
        assert!(
            self.used == 0 && self.outbox.published() == 0 && end <= self.outbox.body_len,
            "slots are set apart in a new outbox, and fit"
        );
        (self.slot, self.set_apart, self.used) = (bytes, end, end);
    }

    /// Keeps the beginning of the body for a tally of `bytes` bytes. Before the first add only, and not beside slots.
    ///
    /// # Panics
    /// When the body is too small, or was used already.
    pub fn set_sides(&mut self, bytes: usize) {
        let end = sides_end(bytes);
        assert!(
            self.used == 0 && self.outbox.published() == 0 && end <= self.outbox.body_len,
            "sides are set apart in a new outbox, and fit"
        );
        self.outbox.words.tally.bytes.set(bytes as u64);
        (self.side, self.set_apart, self.used) = (bytes, end, end);
    }

    /// Makes whole add `sequence` count as part of the tally: `sum` gets the tally so far, if there is one, and room for the next.
    ///
    /// # Panics
    /// When there are no sides, the number is not the next one, or adds that are not applied stand elsewhere.
    #[inline]
    pub fn add_to_tally(&mut self, sequence: u64, options: [u32; 4], sum: impl FnOnce(Option<&[u8]>, &mut [u8])) {
        let outbox = &*self.outbox;
        let before = outbox.tally();
        let is_next = outbox.published() + 1 == sequence && (before.is_some() || outbox.applied() + 1 == sequence);
        assert!(self.side > 0 && is_next, "the next of a worker's adds joins those that are not applied");
        let (words, side) = (&outbox.words.tally, (sequence % 2) as usize);
        let at = side_of(sequence, self.side);
        // SAFETY: both sides lie inside the body (`set_sides`) and apart. Nobody else writes there, and nothing that counts stands on this one: the
        // tally so far ends with the add before this one, so it is on the other. The borrow of `self` keeps others of this process out.
        let room = unsafe { std::slice::from_raw_parts_mut(outbox.body.as_ptr().add(at.start), self.side) };
        sum(before.filter(|entry| entry.delta == side_of(sequence - 1, self.side)).map(|entry| outbox.delta(entry.delta)), room);
        moment();
        set_options(&words.options[side], options);
        words.sequence[side].set(sequence);
        moment();
        // No fence: nobody sleeps until an async add comes.
        outbox.words.owner.published.set(sequence);
        moment();
    }

    /// Asks for the beginning of the slot of a whole add that may come, ahead of its being written: whoever read it last lets go of its lines meanwhile. For the rest
    /// [`fill_from`] asks.
    #[inline]
    pub fn prefetch_slot(&self, sequence: u64) {
        slot_of(sequence, self.slot)
            .step_by(ALIGN)
            .take(AHEAD / ALIGN)
            .for_each(|line| prefetch::to_write(self.outbox.body.as_ptr().wrapping_add(line)));
    }

    /// Makes room for add `sequence` with `ids` row ids and `delta` bytes, when `applied` adds are applied.
    ///
    /// What is in flight is kept to one buffer of about the largest add (at least `least` bytes): when more is asked
    /// for, the outbox must run empty first and is then used from its beginning again, so that its pages stay few. So it must
    /// where a tally stands for what is in flight.
    pub fn room(&mut self, sequence: u64, applied: u64, ids: Option<usize>, delta: usize, least: usize) -> Result<Room<'_>, Full> {
        let need = ids.map_or(0, |ids| (ids * 8).next_multiple_of(ALIGN)) + delta.next_multiple_of(ALIGN);
        let room = self.outbox.body_len - self.set_apart;
        if need > room {
            return Err(Full::Never { room });
        }
        let empty = applied + 1 >= sequence;
        if empty {
            self.used = self.set_apart;
        }
        if ids.is_none() && delta == self.slot && self.slot > 0 && sequence <= applied + slots(delta) {
            let slot = slot_of(sequence, delta);
            return Ok(self.room_at(sequence, None, slot.start..slot.start, slot, self.used));
        }
        let budget = self.budget.max(need).max(least).min(room);
        if budget > self.budget && need >= HUGE {
            // Only saves time: huge pages where there are some. Without them, or without memory, pages come as they are touched.
            let _ = self.outbox.segment.reserve(BODY_AT + self.set_apart, need);
        }
        self.budget = budget;
        if self.used + need > self.set_apart + self.budget || sequence > applied + ENTRIES || self.outbox.tally().is_some() {
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
        let progress = self.outbox.progress_word();
        let stale = progress.get();
        if self.outbox.progress(sequence) != 0 {
            // Of an add that had the same low bits, with none since that left any progress. Who applies one just now has written another's.
            progress.exchange(stale, Outbox::progress_value(sequence, 0));
        }
        set_options(&words.options, options);
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

/// Copies a delta into the room of an add whose lines neighbours have read: they are taken back some at a time, ahead of the copy.
pub fn fill_from(delta: &[u8], room: &mut [u8]) {
    const PIECE: usize = 1 << 10;
    let start = room.as_ptr();
    for (piece, (room, delta)) in room.chunks_mut(PIECE).zip(delta.chunks(PIECE)).enumerate() {
        (0..PIECE).step_by(ALIGN).for_each(|line| prefetch::to_write(start.wrapping_add(piece * PIECE + AHEAD + line)));
        room.copy_from_slice(delta);
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
mod tests;
