//! A result in two places at once: where it stays, and where its caller wants it too.
//!
//! An add to a table whose get waits for it makes numbers that go into the table and into the caller's array. A copy afterwards
//! reads them once more and, of a large array, fetches every line that it is about to overwrite. Here each line goes to both places
//! while it is in registers; to the second one past the cache, if the caller says that it holds no such array anyway. Measured with
//! two workers that add and get 16 MB each, in turns on a noisy machine: 310 loops/s with a copy per block, 400 to 530 so, where the
//! floor of the host is 500 to 660.

use super::byte_slices::{elements_in, same_count, write_from};
use super::dispatch::{Isa, Line, SimdLevel, Work, fence, simd_level};
use super::lanes::Binary;
use super::reduce::Sum;
use super::subtract::Difference;
use crate::element::{Native, with_element};
use crate::{DType, Element, TensorError};

/// What two numbers become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairOp {
    /// `a + b`
    Sum,
    /// `a - b`
    Difference,
}

/// `out = a op b` and the same bytes in `also`; the lengths must agree, and what either held does not matter.
///
/// With `past_cache`, no cache is troubled with the lines of `also`: for arrays that nobody reads soon enough to find them there.
/// ```
/// use syncline_tensor::{DType, kernels::{PairOp, pair_into_both}};
///
/// let (mut out, mut also) = ([0u8; 2], [0u8; 2]);
/// pair_into_both(PairOp::Sum, DType::U8, &mut out, &mut also, false, &[1, 2], &[3, 4])?;
/// assert_eq!((out, also), ([4, 6], [4, 6]));
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
#[inline(always)] // Arguments that go through memory wait there behind the lines on their way: a tenth of the time.
pub fn pair_into_both(
    op: PairOp,
    dtype: DType,
    out: &mut [u8],
    also: &mut [u8],
    past_cache: bool,
    a: &[u8],
    b: &[u8],
) -> Result<(), TensorError> {
    pair_into_both_at(simd_level(), op, dtype, out, also, past_cache, a, b)
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "two sources, two targets, and how")]
pub(super) fn pair_into_both_at(
    level: SimdLevel,
    op: PairOp,
    dtype: DType,
    out: &mut [u8],
    also: &mut [u8],
    past_cache: bool,
    a: &[u8],
    b: &[u8],
) -> Result<(), TensorError> {
    let count = elements_in(dtype, out)?;
    same_count("also", count, elements_in(dtype, also)?)?;
    same_count("a", count, elements_in(dtype, a)?)?;
    same_count("b", count, elements_in(dtype, b)?)?;
    let mut rest = also;
    with_element!(dtype, T => write_from::<T>(out, a, b, |out, a, b| {
        let (also, behind) = std::mem::take(&mut rest).split_at_mut(size_of_val(out));
        rest = behind;
        match op {
            PairOp::Sum => level.run(IntoBoth { out, also, past_cache, a, b, op: Sum }),
            PairOp::Difference => level.run(IntoBoth { out, also, past_cache, a, b, op: Difference }),
        }
    }));
    Ok(())
}

/// `out = op(a, b)` by an operation of another crate, and the same bytes in `also`, as [`pair_into_both`] writes them.
///
/// # Panics
/// When the lengths differ.
/// ```
/// use syncline_tensor::kernels::{Binary, combine_into_both, simd_level};
///
/// #[derive(Clone, Copy)]
/// struct Descent;
/// impl Binary<f32> for Descent {
///     #[inline(always)]
///     fn apply(self, weight: f32, gradient: f32) -> f32 {
///         weight - 0.5 * gradient
///     }
/// }
/// let (mut out, mut also) = ([0.0f32; 2], [0u8; 8]);
/// combine_into_both(simd_level(), Descent, &mut out, &mut also, false, &[1.0, 2.0], &[2.0, 4.0]);
/// assert_eq!(out, [0.0, 0.0]);
/// ```
#[inline(always)] // as above
pub fn combine_into_both<T: Native>(
    level: SimdLevel,
    op: impl Binary<T>,
    out: &mut [T],
    also: &mut [u8],
    past_cache: bool,
    a: &[T],
    b: &[T],
) {
    let count = out.len();
    assert!(a.len() == count && b.len() == count && also.len() == size_of_val(out), "two sources and two targets of one length");
    level.run(IntoBoth { out, also, past_cache, a, b, op });
}

/// How many bytes ahead of their use the sources are asked for: at one line in four nanoseconds, what memory takes to answer.
const AHEAD: usize = 2048;

struct IntoBoth<'a, T, O> {
    out: &'a mut [T],
    also: &'a mut [u8],
    past_cache: bool,
    a: &'a [T],
    b: &'a [T],
    op: O,
}

impl<T: Element, O: Binary<T::Wide>> Work for IntoBoth<'_, T, O> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        let IntoBoth { out, also, past_cache, a, b, op } = self;
        let (head, lines, tail) = bytemuck::pod_align_to_mut::<u8, Line>(also);
        // Numbers that straddle the lines of an unaligned array go there the plain way.
        if !past_cache || !head.len().is_multiple_of(size_of::<T>()) {
            T::combine(isa, out, a, b, op);
            also.copy_from_slice(bytemuck::cast_slice(out));
            return;
        }
        let before = head.len() / size_of::<T>();
        let behind = before + lines.len() * (Line::BYTES / size_of::<T>());
        let (out_head, out) = out.split_at_mut(before);
        let (out, out_tail) = out.split_at_mut(behind - before);
        if before > 0 {
            T::combine(isa, out_head, &a[..before], &b[..before], op);
            head.copy_from_slice(bytemuck::cast_slice(out_head));
        }
        let (a_tail, b_tail) = (&a[behind..], &b[behind..]);
        let (a, b) = (&a[before..behind], &b[before..behind]);
        let per_line = Line::BYTES / size_of::<T>();
        let whole = out.len() / T::AT_ONCE * T::AT_ONCE;
        let (lines, last_lines) = lines.split_at_mut(whole / per_line);
        let pieces = out[..whole].chunks_exact_mut(T::AT_ONCE).zip(lines.chunks_exact_mut(T::AT_ONCE / per_line));
        let sources = a.chunks_exact(T::AT_ONCE).zip(b.chunks_exact(T::AT_ONCE));
        for ((out, lines), (a, b)) in pieces.zip(sources) {
            piece(isa, out, lines, a, b, op);
        }
        if !last_lines.is_empty() {
            piece(isa, &mut out[whole..], last_lines, &a[whole..], &b[whole..], op);
        }
        if !tail.is_empty() {
            T::combine(isa, out_tail, a_tail, b_tail, op);
            tail.copy_from_slice(bytemuck::cast_slice(out_tail));
        }
        fence();
    }
}

/// The most lines that are made at once: a block of halves.
const MOST_LINES: usize = 8;

/// Some lines' worth of numbers; always inlined, so that a single line stays in registers.
///
/// They are made in an array of their own: only of that the compiler knows that it overlaps neither source, and then it adds a whole
/// line in one instruction.
#[inline(always)]
fn piece<T: Element, I: Isa>(isa: I, out: &mut [T], lines: &mut [Line], a: &[T], b: &[T], op: impl Binary<T::Wide>) {
    const { assert!(T::AT_ONCE * size_of::<T>() <= MOST_LINES * Line::BYTES) };
    for line in 0..lines.len() {
        isa.ask_for(a, (AHEAD + line * Line::BYTES) / size_of::<T>());
        isa.ask_for(b, (AHEAD + line * Line::BYTES) / size_of::<T>());
    }
    let mut made = [Line([0; Line::BYTES]); MOST_LINES];
    let made = &mut made[..lines.len()];
    T::combine(isa, bytemuck::cast_slice_mut(made), a, b, op);
    out.copy_from_slice(bytemuck::cast_slice(made));
    for (line, made) in lines.iter_mut().zip(made) {
        isa.stream(line, &made.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{ReduceOp, reduce_pair_into, subtract_pair_into};

    #[test]
    fn both_places_hold_what_the_plain_kernels_make_wherever_they_begin() {
        let bytes = |seed: usize| (0..9000usize).map(|at| (at * seed % 61) as u8).collect::<Vec<u8>>();
        let (a, b) = (bytes(7), bytes(13));
        for (level, dtype) in SimdLevel::available().into_iter().flat_map(|level| DType::ALL.map(|dtype| (level, dtype))) {
            let size = dtype.size();
            for (count, skip, past_cache) in [0, 1, 3, 31, 32, 33, 255, 256, 1000]
                .into_iter()
                .flat_map(|count| [0, 1, 8, 16, 60].map(|skip| (count, skip)))
                .flat_map(|(count, skip)| [true, false].map(|past| (count, skip, past)))
            {
                let len = count * size;
                let (a, b) = (&a[skip..skip + len], &b[..len]);
                for op in [PairOp::Sum, PairOp::Difference] {
                    let (mut expected, mut out, mut also) = (vec![0u8; len], vec![0xee; len], vec![0xee; len + 200]);
                    match op {
                        PairOp::Sum => reduce_pair_into(ReduceOp::Sum, dtype, &mut expected, a, b).unwrap(),
                        PairOp::Difference => subtract_pair_into(dtype, &mut expected, a, b).unwrap(),
                    }
                    pair_into_both_at(level, op, dtype, &mut out, &mut also[skip..skip + len], past_cache, a, b).unwrap();
                    assert_eq!(out, expected, "{op:?} of {count} {dtype} at {level}, {skip} off");
                    assert_eq!(also[skip..skip + len], expected, "{op:?} of {count} {dtype} at {level}, {skip} off");
                    assert!(also[..skip].iter().chain(&also[skip + len..]).all(|byte| *byte == 0xee), "nothing else is written");
                }
            }
        }
    }

    #[test]
    fn a_second_place_of_another_size_is_refused() {
        assert!(pair_into_both(PairOp::Sum, DType::U8, &mut [0; 5], &mut [0; 4], true, &[0; 5], &[0; 5]).is_err());
    }
}
