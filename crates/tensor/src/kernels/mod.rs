//! The inner loops: everything that touches each number of a tensor.
//!
//! Public functions take bytes with a run-time dtype, or typed slices, of any alignment and any length, zero included.
//! They check every length first, so a call that fails has written nothing.
//!
//! ```text
//! reduce   acc op= src · out = a op b · out = s₀ op s₁ op …     sum prod min max and or
//! subtract acc -= src · out = a - b
//! both     out = a ± b, into two places in one pass
//! step     one step of an optimiser with its state: momentum, AdaGrad, delay compensation
//! quantize gradients in two bits, one bit, halves, bytes, or the largest only; with a residual
//! scale    y += a·x · x *= a
//! divide   x /= n, what makes a mean of a sum
//! cast     any dtype to any other, rounded once
//! rows     gather, scatter and scatter-add of whole rows by id
//! strided  copies between any two layouts
//! stream   copies that leave no trace in the cache
//! ```
//!
//! # Rules of arithmetic
//!
//! The same in every path, so that the CPU a rank runs on never shows in its results:
//! - Half types are computed in f32 and rounded to nearest even when stored.
//! - Integers wrap around, in sums, products and whole-numbered factors alike.
//! - A product and a sum are two roundings: nothing is fused, whatever the CPU offers.
//! - And and or take the bits of integers; of floats they are 1 or 0, and NaN is not zero.
//! - Min and max return NaN if either side is NaN, and count `-0.0` as smaller than `0.0`.
//! - Which payload a NaN carries is not promised.
//!
//! # How a kernel reaches the CPU
//!
//! A kernel is written once, as a plain generic loop in a `Work` (see `dispatch.rs`). The compiler makes one copy per
//! [`SimdLevel`] and vectorises each for its instructions; [`simd_level`] picks one when the first kernel runs.
//! Wheels are built for plain x86-64, other architectures get the one copy for their own baseline.

mod both;
mod byte_slices;
mod cast;
mod dispatch;
mod divide;
pub(crate) mod half_bits;
pub(crate) mod lanes;
mod number;
pub mod quantize;
mod reduce;
mod rows;
mod scale;
mod step;
mod stream;
mod strided;
mod subtract;

#[cfg(test)]
mod properties;

pub use both::{PairOp, combine_into_both, pair_into_both};
pub use cast::{cast, cast_typed};
pub use dispatch::{Loop, SimdLevel, simd_level};
pub use divide::divide;
pub use lanes::Binary;
pub use reduce::{ReduceOp, reduce_into, reduce_into_typed, reduce_many_into, reduce_pair_into, reduce_pair_into_typed};
pub use rows::{RowLayout, gather_rows, scatter_add_rows, scatter_rows};
pub use scale::{axpy, axpy_typed, scale, scale_typed};
pub use step::{Step, StepBuffers, step_into};
pub use stream::copy_past_cache;
pub use strided::copy_strided;
pub use subtract::{subtract_into, subtract_pair_into};
