//! Reductions: the heart of every all-reduce and of every add to a table.
//!
//! Cost: one pass that reads each source once and reads and writes the accumulator once; nothing is allocated.
//! From memory this runs at the speed of memory, in cache at several numbers per cycle.

use std::fmt;

use half::{bf16, f16};

use super::byte_slices::{change_by, elements_in, same_count, write_from};
use super::dispatch::{Isa, SimdLevel, Work, simd_level};
use super::lanes::{Binary, Lanes, Sink};
use super::number::Number;
use crate::element::with_element;
use crate::{DType, Element, TensorError};

/// How two numbers become one. The rules for integers, NaN and zeros are those of [`kernels`](crate::kernels).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// Their sum, here. Whoever knows how many there were divides it by them, once, with [`divide`](super::divide).
    Mean,
    /// The bits that both have; of floats, 1 if neither is zero, else 0.
    And,
    /// The bits that either has; of floats, 0 if both are zero, else 1.
    Or,
}

impl ReduceOp {
    /// Every operation.
    pub const ALL: [ReduceOp; 7] =
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Mean, ReduceOp::And, ReduceOp::Or];

    /// As it is spelled in every binding.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Mean => "mean",
            ReduceOp::And => "and",
            ReduceOp::Or => "or",
        }
    }

    /// Whether the order in which numbers of `dtype` are combined never shows in the result.
    pub const fn is_exact(self, dtype: DType) -> bool {
        match self {
            ReduceOp::Min | ReduceOp::Max | ReduceOp::And | ReduceOp::Or => true,
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Mean => !dtype.is_float(),
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// `acc = acc op src`, number by number; the lengths must agree.
///
/// A half type is rounded after every call. To reduce several sources with one rounding, use [`reduce_many_into`].
/// ```
/// use syncline_tensor::{DType, kernels::{ReduceOp, reduce_into}};
///
/// let mut acc = [1u8, 200];
/// reduce_into(ReduceOp::Sum, DType::U8, &mut acc, &[2, 100])?;
/// assert_eq!(acc, [3, 44]); // integers wrap
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn reduce_into(op: ReduceOp, dtype: DType, acc: &mut [u8], src: &[u8]) -> Result<(), TensorError> {
    reduce_into_at(simd_level(), op, dtype, acc, src)
}

/// [`reduce_into`] for slices whose type is known.
pub fn reduce_into_typed<T: Element>(op: ReduceOp, acc: &mut [T], src: &[T]) -> Result<(), TensorError> {
    same_count("src", acc.len(), src.len())?;
    update(simd_level(), op, acc, src);
    Ok(())
}

/// `out = a op b`, number by number; the lengths must agree, and what `out` held does not matter.
///
/// One pass less over memory than a copy followed by [`reduce_into`].
/// ```
/// use syncline_tensor::kernels::{ReduceOp, reduce_pair_into_typed};
///
/// let mut out = [0.0f32; 2];
/// reduce_pair_into_typed(ReduceOp::Max, &mut out, &[1.0, f32::NAN], &[2.0, 3.0])?;
/// assert_eq!(out[0], 2.0);
/// assert!(out[1].is_nan());
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn reduce_pair_into(op: ReduceOp, dtype: DType, out: &mut [u8], a: &[u8], b: &[u8]) -> Result<(), TensorError> {
    reduce_pair_into_at(simd_level(), op, dtype, out, a, b)
}

/// [`reduce_pair_into`] for slices whose type is known.
pub fn reduce_pair_into_typed<T: Element>(op: ReduceOp, out: &mut [T], a: &[T], b: &[T]) -> Result<(), TensorError> {
    same_count("a", out.len(), a.len())?;
    same_count("b", out.len(), b.len())?;
    combine(simd_level(), op, out, a, b);
    Ok(())
}

/// `out = sources[0] op sources[1] op …` from left to right; the lengths must agree, and there must be a source.
///
/// Half types stay in f32 from the first source to the last and are rounded once. Works in cache-sized blocks, so
/// each source is read once and `out` written once, however many there are.
/// ```
/// use syncline_tensor::{DType, bf16, kernels::{ReduceOp, reduce_many_into}};
///
/// let ones = [bf16::ONE; 3];
/// let bytes: &[u8] = bytemuck::cast_slice(&ones);
/// let mut out = [bf16::ZERO; 3];
/// reduce_many_into(ReduceOp::Sum, DType::BF16, bytemuck::cast_slice_mut(&mut out), &[bytes; 300])?;
/// assert_eq!(out[0].to_f32(), 300.0); // one by one, bfloat16 would have stopped at 256
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn reduce_many_into(op: ReduceOp, dtype: DType, out: &mut [u8], sources: &[&[u8]]) -> Result<(), TensorError> {
    reduce_many_into_at(simd_level(), op, dtype, out, sources)
}

pub(super) fn reduce_into_at(level: SimdLevel, op: ReduceOp, dtype: DType, acc: &mut [u8], src: &[u8]) -> Result<(), TensorError> {
    same_count("src", elements_in(dtype, acc)?, elements_in(dtype, src)?)?;
    with_element!(dtype, T => change_by::<T, T>(acc, src, |acc, src| update(level, op, acc, src)));
    Ok(())
}

pub(super) fn reduce_pair_into_at(
    level: SimdLevel,
    op: ReduceOp,
    dtype: DType,
    out: &mut [u8],
    a: &[u8],
    b: &[u8],
) -> Result<(), TensorError> {
    let count = elements_in(dtype, out)?;
    same_count("a", count, elements_in(dtype, a)?)?;
    same_count("b", count, elements_in(dtype, b)?)?;
    with_element!(dtype, T => write_from::<T>(out, a, b, |out, a, b| combine(level, op, out, a, b)));
    Ok(())
}

pub(super) fn reduce_many_into_at(
    level: SimdLevel,
    op: ReduceOp,
    dtype: DType,
    out: &mut [u8],
    sources: &[&[u8]],
) -> Result<(), TensorError> {
    let count = elements_in(dtype, out)?;
    for source in sources {
        same_count("a source", count, elements_in(dtype, source)?)?;
    }
    match (sources, dtype) {
        ([], _) => return Err(TensorError::NoSources),
        ([only], _) => out.copy_from_slice(only),
        ([a, b], _) => reduce_pair_into_at(level, op, dtype, out, a, b)?,
        (_, DType::F16) => reduce_many_halves::<f16>(level, op, out, sources),
        (_, DType::BF16) => reduce_many_halves::<bf16>(level, op, out, sources),
        ([a, b, others @ ..], _) => {
            for start in (0..out.len()).step_by(BLOCK_BYTES) {
                let block = start..out.len().min(start + BLOCK_BYTES);
                let out = &mut out[block.clone()];
                reduce_pair_into_at(level, op, dtype, out, &a[block.clone()], &b[block.clone()])?;
                for other in others {
                    reduce_into_at(level, op, dtype, out, &other[block.clone()])?;
                }
            }
        }
    }
    Ok(())
}

/// What [`reduce_many_into`] accumulates at a time: it stays in the first-level cache from source to source.
const BLOCK_BYTES: usize = 16 << 10;

/// [`reduce_many_into`] with an f32 accumulator between the sources and `out`.
fn reduce_many_halves<T: Element<Wide = f32>>(level: SimdLevel, op: ReduceOp, out: &mut [u8], sources: &[&[u8]]) {
    const BLOCK: usize = BLOCK_BYTES / size_of::<f32>();
    let mut acc = [0.0f32; BLOCK];
    for start in (0..out.len()).step_by(BLOCK * size_of::<T>()) {
        let block = start..out.len().min(start + BLOCK * size_of::<T>());
        let acc = &mut acc[..block.len() / size_of::<T>()];
        for (index, source) in sources.iter().enumerate() {
            let op = (index > 0).then_some(op);
            change_by_halves::<T>(level, op, acc, &source[block.clone()]);
        }
        change_by::<T, f32>(&mut out[block], bytemuck::cast_slice(acc), |out, acc| level.run(Narrow { acc, out }));
    }
}

/// `acc op= src`, or `acc = src` for the first source.
fn change_by_halves<T: Element<Wide = f32>>(level: SimdLevel, op: Option<ReduceOp>, acc: &mut [f32], src: &[u8]) {
    let acc = bytemuck::cast_slice_mut(acc);
    change_by::<f32, T>(acc, src, |acc, src| match op {
        None => level.run(Widen { acc, src, op: Replace }),
        Some(ReduceOp::Sum | ReduceOp::Mean) => level.run(Widen { acc, src, op: Sum }),
        Some(ReduceOp::Prod) => level.run(Widen { acc, src, op: Prod }),
        Some(ReduceOp::Min) => level.run(Widen { acc, src, op: Min }),
        Some(ReduceOp::Max) => level.run(Widen { acc, src, op: Max }),
        Some(ReduceOp::And) => level.run(Widen { acc, src, op: And }),
        Some(ReduceOp::Or) => level.run(Widen { acc, src, op: Or }),
    });
}

/// `acc op= src` for typed slices of equal length.
pub(super) fn update<T: Element>(level: SimdLevel, op: ReduceOp, acc: &mut [T], src: &[T]) {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => level.run(Update { acc, src, op: Sum }),
        ReduceOp::Prod => level.run(Update { acc, src, op: Prod }),
        ReduceOp::Min => level.run(Update { acc, src, op: Min }),
        ReduceOp::Max => level.run(Update { acc, src, op: Max }),
        ReduceOp::And => level.run(Update { acc, src, op: And }),
        ReduceOp::Or => level.run(Update { acc, src, op: Or }),
    }
}

fn combine<T: Element>(level: SimdLevel, op: ReduceOp, out: &mut [T], a: &[T], b: &[T]) {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => level.run(Combine { out, a, b, op: Sum }),
        ReduceOp::Prod => level.run(Combine { out, a, b, op: Prod }),
        ReduceOp::Min => level.run(Combine { out, a, b, op: Min }),
        ReduceOp::Max => level.run(Combine { out, a, b, op: Max }),
        ReduceOp::And => level.run(Combine { out, a, b, op: And }),
        ReduceOp::Or => level.run(Combine { out, a, b, op: Or }),
    }
}

/// `acc = op(acc, src)`.
pub(super) struct Update<'a, T, O> {
    pub(super) acc: &'a mut [T],
    pub(super) src: &'a [T],
    pub(super) op: O,
}

impl<T: Element, O: Binary<T::Wide>> Work for Update<'_, T, O> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        T::update(isa, self.acc, self.src, self.op);
    }
}

/// `out = op(a, b)`.
pub(super) struct Combine<'a, T, O> {
    pub(super) out: &'a mut [T],
    pub(super) a: &'a [T],
    pub(super) b: &'a [T],
    pub(super) op: O,
}

impl<T: Element, O: Binary<T::Wide>> Work for Combine<'_, T, O> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        T::combine(isa, self.out, self.a, self.b, self.op);
    }
}

/// `acc = op(acc, src)` where only the source is of a half type.
struct Widen<'a, T, O> {
    acc: &'a mut [f32],
    src: &'a [T],
    op: O,
}

impl<T: Element<Wide = f32>, O: Binary<f32>> Work for Widen<'_, T, O> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        T::widened(isa, self.src, IntoAccumulator { rest: self.acc, op: self.op });
    }
}

/// Absorbs widened blocks one after another.
struct IntoAccumulator<'a, O> {
    rest: &'a mut [f32],
    op: O,
}

impl<O: Binary<f32>> Sink<f32> for IntoAccumulator<'_, O> {
    #[inline(always)]
    fn take<I: Isa>(&mut self, isa: I, block: &[f32]) {
        let (acc, rest) = std::mem::take(&mut self.rest).split_at_mut(block.len());
        f32::update(isa, acc, block, self.op);
        self.rest = rest;
    }
}

/// Stores an f32 accumulator as a half type.
struct Narrow<'a, T> {
    acc: &'a [f32],
    out: &'a mut [T],
}

impl<T: Element> Work for Narrow<'_, T> {
    #[inline(always)]
    fn run<I: Isa>(self, isa: I) {
        T::store(isa, self.acc, self.out);
    }
}

/// Takes the source as it is.
#[derive(Clone, Copy)]
struct Replace;

impl<W> Binary<W> for Replace {
    #[inline(always)]
    fn apply(self, _: W, src: W) -> W {
        src
    }
}

macro_rules! number_ops {
    ($($Op:ident: $method:ident),+) => {$(
        #[derive(Clone, Copy)]
        pub(super) struct $Op;

        impl<W: Number> Binary<W> for $Op {
            #[inline(always)]
            fn apply(self, acc: W, src: W) -> W {
                acc.$method(src)
            }
        }
    )+};
}
number_ops!(Sum: sum, Prod: product, Min: smaller, Max: larger, And: both, Or: either);
