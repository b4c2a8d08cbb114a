//! Multiples: what an updater does with a gradient.
//!
//! Factors come as f64, whatever the dtype. Floats round the factor to the type they are computed in. Integers take a
//! whole factor as an integer and wrap; any other is multiplied in f64 and the product cast as by [`cast`](super::cast):
//! towards zero, saturating.

use super::byte_slices::{change, change_by, elements_in, same_count};
use super::dispatch::{Isa, SimdLevel, Work, simd_level};
use super::lanes::{Binary, Unary};
use super::number::Number;
use super::reduce::Update;
use crate::element::with_element;
use crate::{DType, Element, TensorError};

/// `y += a · x`, number by number: a product, then a sum, each rounded; the lengths must agree.
///
/// ```
/// use syncline_tensor::kernels::axpy_typed;
///
/// let mut weights = [1.0f32, 2.0];
/// axpy_typed(-0.5, &[2.0, 2.0], &mut weights)?;
/// assert_eq!(weights, [0.0, 1.0]);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn axpy(dtype: DType, a: f64, x: &[u8], y: &mut [u8]) -> Result<(), TensorError> {
    axpy_at(simd_level(), dtype, a, x, y)
}

/// [`axpy`] for slices whose type is known.
pub fn axpy_typed<T: Element>(a: f64, x: &[T], y: &mut [T]) -> Result<(), TensorError> {
    same_count("x", y.len(), x.len())?;
    add_multiple(simd_level(), a, x, y);
    Ok(())
}

/// `data *= a`, number by number.
///
/// ```
/// use syncline_tensor::kernels::scale_typed;
///
/// let mut counts = [7i32, -7, i32::MAX];
/// scale_typed(0.5, &mut counts);
/// assert_eq!(counts, [3, -3, i32::MAX / 2]);
/// ```
pub fn scale(dtype: DType, a: f64, data: &mut [u8]) -> Result<(), TensorError> {
    scale_at(simd_level(), dtype, a, data)
}

/// [`scale`] for a slice whose type is known.
pub fn scale_typed<T: Element>(a: f64, data: &mut [T]) {
    multiply(simd_level(), a, data);
}

pub(super) fn axpy_at(
    level: SimdLevel,
    dtype: DType,
    a: f64,
    x: &[u8],
    y: &mut [u8],
) -> Result<(), TensorError> {
    same_count("x", elements_in(dtype, y)?, elements_in(dtype, x)?)?;
    with_element!(dtype, T => change_by::<T, T>(y, x, |y, x| add_multiple(level, a, x, y)));
    Ok(())
}

pub(super) fn scale_at(
    level: SimdLevel,
    dtype: DType,
    a: f64,
    data: &mut [u8],
) -> Result<(), TensorError> {
    elements_in(dtype, data)?;
    with_element!(dtype, T => change::<T>(data, |data| multiply(level, a, data)));
    Ok(())
}

fn add_multiple<T: Element>(level: SimdLevel, a: f64, x: &[T], y: &mut [T]) {
    match Factor::<T::Wide>::new(a) {
        Factor::Same(a) => level.run(Update {
            acc: y,
            src: x,
            op: Times(a),
        }),
        Factor::Fraction(a) => level.run(Update {
            acc: y,
            src: x,
            op: TimesFraction(a),
        }),
    }
}

fn multiply<T: Element>(level: SimdLevel, a: f64, data: &mut [T]) {
    match Factor::<T::Wide>::new(a) {
        Factor::Same(a) => level.run(Map { data, op: Times(a) }),
        Factor::Fraction(a) => level.run(Map {
            data,
            op: TimesFraction(a),
        }),
    }
}

/// A factor in the form that its numbers need.
enum Factor<W> {
    /// Multiplied in the numbers' own type.
    Same(W),
    /// Multiplied in f64 and cast back; integers only.
    Fraction(f64),
}

impl<W: Number> Factor<W> {
    fn new(a: f64) -> Factor<W> {
        // Up to here f64 holds every whole number, so the factor is what the caller wrote.
        const WHOLE: f64 = (1u64 << 53) as f64;
        if W::IS_FLOAT {
            Factor::Same(W::from_f64(a))
        } else if a.trunc() == a && a.abs() <= WHOLE {
            Factor::Same(W::from_i64(a as i64))
        } else {
            Factor::Fraction(a)
        }
    }
}

/// As a [`Binary`], adds the multiple; as a [`Unary`], is the multiple.
#[derive(Clone, Copy)]
struct Times<W>(W);

impl<W: Number> Binary<W> for Times<W> {
    #[inline(always)]
    fn apply(self, y: W, x: W) -> W {
        y.sum(self.0.product(x))
    }
}

impl<W: Number> Unary<W> for Times<W> {
    #[inline(always)]
    fn apply(self, x: W) -> W {
        self.0.product(x)
    }
}

/// As [`Times`], through f64.
#[derive(Clone, Copy)]
struct TimesFraction(f64);

impl<W: Number> Binary<W> for TimesFraction {
    #[inline(always)]
    fn apply(self, y: W, x: W) -> W {
        y.sum(W::from_f64(self.0 * x.to_f64()))
    }
}

impl<W: Number> Unary<W> for TimesFraction {
    #[inline(always)]
    fn apply(self, x: W) -> W {
        W::from_f64(self.0 * x.to_f64())
    }
}

/// `data = op(data)`.
struct Map<'a, T, O> {
    data: &'a mut [T],
    op: O,
}

impl<T: Element, O: Unary<T::Wide>> Work for Map<'_, T, O> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        T::map(isa, self.data, self.op);
    }
}
