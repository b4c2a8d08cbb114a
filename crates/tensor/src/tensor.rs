//! Owned numbers, aligned to a cache line so that every kernel takes its fast path.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::kernels;
use crate::view::{same_dtype, typed_slice, typed_slice_mut};
use crate::{DType, Element, Shape, TensorError, TensorView, TensorViewMut};

/// A contiguous tensor that owns its memory, aligned to 64 bytes.
///
/// Two tensors are equal when dtype, shape and every bit agree: a NaN equals itself, `-0.0` is not `0.0`.
/// ```
/// use syncline_tensor::{DType, Tensor};
///
/// let weights = Tensor::from_slice(&[2, 2], &[1.5f32, -2.5, 3.5, 70000.0])?;
/// let rounded = weights.cast(DType::I8);
/// assert_eq!(rounded.as_slice::<i8>()?, [1, -2, 3, 127]);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    lines: Vec<CacheLine>,
    dtype: DType,
    shape: Shape,
}

/// The unit in which memory is taken, because a `Vec` is aligned as its element is.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct CacheLine([u8; 64]);

impl Tensor {
    /// All zeros. Large ones come from the kernel as untouched pages.
    pub fn zeros(dtype: DType, shape: Shape) -> Tensor {
        let lines = shape.byte_len(dtype).div_ceil(size_of::<CacheLine>());
        Tensor {
            lines: bytemuck::zeroed_vec(lines),
            dtype,
            shape,
        }
    }

    /// A copy of `numbers` under the shape `dims`; fails if their counts differ.
    pub fn from_slice<T: Element>(dims: &[usize], numbers: &[T]) -> Result<Tensor, TensorError> {
        let shape = Shape::new(dims)?;
        if shape.elements() != numbers.len() {
            let (expected, found) = (shape.elements(), numbers.len());
            return Err(TensorError::ElementCount {
                what: "the slice",
                expected,
                found,
            });
        }
        Tensor::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(numbers))
    }

    /// A copy of native-endian bytes in C order; fails if they are not exactly as many as the shape needs.
    pub fn from_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Tensor, TensorError> {
        let expected = shape.byte_len(dtype);
        if bytes.len() != expected {
            return Err(TensorError::ByteLength {
                what: "the buffer",
                expected,
                found: bytes.len(),
            });
        }
        let mut tensor = Tensor::zeros(dtype, shape);
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    /// The type of each number.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The numbers as native-endian bytes in C order.
    pub fn bytes(&self) -> &[u8] {
        let used = self.shape.byte_len(self.dtype);
        &bytemuck::cast_slice(&self.lines)[..used]
    }

    /// The same, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let used = self.shape.byte_len(self.dtype);
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..used]
    }

    /// The numbers as a slice; fails with [`TensorError::DTypeMismatch`].
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        same_dtype(T::DTYPE, self.dtype)?;
        typed_slice(self.bytes())
    }

    /// The numbers as a slice to write; fails with [`TensorError::DTypeMismatch`].
    pub fn as_slice_mut<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        same_dtype(T::DTYPE, self.dtype)?;
        typed_slice_mut(self.bytes_mut())
    }

    /// The whole tensor as a view.
    pub fn view(&self) -> TensorView<'_> {
        TensorView::contiguous(self.bytes(), self.dtype, self.shape.clone())
            .expect("a tensor holds what it says")
    }

    /// The whole tensor as a view to write.
    pub fn view_mut(&mut self) -> TensorViewMut<'_> {
        let (dtype, shape) = (self.dtype, self.shape.clone());
        TensorViewMut::contiguous(self.bytes_mut(), dtype, shape)
            .expect("a tensor holds what it says")
    }

    /// The same numbers under another shape of as many; on failure the tensor comes back untouched.
    pub fn reshaped(self, shape: Shape) -> Result<Tensor, (Tensor, TensorError)> {
        if shape.elements() == self.shape.elements() {
            Ok(Tensor { shape, ..self })
        } else {
            let error = TensorError::ShapeMismatch {
                expected: self.shape.clone(),
                found: shape,
            };
            Err((self, error))
        }
    }

    /// The same numbers as another dtype, by the rules of [`kernels::cast`].
    pub fn cast(&self, dtype: DType) -> Tensor {
        let mut out = Tensor::zeros(dtype, self.shape.clone());
        kernels::cast(self.dtype, self.bytes(), dtype, out.bytes_mut())
            .expect("both tensors have this shape");
        out
    }
}

impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.shape == other.shape && self.bytes() == other.bytes()
    }
}

impl Eq for Tensor {}

impl fmt::Debug for Tensor {
    /// Dtype and shape only: a tensor may hold millions of numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor {}{}", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned_to_a_cache_line() {
        for elements in [0, 1, 7, 16, 17, 100_000] {
            let tensor = Tensor::zeros(DType::F32, Shape::new(&[elements]).unwrap());
            assert_eq!(tensor.bytes().as_ptr().align_offset(64), 0);
            assert_eq!(tensor.as_slice::<f32>().unwrap(), vec![0.0; elements]);
        }
    }

    #[test]
    fn counts_that_differ_are_refused() {
        let short = Tensor::from_slice(&[2, 2], &[1i8, 2, 3]).unwrap_err();
        assert_eq!(
            short,
            TensorError::ElementCount {
                what: "the slice",
                expected: 4,
                found: 3
            }
        );
        let long = Tensor::from_bytes(DType::I8, Shape::scalar(), &[1, 2]).unwrap_err();
        assert_eq!(
            long,
            TensorError::ByteLength {
                what: "the buffer",
                expected: 1,
                found: 2
            }
        );
    }

    #[test]
    fn a_failed_reshape_gives_the_tensor_back() {
        let tensor = Tensor::from_slice(&[6], &[1u8, 2, 3, 4, 5, 6]).unwrap();
        let square = tensor
            .clone()
            .reshaped(Shape::new(&[2, 3]).unwrap())
            .unwrap();
        assert_eq!(square.shape().dims(), [2, 3]);
        let (back, error) = square
            .clone()
            .reshaped(Shape::new(&[4]).unwrap())
            .unwrap_err();
        assert_eq!(back, square);
        assert_eq!(error.to_string(), "shape is (4,), expected (2, 3)");
    }

    #[test]
    fn equality_is_of_bits() {
        let of = |number: f32| Tensor::from_slice(&[], &[number]).unwrap();
        assert_eq!(of(f32::NAN), of(f32::NAN));
        assert_ne!(of(0.0), of(-0.0));
        assert_ne!(
            of(1.0),
            of(1.0).reshaped(Shape::new(&[1]).unwrap()).unwrap()
        );
    }

    #[test]
    fn views_of_a_tensor_read_and_write_it() {
        let mut tensor = Tensor::from_slice(&[2, 3], &[1i16, 2, 3, 4, 5, 6]).unwrap();
        let transposed = tensor.view().transposed().to_tensor();
        assert_eq!(transposed.as_slice::<i16>().unwrap(), [1, 4, 2, 5, 3, 6]);
        tensor.view_mut().as_slice::<i16>().unwrap()[0] = 9;
        assert_eq!(tensor.as_slice::<i16>().unwrap()[0], 9);
        assert_eq!(format!("{tensor:?}"), "Tensor int16(2, 3)");
    }
}
