//! Differences against `for i { acc[i] -= src[i] }`.

use proptest::prelude::*;

use super::naive::Naive;
use super::{Shifted, Words, assert_same, lengths};
use crate::element::with_element;
use crate::kernels::subtract::{subtract_into_at, subtract_pair_into_at};
use crate::kernels::{SimdLevel, subtract_into, subtract_pair_into};
use crate::{DType, TensorError};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn subtracting_equals_the_naive_loop(seed: u64, len in lengths(), shifts in prop::array::uniform3(0usize..8)) {
        for dtype in DType::ALL {
            with_element!(dtype, T => check::<T>(seed, len, shifts));
        }
    }
}

fn check<T: Naive>(seed: u64, len: usize, [out_shift, a_shift, b_shift]: [usize; 3]) {
    let mut words = Words(seed);
    let (a, b) = (words.numbers::<T>(len), words.numbers::<T>(len));
    let (a_bytes, b_bytes) = (Shifted::holding(&a, a_shift), Shifted::holding(&b, b_shift));
    let expected: Vec<T> = a.iter().zip(&b).map(|(a, b)| a.minus(*b)).collect();
    for level in SimdLevel::available() {
        let mut acc = a_bytes.clone();
        subtract_into_at(level, T::DTYPE, acc.bytes_mut(), b_bytes.bytes()).unwrap();
        assert_same(&acc.numbers(), &expected, level);
        let mut out = Shifted::holding(&words.numbers::<T>(len), out_shift);
        subtract_pair_into_at(level, T::DTYPE, out.bytes_mut(), a_bytes.bytes(), b_bytes.bytes()).unwrap();
        assert_same(&out.numbers(), &expected, level);
    }
}

#[test]
fn lengths_that_disagree_are_refused_and_nothing_is_written() {
    let mut acc = [7u8; 8];
    let refused = subtract_into(DType::F32, &mut acc, &[1; 4]).unwrap_err();
    assert_eq!(refused, TensorError::ElementCount { what: "src", expected: 2, found: 1 });
    let refused = subtract_pair_into(DType::I16, &mut acc, &[1; 8], &[1; 7]).unwrap_err();
    assert_eq!(refused, TensorError::PartialElement { bytes: 7, dtype: DType::I16 });
    assert_eq!(acc, [7; 8]);
}
