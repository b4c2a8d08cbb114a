//! One number at a time, the obvious way, sharing nothing with the kernels.

use half::{bf16, f16};

use crate::Element;
use crate::kernels::ReduceOp;

/// The obvious arithmetic of each type.
pub(super) trait Naive: Element {
    const SPECIAL: &'static [Self];
    fn small(number: i8) -> Self;
    fn is_nan(self) -> bool;
    fn reduce(op: ReduceOp, a: Self, b: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, factor: f64) -> Self;
    fn plus_times(self, factor: f64, x: Self) -> Self;
    fn over(self, count: u32) -> Self;
}

macro_rules! naive_float {
    ($($T:ident),+) => {$(
        impl Naive for $T {
            const SPECIAL: &'static [Self] = &[
                0.0, -0.0, 1.0, -1.0, 0.5, $T::NAN, -$T::NAN, $T::INFINITY, $T::NEG_INFINITY, $T::MAX, $T::MIN,
                $T::MIN_POSITIVE, $T::EPSILON, 255.5, -128.5, 65519.0, 65520.0, 2147483648.0, -9223372036854775808.0,
            ];
            fn small(number: i8) -> Self {
                number.into()
            }
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            fn reduce(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Mean => a + b,
                    ReduceOp::Prod => a * b,
                    ReduceOp::And => Self::from(a != 0.0 && b != 0.0),
                    ReduceOp::Or => Self::from(a != 0.0 || b != 0.0),
                    _ if a.is_nan() || b.is_nan() => $T::NAN,
                    ReduceOp::Min => std::cmp::min_by(a, b, $T::total_cmp),
                    ReduceOp::Max => std::cmp::max_by(a, b, $T::total_cmp),
                }
            }
            fn minus(self, other: Self) -> Self {
                self - other
            }
            fn times(self, factor: f64) -> Self {
                self * factor as $T
            }
            fn plus_times(self, factor: f64, x: Self) -> Self {
                let product = x * factor as $T;
                self + product
            }
            fn over(self, count: u32) -> Self {
                self / count as $T
            }
        }
    )+};
}
naive_float!(f32, f64);

macro_rules! naive_half {
    ($($T:ident),+) => {$(
        impl Naive for $T {
            const SPECIAL: &'static [Self] = &[
                $T::ZERO, $T::NEG_ZERO, $T::ONE, $T::NEG_ONE, $T::NAN, $T::INFINITY, $T::NEG_INFINITY, $T::MAX, $T::MIN,
                $T::MIN_POSITIVE, $T::MIN_POSITIVE_SUBNORMAL, $T::MAX_SUBNORMAL, $T::EPSILON,
            ];
            fn small(number: i8) -> Self {
                $T::from_f32(number.into())
            }
            fn is_nan(self) -> bool {
                $T::is_nan(self)
            }
            fn reduce(op: ReduceOp, a: Self, b: Self) -> Self {
                $T::from_f32(f32::reduce(op, a.to_f32(), b.to_f32()))
            }
            fn minus(self, other: Self) -> Self {
                $T::from_f32(self.to_f32() - other.to_f32())
            }
            fn times(self, factor: f64) -> Self {
                $T::from_f32(self.to_f32().times(factor))
            }
            fn plus_times(self, factor: f64, x: Self) -> Self {
                $T::from_f32(self.to_f32().plus_times(factor, x.to_f32()))
            }
            fn over(self, count: u32) -> Self {
                $T::from_f32(self.to_f32() / count as f32)
            }
        }
    )+};
}
naive_half!(f16, bf16);

macro_rules! naive_whole {
    ($($T:ident),+) => {$(
        impl Naive for $T {
            const SPECIAL: &'static [Self] = &[0, 1, 2, $T::MAX, $T::MIN, $T::MAX - 1, $T::MAX / 2, $T::MIN / 2];
            fn small(number: i8) -> Self {
                number as $T
            }
            fn is_nan(self) -> bool {
                false
            }
            fn reduce(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Mean => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::And => a & b,
                    ReduceOp::Or => a | b,
                }
            }
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            fn times(self, factor: f64) -> Self {
                if factor.fract() == 0.0 && factor.abs() <= 9007199254740992.0 {
                    (i128::from(self) * factor as i128) as $T
                } else {
                    (self as f64 * factor) as $T
                }
            }
            fn plus_times(self, factor: f64, x: Self) -> Self {
                self.wrapping_add(x.times(factor))
            }
            fn over(self, count: u32) -> Self {
                (i128::from(self) / i128::from(count)) as $T
            }
        }
    )+};
}
naive_whole!(i8, i16, i32, i64, u8);
