//! Every kernel equals its naive loop: all dtypes, odd lengths, any alignment, every level of this CPU.
//!
//! A case is a seed and a few sizes; the numbers follow from the seed, so that long slices cost nothing to
//! generate and a failure prints all it takes to see it again.

mod cast;
mod divide;
mod naive;
mod reduce;
mod rows;
mod scale;
mod step;
mod strided;
mod subtract;

use proptest::prelude::*;

use naive::Naive;

/// Lengths around the blocks of the kernels, short odd ones most often.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0usize..70, 2 => 200usize..600, 1 => 4000usize..9000]
}

/// A buffer whose numbers begin `shift` bytes after an aligned address.
#[derive(Clone)]
struct Shifted {
    words: Vec<u64>,
    shift: usize,
    len: usize,
}

impl Shifted {
    fn holding<T: Naive>(numbers: &[T], shift: usize) -> Shifted {
        let len = size_of_val(numbers);
        let words = vec![0x5a5a_5a5a_5a5a_5a5a; (shift + len).div_ceil(8) + 1];
        let mut buffer = Shifted { words, shift, len };
        buffer.bytes_mut().copy_from_slice(bytemuck::cast_slice(numbers));
        buffer
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[self.shift..self.shift + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[self.shift..self.shift + self.len]
    }

    fn numbers<T: Naive>(&self) -> Vec<T> {
        self.bytes().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }
}

/// SplitMix64: a stream of words from a seed.
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A mix of special values, small whole numbers and arbitrary bits.
    fn numbers<T: Naive>(&mut self, len: usize) -> Vec<T> {
        let mut number = || match self.below(4) {
            0 => T::SPECIAL[self.below(T::SPECIAL.len())],
            1 => T::small(self.below(41) as i8 - 20),
            _ => bytemuck::pod_read_unaligned(&self.next().to_ne_bytes()[..size_of::<T>()]),
        };
        (0..len).map(|_| number()).collect()
    }
}

/// Equal bits, or NaN on both sides.
#[track_caller]
fn assert_same<T: Naive>(found: &[T], expected: &[T], what: impl std::fmt::Debug) {
    assert_eq!(found.len(), expected.len(), "{what:?}");
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        let same = bytemuck::bytes_of(found) == bytemuck::bytes_of(expected);
        assert!(same || (found.is_nan() && expected.is_nan()), "{} {what:?}: number {index} is {found:?}, expected {expected:?}", T::DTYPE);
    }
}

#[test]
fn nothing_is_a_fine_amount_of_every_dtype() {
    use super::*;
    use crate::DType;
    for dtype in DType::ALL {
        for op in ReduceOp::ALL {
            reduce_into(op, dtype, &mut [], &[]).unwrap();
            reduce_pair_into(op, dtype, &mut [], &[], &[]).unwrap();
            reduce_many_into(op, dtype, &mut [], &[&[], &[], &[]]).unwrap();
        }
        subtract_into(dtype, &mut [], &[]).unwrap();
        subtract_pair_into(dtype, &mut [], &[], &[]).unwrap();
        axpy(dtype, 2.0, &[], &mut []).unwrap();
        scale(dtype, 2.0, &mut []).unwrap();
        for to in DType::ALL {
            cast(dtype, &[], to, &mut []).unwrap();
        }
        let empty = RowLayout::new(dtype, 0, 3).unwrap();
        gather_rows(empty, &[], &[], &mut []).unwrap();
        scatter_rows(empty, &mut [], &[], &[]).unwrap();
        scatter_add_rows(empty, &mut [], &[], &[]).unwrap();
    }
}
