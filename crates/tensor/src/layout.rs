//! Where each number of a view lies, checked once so that nobody has to check again.

use crate::{DType, Shape, TensorError};

/// A shape with a byte stride per axis and the place of the first number.
///
/// Strides may be negative (a reversed axis), zero (a repeated one) or no multiple of the dtype's size (a field of a record).
/// Every number of a layout lies inside the byte length that it was built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    dtype: DType,
    shape: Shape,
    strides: Box<[isize]>,
    offset: usize,
}

impl Layout {
    /// Numbers in C order from byte 0.
    pub fn row_major(dtype: DType, shape: Shape) -> Layout {
        let strides = shape.row_major_strides(dtype);
        Layout {
            dtype,
            shape,
            strides,
            offset: 0,
        }
    }

    /// Any strides, as long as every number lies inside `available` bytes; fails with
    /// [`TensorError::StrideCount`] or [`TensorError::OutOfBounds`].
    pub fn strided(
        dtype: DType,
        shape: Shape,
        strides: &[isize],
        offset: usize,
        available: usize,
    ) -> Result<Layout, TensorError> {
        if strides.len() != shape.axes() {
            return Err(TensorError::StrideCount {
                axes: shape.axes(),
                strides: strides.len(),
                shape,
            });
        }
        if !reach_fits(dtype, &shape, strides, offset, available) {
            return Err(TensorError::OutOfBounds {
                shape,
                strides: strides.to_vec(),
                offset,
                available,
            });
        }
        Ok(Layout {
            dtype,
            shape,
            strides: strides.into(),
            offset,
        })
    }

    /// The type of each number.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Bytes from one number to the next along each axis.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Byte at which the number with all indices zero begins; meaningless when there are no numbers.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the numbers lie one after another in C order.
    ///
    /// Strides of axes with one index are never used and never looked at; no numbers are always contiguous.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = self.dtype.size() as isize;
        self.shape.elements() == 0
            || self
                .shape
                .dims()
                .iter()
                .zip(&self.strides)
                .rev()
                .all(|(&extent, &stride)| {
                    let fits = extent == 1 || stride == expected;
                    expected *= extent as isize;
                    fits
                })
    }

    /// The bytes that contiguous numbers fill, or `None` if they are not contiguous.
    pub(crate) fn contiguous_range(&self) -> Option<std::ops::Range<usize>> {
        let start = if self.shape.elements() == 0 {
            0
        } else {
            self.offset
        };
        self.is_contiguous()
            .then(|| start..start + self.shape.byte_len(self.dtype))
    }

    /// The same numbers with the axes in another order.
    pub fn permute(&self, axes: &[usize]) -> Result<Layout, TensorError> {
        let mut seen = vec![false; self.shape.axes()];
        let all_new = axes
            .iter()
            .all(|&axis| axis < seen.len() && !std::mem::replace(&mut seen[axis], true));
        if !all_new || axes.len() != seen.len() {
            return Err(TensorError::BadAxes {
                axes: axes.to_vec(),
                shape: self.shape.clone(),
            });
        }
        let dims: Vec<usize> = axes.iter().map(|&axis| self.shape.dims()[axis]).collect();
        let strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        Ok(Layout {
            dtype: self.dtype,
            shape: Shape::new(&dims)?,
            strides,
            offset: self.offset,
        })
    }

    /// `count` indices of one axis: `start`, `start + step`, … A negative step walks backwards.
    pub fn slice(
        &self,
        axis: usize,
        start: usize,
        count: usize,
        step: isize,
    ) -> Result<Layout, TensorError> {
        let Some(&extent) = self.shape.dims().get(axis) else {
            return Err(TensorError::BadAxes {
                axes: vec![axis],
                shape: self.shape.clone(),
            });
        };
        let inside = |index: i128| (0..extent as i128).contains(&index);
        let last = start as i128 + step as i128 * (count as i128 - 1);
        if count > 0 && !(inside(start as i128) && inside(last)) {
            return Err(TensorError::BadSlice {
                axis,
                start,
                count,
                step,
                shape: self.shape.clone(),
            });
        }
        let mut dims = self.shape.dims().to_vec();
        dims[axis] = count;
        let shape = Shape::new(&dims)?;
        let mut strides = self.strides.clone();
        let mut offset = self.offset;
        if shape.elements() > 0 {
            // Both products stay inside the bytes of this layout, since the first and last index do;
            // with one index the stride is unused, and only there could the product be anything.
            offset = offset.wrapping_add_signed(start as isize * strides[axis]);
            strides[axis] = strides[axis].wrapping_mul(step);
        }
        Ok(Layout {
            dtype: self.dtype,
            shape,
            strides,
            offset,
        })
    }

    /// Byte offset of every number, in C order.
    pub(crate) fn offsets(&self) -> Offsets<'_> {
        Offsets {
            layout: self,
            index: vec![0; self.shape.axes()].into(),
            offset: self.offset,
            remaining: self.shape.elements(),
        }
    }
}

/// Whether the lowest and the highest byte that these strides lead to lie inside `available` bytes.
fn reach_fits(
    dtype: DType,
    shape: &Shape,
    strides: &[isize],
    offset: usize,
    available: usize,
) -> bool {
    if shape.elements() == 0 {
        return true;
    }
    // Each product is below 2^126 and the ends are compared after each step, so i128 cannot overflow.
    let (mut low, mut high) = (offset as i128, offset as i128 + dtype.size() as i128);
    for (&extent, &stride) in shape.dims().iter().zip(strides) {
        let reach = stride as i128 * (extent as i128 - 1);
        if reach < 0 {
            low += reach
        } else {
            high += reach
        }
        if low < 0 || high > available as i128 {
            return false;
        }
    }
    high <= available as i128
}

/// Walks the numbers of a layout in C order.
#[derive(Clone, Debug)]
pub(crate) struct Offsets<'a> {
    layout: &'a Layout,
    index: Box<[usize]>,
    offset: usize,
    remaining: usize,
}

impl Iterator for Offsets<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.remaining = self.remaining.checked_sub(1)?;
        let here = self.offset;
        let axes = self.layout.shape.dims().iter().zip(&self.layout.strides);
        for (index, (&extent, &stride)) in self.index.iter_mut().zip(axes).rev() {
            *index += 1;
            if *index < extent {
                self.offset = self.offset.wrapping_add_signed(stride);
                break;
            }
            // This axis starts again and its outer neighbour moves on.
            *index = 0;
            self.offset = self
                .offset
                .wrapping_add_signed(stride.wrapping_mul(extent as isize - 1).wrapping_neg());
        }
        Some(here)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Offsets<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn offsets_visit_numbers_in_c_order() {
        let layout = Layout::strided(DType::I16, shape(&[2, 3]), &[2, 4], 0, 12).unwrap();
        assert_eq!(layout.offsets().collect::<Vec<_>>(), [0, 4, 8, 2, 6, 10]);
        let scalar = Layout::row_major(DType::F32, Shape::scalar());
        assert_eq!(scalar.offsets().collect::<Vec<_>>(), [0]);
        let empty = Layout::row_major(DType::F32, shape(&[3, 0]));
        assert_eq!(empty.offsets().count(), 0);
    }

    #[test]
    fn only_numbers_one_after_another_are_contiguous() {
        let of = |dims: &[usize], strides: &[isize]| {
            Layout::strided(DType::F32, shape(dims), strides, 64, 128)
                .unwrap()
                .is_contiguous()
        };
        assert!(of(&[2, 3], &[12, 4]));
        assert!(!of(&[2, 3], &[4, 8]), "Fortran order");
        assert!(!of(&[3], &[8]), "every other");
        assert!(!of(&[3], &[-4]), "reversed");
        assert!(of(&[1, 3], &[-60, 4]), "an axis of one has no say");
        assert!(of(&[0, 3], &[7, 7]));
        assert!(of(&[], &[]));
    }

    #[test]
    fn strides_that_leave_the_bytes_are_refused() {
        let of = |dims: &[usize], strides: &[isize], offset| {
            Layout::strided(DType::F32, shape(dims), strides, offset, 16)
        };
        assert!(of(&[4], &[4], 0).is_ok());
        assert!(of(&[4], &[-4], 12).is_ok());
        assert!(matches!(
            of(&[4], &[4], 1),
            Err(TensorError::OutOfBounds {
                offset: 1,
                available: 16,
                ..
            })
        ));
        assert!(of(&[5], &[4], 0).is_err());
        assert!(of(&[4], &[-4], 8).is_err());
        assert!(of(&[], &[], 13).is_err());
        assert!(of(&[2, 2, 2], &[isize::MAX, isize::MAX, isize::MIN], 0).is_err());
        assert!(of(&[2], &[isize::MIN], usize::MAX).is_err());
        assert!(of(&[0], &[isize::MAX], 99).is_ok(), "nothing lies nowhere");
        assert!(matches!(
            of(&[4], &[4, 4], 0),
            Err(TensorError::StrideCount {
                axes: 1,
                strides: 2,
                ..
            })
        ));
    }

    #[test]
    fn slices_stay_inside_their_axis() {
        let layout = Layout::row_major(DType::I8, shape(&[10]));
        let picks = |start, count, step| {
            layout
                .slice(0, start, count, step)
                .map(|l| l.offsets().collect::<Vec<_>>())
        };
        assert_eq!(picks(1, 3, 4).unwrap(), [1, 5, 9]);
        assert_eq!(picks(9, 4, -3).unwrap(), [9, 6, 3, 0]);
        assert_eq!(picks(4, 3, 0).unwrap(), [4, 4, 4]);
        assert_eq!(picks(10, 0, 1).unwrap(), []);
        assert_eq!(picks(9, 1, isize::MIN).unwrap(), [9]);
        for (start, count, step) in [
            (10, 1, 1),
            (0, 11, 1),
            (0, 2, -1),
            (9, usize::MAX, 1),
            (0, 3, isize::MAX),
        ] {
            assert!(
                matches!(picks(start, count, step), Err(TensorError::BadSlice { .. })),
                "{start} {count} {step}"
            );
        }
        assert!(matches!(
            layout.slice(1, 0, 1, 1),
            Err(TensorError::BadAxes { .. })
        ));
    }

    #[test]
    fn permutations_name_each_axis_once() {
        let layout = Layout::row_major(DType::I8, shape(&[2, 3]));
        assert_eq!(
            layout
                .permute(&[1, 0])
                .unwrap()
                .offsets()
                .collect::<Vec<_>>(),
            [0, 3, 1, 4, 2, 5]
        );
        for axes in [&[0][..], &[0, 0], &[0, 2], &[0, 1, 2]] {
            assert!(
                matches!(layout.permute(axes), Err(TensorError::BadAxes { .. })),
                "{axes:?}"
            );
        }
    }
}
