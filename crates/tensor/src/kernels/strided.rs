//! Copies between any two layouts of the same numbers.
//!
//! Axes are sorted and merged first, so that most copies end as a few long `memcpy`s. What remains, such as a
//! transposition, is walked in small tiles: each cache line of either side is then used whole while it is near.

use crate::view::same_dtype;
use crate::{Layout, TensorError, TensorView, TensorViewMut};

/// Copies every number of `src` to the place of the same index in `dst`; dtypes and shapes must agree.
///
/// ```
/// use syncline_tensor::{DType, Shape, TensorView, TensorViewMut, kernels::copy_strided};
///
/// let rows = [1i16, 2, 3, 4, 5, 6];
/// let mut columns = [0i16; 6];
/// let shape = Shape::new(&[2, 3])?;
/// let fortran = shape.column_major_strides(DType::I16);
/// let src = TensorView::contiguous(bytemuck::cast_slice(&rows), DType::I16, shape.clone())?;
/// let mut dst = TensorViewMut::strided(bytemuck::cast_slice_mut(&mut columns), DType::I16, shape, &fortran, 0)?;
/// copy_strided(&src, &mut dst)?;
/// assert_eq!(columns, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn copy_strided(src: &TensorView<'_>, dst: &mut TensorViewMut<'_>) -> Result<(), TensorError> {
    same_dtype(dst.dtype(), src.dtype())?;
    if src.shape() != dst.shape() {
        return Err(TensorError::ShapeMismatch {
            expected: dst.shape().clone(),
            found: src.shape().clone(),
        });
    }
    if src.shape().elements() == 0 {
        return Ok(());
    }
    let (bytes, layout) = dst.parts();
    let copy = Copy {
        src: src.bytes(),
        dst: bytes,
    };
    let start = Place {
        src: src.layout().offset(),
        dst: layout.offset(),
    };
    let axes = merged_axes(src.layout(), layout);
    match layout.dtype().size() {
        1 => copy.all::<1>(&axes, start),
        2 => copy.all::<2>(&axes, start),
        4 => copy.all::<4>(&axes, start),
        8 => copy.all::<8>(&axes, start),
        other => unreachable!("no dtype has {other} bytes"),
    }
    Ok(())
}

/// One axis, seen from both sides.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    extent: usize,
    src: isize,
    dst: isize,
}

/// The byte at which a number begins on either side.
#[derive(Clone, Copy)]
struct Place {
    src: usize,
    dst: usize,
}

impl Place {
    /// `steps` indices further along an axis. Wrapping: a step beyond the end may be computed but is never used.
    #[inline(always)]
    fn along(self, axis: Axis, steps: usize) -> Place {
        Place {
            src: self
                .src
                .wrapping_add_signed(axis.src.wrapping_mul(steps as isize)),
            dst: self
                .dst
                .wrapping_add_signed(axis.dst.wrapping_mul(steps as isize)),
        }
    }
}

/// The axes that matter, largest steps of the destination first, neighbours joined where both sides step through
/// them as through one.
fn merged_axes(src: &Layout, dst: &Layout) -> Vec<Axis> {
    let strides = src.strides().iter().zip(dst.strides());
    let mut axes: Vec<Axis> = (src.shape().dims().iter().zip(strides))
        .filter(|(extent, _)| **extent > 1)
        .map(|(&extent, (&src, &dst))| Axis { extent, src, dst })
        .collect();
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.dst.unsigned_abs()));
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for inner in axes {
        match merged.last_mut() {
            Some(outer)
                if spans(outer.src, inner.src, inner.extent)
                    && spans(outer.dst, inner.dst, inner.extent) =>
            {
                *outer = Axis {
                    extent: outer.extent * inner.extent,
                    ..inner
                };
            }
            _ => merged.push(inner),
        }
    }
    merged
}

/// Whether one step of the outer axis is a whole run along the inner one.
fn spans(outer: isize, inner: isize, extent: usize) -> bool {
    inner.checked_mul(extent as isize) == Some(outer)
}

struct Copy<'a> {
    src: &'a [u8],
    dst: &'a mut [u8],
}

impl Copy<'_> {
    /// Copies numbers of `N` bytes along all `axes`.
    fn all<const N: usize>(mut self, axes: &[Axis], start: Place) {
        let Some((&fastest, outer)) = axes.split_last() else {
            return self.number::<N>(start);
        };
        if fastest.src == N as isize && fastest.dst == N as isize {
            let run = fastest.extent * N;
            return self.each(outer, start, &mut |copy, at| {
                copy.dst[at.dst..at.dst + run].copy_from_slice(&copy.src[at.src..at.src + run]);
            });
        }
        // The axis along which the source moves least, to be walked in tiles together with the destination's.
        match (0..axes.len()).min_by_key(|&axis| axes[axis].src.unsigned_abs()) {
            Some(near) if near < outer.len() => {
                let others: Vec<Axis> = [&outer[..near], &outer[near + 1..]].concat();
                let near = outer[near];
                self.each(&others, start, &mut |copy, at| {
                    copy.plane::<N>(near, fastest, at)
                });
            }
            _ => self.each(outer, start, &mut |copy, at| {
                for step in 0..fastest.extent {
                    copy.number::<N>(at.along(fastest, step));
                }
            }),
        }
    }

    /// Calls `body` at every combination of indices of `axes`.
    fn each(&mut self, axes: &[Axis], start: Place, body: &mut impl FnMut(&mut Self, Place)) {
        match axes.split_first() {
            None => body(self, start),
            Some((&axis, inner)) => {
                for step in 0..axis.extent {
                    self.each(inner, start.along(axis, step), body);
                }
            }
        }
    }

    /// Copies two axes in tiles of at most 16 × 16 numbers.
    fn plane<const N: usize>(&mut self, near_src: Axis, near_dst: Axis, start: Place) {
        const TILE: usize = 16;
        for row in (0..near_src.extent).step_by(TILE) {
            for column in (0..near_dst.extent).step_by(TILE) {
                let rows = TILE.min(near_src.extent - row);
                let columns = TILE.min(near_dst.extent - column);
                let tile = start.along(near_src, row).along(near_dst, column);
                for row in 0..rows {
                    let at = tile.along(near_src, row);
                    for column in 0..columns {
                        self.number::<N>(at.along(near_dst, column));
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn number<const N: usize>(&mut self, at: Place) {
        // Both layouts were checked against their bytes when they were built; this check costs little beside the
        // cache misses of a strided walk.
        let number: [u8; N] = self.src[at.src..at.src + N]
            .try_into()
            .expect("the range has N bytes");
        self.dst[at.dst..at.dst + N].copy_from_slice(&number);
    }
}
