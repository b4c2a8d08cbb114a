//! Arithmetic on the seven types that a CPU computes with; the two half types become f32 first.
//!
//! Every function is one or two instructions and has no branch, so loops of them vectorise at every level.

use super::half_bits;

/// A number that is computed with as it is.
pub(crate) trait Number: Copy + bytemuck::Pod {
    /// Integers wrap.
    fn sum(self, other: Self) -> Self;
    /// Integers wrap.
    fn difference(self, other: Self) -> Self;
    /// Integers wrap.
    fn product(self, other: Self) -> Self;
    /// NaN if either is; `-0.0` is below `0.0`.
    fn smaller(self, other: Self) -> Self;
    /// NaN if either is; `0.0` is above `-0.0`.
    fn larger(self, other: Self) -> Self;
    /// The bits that both have; of floats, 1 if neither is zero.
    fn both(self, other: Self) -> Self;
    /// The bits that either has; of floats, 1 unless both are zero.
    fn either(self, other: Self) -> Self;
    /// Towards zero for integers; zero has no quotient, so the divisor must be another.
    fn quotient(self, divisor: Self) -> Self;

    /// As Rust's `as`: nearest for floats, towards zero and saturating for integers.
    fn from_f64(number: f64) -> Self;
    /// Modulo 2ⁿ for integers.
    fn from_i64(number: i64) -> Self;
    /// As Rust's `as`.
    fn to_f64(self) -> f64;
    /// The f32 whose rounding to a half type is the rounding of this number: exact, or odd where it cannot be.
    fn to_f32_odd(self) -> f32;
    /// Whether this type has fractions.
    const IS_FLOAT: bool;
}

/// Conversion between numbers exactly as Rust's `as` does it.
pub(crate) trait As<To> {
    /// The nearest float, or the saturated integer part of a float, or an integer modulo 2ⁿ.
    fn convert(self) -> To;
}

macro_rules! float_number {
    ($T:ident, $odd:expr) => {
        impl Number for $T {
            const IS_FLOAT: bool = true;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn difference(self, other: Self) -> Self {
                self - other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                // Equal numbers differ in bits only if they are zeros of both signs: the sign of either survives.
                let equal = $T::from_bits(self.to_bits() | other.to_bits());
                let ordered = if self < other || self.is_nan() { self } else { other };
                if self == other { equal } else { ordered }
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                let equal = $T::from_bits(self.to_bits() & other.to_bits());
                let ordered = if self > other || self.is_nan() { self } else { other };
                if self == other { equal } else { ordered }
            }
            #[inline(always)]
            fn both(self, other: Self) -> Self {
                if self != 0.0 && other != 0.0 { 1.0 } else { 0.0 }
            }
            #[inline(always)]
            fn either(self, other: Self) -> Self {
                if self != 0.0 || other != 0.0 { 1.0 } else { 0.0 }
            }
            #[inline(always)]
            fn quotient(self, divisor: Self) -> Self {
                self / divisor
            }
            #[inline(always)]
            fn from_f64(number: f64) -> Self {
                number as $T
            }
            #[inline(always)]
            fn from_i64(number: i64) -> Self {
                number as $T
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_f32_odd(self) -> f32 {
                $odd(self)
            }
        }
    };
}

macro_rules! whole_number {
    ($($T:ident, $odd:expr);+) => {$(
        impl Number for $T {
            const IS_FLOAT: bool = false;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn difference(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn smaller(self, other: Self) -> Self {
                if self < other { self } else { other }
            }
            #[inline(always)]
            fn larger(self, other: Self) -> Self {
                if self > other { self } else { other }
            }
            #[inline(always)]
            fn both(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn either(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn quotient(self, divisor: Self) -> Self {
                self.wrapping_div(divisor)
            }
            #[inline(always)]
            fn from_f64(number: f64) -> Self {
                number as $T
            }
            #[inline(always)]
            fn from_i64(number: i64) -> Self {
                number as $T
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_f32_odd(self) -> f32 {
                $odd(self)
            }
        }
    )+};
}

float_number!(f32, std::convert::identity);
float_number!(f64, half_bits::f64_to_f32_odd);
whole_number!(
    i8, f32::from;
    i16, f32::from;
    u8, f32::from;
    i32, |whole: i32| half_bits::f64_to_f32_odd(f64::from(whole));
    i64, half_bits::i64_to_f32_odd
);

macro_rules! conversions {
    ($($From:ident)+) => { $( conversions!(@to $From: f32 f64 i8 i16 i32 i64 u8); )+ };
    (@to $From:ident: $($To:ident)+) => {$(
        impl As<$To> for $From {
            #[inline(always)]
            fn convert(self) -> $To {
                self as $To
            }
        }
    )+};
}
conversions!(f32 f64 i8 i16 i32 i64 u8);
