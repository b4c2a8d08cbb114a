//! Conversion from any dtype to any other.

use super::byte_slices::{change_by, elements_in, same_count};
use super::dispatch::{Isa, SimdLevel, Work, simd_level};
use super::lanes::{AsAny, Sink};
use super::number::Number;
use crate::element::with_element;
use crate::{DType, Element, TensorError};

/// Writes the numbers of `src` into `dst` as another dtype; as many numbers must fit.
///
/// | from → to | rule |
/// |---|---|
/// | float or integer → float | nearest, ties to even, rounded once; too large becomes infinite; NaN stays NaN |
/// | float → integer | towards zero; too large or too small becomes the largest or smallest; NaN becomes 0 |
/// | integer → integer | the low bits, as NumPy's `astype` and Rust's `as` do |
///
/// ```
/// use syncline_tensor::{f16, kernels::cast_typed};
///
/// let mut bytes = [0u8; 4];
/// cast_typed(&[3.9f32, -1.0, 300.0, f32::NAN], &mut bytes)?;
/// assert_eq!(bytes, [3, 0, 255, 0]);
///
/// let mut halves = [f16::ZERO; 2];
/// cast_typed(&[0.1f64, 1e6], &mut halves)?;
/// assert_eq!(halves, [f16::from_f32(0.1), f16::INFINITY]);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn cast(from: DType, src: &[u8], to: DType, dst: &mut [u8]) -> Result<(), TensorError> {
    cast_at(simd_level(), from, src, to, dst)
}

/// [`cast`] for slices whose types are known.
pub fn cast_typed<S: Element, D: Element>(src: &[S], dst: &mut [D]) -> Result<(), TensorError> {
    same_count("dst", src.len(), dst.len())?;
    convert(simd_level(), src, dst);
    Ok(())
}

pub(super) fn cast_at(
    level: SimdLevel,
    from: DType,
    src: &[u8],
    to: DType,
    dst: &mut [u8],
) -> Result<(), TensorError> {
    same_count("dst", elements_in(from, src)?, elements_in(to, dst)?)?;
    if from == to {
        dst.copy_from_slice(src); // even the bits of a NaN
        return Ok(());
    }
    with_element!(from, S => with_element!(to, D => {
        change_by::<D, S>(dst, src, |dst, src| convert(level, src, dst))
    }));
    Ok(())
}

fn convert<S: Element, D: Element>(level: SimdLevel, src: &[S], dst: &mut [D]) {
    level.run(Convert { src, dst });
}

struct Convert<'a, S, D> {
    src: &'a [S],
    dst: &'a mut [D],
}

impl<S: Element, D: Element> Work for Convert<'_, S, D> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        S::widened(isa, self.src, IntoSlice { rest: self.dst });
    }
}

/// Stores widened blocks one after another.
struct IntoSlice<'a, D> {
    rest: &'a mut [D],
}

impl<W: Number + AsAny, D: Element> Sink<W> for IntoSlice<'_, D> {
    #[inline(always)]
    fn take<I: Isa>(&mut self, isa: I, block: &[W]) {
        let (dst, rest) = std::mem::take(&mut self.rest).split_at_mut(block.len());
        D::store(isa, block, dst);
        self.rest = rest;
    }
}
