//! Strided copies against multiplying every index by its stride.

use proptest::prelude::*;

use super::Words;
use crate::kernels::copy_strided;
use crate::{DType, Layout, Shape, TensorError, TensorView, TensorViewMut};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn copying_equals_the_naive_loop(
        seed: u64,
        dims in prop::collection::vec(prop_oneof![6 => 1usize..6, 2 => 15usize..40, 1 => Just(0)], 0..4),
        dtype in prop::sample::select(vec![DType::U8, DType::BF16, DType::I32, DType::F64]),
    ) {
        let mut words = Words(seed);
        let shape = Shape::new(&dims).unwrap();
        let (src_layout, src_len) = scattered_layout(&mut words, dtype, &shape);
        let (dst_layout, dst_len) = scattered_layout(&mut words, dtype, &shape);
        let src: Vec<u8> = (0..src_len).map(|_| words.next() as u8).collect();
        let untouched: Vec<u8> = (0..dst_len).map(|_| words.next() as u8).collect();

        let mut expected = untouched.clone();
        for index in indices(&dims) {
            let (from, to) = (place(&src_layout, &index), place(&dst_layout, &index));
            expected[to..to + dtype.size()].copy_from_slice(&src[from..from + dtype.size()]);
        }

        let mut found = untouched.clone();
        let view = TensorView::strided(&src, dtype, shape.clone(), src_layout.strides(), src_layout.offset()).unwrap();
        let mut out =
            TensorViewMut::strided(&mut found, dtype, shape.clone(), dst_layout.strides(), dst_layout.offset()).unwrap();
        copy_strided(&view, &mut out).unwrap();
        prop_assert_eq!(&found, &expected);

        // Copying out in C order is the same with a plain destination.
        let in_order: Vec<u8> = indices(&dims)
            .flat_map(|index| src[place(&src_layout, &index)..][..dtype.size()].iter().copied())
            .collect();
        prop_assert_eq!(&*view.to_contiguous(), &in_order[..]);
        prop_assert_eq!(view.is_contiguous(), view.contiguous_bytes().is_some());
    }
}

/// A layout of `shape` whose numbers never overlap: axes in any order, gaps between them, some backwards, off alignment.
fn scattered_layout(words: &mut Words, dtype: DType, shape: &Shape) -> (Layout, usize) {
    let mut order: Vec<usize> = (0..shape.axes()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, words.below(last + 1));
    }
    let plain = words.below(3) == 0;
    let mut strides = vec![0isize; shape.axes()];
    let mut step = dtype.size() * if plain { 1 } else { 1 + words.below(2) };
    let mut offset = words.below(9);
    let mut end = offset + dtype.size();
    for &axis in &order {
        let extent = shape.dims()[axis];
        let reach = step * extent.saturating_sub(1);
        end += reach;
        if !plain && words.below(3) == 0 {
            strides[axis] = -(step as isize);
            offset += reach;
        } else {
            strides[axis] = step as isize;
        }
        step = step * extent.max(1) + if plain { 0 } else { words.below(3) };
    }
    (
        Layout::strided(dtype, shape.clone(), &strides, offset, end).unwrap(),
        end,
    )
}

/// All indices in C order.
fn indices(dims: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    (0..dims.iter().product::<usize>()).map(move |flat| {
        let mut rest = flat;
        let mut index = vec![0; dims.len()];
        for (index, extent) in index.iter_mut().zip(dims).rev() {
            *index = rest % extent;
            rest /= extent;
        }
        index
    })
}

fn place(layout: &Layout, index: &[usize]) -> usize {
    let steps = index
        .iter()
        .zip(layout.strides())
        .map(|(&index, &stride)| index as isize * stride);
    layout.offset().checked_add_signed(steps.sum()).unwrap()
}

#[test]
fn dtypes_and_shapes_that_differ_are_refused() {
    let numbers = [1i32, 2, 3];
    let view = TensorView::of_slice(&numbers);
    let mut short = [0i32; 2];
    let refused = copy_strided(&view, &mut TensorViewMut::of_slice(&mut short)).unwrap_err();
    assert!(
        matches!(refused, TensorError::ShapeMismatch { .. }),
        "{refused}"
    );
    let mut floats = [0f32; 3];
    let refused = copy_strided(&view, &mut TensorViewMut::of_slice(&mut floats)).unwrap_err();
    assert_eq!(
        refused,
        TensorError::DTypeMismatch {
            expected: DType::F32,
            found: DType::I32
        }
    );
}

#[test]
fn a_repeated_axis_reads_the_same_number_again() {
    let one = [7u8];
    let view =
        TensorView::strided(&one, DType::U8, Shape::new(&[2, 3]).unwrap(), &[0, 0], 0).unwrap();
    assert_eq!(*view.to_contiguous(), [7; 6]);
}
