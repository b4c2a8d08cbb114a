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

mod post;

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mortality::moment;
use crate::placed::{AtomicWord, Line, Placed, Shared};
use crate::prefetch;
use crate::racing_copy::copy_racing;
use crate::segment::Segment;
use crate::sync::{Ordering, fence};

pub use post::{Full, Post, Room, fill_from};

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
        Post::new(Arc::clone(self))
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

#[cfg(test)]
mod tests;
