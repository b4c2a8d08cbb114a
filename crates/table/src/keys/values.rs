//! A map from keys to numbers of one dtype.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, reduce_into};

use crate::spread::scattered;

/// The widest element has eight bytes; narrower ones leave the rest zero.
type Value = [u8; 8];

/// Hashes a key with one multiplication or two. Keys come from members of the job, who could do worse than collide.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = scattered(self.0 ^ u64::from(*byte)));
    }

    fn write_i64(&mut self, key: i64) {
        // Not the hash that chose the server: among its keys that one has few values left.
        self.0 = scattered((key as u64).rotate_left(32));
    }
}

/// What one server holds.
#[derive(Debug)]
pub(crate) struct Values {
    dtype: DType,
    map: HashMap<i64, Value, BuildHasherDefault<KeyHasher>>,
}

impl Values {
    pub(crate) fn new(dtype: DType) -> Values {
        Values { dtype, map: HashMap::default() }
    }

    /// Bytes of one value.
    pub(crate) fn size(&self) -> usize {
        self.dtype.size()
    }

    /// Adds one value per key, in order; `values` has as many.
    pub(crate) fn add(&mut self, keys: &[i64], values: &[u8]) {
        let size = self.size();
        for (key, value) in keys.iter().zip(values.chunks_exact(size)) {
            let held = self.map.entry(*key).or_default();
            reduce_into(ReduceOp::Sum, self.dtype, &mut held[..size], value).expect("two values of one dtype");
        }
    }

    /// Appends one value per key to `out`.
    pub(crate) fn get(&self, keys: &[i64], out: &mut Vec<u8>) {
        let size = self.size();
        out.reserve(keys.len() * size);
        for key in keys {
            out.extend_from_slice(&self.map.get(key).copied().unwrap_or_default()[..size]);
        }
    }

    /// All pairs, by key.
    pub(crate) fn export(&self) -> (Vec<i64>, Vec<u8>) {
        let mut keys: Vec<i64> = self.map.keys().copied().collect();
        keys.sort_unstable();
        let mut values = Vec::new();
        self.get(&keys, &mut values);
        (keys, values)
    }

    /// These pairs and no others; of a repeated key the last.
    pub(crate) fn import(&mut self, keys: &[i64], values: &[u8]) {
        let size = self.size();
        self.map.clear();
        for (key, value) in keys.iter().zip(values.chunks_exact(size)) {
            self.map.entry(*key).or_default()[..size].copy_from_slice(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn missing_reads_as_zero_and_repeats_add_up() {
        let mut values = Values::new(DType::F32);
        values.add(&[0], &floats(&[3.0]));
        values.add(&[0, -7, -7], &floats(&[-4.0, 1.5, 2.0]));
        let mut out = Vec::new();
        values.get(&[-7, 0, 12, -7], &mut out);
        assert_eq!(out, floats(&[3.5, -1.0, 0.0, 3.5]));
    }

    #[test]
    fn an_export_is_sorted_and_comes_back() {
        for dtype in [DType::I8, DType::F16, DType::F32, DType::F64, DType::I64] {
            let mut values = Values::new(dtype);
            let bytes: Vec<u8> = (0..3 * dtype.size() as u8).collect();
            values.add(&[5, i64::MIN, 2], &bytes);
            let (keys, exported) = values.export();
            assert_eq!(keys, [i64::MIN, 2, 5]);
            let mut again = Values::new(dtype);
            again.add(&[77], &bytes[..dtype.size()]);
            again.import(&keys, &exported);
            assert_eq!(again.export(), (keys, exported));
        }
    }
}
