//! Differences: what plain gradient descent does to the values it meets.
//!
//! Apart from reductions, because the order of the two sides matters. Cost and rules of arithmetic are the same.

use super::byte_slices::{change_by, elements_in, same_count, write_from};
use super::dispatch::{SimdLevel, simd_level};
use super::lanes::Binary;
use super::number::Number;
use super::reduce::{Combine, Update};
use crate::element::with_element;
use crate::{DType, TensorError};

/// `acc -= src`, number by number; the lengths must agree.
///
/// ```
/// use syncline_tensor::{DType, kernels::subtract_into};
///
/// let mut acc = [3u8, 0];
/// subtract_into(DType::U8, &mut acc, &[2, 1])?;
/// assert_eq!(acc, [1, 255]); // integers wrap
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn subtract_into(dtype: DType, acc: &mut [u8], src: &[u8]) -> Result<(), TensorError> {
    subtract_into_at(simd_level(), dtype, acc, src)
}

/// `out = a - b`, number by number; the lengths must agree, and what `out` held does not matter.
pub fn subtract_pair_into(dtype: DType, out: &mut [u8], a: &[u8], b: &[u8]) -> Result<(), TensorError> {
    subtract_pair_into_at(simd_level(), dtype, out, a, b)
}

pub(super) fn subtract_into_at(level: SimdLevel, dtype: DType, acc: &mut [u8], src: &[u8]) -> Result<(), TensorError> {
    same_count("src", elements_in(dtype, acc)?, elements_in(dtype, src)?)?;
    with_element!(dtype, T => change_by::<T, T>(acc, src, |acc, src| level.run(Update { acc, src, op: Difference })));
    Ok(())
}

pub(super) fn subtract_pair_into_at(level: SimdLevel, dtype: DType, out: &mut [u8], a: &[u8], b: &[u8]) -> Result<(), TensorError> {
    let count = elements_in(dtype, out)?;
    same_count("a", count, elements_in(dtype, a)?)?;
    same_count("b", count, elements_in(dtype, b)?)?;
    with_element!(dtype, T => write_from::<T>(out, a, b, |out, a, b| level.run(Combine { out, a, b, op: Difference })));
    Ok(())
}

#[derive(Clone, Copy)]
pub(super) struct Difference;

impl<W: Number> Binary<W> for Difference {
    #[inline(always)]
    fn apply(self, acc: W, src: W) -> W {
        acc.difference(src)
    }
}
