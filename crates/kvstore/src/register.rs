//! The keys of a store, found in a few nanoseconds and without a lock: every call looks its key up, and keys come but never go.
//!
//! ```text
//! level 0   [ a │   │ c │ … ]   64 cells       a key stands in the first level whose cell for it was free when it came,
//! level 1   [   │ b │   │ … ]   128 cells      so whoever meets an empty cell on the way need not look further
//! ```
//! Hashes need not withstand anybody: the keys of a store are those of the user's own program.

use std::sync::{Arc, OnceLock};

use syncline_optimizer::Key;

use crate::slot::Slot;

/// The cells of level 0; each further one has twice as many.
const FIRST: usize = 64;
/// More keys than addresses of theirs would fit into memory.
const LEVELS: usize = 32;

type Cells = Box<[OnceLock<Arc<Slot>>]>;

pub(crate) struct Register {
    /// Level 0, where nearly every key is found.
    first: [OnceLock<Arc<Slot>>; FIRST],
    /// Level 1 and those after it.
    levels: [OnceLock<Cells>; LEVELS],
}

impl Default for Register {
    fn default() -> Register {
        Register { first: [const { OnceLock::new() }; FIRST], levels: [const { OnceLock::new() }; LEVELS] }
    }
}

impl Register {
    /// The key's slot.
    #[inline(always)] // Every call begins with it, and waits for what it finds.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Slot>> {
        let hash = hash_of(key);
        let slot = self.first[place(hash, 0, FIRST)].get()?;
        if is_same(&slot.spec.key, key) { Some(slot) } else { self.get_further(hash, key) }
    }

    #[cold]
    fn get_further(&self, hash: u64, key: &Key) -> Option<&Arc<Slot>> {
        for (level, cells) in (1..).zip(&self.levels) {
            let cells = cells.get()?;
            let slot = cells[place(hash, level, cells.len())].get()?;
            if is_same(&slot.spec.key, key) {
                return Some(slot);
            }
        }
        None
    }

    /// Adds a slot whose key is not there yet; its caller sees to that.
    pub(crate) fn insert(&self, slot: Arc<Slot>) {
        let hash = hash_of(&slot.spec.key);
        let mut slot = Some(slot);
        self.first[place(hash, 0, FIRST)].get_or_init(|| slot.take().expect("set once"));
        for (level, cells) in (1..).zip(&self.levels) {
            if slot.is_none() {
                return;
            }
            let cells = cells.get_or_init(|| (0..FIRST << level).map(|_| OnceLock::new()).collect());
            cells[place(hash, level, cells.len())].get_or_init(|| slot.take().expect("set once"));
        }
        assert!(slot.is_none(), "every level has twice the cells of the one before");
    }

    /// All slots, in no order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        let further = self.levels.iter().filter_map(OnceLock::get).flatten();
        self.first.iter().chain(further).filter_map(OnceLock::get)
    }
}

/// The cell of a hash in a level; other bits of it in each, so that keys that meet in one part in the next.
#[inline]
fn place(hash: u64, level: usize, cells: usize) -> usize {
    hash.rotate_right(7 * level as u32) as usize & (cells - 1)
}

/// Whether two keys are one. Names word by word, as they are hashed: a call that compares memory costs more than the few there are.
#[inline]
fn is_same(one: &Key, other: &Key) -> bool {
    let (one, other) = match (one, other) {
        (Key::Int(one), Key::Int(other)) => return one == other,
        (Key::Name(one), Key::Name(other)) => (one.as_bytes(), other.as_bytes()),
        _ => return false,
    };
    if one.len() != other.len() {
        return false;
    }
    match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        (Some(last), Some(other_last)) => {
            last == other_last && one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0).all(|(one, other)| one == other)
        }
        _ if one.len() >= 4 => halves(one) == halves(other),
        _ => one.iter().zip(other).all(|(one, other)| one == other),
    }
}

/// Eight bytes at a time, of a name the last ones perhaps twice: every call comes here, and a copy of a few bytes would cost more than all the rest.
#[inline]
fn hash_of(key: &Key) -> u64 {
    let name = match key {
        Key::Int(number) => return fold(mix(0, *number as u64)),
        Key::Name(name) => name.as_bytes(),
    };
    let length = name.len() as u64;
    let rest = match name {
        [] => 0,
        [first, .., last] if name.len() < 4 => u64::from(*first) | u64::from(name[1]) << 8 | u64::from(*last) << 16,
        [only] => u64::from(*only),
        _ => match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(_), Some(last)) => {
                let (words, _) = name[..name.len() - 1].as_chunks::<8>();
                let hash = words.iter().fold(length, |hash, word| mix(hash, u64::from_le_bytes(*word)));
                return fold(mix(hash, u64::from_le_bytes(*last)));
            }
            _ => halves(name),
        },
    };
    fold(mix(length, rest))
}

/// Four to seven bytes: the first and the last four.
#[inline]
fn halves(name: &[u8]) -> u64 {
    let half = |bytes: Option<&[u8; 4]>| bytes.map_or(0, |bytes| u64::from(u32::from_le_bytes(*bytes)));
    half(name.first_chunk()) | half(name.last_chunk()) << 32
}

/// 2⁶⁴ over the golden ratio: its multiples differ in their high bits, which tables take.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR)
}

/// The low bits of a product know little of the number; tables take these too.
#[inline]
fn fold(hash: u64) -> u64 {
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use syncline_tensor::Tensor;

    use super::*;
    use crate::memory::MemoryKey;
    use crate::slot::Held;
    use crate::value::{KeySpec, Value};

    fn keys() -> Vec<Key> {
        let numbers = (0..4096).map(Key::from);
        let short = (0..4096).map(|number| Key::from(&*format!("{number:x}")));
        numbers.chain(short).chain((0..4096).map(|number| Key::from(&*format!("layer{number}_weight")))).collect()
    }

    #[test]
    fn every_byte_of_a_name_counts_wherever_it_stands() {
        for length in 0..40 {
            let name = "n".repeat(length);
            let mut seen = HashSet::from([hash_of(&Key::from(&*name))]);
            assert!(is_same(&Key::from(&*name), &Key::from(&*name)) && !is_same(&Key::from(&*name), &Key::from(&*format!("{name}n"))));
            for at in 0..length {
                let other: String = name.char_indices().map(|(place, letter)| if place == at { 'x' } else { letter }).collect();
                assert!(!is_same(&Key::from(&*name), &Key::from(&*other)), "{other}");
                assert!(seen.insert(hash_of(&Key::from(&*other))), "{other}");
            }
            assert!(seen.insert(hash_of(&Key::from(&*format!("{name}n")))), "one more than {length}");
        }
    }

    #[test]
    fn keys_as_programs_have_them_spread_over_a_table() {
        for keys in keys().chunks(4096) {
            let places: HashSet<u64> = keys.iter().map(|key| hash_of(key) & 0xffff).collect();
            assert!(places.len() > 3800, "{} places of 65536 for 4096 keys like {}", places.len(), keys[7]);
        }
    }

    #[test]
    fn every_key_is_found_and_no_other() {
        let register = Register::default();
        let number = Tensor::from_slice(&[1], &[0.0f32]).expect("sound");
        for (count, key) in keys().iter().enumerate() {
            assert!(register.get(key).is_none(), "{key} before it came");
            let spec = KeySpec::of(key, &Value::from(&number));
            let held = Held::Memory { key: MemoryKey::new(&spec, &Value::from(&number)), rule: Arc::default() };
            register.insert(Arc::new(Slot::new(spec, held)));
            assert_eq!(register.get(key).map(|slot| &slot.spec.key), Some(key));
            if count.is_multiple_of(1000) {
                assert_eq!(register.slots().count(), count + 1);
            }
        }
        assert!(keys().iter().all(|key| register.get(key).is_some_and(|slot| slot.spec.key == *key)));
        assert!(
            is_same(&Key::from(3), &Key::from(3)) && !is_same(&Key::from(3), &Key::from(4)) && !is_same(&Key::from(3), &Key::from("3"))
        );
        assert!(register.get(&Key::from(-1)).is_none() && register.get(&Key::from("layer")).is_none());
    }
}
