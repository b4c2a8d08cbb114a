//! Borrowed numbers: somebody else's bytes with a dtype, a shape and strides.
//!
//! This is how an array of NumPy, Torch or PDL comes in without a copy, whatever its layout. What must be
//! contiguous for the wire asks [`TensorView::to_contiguous`], which copies only when it has to.

use std::borrow::Cow;
use std::marker::PhantomData;

use crate::kernels::copy_strided;
use crate::{DType, Element, Layout, Shape, Tensor, TensorError};

/// Numbers to read.
///
/// ```
/// use syncline_tensor::{DType, Shape, TensorView};
///
/// let bytes: [u8; 6] = [1, 2, 3, 4, 5, 6];
/// let rows = TensorView::contiguous(&bytes, DType::U8, Shape::new(&[2, 3])?)?;
/// let columns = rows.transposed();
/// assert!(!columns.is_contiguous());
/// assert_eq!(*columns.to_contiguous(), [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> TensorView<'a> {
    /// Numbers in C order that fill `bytes` exactly; fails with [`TensorError::ByteLength`].
    pub fn contiguous(
        bytes: &'a [u8],
        dtype: DType,
        shape: Shape,
    ) -> Result<TensorView<'a>, TensorError> {
        exact_length(bytes.len(), dtype, &shape)?;
        Ok(TensorView {
            bytes,
            layout: Layout::row_major(dtype, shape),
        })
    }

    /// Numbers anywhere in `bytes`: the first at `offset`, the others `strides` bytes apart.
    ///
    /// For a buffer with negative strides, `bytes` begins at its lowest address and `offset` leads to its first number.
    pub fn strided(
        bytes: &'a [u8],
        dtype: DType,
        shape: Shape,
        strides: &[isize],
        offset: usize,
    ) -> Result<TensorView<'a>, TensorError> {
        let layout = Layout::strided(dtype, shape, strides, offset, bytes.len())?;
        Ok(TensorView { bytes, layout })
    }

    /// A flat view of a typed slice.
    pub fn of_slice<T: Element>(numbers: &'a [T]) -> TensorView<'a> {
        let shape = Shape::new(&[numbers.len()]).expect("a slice that exists fits in memory");
        TensorView {
            bytes: bytemuck::cast_slice(numbers),
            layout: Layout::row_major(T::DTYPE, shape),
        }
    }

    /// The type of each number.
    pub fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Where the numbers lie in [`bytes`](Self::bytes).
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All bytes that the view was made from, whether its strides touch them or not.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether the numbers lie one after another in C order.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The numbers' own bytes if they are contiguous.
    pub fn contiguous_bytes(&self) -> Option<&'a [u8]> {
        self.layout
            .contiguous_range()
            .map(|range| &self.bytes[range])
    }

    /// The numbers' bytes in C order: borrowed when they are contiguous, copied otherwise.
    pub fn to_contiguous(&self) -> Cow<'a, [u8]> {
        match self.contiguous_bytes() {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let mut copy = vec![0; self.shape().byte_len(self.dtype())];
                self.copy_to(&mut copy)
                    .expect("the copy was sized for this view");
                Cow::Owned(copy)
            }
        }
    }

    /// Writes the numbers' bytes in C order into `out`, which must be exactly as long.
    pub fn copy_to(&self, out: &mut [u8]) -> Result<(), TensorError> {
        let mut out = TensorViewMut::contiguous(out, self.dtype(), self.shape().clone())?;
        copy_strided(self, &mut out)
    }

    /// An owned, contiguous copy.
    pub fn to_tensor(&self) -> Tensor {
        let mut copy = Tensor::zeros(self.dtype(), self.shape().clone());
        self.copy_to(copy.bytes_mut())
            .expect("the copy was made for this view");
        copy
    }

    /// The numbers as a slice, without a copy; fails if dtype, layout or alignment do not allow it.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], TensorError> {
        same_dtype(T::DTYPE, self.dtype())?;
        let bytes = self
            .contiguous_bytes()
            .ok_or_else(|| not_contiguous(&self.layout))?;
        typed_slice(bytes)
    }

    /// The numbers one by one in C order, whatever their layout and alignment.
    ///
    /// ```
    /// use syncline_tensor::TensorView;
    ///
    /// let numbers = [1.0f32, 2.0, 3.0];
    /// let backwards = TensorView::of_slice(&numbers).slice(0, 2, 3, -1)?;
    /// assert_eq!(backwards.elements::<f32>()?.collect::<Vec<_>>(), [3.0, 2.0, 1.0]);
    /// # Ok::<(), syncline_tensor::TensorError>(())
    /// ```
    pub fn elements<T: Element>(&self) -> Result<Elements<'_, T>, TensorError> {
        same_dtype(T::DTYPE, self.dtype())?;
        Ok(Elements {
            bytes: self.bytes,
            offsets: self.layout.offsets(),
            element: PhantomData,
        })
    }

    /// The same numbers with all axes reversed.
    pub fn transposed(&self) -> TensorView<'a> {
        let reversed: Vec<usize> = (0..self.shape().axes()).rev().collect();
        self.permuted(&reversed)
            .expect("reversed axes are a permutation")
    }

    /// The same numbers with the axes in another order; fails with [`TensorError::BadAxes`].
    pub fn permuted(&self, axes: &[usize]) -> Result<TensorView<'a>, TensorError> {
        Ok(TensorView {
            bytes: self.bytes,
            layout: self.layout.permute(axes)?,
        })
    }

    /// `count` indices of one axis, `step` apart, from `start`; fails with [`TensorError::BadSlice`].
    pub fn slice(
        &self,
        axis: usize,
        start: usize,
        count: usize,
        step: isize,
    ) -> Result<TensorView<'a>, TensorError> {
        Ok(TensorView {
            bytes: self.bytes,
            layout: self.layout.slice(axis, start, count, step)?,
        })
    }
}

/// Numbers to write.
///
/// Strides may make numbers overlap; which of two writes to one place stays is then not promised.
#[derive(Debug)]
pub struct TensorViewMut<'a> {
    bytes: &'a mut [u8],
    layout: Layout,
}

impl<'a> TensorViewMut<'a> {
    /// Numbers in C order that fill `bytes` exactly; fails with [`TensorError::ByteLength`].
    pub fn contiguous(
        bytes: &'a mut [u8],
        dtype: DType,
        shape: Shape,
    ) -> Result<TensorViewMut<'a>, TensorError> {
        exact_length(bytes.len(), dtype, &shape)?;
        Ok(TensorViewMut {
            bytes,
            layout: Layout::row_major(dtype, shape),
        })
    }

    /// Numbers anywhere in `bytes`, as for [`TensorView::strided`].
    pub fn strided(
        bytes: &'a mut [u8],
        dtype: DType,
        shape: Shape,
        strides: &[isize],
        offset: usize,
    ) -> Result<TensorViewMut<'a>, TensorError> {
        let layout = Layout::strided(dtype, shape, strides, offset, bytes.len())?;
        Ok(TensorViewMut { bytes, layout })
    }

    /// A flat view of a typed slice.
    pub fn of_slice<T: Element>(numbers: &'a mut [T]) -> TensorViewMut<'a> {
        let shape = Shape::new(&[numbers.len()]).expect("a slice that exists fits in memory");
        TensorViewMut {
            bytes: bytemuck::cast_slice_mut(numbers),
            layout: Layout::row_major(T::DTYPE, shape),
        }
    }

    /// The type of each number.
    pub fn dtype(&self) -> DType {
        self.layout.dtype()
    }

    /// The extents.
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// Where the numbers lie in the bytes.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the numbers lie one after another in C order.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The same numbers, to read.
    pub fn as_view(&self) -> TensorView<'_> {
        TensorView {
            bytes: self.bytes,
            layout: self.layout.clone(),
        }
    }

    /// The numbers' own bytes if they are contiguous.
    pub fn contiguous_bytes(&mut self) -> Option<&mut [u8]> {
        self.layout
            .contiguous_range()
            .map(|range| &mut self.bytes[range])
    }

    /// The numbers as a slice, without a copy; fails if dtype, layout or alignment do not allow it.
    pub fn as_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        same_dtype(T::DTYPE, self.dtype())?;
        match self.layout.contiguous_range() {
            Some(range) => typed_slice_mut(&mut self.bytes[range]),
            None => Err(not_contiguous(&self.layout)),
        }
    }

    /// Takes the numbers of `source`, which has the same dtype and shape but may lie differently.
    ///
    /// ```
    /// use syncline_tensor::{Shape, DType, TensorView, TensorViewMut};
    ///
    /// let source = [1i32, 2, 3];
    /// let mut every_other = [0i32; 6];
    /// let bytes = bytemuck::cast_slice_mut(&mut every_other);
    /// let mut out = TensorViewMut::strided(bytes, DType::I32, Shape::new(&[3])?, &[8], 4)?;
    /// out.copy_from(&TensorView::of_slice(&source))?;
    /// assert_eq!(every_other, [0, 1, 0, 2, 0, 3]);
    /// # Ok::<(), syncline_tensor::TensorError>(())
    /// ```
    pub fn copy_from(&mut self, source: &TensorView<'_>) -> Result<(), TensorError> {
        copy_strided(source, self)
    }

    /// All bytes and where the numbers lie in them, for kernels.
    pub(crate) fn parts(&mut self) -> (&mut [u8], &Layout) {
        (self.bytes, &self.layout)
    }
}

/// Iterator over the numbers of a [`TensorView`] in C order.
#[derive(Clone, Debug)]
pub struct Elements<'a, T> {
    bytes: &'a [u8],
    offsets: crate::layout::Offsets<'a>,
    element: PhantomData<T>,
}

impl<T: Element> Iterator for Elements<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let start = self.offsets.next()?;
        Some(bytemuck::pod_read_unaligned(
            &self.bytes[start..start + size_of::<T>()],
        ))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.offsets.size_hint()
    }
}

impl<T: Element> ExactSizeIterator for Elements<'_, T> {}

fn exact_length(found: usize, dtype: DType, shape: &Shape) -> Result<(), TensorError> {
    let expected = shape.byte_len(dtype);
    if found == expected {
        Ok(())
    } else {
        Err(TensorError::ByteLength {
            what: "the buffer",
            expected,
            found,
        })
    }
}

pub(crate) fn same_dtype(expected: DType, found: DType) -> Result<(), TensorError> {
    if found == expected {
        Ok(())
    } else {
        Err(TensorError::DTypeMismatch { expected, found })
    }
}

/// A typed slice of bytes whose length is known to fit; only alignment can fail, and nothing is always aligned.
pub(crate) fn typed_slice<T: Element>(bytes: &[u8]) -> Result<&[T], TensorError> {
    if bytes.is_empty() {
        return Ok(&[]);
    }
    bytemuck::try_cast_slice(bytes).map_err(|_| TensorError::Misaligned { dtype: T::DTYPE })
}

/// As [`typed_slice`], to write.
pub(crate) fn typed_slice_mut<T: Element>(bytes: &mut [u8]) -> Result<&mut [T], TensorError> {
    if bytes.is_empty() {
        return Ok(&mut []);
    }
    bytemuck::try_cast_slice_mut(bytes).map_err(|_| TensorError::Misaligned { dtype: T::DTYPE })
}

fn not_contiguous(layout: &Layout) -> TensorError {
    TensorError::NotContiguous {
        shape: layout.shape().clone(),
        strides: layout.strides().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn contiguous_numbers_are_borrowed_and_others_copied() {
        let numbers: Vec<i32> = (0..12).collect();
        let flat = TensorView::of_slice(&numbers);
        assert!(matches!(flat.to_contiguous(), Cow::Borrowed(_)));
        let tail = flat.slice(0, 4, 8, 1).unwrap();
        assert_eq!(
            tail.as_slice::<i32>().unwrap(),
            &numbers[4..],
            "an inner part is still contiguous"
        );
        let odd = flat.slice(0, 1, 6, 2).unwrap();
        assert!(matches!(odd.to_contiguous(), Cow::Owned(_)));
        assert_eq!(
            odd.to_tensor().as_slice::<i32>().unwrap(),
            [1, 3, 5, 7, 9, 11]
        );
    }

    #[test]
    fn a_slice_says_why_it_cannot_be_had() {
        let numbers = [1.0f32, 2.0, 3.0, 4.0];
        let view = TensorView::of_slice(&numbers);
        let wrong = TensorError::DTypeMismatch {
            expected: DType::F64,
            found: DType::F32,
        };
        assert_eq!(view.as_slice::<f64>(), Err(wrong.clone()));
        assert_eq!(view.elements::<f64>().unwrap_err(), wrong);
        let sparse = view.slice(0, 0, 2, 2).unwrap();
        assert!(matches!(
            sparse.as_slice::<f32>(),
            Err(TensorError::NotContiguous { .. })
        ));
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let shifted = TensorView::contiguous(&bytes[1..9], DType::F32, shape(&[2])).unwrap();
        assert_eq!(
            shifted.as_slice::<f32>(),
            Err(TensorError::Misaligned { dtype: DType::F32 })
        );
        let empty = TensorView::contiguous(&bytes[1..1], DType::F32, shape(&[0])).unwrap();
        assert_eq!(empty.as_slice::<f32>().unwrap(), []);
    }

    #[test]
    fn a_buffer_of_another_length_is_refused() {
        let wrong = TensorView::contiguous(&[0; 7], DType::I16, shape(&[4])).unwrap_err();
        assert_eq!(
            wrong,
            TensorError::ByteLength {
                what: "the buffer",
                expected: 8,
                found: 7
            }
        );
        let view = TensorView::contiguous(&[0; 8], DType::I16, shape(&[4])).unwrap();
        assert!(matches!(
            view.copy_to(&mut [0; 9]),
            Err(TensorError::ByteLength {
                expected: 8,
                found: 9,
                ..
            })
        ));
    }

    #[test]
    fn writing_through_a_strided_view_touches_only_its_numbers() {
        let mut bytes = [9u8; 8];
        let mut column =
            TensorViewMut::strided(&mut bytes, DType::U8, shape(&[2]), &[-4], 5).unwrap();
        assert!(column.contiguous_bytes().is_none());
        column.copy_from(&TensorView::of_slice(&[1u8, 2])).unwrap();
        assert_eq!(
            column
                .as_view()
                .elements::<u8>()
                .unwrap()
                .collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(bytes, [9, 2, 9, 9, 9, 1, 9, 9]);
    }
}
