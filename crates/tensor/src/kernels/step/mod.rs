//! Steps of optimisers that remember something about each number.
//!
//! | step | state | what happens, with g = d/lr |
//! |---|---|---|
//! | momentum | running mean s of the deltas | s = m·s + (1−m)·d; x −= s |
//! | adagrad | sum h of squared gradients | h += g·g; x −= ρ/√(h+10⁻⁶)·g |
//! | compensated | none, reads a backup b of x | x −= d + λ·(d·d/lr)·(x − b) |
//! | adaptively compensated | running mean v of squares, and b | v = m·v + (1−m)·g·g; x −= d + λ/√(v+10⁻⁷)·(d·d/lr)·(x − b) |
//!
//! New numbers are written beside the old ones, which stay as they are. Each operation above is one rounding, in this
//! order, in the type the dtype is computed in; half types are rounded once more when x is stored. The state of a half
//! type is f32, or small changes would vanish in it. From memory each runs at the speed of memory; in cache, roots and
//! quotients set the pace. `rules.rs` says what happens to one number, `walk.rs` walks them.

mod rules;
mod walk;

use half::{bf16, f16};

use super::byte_slices::{elements_in, same_count};
use super::dispatch::{SimdLevel, simd_level};
use crate::{DType, Element, TensorError};
use rules::{Adagrad, AdaptivelyCompensated, Compensated, Momentum, Real, Rule};

/// Which step, with its numbers. They are rounded to the type that the dtype is computed in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// s = m·s + (1−m)·d; x −= s
    Momentum {
        /// The weight m of the past.
        momentum: f64,
    },
    /// h += g·g; x −= ρ/√(h+10⁻⁶)·g with g = d/lr
    Adagrad {
        /// The learning rate that is already inside d.
        learning_rate: f64,
        /// The size ρ of a step.
        rho: f64,
    },
    /// x −= d + λ·(d·d/lr)·(x − b)
    Compensated {
        /// The learning rate that is already inside d.
        learning_rate: f64,
        /// The strength λ of the compensation.
        lambda: f64,
    },
    /// v = m·v + (1−m)·g·g; x −= d + λ/√(v+10⁻⁷)·(d·d/lr)·(x − b) with g = d/lr
    AdaptivelyCompensated {
        /// The learning rate that is already inside d.
        learning_rate: f64,
        /// The strength λ of the compensation.
        lambda: f64,
        /// The weight m of the past.
        momentum: f64,
    },
}

/// The numbers a step reads and writes, as many in each; what it does not use is empty.
#[derive(Debug)]
pub struct StepBuffers<'a> {
    /// x before.
    pub old: &'a [u8],
    /// d.
    pub delta: &'a [u8],
    /// x afterwards; what it held does not matter.
    pub new: &'a mut [u8],
    /// b, of the dtype of x.
    pub backup: &'a [u8],
    /// s, h or v before: of the dtype of x, but f32 for the half types.
    pub state_old: &'a [u8],
    /// s, h or v afterwards; what it held does not matter.
    pub state_new: &'a mut [u8],
}

/// Makes one step with each number; the lengths must agree, and the dtype must be a float.
///
/// ```
/// use syncline_tensor::{DType, kernels::{Step, StepBuffers, step_into}};
///
/// let (x, d, s) = ([1.0f32], [0.5f32], [0.25f32]);
/// let (mut new_x, mut new_s) = ([0.0f32], [0.0f32]);
/// let buffers = StepBuffers {
///     old: bytemuck::cast_slice(&x),
///     delta: bytemuck::cast_slice(&d),
///     new: bytemuck::cast_slice_mut(&mut new_x),
///     backup: &[],
///     state_old: bytemuck::cast_slice(&s),
///     state_new: bytemuck::cast_slice_mut(&mut new_s),
/// };
/// step_into(Step::Momentum { momentum: 0.5 }, DType::F32, buffers)?;
/// assert_eq!((new_s, new_x), ([0.375], [0.625]));
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
pub fn step_into(step: Step, dtype: DType, buffers: StepBuffers<'_>) -> Result<(), TensorError> {
    step_into_at(simd_level(), step, dtype, buffers)
}

pub(super) fn step_into_at(level: SimdLevel, step: Step, dtype: DType, buffers: StepBuffers<'_>) -> Result<(), TensorError> {
    match dtype {
        DType::F32 => choose::<f32>(level, step, buffers),
        DType::F64 => choose::<f64>(level, step, buffers),
        DType::F16 => choose::<f16>(level, step, buffers),
        DType::BF16 => choose::<bf16>(level, step, buffers),
        _ => Err(TensorError::NeedsFloat { operation: "a step with a state", dtype }),
    }
}

fn choose<T: Element<Wide: Real>>(level: SimdLevel, step: Step, buffers: StepBuffers<'_>) -> Result<(), TensorError> {
    match step {
        Step::Momentum { momentum } => run::<T, _>(level, Momentum::new(momentum), buffers),
        Step::Adagrad { learning_rate, rho } => run::<T, _>(level, Adagrad::new(learning_rate, rho), buffers),
        Step::Compensated { learning_rate, lambda } => run::<T, _>(level, Compensated::new(learning_rate, lambda), buffers),
        Step::AdaptivelyCompensated { learning_rate, lambda, momentum } => {
            run::<T, _>(level, AdaptivelyCompensated::new(learning_rate, lambda, momentum), buffers)
        }
    }
}

fn run<T: Element<Wide: Real>, R: Rule<T::Wide>>(level: SimdLevel, rule: R, buffers: StepBuffers<'_>) -> Result<(), TensorError> {
    let count = elements_in(T::DTYPE, buffers.new)?;
    same_count("old", count, elements_in(T::DTYPE, buffers.old)?)?;
    same_count("delta", count, elements_in(T::DTYPE, buffers.delta)?)?;
    let expected = if R::HAS_BACKUP { count } else { 0 };
    same_count("backup", expected, elements_in(T::DTYPE, buffers.backup)?)?;
    let (expected, state) = (if R::HAS_STATE { count } else { 0 }, T::Wide::DTYPE);
    same_count("state_old", expected, elements_in(state, buffers.state_old)?)?;
    same_count("state_new", expected, elements_in(state, buffers.state_new)?)?;
    walk::walk::<T, R>(level, rule, buffers);
    Ok(())
}
