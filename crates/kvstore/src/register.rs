//! The keys of a store, found in a few nanoseconds and without a lock: every call looks its key up, and keys come but never go.
//!
//! ```text
//! level 0   [ a │   │ c │ … ]   64 cells       a key stands in the first level whose cell for it was free when it came,
//! level 1   [   │ b │   │ … ]   128 cells      so whoever meets an empty cell on the way need not look further
//! ```
//! Hashes need not withstand anybody: the keys of a store are those of the user's own program.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use syncline_optimizer::Key;

use crate::slot::Slot;

/// The cells of level 0; each further one has twice as many.
const FIRST: usize = 64;
/// More keys than addresses of theirs would fit into memory.
const LEVELS: usize = 32;

type Cells = Box<[OnceLock<Arc<Slot>>]>;

#[derive(Default)]
pub(crate) struct Register {
    levels: [OnceLock<Cells>; LEVELS],
}

impl Register {
    /// The key's slot.
    #[inline]
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Slot>> {
        let hash = hash_of(key);
        for (level, cells) in self.levels.iter().enumerate() {
            let cells = cells.get()?;
            let slot = cells[place(hash, level, cells.len())].get()?;
            if slot.spec.key == *key {
                return Some(slot);
            }
        }
        None
    }

    /// Adds a slot whose key is not there yet; its caller sees to that.
    pub(crate) fn insert(&self, slot: Arc<Slot>) {
        let hash = hash_of(&slot.spec.key);
        let mut slot = Some(slot);
        for (level, cells) in self.levels.iter().enumerate() {
            let cells = cells.get_or_init(|| (0..FIRST << level).map(|_| OnceLock::new()).collect());
            cells[place(hash, level, cells.len())].get_or_init(|| slot.take().expect("set once"));
            if slot.is_none() {
                return;
            }
        }
        unreachable!("every level has twice the cells of the one before");
    }

    /// All slots, in no order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Arc<Slot>> {
        self.levels.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get)
    }
}

/// The cell of a hash in a level; other bits of it in each, so that keys that meet in one part in the next.
#[inline]
fn place(hash: u64, level: usize, cells: usize) -> usize {
    hash.rotate_right(7 * level as u32) as usize & (cells - 1)
}

#[inline]
fn hash_of(key: &Key) -> u64 {
    let mut hasher = WordHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Eight bytes at a time: turned, mixed in, multiplied.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WordHasher(u64);

/// 2⁶⁴ over the golden ratio: its multiples differ in their high bits, which tables take.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for WordHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(FACTOR);
    }

    #[inline]
    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_u64(number as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32 // The low bits of a product know little of the number; tables take these too.
    }
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
        numbers.chain((0..4096).map(|number| Key::from(&*format!("layer{number}_weight")))).collect()
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
        assert!(register.get(&Key::from(-1)).is_none() && register.get(&Key::from("layer")).is_none());
    }
}
