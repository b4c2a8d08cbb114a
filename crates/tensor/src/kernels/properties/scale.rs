//! Multiples against `for i { y[i] += a * x[i] }`, with the product rounded before the sum.

use proptest::prelude::*;

use super::naive::Naive;
use super::{Shifted, Words, assert_same, lengths};
use crate::element::with_element;
use crate::kernels::scale::{axpy_at, scale_at};
use crate::kernels::{SimdLevel, axpy, axpy_typed, scale, scale_typed};
use crate::{DType, TensorError};

/// Learning rates, whole factors, and what a confused caller might pass.
fn factors() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -2.0..2.0f64,
        2 => (-300i32..300).prop_map(f64::from),
        1 => prop::num::f64::ANY,
        1 => prop::sample::select(vec![0.0, -0.0, 1.0, -1.0, 1e300, 9007199254740992.0, 9007199254740994.0, f64::NAN]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn multiples_equal_the_naive_loop(seed: u64, len in lengths(), a in factors(), shifts in prop::array::uniform2(0usize..8)) {
        for dtype in DType::ALL {
            with_element!(dtype, T => check::<T>(seed, len, a, shifts));
        }
    }
}

fn check<T: Naive>(seed: u64, len: usize, a: f64, [x_shift, y_shift]: [usize; 2]) {
    let mut words = Words(seed);
    let (x, y) = (words.numbers::<T>(len), words.numbers::<T>(len));
    let (x_bytes, y_bytes) = (Shifted::holding(&x, x_shift), Shifted::holding(&y, y_shift));
    let added: Vec<T> = y.iter().zip(&x).map(|(y, x)| y.plus_times(a, *x)).collect();
    let scaled: Vec<T> = x.iter().map(|x| x.times(a)).collect();

    let (mut typed_y, mut typed_x) = (y.clone(), x.clone());
    axpy_typed(a, &x, &mut typed_y).unwrap();
    scale_typed(a, &mut typed_x);
    assert_same(&typed_y, &added, a);
    assert_same(&typed_x, &scaled, a);
    for level in SimdLevel::available() {
        let mut sum = y_bytes.clone();
        axpy_at(level, T::DTYPE, a, x_bytes.bytes(), sum.bytes_mut()).unwrap();
        assert_same(&sum.numbers(), &added, (level, a));
        let mut product = x_bytes.clone();
        scale_at(level, T::DTYPE, a, product.bytes_mut()).unwrap();
        assert_same(&product.numbers(), &scaled, (level, a));
    }
}

#[test]
fn a_fused_product_and_sum_would_be_seen() {
    // (1 + ε)² − 1 is 2ε when the product is rounded, and 2ε + ε² when it is not.
    let x = 1.0 + f32::EPSILON;
    for level in SimdLevel::available() {
        let mut y = [-1.0f32; 33];
        let x = [x; 33];
        axpy_at(
            level,
            DType::F32,
            x[0].into(),
            bytemuck::cast_slice(&x),
            bytemuck::cast_slice_mut(&mut y),
        )
        .unwrap();
        assert_eq!(y, [2.0 * f32::EPSILON; 33], "{level}");
    }
}

#[test]
fn lengths_that_disagree_are_refused() {
    let mut y = [7u8; 8];
    let refused = axpy(DType::F32, 1.0, &[1; 4], &mut y).unwrap_err();
    assert_eq!(
        refused,
        TensorError::ElementCount {
            what: "x",
            expected: 2,
            found: 1
        }
    );
    let refused = scale(DType::F64, 1.0, &mut y[..7]).unwrap_err();
    assert_eq!(
        refused,
        TensorError::PartialElement {
            bytes: 7,
            dtype: DType::F64
        }
    );
    assert_eq!(y, [7; 8]);
}
