//! Quotients against the obvious division.

use proptest::prelude::*;

use super::naive::Naive;
use super::{Shifted, Words, assert_same, lengths};
use crate::DType;
use crate::element::with_element;
use crate::kernels::SimdLevel;
use crate::kernels::divide::divide_at;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_number_is_divided(seed in any::<u64>(), len in lengths(), shift in 0usize..8, count in prop_oneof![1u32..400, any::<u32>()]) {
        for dtype in DType::ALL {
            with_element!(dtype, T => check::<T>(seed, len, shift, count.max(1)));
        }
    }
}

fn check<T: Naive>(seed: u64, len: usize, shift: usize, count: u32) {
    let numbers: Vec<T> = Words(seed).numbers(len);
    let expected: Vec<T> = numbers.iter().map(|number| number.over(count)).collect();
    for level in SimdLevel::available() {
        let mut data = Shifted::holding(&numbers, shift);
        divide_at(level, T::DTYPE, data.bytes_mut(), count).unwrap();
        assert_same(&data.numbers(), &expected, (level, count));
    }
}
