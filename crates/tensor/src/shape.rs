//! How many numbers along each axis, multiplied out safely once.

use std::fmt;

use crate::{DType, TensorError};

/// The extents of a tensor; no axes at all means a single number.
///
/// Building one checks that its bytes fit in memory for the widest dtype, so sizes derived from it never overflow.
/// That holds for empty shapes too: `[0, huge, huge]` is refused, since slicing or reshaping would multiply the rest.
/// ```
/// use syncline_tensor::{DType, Shape};
///
/// let shape = Shape::new(&[3, 4])?;
/// assert_eq!(shape.elements(), 12);
/// assert_eq!(shape.byte_len(DType::F64), 96);
/// assert_eq!(shape.to_string(), "(3, 4)");
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: Box<[usize]>,
    elements: usize,
}

/// The size of the widest dtype, for which every shape must fit.
const WIDEST: usize = 8;

impl Shape {
    /// Checks and keeps the extents; fails with [`TensorError::ShapeTooLarge`].
    pub fn new(dims: &[usize]) -> Result<Shape, TensorError> {
        Ok(Shape { elements: Shape::elements_of(dims)?, dims: dims.into() })
    }

    /// How many numbers a shape of these extents has, checked as [`new`](Shape::new) does, without making it.
    pub fn elements_of(dims: &[usize]) -> Result<usize, TensorError> {
        let nonzero = dims.iter().filter(|&&extent| extent != 0);
        let bytes = nonzero.copied().try_fold(WIDEST, usize::checked_mul);
        match bytes {
            Some(bytes) if isize::try_from(bytes).is_ok() => Ok(if dims.contains(&0) { 0 } else { bytes / WIDEST }),
            _ => Err(TensorError::ShapeTooLarge { dims: dims.to_vec() }),
        }
    }

    /// The shape of a single number: no axes.
    pub fn scalar() -> Shape {
        Shape { dims: Box::default(), elements: 1 }
    }

    /// The extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// How many axes there are.
    pub fn axes(&self) -> usize {
        self.dims.len()
    }

    /// How many numbers there are.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// How many bytes they fill, lying one after another.
    pub fn byte_len(&self, dtype: DType) -> usize {
        self.elements * dtype.size()
    }

    /// The byte strides of numbers lying in C order: the last axis moves fastest.
    pub fn row_major_strides(&self, dtype: DType) -> Box<[isize]> {
        let mut strides = vec![0; self.axes()];
        let mut step = dtype.size() as isize;
        for (stride, &extent) in strides.iter_mut().zip(&self.dims).rev() {
            *stride = step;
            step *= extent.max(1) as isize; // cannot overflow: `new` multiplied the non-zero extents by the widest dtype
        }
        strides.into()
    }

    /// The byte strides of numbers lying in Fortran order: the first axis moves fastest.
    pub fn column_major_strides(&self, dtype: DType) -> Box<[isize]> {
        let mut strides = vec![0; self.axes()];
        let mut step = dtype.size() as isize;
        for (stride, &extent) in strides.iter_mut().zip(&self.dims) {
            *stride = step;
            step *= extent.max(1) as isize;
        }
        strides.into()
    }
}

impl fmt::Display for Shape {
    /// As Python writes a tuple.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.dims {
            [only] => write!(f, "({only},)"),
            dims => {
                f.write_str("(")?;
                for (axis, extent) in dims.iter().enumerate() {
                    let comma = if axis == 0 { "" } else { ", " };
                    write!(f, "{comma}{extent}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_the_product_and_a_scalar_is_one() {
        let count = |dims: &[usize]| Shape::new(dims).unwrap().elements();
        assert_eq!(count(&[]), 1);
        assert_eq!(count(&[7]), 7);
        assert_eq!(count(&[2, 3, 4]), 24);
        assert_eq!(count(&[2, 0, 4]), 0);
        assert_eq!(Shape::scalar(), Shape::new(&[]).unwrap());
    }

    #[test]
    fn shapes_that_overflow_are_refused_even_when_empty() {
        for dims in [&[usize::MAX][..], &[usize::MAX / 8], &[1 << 40, 1 << 40], &[0, usize::MAX]] {
            assert_eq!(Shape::new(dims), Err(TensorError::ShapeTooLarge { dims: dims.to_vec() }));
        }
        assert!(Shape::new(&[isize::MAX as usize / 8]).is_ok());
    }

    #[test]
    fn strides_follow_the_order() {
        let shape = Shape::new(&[2, 3, 4]).unwrap();
        assert_eq!(*shape.row_major_strides(DType::F32), [48, 16, 4]);
        assert_eq!(*shape.column_major_strides(DType::F32), [4, 8, 24]);
    }

    #[test]
    fn shapes_read_like_python_tuples() {
        let text = |dims: &[usize]| Shape::new(dims).unwrap().to_string();
        assert_eq!([text(&[]), text(&[5]), text(&[5, 6])], ["()", "(5,)", "(5, 6)"]);
    }
}
