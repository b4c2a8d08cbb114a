//! The last step of a mean: the sum over how many there were.

use super::byte_slices::{change, elements_in};
use super::dispatch::{Isa, SimdLevel, Work, simd_level};
use super::lanes::Unary;
use super::number::Number;
use crate::element::with_element;
use crate::{DType, Element, TensorError};

/// `data /= count`, number by number, rounded once; integers towards zero. Nothing changes when `count` is zero.
///
/// ```
/// use syncline_tensor::{DType, kernels::divide};
///
/// let mut sums = [7i8 as u8, -7i8 as u8];
/// divide(DType::I8, &mut sums, 2)?;
/// assert_eq!(sums, [3i8 as u8, -3i8 as u8]);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn divide(dtype: DType, data: &mut [u8], count: u32) -> Result<(), TensorError> {
    divide_at(simd_level(), dtype, data, count)
}

pub(super) fn divide_at(level: SimdLevel, dtype: DType, data: &mut [u8], count: u32) -> Result<(), TensorError> {
    elements_in(dtype, data)?;
    if count > 1 {
        with_element!(dtype, T => change::<T>(data, |data| level.run(Quotients { data, count })));
    }
    Ok(())
}

struct Quotients<'a, T> {
    data: &'a mut [T],
    count: u32,
}

impl<T: Element> Work for Quotients<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let divisor = <T::Wide as Number>::from_f64(f64::from(self.count));
        // A count that the type cannot hold is larger than any of its numbers; an integer saturates, and 127 / 127 must not be 1.
        let whole = divisor.to_f64() == f64::from(self.count) || T::Wide::IS_FLOAT;
        if whole {
            T::map(isa, self.data, By(divisor));
        } else {
            T::map(isa, self.data, Wide(i64::from(self.count)));
        }
    }
}

#[derive(Clone, Copy)]
struct By<W>(W);

impl<W: Number> Unary<W> for By<W> {
    #[inline(always)]
    fn apply(self, number: W) -> W {
        number.quotient(self.0)
    }
}

/// A divisor beyond the type's own numbers.
#[derive(Clone, Copy)]
struct Wide(i64);

impl<W: Number> Unary<W> for Wide {
    #[inline(always)]
    fn apply(self, number: W) -> W {
        // Only small integers come here, which an f64 holds exactly.
        W::from_i64(number.to_f64() as i64 / self.0)
    }
}
