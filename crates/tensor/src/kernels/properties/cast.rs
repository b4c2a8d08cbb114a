//! Casts against exact values: a number is taken as what it is, and the nearest of the other type is looked up.

use half::{bf16, f16};
use proptest::prelude::*;

use super::naive::Naive;
use super::{Shifted, Words, assert_same, lengths};
use crate::element::with_element;
use crate::kernels::cast::cast_at;
use crate::kernels::{SimdLevel, cast, cast_typed};
use crate::{DType, TensorError};

/// The value of any number of any dtype, exactly.
#[derive(Clone, Copy, Debug)]
enum Exact {
    Float(f64),
    Whole(i64),
}

trait Castable: Naive {
    fn exact(self) -> Exact;
    fn nearest(exact: Exact) -> Self;
}

macro_rules! castable_native {
    ($($T:ident: $variant:ident),+) => {$(
        impl Castable for $T {
            fn exact(self) -> Exact {
                Exact::$variant(self.into())
            }
            fn nearest(exact: Exact) -> Self {
                match exact {
                    Exact::Float(float) => float as $T,
                    Exact::Whole(whole) => whole as $T,
                }
            }
        }
    )+};
}
castable_native!(f32: Float, f64: Float, i8: Whole, i16: Whole, i32: Whole, i64: Whole, u8: Whole);

macro_rules! castable_half {
    ($($T:ident, $infinity_stands_for:expr);+) => {$(
        impl Castable for $T {
            fn exact(self) -> Exact {
                Exact::Float(self.to_f64())
            }
            fn nearest(exact: Exact) -> Self {
                // `half` comes within one step (it may round twice), so the right answer is among three neighbours.
                let guess = match exact {
                    Exact::Float(float) if !float.is_finite() => return $T::from_f64(float),
                    Exact::Float(float) => $T::from_f64(float),
                    Exact::Whole(whole) => $T::from_f64(whole as f64),
                };
                let (sign, magnitude) = (guess.to_bits() & 0x8000, guess.to_bits() & 0x7fff);
                let distance = |bits: u16| {
                    let value = match bits {
                        _ if bits == $T::INFINITY.to_bits() => $infinity_stands_for,
                        _ => $T::from_bits(bits).to_f64(),
                    };
                    match exact {
                        Exact::Whole(whole) if whole.unsigned_abs() > 1 << 53 => {
                            ((value as i128).abs_diff(whole.unsigned_abs().into()), 0.0)
                        }
                        Exact::Whole(whole) => (0, (value - (whole as f64).abs()).abs()),
                        Exact::Float(float) => (0, (value - float.abs()).abs()),
                    }
                };
                let neighbours = magnitude.saturating_sub(1)..=(magnitude + 1).min($T::INFINITY.to_bits());
                let nearest_then_even = |a: &u16, b: &u16| {
                    let order = distance(*a).partial_cmp(&distance(*b)).unwrap();
                    order.then((a & 1).cmp(&(b & 1)))
                };
                $T::from_bits(neighbours.min_by(nearest_then_even).unwrap() | sign)
            }
        }
    )+};
}
castable_half!(f16, 65536.0; bf16, 2f64.powi(128));

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn casting_equals_the_nearest_value(seed: u64, len in lengths(), shifts in prop::array::uniform2(0usize..8)) {
        for from in DType::ALL {
            for to in DType::ALL {
                with_element!(from, S => with_element!(to, D => check::<S, D>(seed, len.min(700), shifts)));
            }
        }
    }
}

fn check<S: Castable, D: Castable>(seed: u64, len: usize, shifts: [usize; 2]) {
    let mut words = Words(seed);
    let mut src: Vec<S> = words.numbers(len);
    // Casts go wrong at ties and at the edges of the target, so half of the numbers are taken from there.
    for number in src.iter_mut().step_by(2) {
        let target: D = words.numbers(1)[0];
        let near = match target.exact() {
            Exact::Float(float) => Exact::Float(
                float * (1.0 + words.below(17) as f64 / 2048.0 + words.below(2) as f64 * 1e-16),
            ),
            Exact::Whole(whole) => Exact::Whole(whole.wrapping_add(words.below(3) as i64 - 1)),
        };
        *number = S::nearest(near);
    }
    check_numbers::<S, D>(&src, shifts);
}

fn check_numbers<S: Castable, D: Castable>(src: &[S], [src_shift, dst_shift]: [usize; 2]) {
    let expected: Vec<D> = src
        .iter()
        .map(|number| D::nearest(number.exact()))
        .collect();
    let mut typed = vec![D::zeroed(); src.len()];
    cast_typed(src, &mut typed).unwrap();
    assert_same(&typed, &expected, S::DTYPE);
    let src = Shifted::holding(src, src_shift);
    for level in SimdLevel::available() {
        let mut dst = Shifted::holding(&vec![D::zeroed(); expected.len()], dst_shift);
        cast_at(level, S::DTYPE, src.bytes(), D::DTYPE, dst.bytes_mut()).unwrap();
        assert_same(&dst.numbers(), &expected, (level, S::DTYPE));
    }
}

#[test]
fn every_half_casts_to_every_dtype() {
    let f16s: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let bf16s: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    for to in DType::ALL {
        with_element!(to, D => {
            check_numbers::<f16, D>(&f16s, [0, 0]);
            check_numbers::<bf16, D>(&bf16s, [0, 0]);
        });
    }
}

#[test]
fn values_just_beside_a_tie_round_once() {
    let steps = [-1e-15, -1e-12, 0.0, 1e-12, 1e-15];
    let ties = (0..0x7c00u16).flat_map(|bits| {
        let (low, high) = (
            f16::from_bits(bits).to_f64(),
            f16::from_bits(bits + 1).to_f64(),
        );
        let middle = if high.is_finite() {
            (low + high) / 2.0
        } else {
            65520.0
        };
        steps.map(|step| middle * (1.0 + step))
    });
    let ties: Vec<f64> = ties.collect();
    check_numbers::<f64, f16>(&ties, [0, 0]);
    check_numbers::<f64, bf16>(&ties, [0, 0]);
    let wholes: Vec<i64> = (40..63)
        .flat_map(|power| [-1, 0, 1].map(|step| (1i64 << power) + (1 << (power - 8)) + step))
        .flat_map(|whole| [whole, -whole])
        .chain([i64::MAX, i64::MIN])
        .collect();
    check_numbers::<i64, bf16>(&wholes, [0, 0]);
    check_numbers::<i64, f32>(&wholes, [0, 0]);
}

#[test]
fn lengths_that_disagree_are_refused() {
    let mut dst = [7u8; 8];
    let refused = cast(DType::U8, &[1; 8], DType::F32, &mut dst).unwrap_err();
    assert_eq!(
        refused,
        TensorError::ElementCount {
            what: "dst",
            expected: 8,
            found: 2
        }
    );
    let refused = cast(DType::I16, &[1; 3], DType::U8, &mut dst).unwrap_err();
    assert_eq!(
        refused,
        TensorError::PartialElement {
            bytes: 3,
            dtype: DType::I16
        }
    );
    assert_eq!(dst, [7; 8]);
}
