//! The owner's end of an outbox: where its adds find room, and when they count.

use std::ops::Range;
use std::sync::Arc;

use super::{ALIGN, BODY_AT, ENTRIES, LentDelta, Outbox, WHOLE, set_options, side_of, sides_end, slot_of, slots};
use crate::mapping::HUGE;
use crate::mortality::moment;
use crate::prefetch;
use crate::racing_copy::OF_THE_LIBRARY;

/// Bytes that are asked for ahead of the copy that fills them.
const AHEAD: usize = 2 << 10;

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
    pub(super) fn new(outbox: Arc<Outbox>) -> Post {
        Post { outbox, slot: 0, side: 0, set_apart: 0, used: 0, budget: 0, staged: None }
    }

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

/// Copies a delta into the room of an add whose lines neighbours have read. Those of a small one are taken back some at a time, ahead of the copy; the
/// library's copy of a larger one takes them over without fetching them.
pub fn fill_from(delta: &[u8], room: &mut [u8]) {
    const PIECE: usize = 1 << 10;
    if room.len() > OF_THE_LIBRARY {
        return room.copy_from_slice(delta);
    }
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
