//! The objects of a family: who uses each, and when its room is given back.
//!
//! ```text
//!   free ──making──► live ──nobody holds it, no record names it──► dying ──emptied──► free, under the next number
//! ```
//! A process holds an object or it does not, however many handles it has: one bit. Whoever writes a record that names
//! objects holds them and counts each of them as named before the record can be seen, and whoever takes the record holds them
//! before it is gone from its queue. So an object that nobody holds and no record names is not wanted, whatever its count
//! says: a death between the count and the record leaves it too high, and is settled by a look at all records.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::layout::{MOST_MEMBERS, MOST_OBJECTS, OBJECT_PAGE};
use super::members::slot_of;
use super::{Burial, Estate, EstateError};
use crate::mortality::moment;
use crate::placed::{Placed, Region, Shared};
use crate::queue::{Ground, Hand, Queue, QueueError, QueueWords, Record};
use crate::sync::{AtomicU64, Ordering};
use crate::wait::{Deadline, WaitError};

/// Names are at most this long.
pub const MOST_NAME: usize = 240;

const FREE: u64 = 0;
const MAKING: u64 = 1;
const LIVE: u64 = 2;
pub(super) const DYING: u64 = 3;

/// An object's entry in the directory.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Entry {
    /// `number of uses (32) · kind (8) · stage (8)`
    pub(super) state: AtomicU64,
    /// Who makes or ends it.
    pub(super) busy: AtomicU64,
    /// A name's fingerprint, 0 for none.
    name: AtomicU64,
    _spare: AtomicU64,
}

// SAFETY: `repr(C)`, atomics only, no drop glue, zero is a free entry.
unsafe impl Placed for Entry {}

/// The words that every object has, at the beginning of its page.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ObjectWords {
    holders: [AtomicU64; MOST_MEMBERS / 64],
    /// Records and table entries that name it.
    named: AtomicU64,
    /// The process (above) and the member that made it, and the thread.
    pub(crate) maker: AtomicU64,
    pub(crate) maker_thread: AtomicU64,
    name_len: AtomicU64,
    name_text: [AtomicU64; MOST_NAME / 8],
}

// SAFETY: `repr(C)`, atomics only, no drop glue, zero is the initial state.
unsafe impl Placed for ObjectWords {}

/// Where an object's own words begin in its page.
pub(crate) const OWN_WORDS: usize = 512;
const QUEUE_WORDS: usize = 1024;

fn state(uses: u64, kind: u8, stage: u64) -> u64 {
    uses << 32 | u64::from(kind) << 8 | stage
}

fn stage_of(state: u64) -> u64 {
    state & 0xff
}

/// An object that this process holds. Dropped, the process lets go of it, and the last one ends it.
pub struct Held {
    estate: Arc<Estate>,
    number: u64,
    kind: u8,
    /// The items of its leased queue that this process has taken, by their cells, and the thread that took each.
    leases: Mutex<HashMap<u32, u64>>,
}

impl Held {
    /// The estate it lies in.
    pub fn estate(&self) -> &Arc<Estate> {
        &self.estate
    }

    /// Its number, which no other object of the family ever had.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it is, in the terms of whoever made it.
    pub fn kind(&self) -> u8 {
        self.kind
    }

    pub(crate) fn slot(&self) -> usize {
        slot_of_object(self.number)
    }

    /// Which member and which of its threads made it.
    pub fn maker(&self) -> (u32, u64) {
        let words = self.estate.object_words(self.slot());
        (words.maker.load(Ordering::Acquire) as u32, words.maker_thread.load(Ordering::Relaxed))
    }

    /// The process that made it, whatever has become of that.
    pub fn maker_pid(&self) -> u32 {
        (self.estate.object_words(self.slot()).maker.load(Ordering::Acquire) >> 32) as u32
    }

    /// Notes that a thread of this process has taken an item on a lease.
    pub fn lease_begins(&self, cell: u32, thread: u64) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).insert(cell, thread);
    }

    /// Forgets it, before anybody else can take the item.
    pub fn lease_ends(&self, cell: u32) {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).remove(&cell);
    }

    /// Whether that thread of this process took the item.
    pub fn is_leased_to(&self, cell: u32, thread: u64) -> bool {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).get(&cell) == Some(&thread)
    }

    /// One of the queues in its room, which `of` share.
    pub fn queue(&self, part: usize, of: usize) -> Queue {
        self.estate.queue_of(self.slot(), part, of)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.estate.is_original() {
            self.estate.let_go(self.number);
        }
    }
}

pub(super) fn slot_of_object(number: u64) -> usize {
    (number as u32) as usize & (MOST_OBJECTS - 1)
}

/// Lays out the words of a new object in the page of its slot.
pub(crate) type Fill<'a> = dyn Fn(&Arc<Estate>, usize) -> Result<(), EstateError> + 'a;

impl Estate {
    pub(super) fn object_words(&self, slot: usize) -> Shared<ObjectWords> {
        self.segment.place(self.layout.pages() + slot * OBJECT_PAGE)
    }

    pub(crate) fn own_words<T: Placed>(&self, slot: usize) -> Shared<T> {
        assert!(size_of::<T>() <= OBJECT_PAGE - OWN_WORDS, "an object's words fit its page");
        self.segment.place(self.layout.pages() + slot * OBJECT_PAGE + OWN_WORDS)
    }

    pub(super) fn entry(&self, slot: usize) -> Shared<Entry> {
        self.segment.place(self.layout.directory() + slot * size_of::<Entry>())
    }

    pub(super) fn queue_of(&self, slot: usize, part: usize, of: usize) -> Queue {
        assert!(part < of && of <= 2 && size_of::<QueueWords>() <= QUEUE_WORDS, "two queues fit an object");
        let words = self.segment.place(self.layout.pages() + slot * OBJECT_PAGE + OWN_WORDS + part * QUEUE_WORDS);
        let room = self.layout.object_room() / of;
        let at = self.layout.object_area(slot) + part * room;
        let ring: Region = self.segment.region(at, room);
        Queue::placed(words, ring, Ground { segment: Arc::clone(&self.segment), at })
    }

    /// Makes an object of a kind, or finds the one of that kind and name; true when it was made. `fill` lays its words out.
    pub(crate) fn make(
        self: &Arc<Self>,
        kind: u8,
        name: Option<&str>,
        thread: u64,
        fill: &Fill<'_>,
    ) -> Result<(Arc<Held>, bool), EstateError> {
        if let Some(name) = name
            && (name.is_empty() || name.len() > MOST_NAME)
        {
            return Err(EstateError::Name { len: name.len() });
        }
        let fingerprint = name.map_or(0, |name| fingerprint(kind, name));
        self.hold_directory()?;
        let made = (|| {
            if let Some(name) = name
                && let Some(number) = self.find_named(kind, name, fingerprint)
            {
                return Ok((number, false));
            }
            let slot = self.free_slot()?;
            let entry = self.entry(slot);
            let uses = ((entry.state.load(Ordering::Relaxed) >> 32) + 1) & 0xffff_ffff;
            entry.busy.store(self.me().into(), Ordering::Relaxed);
            entry.state.store(state(uses, kind, MAKING), Ordering::Release);
            moment();
            let filled = self.fill_object(slot, name, fingerprint, thread, fill);
            moment();
            let stage = if filled.is_ok() { LIVE } else { FREE };
            entry.state.store(state(uses, kind, stage), Ordering::Release);
            entry.busy.store(0, Ordering::Relaxed);
            filled.map(|()| (uses << 32 | slot as u64, true))
        })();
        let held = made.and_then(|(number, fresh)| Ok((self.hold_under_directory(number)?, fresh)));
        self.header.directory.let_go_quietly();
        held
    }

    fn fill_object(
        self: &Arc<Self>,
        slot: usize,
        name: Option<&str>,
        fingerprint: u64,
        thread: u64,
        fill: &Fill<'_>,
    ) -> Result<(), EstateError> {
        self.segment.reserve(self.layout.pages() + slot * OBJECT_PAGE, OBJECT_PAGE)?;
        let words = self.object_words(slot);
        words.maker_thread.store(thread, Ordering::Relaxed);
        words.maker.store(u64::from(std::process::id()) << 32 | u64::from(self.me()), Ordering::Relaxed);
        let name = name.unwrap_or_default().as_bytes();
        for (word, bytes) in words.name_text.iter().zip(name.chunks(8)) {
            let mut text = [0; 8];
            text[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(text), Ordering::Relaxed);
        }
        words.name_len.store(name.len() as u64, Ordering::Relaxed);
        self.entry(slot).name.store(fingerprint, Ordering::Relaxed);
        fill(self, slot)
    }

    fn find_named(&self, kind: u8, name: &str, fingerprint: u64) -> Option<u64> {
        (0..self.objects_high()).find_map(|slot| {
            let entry = self.entry(slot);
            let seen = entry.state.load(Ordering::Acquire);
            let matches = stage_of(seen) == LIVE
                && (seen >> 8) as u8 == kind
                && entry.name.load(Ordering::Relaxed) == fingerprint
                && self.name_of(slot) == name.as_bytes();
            matches.then_some(seen >> 32 << 32 | slot as u64)
        })
    }

    fn name_of(&self, slot: usize) -> Vec<u8> {
        let words = self.object_words(slot);
        let len = (words.name_len.load(Ordering::Relaxed) as usize).min(MOST_NAME);
        let mut text: Vec<u8> = words.name_text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        text.truncate(len);
        text
    }

    fn objects_high(&self) -> usize {
        (self.header.objects.load(Ordering::Acquire) as usize).min(MOST_OBJECTS)
    }

    fn free_slot(&self) -> Result<usize, EstateError> {
        let high = self.objects_high();
        if let Some(slot) = (0..high).find(|slot| stage_of(self.entry(*slot).state.load(Ordering::Relaxed)) == FREE) {
            return Ok(slot);
        }
        if high == MOST_OBJECTS {
            return Err(EstateError::TooManyObjects { most: MOST_OBJECTS });
        }
        self.header.objects.store(high as u64 + 1, Ordering::Release);
        Ok(high)
    }

    /// Holds an object whose number came with a record or a handle, so that it lives as long as the result does.
    pub fn hold(self: &Arc<Self>, number: u64) -> Result<Arc<Held>, EstateError> {
        let known = self.held.lock().unwrap_or_else(PoisonError::into_inner).get(&number).and_then(Weak::upgrade);
        match known {
            Some(held) => Ok(held),
            None => {
                self.hold_directory()?;
                let held = self.hold_under_directory(number);
                self.header.directory.let_go_quietly();
                held
            }
        }
    }

    /// The same while the directory is held: nothing can end meanwhile.
    fn hold_under_directory(self: &Arc<Self>, number: u64) -> Result<Arc<Held>, EstateError> {
        let slot = slot_of_object(number);
        let seen = self.entry(slot).state.load(Ordering::Acquire);
        if number & 0xffff_ffff >= MOST_OBJECTS as u64 || stage_of(seen) != LIVE || seen >> 32 != number >> 32 {
            return Err(EstateError::NoObject { number });
        }
        let mut known = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = known.get(&number).and_then(Weak::upgrade) {
            return Ok(held);
        }
        self.set_holder(slot, self.me(), true);
        let held = Arc::new(Held { estate: Arc::clone(self), number, kind: (seen >> 8) as u8, leases: Mutex::default() });
        known.insert(number, Arc::downgrade(&held));
        Ok(held)
    }

    fn set_holder(&self, slot: usize, member: u32, holds: bool) {
        let (words, bit) = (self.object_words(slot), slot_of(member));
        let word = &words.holders[bit / 64];
        match holds {
            true => word.fetch_or(1 << (bit % 64), Ordering::AcqRel),
            false => word.fetch_and(!(1 << (bit % 64)), Ordering::AcqRel),
        };
    }

    /// Holds the objects that a record names before it is taken, without the directory: while the record is there, they are.
    /// [`objects_arrived`](Estate::objects_arrived) says that they are held as usual.
    pub fn claim_objects(&self, record: &Record) {
        self.claim_named(record.objects());
    }

    /// The same for the objects that a table's entry names, while its latch is held.
    pub(super) fn claim_named(&self, numbers: impl IntoIterator<Item = u64>) {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        for number in numbers {
            if self.entry(slot_of_object(number)).state.load(Ordering::Acquire) >> 32 == number >> 32 {
                *claimed.entry(number).or_default() += 1;
                self.set_holder(slot_of_object(number), self.me(), true);
            }
        }
    }

    /// The objects that were claimed are held, or given up.
    pub fn objects_arrived(&self, objects: &[u64]) {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        for number in objects {
            if let Some(count) = claimed.get_mut(number) {
                *count -= 1;
                if *count == 0 {
                    claimed.remove(number);
                }
            }
        }
    }

    /// Counts records that name an object, or stops counting one.
    pub fn count_named(&self, number: u64, more: bool) {
        let slot = slot_of_object(number);
        if self.entry(slot).state.load(Ordering::Acquire) >> 32 != number >> 32 {
            return; // A record that outlived its object, or was never true.
        }
        let words = self.object_words(slot);
        match more {
            true => drop(words.named.fetch_add(1, Ordering::AcqRel)),
            false => {
                let _ = words.named.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| count.checked_sub(1));
            }
        }
    }

    /// This process's last handle is gone.
    fn let_go(self: &Arc<Self>, number: u64) {
        if self.hold_directory().is_err() {
            return; // Whoever buries this process lets go for it.
        }
        let mut known = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may hold it anew by now, or be about to.
        let claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&number);
        let gone = known.get(&number).is_some_and(|held| held.strong_count() == 0) && !claimed;
        if gone {
            known.remove(&number);
            self.set_holder(slot_of_object(number), self.me(), false);
        }
        drop(known);
        if gone {
            self.end_unheld(vec![number]);
            if self.deaths() > 0 {
                self.end_orphans();
            }
        }
        self.header.directory.let_go_quietly();
    }

    /// Ends objects that nobody holds and no record names although they count as named. The directory is held, so nobody
    /// can begin to hold one but by a record that is there.
    pub(super) fn end_orphans(self: &Arc<Self>) {
        let unheld = |slot: &usize| {
            let live = stage_of(self.entry(*slot).state.load(Ordering::Acquire)) == LIVE;
            live && self.object_words(*slot).named.load(Ordering::Acquire) != 0 && !self.is_held(*slot)
        };
        let suspects: Vec<usize> = (0..self.objects_high()).filter(unheld).collect();
        if suspects.is_empty() {
            return;
        }
        let mut named = HashSet::new();
        let whole = self.each_record(&mut |record| named.extend(record.objects()));
        if whole != Ok(true) {
            return; // Words that make no sense, or somebody in the way: nothing is known for certain.
        }
        for slot in 0..self.objects_high() {
            let seen = self.entry(slot).state.load(Ordering::Acquire);
            if stage_of(seen) == LIVE
                && let Some(names) = super::names_of((seen >> 8) as u8)
            {
                named.extend(names(self, slot));
            }
        }
        // Anew: somebody may have taken the record that named it before it was looked for, and holds it since.
        for slot in suspects.into_iter().filter(unheld) {
            let number = self.entry(slot).state.load(Ordering::Acquire) >> 32 << 32 | slot as u64;
            if !named.contains(&number) {
                self.object_words(slot).named.store(0, Ordering::Release);
                self.end_unheld(vec![number]);
            }
        }
    }

    /// Ends those of the objects that nobody holds or names, and those that only they had named. The directory is held.
    fn end_unheld(self: &Arc<Self>, mut candidates: Vec<u64>) {
        while let Some(number) = candidates.pop() {
            let slot = slot_of_object(number);
            let entry = self.entry(slot);
            let seen = entry.state.load(Ordering::Acquire);
            if stage_of(seen) != LIVE || seen >> 32 != number >> 32 || self.is_wanted(slot) {
                continue;
            }
            entry.busy.store(self.me().into(), Ordering::Relaxed);
            entry.state.store(seen >> 8 << 8 | DYING, Ordering::Release);
            moment();
            self.end(slot, &mut candidates);
        }
    }

    fn is_wanted(&self, slot: usize) -> bool {
        self.object_words(slot).named.load(Ordering::Acquire) != 0 || self.is_held(slot)
    }

    fn is_held(&self, slot: usize) -> bool {
        self.object_words(slot).holders.iter().any(|bits| bits.load(Ordering::Acquire) != 0)
    }

    /// Empties an object that is dying, and gives its room back.
    fn end(self: &Arc<Self>, slot: usize, candidates: &mut Vec<u64>) {
        let entry = self.entry(slot);
        let seen = entry.state.load(Ordering::Relaxed);
        // As a reader does: while a record is there it speaks for its block, and when it is gone the block is this process's own.
        let claim = |record: &Record| {
            if let Some((block, _)) = record.block() {
                self.adopt(block);
            }
        };
        let free_record = &mut |record: &Record| {
            if let Some((block, _)) = record.block() {
                self.blocks().free(block);
            }
            for object in record.objects() {
                self.count_named(object, false);
                candidates.push(object);
            }
        };
        for part in 0..super::queues_of((seen >> 8) as u8) {
            let queue = self.queue_of(slot, part, super::queues_of((seen >> 8) as u8));
            // Damaged words end the walk; what was left is lost to the family, not to the kernel.
            let _ = queue.empty_out(&claim, free_record, self.hand());
        }
        if let Some(emptied) = super::emptied((seen >> 8) as u8) {
            for object in emptied(self, slot) {
                self.count_named(object, false);
                candidates.push(object);
            }
        }
        self.segment.give_back(self.layout.object_area(slot), self.layout.object_room());
        self.segment.give_back(self.layout.pages() + slot * OBJECT_PAGE, OBJECT_PAGE);
        entry.name.store(0, Ordering::Relaxed);
        moment();
        entry.state.store(seen >> 8 << 8 | FREE, Ordering::Release);
    }

    /// Takes a dead member's hands off all objects, those excepted where somebody who does not move is in the way. The directory is held.
    pub(super) fn bury_holder(self: &Arc<Self>, dead: u32) -> Burial {
        let mut buried = Burial::Done;
        for slot in 0..self.objects_high() {
            let entry = self.entry(slot);
            let seen = entry.state.load(Ordering::Acquire);
            match stage_of(seen) {
                LIVE => {
                    let parts = super::queues_of((seen >> 8) as u8);
                    // Answers first: who inherits that latch finishes the question which its holder had just answered.
                    let queues: Vec<Queue> = (0..parts).map(|part| self.queue_of(slot, part, parts)).collect();
                    if super::settle(queues, dead, self.brief_hand()) == Burial::Hindered {
                        buried = Burial::Hindered;
                        continue;
                    }
                    if (seen >> 8) as u8 == super::KIND_MUTEX {
                        super::mutex::forget_at_barrier(self, slot, dead);
                    }
                    self.set_holder(slot, dead, false);
                    self.end_unheld(vec![seen >> 32 << 32 | slot as u64]);
                }
                MAKING | DYING if entry.busy.load(Ordering::Relaxed) == u64::from(dead) => {
                    entry.busy.store(self.me().into(), Ordering::Relaxed);
                    let mut candidates = Vec::new();
                    self.end(slot, &mut candidates);
                    self.end_unheld(candidates);
                }
                _ => {}
            }
        }
        buried
    }

    /// The blocks that any record of any queue or any deposit speaks of; none when some record makes no sense.
    pub(super) fn blocks_spoken_of(self: &Arc<Self>) -> Result<Option<HashSet<u64>>, WaitError> {
        let mut found = HashSet::new();
        let whole = self.each_record(&mut |record| found.extend(record.block().map(|(block, _)| block)))?;
        for slot in 0..self.objects_high() {
            let seen = self.entry(slot).state.load(Ordering::Acquire);
            if stage_of(seen) != FREE && (seen >> 8) as u8 == super::KIND_DEPOSIT {
                found.extend(super::deposit::block_of(self, slot));
            }
        }
        Ok(whole.then_some(found))
    }

    /// Looks at all records of all queues, also of those whose end was begun by somebody who died over it; false when one of them could not be
    /// read to its end.
    fn each_record(self: &Arc<Self>, look: &mut dyn FnMut(&Record)) -> Result<bool, WaitError> {
        let mut whole = true;
        for slot in 0..self.objects_high() {
            let seen = self.entry(slot).state.load(Ordering::Acquire);
            let parts = if matches!(stage_of(seen), LIVE | DYING) { super::queues_of((seen >> 8) as u8) } else { 0 };
            for part in 0..parts {
                let note = &mut |record: &Record| {
                    look(record);
                    true
                };
                match self.queue_of(slot, part, parts).look_through(note, self.brief_hand()) {
                    Ok(()) => {}
                    Err(QueueError::Wait(cause)) => return Err(cause),
                    Err(_) => whole = false,
                }
            }
        }
        Ok(whole)
    }

    /// Whether so many objects live that what can do without another one should.
    pub fn is_crowded(&self) -> bool {
        self.objects() > MOST_OBJECTS / 4 * 3
    }

    /// Objects that live, for tests and statistics.
    pub fn objects(&self) -> usize {
        (0..self.objects_high()).filter(|slot| stage_of(self.entry(*slot).state.load(Ordering::Acquire)) == LIVE).count()
    }

    pub(crate) fn hand(&self) -> Hand<'_> {
        self.hand_by(super::patient())
    }

    /// For what is tried again later: waits no longer for a latch than it takes to tell who lost its core from who was stopped.
    fn brief_hand(&self) -> Hand<'_> {
        self.hand_by(Deadline::after(Duration::ZERO))
    }
}

fn fingerprint(kind: u8, name: &str) -> u64 {
    // FNV-1a; equal fingerprints are told apart by the names themselves.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(kind);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    hash | 1
}
