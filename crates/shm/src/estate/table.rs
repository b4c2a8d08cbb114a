//! A table of keys and values, as bytes, that a family shares.
//!
//! ```text
//!   half A  [ index: 2^k places ][ entry ][ entry ] … free            active
//!   half B  nothing, or what the next move is writing
//!   entry   hash · lengths · meta words · objects it names · key · value
//! ```
//! One latch for everybody. A change writes a whole new entry behind the others and then stores its place into the index: that one
//! store is the change. When a half is full, what still counts is copied to the other one, and one store makes that the
//! active one. So whoever inherits the latch finds a table that is whole; only the count is counted anew.

use std::sync::Arc;

use super::{Estate, EstateError, Held, KIND_TABLE};
use crate::corrupt::Corrupt;
use crate::latch::{Latch, Taken};
use crate::mortality::moment;
use crate::placed::{Line, Placed, Region, Shared};
use crate::queue::QueueError;
use crate::segment::SegmentError;
use crate::sync::{AtomicU64, Ordering};

/// The words of a table.
#[repr(C)]
#[derive(Default)]
pub(crate) struct TableWords {
    latch: Line<Latch>,
    /// `log2 of the index's places << 1 | active half`; one word, because they change together.
    form: Line<AtomicU64>,
    /// Entries that count.
    live: AtomicU64,
    /// Places of the index that are not empty.
    used: AtomicU64,
    /// Where the next entry begins in the active half.
    top: AtomicU64,
    /// How large the table was right after it last moved to the other half.
    moved: AtomicU64,
    /// How much of each half has its pages.
    backed: [AtomicU64; 2],
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a table that was not laid out yet.
unsafe impl Placed for TableWords {}

const EMPTY: u64 = 0;
const GONE: u64 = 1;
const HEAD: usize = 32;
const FIRST_LOG: u64 = 6;

/// An entry as it stands in the table.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// Words of meta in it.
    pub key_meta: u32,
    /// The value's bytes.
    pub value: Vec<u8>,
    /// Words of meta in it.
    pub value_meta: u32,
    /// The objects that the entry names.
    pub objects: Vec<u64>,
}

/// What is written under a key.
pub struct NewEntry<'a> {
    /// The key's bytes.
    pub key: &'a [u8],
    /// Words of meta in it.
    pub key_meta: u32,
    /// The value's bytes, in pieces.
    pub value: &'a [&'a [u8]],
    /// Words of meta in it.
    pub value_meta: u32,
    /// The objects that the entry names.
    pub objects: &'a [u64],
}

/// A table that lies in an estate.
pub struct TableStore {
    held: Arc<Held>,
    inner: Inner,
}

struct Inner {
    estate: Arc<Estate>,
    words: Shared<TableWords>,
    area: Region,
    at: usize,
    half: usize,
}

/// An entry's place and its parts.
struct Found {
    place: u64,
    key_len: usize,
    key_meta: u32,
    value_len: usize,
    value_meta: u32,
    objects: usize,
}

impl Found {
    fn key_at(&self) -> usize {
        self.place as usize + HEAD + 8 * self.objects
    }

    fn value_at(&self) -> usize {
        self.key_at() + self.key_len.next_multiple_of(8)
    }

    fn len(&self) -> usize {
        self.value_at() + self.value_len.next_multiple_of(8) - self.place as usize
    }
}

impl TableStore {
    /// A new, empty one.
    pub fn make(estate: &Arc<Estate>, thread: u64) -> Result<TableStore, EstateError> {
        let lay_out = |estate: &Arc<Estate>, slot: usize| Ok(Inner::of(estate, slot).begin(0, FIRST_LOG)?);
        Ok(Self::over(estate.make(KIND_TABLE, None, thread, &lay_out)?.0))
    }

    /// The one that is held.
    pub fn over(held: Arc<Held>) -> TableStore {
        TableStore { inner: Inner::of(held.estate(), held.slot()), held }
    }

    /// The object that it is.
    pub fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The entry under a key. The objects that it names are claimed, so that they are still there:
    /// [`objects_arrived`](Estate::objects_arrived) has to be told when they are held.
    pub fn get(&self, key: &[u8]) -> Result<Option<Entry>, QueueError> {
        self.inner.under_latch(|table| match table.find(key)?.1 {
            Some(found) => Ok(Some(table.claimed_entry(&found))),
            None => Ok(None),
        })
    }

    /// Writes under a key; returns the objects that the entry before named, if there was one.
    pub fn set(&self, new: &NewEntry<'_>) -> Result<Option<Vec<u64>>, QueueError> {
        self.inner.under_latch(|table| table.set(new))
    }

    /// Removes a key; returns its entry, as [`get`](TableStore::get) does, if there was one. It counts as naming its objects until the
    /// caller says otherwise.
    pub fn remove(&self, key: &[u8]) -> Result<Option<Entry>, QueueError> {
        self.inner.under_latch(|table| {
            let (place, Some(found)) = table.find(key)? else { return Ok(None) };
            let entry = table.claimed_entry(&found);
            moment();
            table.index(place).store(GONE, Ordering::Release);
            moment();
            table.words.live.fetch_sub(1, Ordering::Relaxed);
            Ok(Some(entry))
        })
    }

    /// Removes all keys; returns the objects that their entries named, which count as named until the caller says otherwise.
    pub fn clear(&self) -> Result<Vec<u64>, QueueError> {
        self.inner.under_latch(|table| {
            let named = table.in_order()?.iter().flat_map(|found| table.objects_of(found)).collect();
            table.move_to_other_half(&[])?;
            Ok(named)
        })
    }

    /// How many entries there are.
    pub fn len(&self) -> Result<usize, QueueError> {
        self.inner.under_latch(|table| Ok(table.words.live.load(Ordering::Relaxed) as usize))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> Result<bool, QueueError> {
        Ok(self.len()? == 0)
    }

    /// All entries as they are at one moment, oldest change first; their objects are claimed, as by [`get`](TableStore::get).
    pub fn entries(&self) -> Result<Vec<Entry>, QueueError> {
        self.inner.under_latch(|table| Ok(table.in_order()?.iter().map(|found| table.claimed_entry(found)).collect()))
    }

    /// Bytes in use, index included.
    pub fn bytes(&self) -> Result<usize, QueueError> {
        self.inner.under_latch(|table| Ok(table.words.top.load(Ordering::Relaxed) as usize))
    }
}

/// The objects that a table names, for whoever ends it.
pub(super) fn named_by(estate: &Arc<Estate>, slot: usize) -> Vec<u64> {
    let table = Inner::of(estate, slot);
    let named = table.under_latch(|table| Ok(table.in_order()?.iter().flat_map(|found| table.objects_of(found)).collect()));
    named.unwrap_or_default()
}

impl Inner {
    fn of(estate: &Arc<Estate>, slot: usize) -> Inner {
        let half = estate.layout.object_room() / 2;
        let at = estate.layout.object_area(slot);
        let area = estate.segment.region(at, 2 * half);
        Inner { estate: Arc::clone(estate), words: estate.own_words(slot), area, at, half }
    }

    fn under_latch<T>(&self, act: impl FnOnce(&Inner) -> Result<T, QueueError>) -> Result<T, QueueError> {
        let hand = self.estate.hand_by(super::patient());
        let taken = self.words.latch.take(hand.me, hand.by, hand.is_dead)?;
        let done = match taken {
            Taken::Free => act(self),
            Taken::Inherited(_) => self.recount().and_then(|()| act(self)),
        };
        self.words.latch.let_go_quietly();
        done
    }

    /// The active half's first byte in the area, and how many places its index has.
    fn form(&self) -> Result<(usize, u64), Corrupt> {
        let (base, places) = self.form_alone()?;
        // An index that reaches beyond the entries is none, and would take long to walk through.
        Corrupt::check("places of a table's index", places * 8, 0, self.words.top.load(Ordering::Relaxed))?;
        Ok((base, places))
    }

    /// The same without a look at the other words, which a dead holder may not have written yet.
    fn form_alone(&self) -> Result<(usize, u64), Corrupt> {
        let form = self.words.form.load(Ordering::Acquire);
        let log = Corrupt::check("log of a table's index", form >> 1, FIRST_LOG, (self.half / 16).ilog2().into())?;
        Ok(((form & 1) as usize * self.half, 1 << log))
    }

    fn index(&self, place: usize) -> &AtomicU64 {
        self.area.word(place)
    }

    /// Begins a half with an empty index.
    fn begin(&self, which: usize, log: u64) -> Result<(), QueueError> {
        let (base, size) = (which * self.half, 8 << log);
        self.back(which, size)?;
        for place in (0..size).step_by(8) {
            self.index(base + place).store(EMPTY, Ordering::Relaxed);
        }
        self.words.top.store(size as u64, Ordering::Relaxed);
        self.words.live.store(0, Ordering::Relaxed);
        self.words.used.store(0, Ordering::Relaxed);
        self.words.form.store(log << 1 | which as u64, Ordering::Release);
        Ok(())
    }

    /// Makes sure that the first `len` bytes of a half have pages.
    fn back(&self, which: usize, len: usize) -> Result<(), QueueError> {
        const STEP: usize = 64 << 10;
        let backed = self.words.backed[which].load(Ordering::Relaxed) as usize;
        if len > backed || backed > self.half {
            if len > self.half {
                return Err(self.full(len).into());
            }
            let upto = len.next_multiple_of(STEP).min(self.half);
            self.estate.segment.reserve(self.at + which * self.half, upto)?;
            self.words.backed[which].store(upto as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn full(&self, asked: usize) -> SegmentError {
        SegmentError::Full { name: "a shared table".into(), asked, of: self.half as u64 }
    }

    /// The entry that the index says begins at `place`, checked.
    fn look(&self, place: u64) -> Result<Found, QueueError> {
        let (base, places) = self.form()?;
        let end = (base + self.half) as u64;
        let first = base as u64 + places * 8;
        Corrupt::check("place of a table's entry", place, first, end - HEAD as u64)?;
        Corrupt::check("alignment of a table's entry", place % 8, 0, 0)?;
        let word = |at: usize| self.area.word(place as usize + at).load(Ordering::Relaxed);
        let (lens, metas, objects) = (word(8), word(16), word(24));
        let left = end - place - HEAD as u64;
        let objects = Corrupt::check("objects of a table's entry", objects, 0, left / 8)?;
        let room = left - objects * 8;
        Corrupt::check("length of a table's entry", (lens & 0xffff_ffff) + (lens >> 32) + 16, 0, room + 16)?;
        let found = Found {
            place,
            key_len: (lens & 0xffff_ffff) as usize,
            value_len: (lens >> 32) as usize,
            key_meta: metas as u32,
            value_meta: (metas >> 32) as u32,
            objects: objects as usize,
        };
        Corrupt::check("end of a table's entry", place + found.len() as u64, 0, end)?;
        Ok(found)
    }

    fn entry(&self, found: &Found) -> Entry {
        let mut entry = Entry { key_meta: found.key_meta, value_meta: found.value_meta, ..Entry::default() };
        entry.objects = self.objects_of(found);
        self.area.append_out(found.key_at(), found.key_len, &mut entry.key);
        self.area.append_out(found.value_at(), found.value_len, &mut entry.value);
        entry
    }

    fn claimed_entry(&self, found: &Found) -> Entry {
        let entry = self.entry(found);
        if !entry.objects.is_empty() {
            self.estate.claim_named(entry.objects.iter().copied());
        }
        entry
    }

    fn objects_of(&self, found: &Found) -> Vec<u64> {
        let at = found.place as usize + HEAD;
        (0..found.objects).map(|n| self.area.word(at + 8 * n).load(Ordering::Relaxed)).collect()
    }

    /// Where in the index a key stands, or should; and its entry.
    fn find(&self, key: &[u8]) -> Result<(usize, Option<Found>), QueueError> {
        let (base, places) = self.form()?;
        let hash = hash_of(key);
        let mut open = None;
        let mut stored = Vec::new();
        for step in 0..places {
            let at = base + (hash.wrapping_add(step) % places) as usize * 8;
            match self.index(at).load(Ordering::Acquire) {
                EMPTY => return Ok((open.unwrap_or(at), None)),
                GONE => open = open.or(Some(at)),
                place => {
                    let found = self.look(place)?;
                    if self.area.word(place as usize).load(Ordering::Relaxed) == hash && found.key_len == key.len() {
                        stored.clear();
                        self.area.append_out(found.key_at(), found.key_len, &mut stored);
                        if stored == key {
                            return Ok((at, Some(found)));
                        }
                    }
                }
            }
        }
        let full = Corrupt { word: "empty places of a table's index", found: 0, least: 1, most: places };
        open.map(|at| (at, None)).ok_or(full.into())
    }

    fn set(&self, new: &NewEntry<'_>) -> Result<Option<Vec<u64>>, QueueError> {
        let value_len: usize = new.value.iter().map(|piece| piece.len()).sum();
        let len = HEAD + 8 * new.objects.len() + new.key.len().next_multiple_of(8) + value_len.next_multiple_of(8);
        if len > self.half {
            return Err(self.full(len).into()); // before anything is moved for it
        }
        self.make_room(len)?;
        let (at, before) = self.find(new.key)?;
        let (base, places) = self.form()?;
        let top = self.words.top.load(Ordering::Relaxed);
        let top = Corrupt::check("end of a table's entries", top, places * 8, self.half as u64)? as usize;
        self.back(usize::from(base > 0), top + len)?;
        let place = base + top;
        self.write(place, new, value_len);
        moment();
        let was_empty = self.index(at).load(Ordering::Relaxed) == EMPTY;
        self.words.top.store((top + len) as u64, Ordering::Relaxed);
        // Release: the entry first, then its place.
        self.index(at).store(place as u64, Ordering::Release);
        moment();
        if before.is_none() {
            self.words.live.fetch_add(1, Ordering::Relaxed);
            self.words.used.fetch_add(u64::from(was_empty), Ordering::Relaxed);
        }
        Ok(before.map(|found| self.entry(&found).objects))
    }

    fn write(&self, place: usize, new: &NewEntry<'_>, value_len: usize) {
        let word = |at: usize, value: u64| self.area.word(place + at).store(value, Ordering::Relaxed);
        word(0, hash_of(new.key));
        word(8, new.key.len() as u64 | (value_len as u64) << 32);
        word(16, u64::from(new.key_meta) | u64::from(new.value_meta) << 32);
        word(24, new.objects.len() as u64);
        for (n, object) in new.objects.iter().enumerate() {
            word(HEAD + 8 * n, *object);
        }
        let mut to = place + HEAD + 8 * new.objects.len();
        self.area.copy_in(to, new.key);
        to += new.key.len().next_multiple_of(8);
        for piece in new.value {
            self.area.copy_in(to, piece);
            to += piece.len();
        }
    }

    /// Moves to the other half when the index or the room is nearly used up.
    fn make_room(&self, len: usize) -> Result<(), QueueError> {
        let (_, places) = self.form()?;
        let used = self.words.used.load(Ordering::Relaxed);
        let top = self.words.top.load(Ordering::Relaxed);
        Corrupt::check("end of a table's entries", top, places * 8, self.half as u64)?;
        let crowded = used.saturating_add(1).saturating_mul(4) > places * 3;
        // Room that replaced entries left behind is taken back once the table has doubled since the last move.
        let worn = top > self.words.moved.load(Ordering::Relaxed).max(128 << 10).saturating_mul(2);
        if crowded || worn || top as usize + len > self.half {
            self.move_to_other_half(&self.in_order()?)?; // The order of the changes is kept.
        }
        Ok(())
    }

    /// Makes these the entries of the table.
    fn move_to_other_half(&self, entries: &[Found]) -> Result<(), QueueError> {
        let (base, _) = self.form()?;
        let log = u64::from((entries.len() as u64 * 4).max(1 << FIRST_LOG).next_power_of_two().ilog2());
        let from = usize::from(base > 0);
        let to = 1 - from;
        let (size, to_base) = (8_usize << log, to * self.half);
        let whole = size + entries.iter().map(Found::len).sum::<usize>();
        self.back(to, whole)?;
        for place in (0..size).step_by(8) {
            self.index(to_base + place).store(EMPTY, Ordering::Relaxed);
        }
        let (mut top, mut bytes) = (size, Vec::new());
        for found in entries {
            bytes.clear();
            self.area.append_out(found.place as usize, found.len(), &mut bytes);
            self.area.copy_in(to_base + top, &bytes);
            let hash = self.area.word(to_base + top).load(Ordering::Relaxed);
            let free = (0..1_u64 << log).map(|step| to_base + (hash.wrapping_add(step) % (1 << log)) as usize * 8);
            let free = free.into_iter().find(|at| self.index(*at).load(Ordering::Relaxed) == EMPTY);
            self.index(free.expect("an index with twice the places")).store((to_base + top) as u64, Ordering::Relaxed);
            top += found.len();
        }
        moment();
        // Counters first: should we die in between, the heir counts anew.
        self.words.form.store(log << 1 | to as u64, Ordering::Release);
        moment();
        self.words.top.store(top as u64, Ordering::Relaxed);
        self.words.moved.store(top as u64, Ordering::Relaxed);
        self.words.live.store(entries.len() as u64, Ordering::Relaxed);
        self.words.used.store(entries.len() as u64, Ordering::Relaxed);
        self.words.backed[from].store(0, Ordering::Relaxed);
        self.estate.segment.give_back(self.at + from * self.half, self.half);
        Ok(())
    }

    /// All entries that count, oldest first. They lie behind one another: a neighbour that lets them overlap cannot make one copy
    /// the same bytes over and over.
    fn in_order(&self) -> Result<Vec<Found>, QueueError> {
        let (base, places) = self.form()?;
        let all = (0..places as usize).map(|place| self.index(base + place * 8).load(Ordering::Acquire));
        let mut all: Vec<u64> = all.filter(|place| *place > GONE).collect();
        all.sort_unstable();
        let found = all.into_iter().map(|place| self.look(place)).collect::<Result<Vec<Found>, _>>()?;
        for pair in found.windows(2) {
            Corrupt::check("end of a table's entry", pair[0].place + pair[0].len() as u64, 0, pair[1].place)?;
        }
        Ok(found)
    }

    /// Counts anew what a dead holder may have left half counted.
    fn recount(&self) -> Result<(), QueueError> {
        let (base, places) = self.form_alone()?;
        let mut top = base as u64 + places * 8;
        self.words.top.store(places * 8, Ordering::Relaxed);
        let (mut live, mut used) = (0, 0);
        for place in 0..places as usize {
            let place = self.index(base + place * 8).load(Ordering::Acquire);
            used += u64::from(place != EMPTY);
            if place > GONE {
                live += 1;
                top = top.max(place + self.look(place)?.len() as u64);
            }
        }
        self.words.live.store(live, Ordering::Relaxed);
        self.words.used.store(used, Ordering::Relaxed);
        self.words.top.store(top - base as u64, Ordering::Relaxed);
        // Pages of either half may be missing where its holder died between giving back and saying so.
        self.words.backed.iter().for_each(|backed| backed.store(0, Ordering::Relaxed));
        Ok(())
    }
}

fn hash_of(key: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash
}
