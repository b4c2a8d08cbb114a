//! The two types that are computed with, f32 and f64, with the few functions that rules and expressions need.
//!
//! `exp` and `ln` are made of sums and products only, so that they vectorise and give the same bits on every machine.

use std::ops::{Add, Div, Mul, Neg, Sub};

use syncline_tensor::{DType, Native};

pub(crate) trait Real:
    Native
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + std::fmt::Debug
{
    const WIDE: DType;
    const ZERO: Self;
    const ONE: Self;
    fn of(number: f64) -> Self;
    fn to_f64(self) -> f64;
    fn root(self) -> Self;
    fn magnitude(self) -> Self;
    /// By the C library; used once per step, not per number.
    fn power(self, exponent: Self) -> Self;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    /// Divided in f64 and rounded once: what C makes of a float over a double.
    fn divided(self, by: f64) -> Self;

    /// −1, 0 or 1; 0 for NaN, as a difference of comparisons gives it.
    #[inline(always)]
    fn sign(self) -> Self {
        let up = if self > Self::ZERO { Self::ONE } else { Self::ZERO };
        if self < Self::ZERO { -Self::ONE } else { up }
    }

    /// Within ±bound; NaN stays.
    #[inline(always)]
    fn clipped(self, bound: Self) -> Self {
        let below = if self > bound { bound } else { self };
        if below < -bound { -bound } else { below }
    }
}

macro_rules! real {
    ($T:ident, $dtype:expr) => {
        impl Real for $T {
            const WIDE: DType = $dtype;
            const ZERO: $T = 0.0;
            const ONE: $T = 1.0;
            #[inline(always)]
            fn of(number: f64) -> $T {
                number as $T
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn root(self) -> $T {
                self.sqrt()
            }
            #[inline(always)]
            fn magnitude(self) -> $T {
                self.abs()
            }
            fn power(self, exponent: $T) -> $T {
                self.powf(exponent)
            }
            #[inline(always)]
            fn exp(self) -> $T {
                exp(self as f64) as $T
            }
            #[inline(always)]
            fn ln(self) -> $T {
                ln(self as f64) as $T
            }
            #[inline(always)]
            fn divided(self, by: f64) -> $T {
                (self as f64 / by) as $T
            }
        }
    };
}
real!(f32, DType::F32);
real!(f64, DType::F64);

const LN2_HIGH: f64 = 0.693_147_180_369_123_8; // its last 20 bits are zero, so whole multiples of it are exact
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// eˣ within two units in the last place: x = k·ln 2 + r, and a polynomial for the small r.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    const NO_FRACTION: f64 = 6_755_399_441_055_744.0; // 1.5·2⁵²: adding it rounds to whole numbers
    // Beyond these the result is infinite or zero whatever the digits; NaN fails both comparisons and stays.
    let limited = if x > 720.0 { 720.0 } else { x };
    let limited = if limited < -760.0 { -760.0 } else { limited };
    let shifted = limited * std::f64::consts::LOG2_E + NO_FRACTION;
    let k = shifted - NO_FRACTION;
    let r = (limited - k * LN2_HIGH) - k * LN2_LOW;
    let mut sum = 1.0 / 87_178_291_200.0;
    let inverse = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ];
    for coefficient in inverse {
        sum = sum * r + coefficient;
    }
    // 2ᵏ in two halves, or the largest and the smallest k would not fit in an exponent. The low bits of `shifted` are k.
    let whole = shifted.to_bits() as i32;
    let half = whole >> 1;
    let power = |k: i32| f64::from_bits(((k as i64 + 1023) as u64) << 52);
    sum * power(half) * power(whole - half)
}

/// Natural logarithm within two units in the last place: x = m·2ᵏ with m near 1, and a series in (m−1)/(m+1).
#[inline(always)]
pub(crate) fn ln(x: f64) -> f64 {
    const TWO_54: f64 = 18_014_398_509_481_984.0;
    let subnormal = x < f64::MIN_POSITIVE;
    let bits = (if subnormal { x * TWO_54 } else { x }).to_bits();
    // Moves the exponent so that m lies between √½ and √2.
    let moved = bits.wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let k = ((moved as i64) >> 52) as i32 - if subnormal { 54 } else { 0 };
    let m = f64::from_bits((moved & 0x000f_ffff_ffff_ffff).wrapping_add(0x3fe6_a09e_667f_3bcd));
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let mut sum = 1.0 / 23.0;
    for odd in [21.0, 19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0] {
        sum = sum * square + 1.0 / odd;
    }
    let k = f64::from(k);
    let result = k * LN2_HIGH + (2.0 * s + (2.0 * s * square * sum + k * LN2_LOW));
    let result = if x == f64::INFINITY { x } else { result };
    let result = if x == 0.0 { f64::NEG_INFINITY } else { result };
    if x >= 0.0 { result } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_ln_agree_with_the_c_library() {
        for i in -20_000..20_000 {
            let x = f64::from(i) * 0.037;
            let (found, wanted) = (exp(x), x.exp());
            assert!(found == wanted || (found - wanted).abs() <= 1e-15 * wanted.abs().max(1e-300), "exp {x}: {found:e} {wanted:e}");
            let x = (f64::from(i) * 0.0371).exp();
            let (found, wanted) = (ln(x), x.ln());
            assert!(found == wanted || (found - wanted).abs() <= 1e-15 * wanted.abs().max(1.0), "ln {x}: {found} {wanted}");
        }
        assert_eq!((exp(1000.0), exp(-1000.0), exp(0.0)), (f64::INFINITY, 0.0, 1.0));
        assert_eq!((exp(f64::INFINITY), exp(f64::NEG_INFINITY)), (f64::INFINITY, 0.0));
        assert_eq!((ln(0.0), ln(1.0), ln(f64::INFINITY)), (f64::NEG_INFINITY, 0.0, f64::INFINITY));
        assert!(exp(f64::NAN).is_nan() && ln(f64::NAN).is_nan() && ln(-1.0).is_nan());
        assert!((ln(5e-324) + 744.440_071_921_381).abs() < 1e-10);
    }
}
