//! One cache-sized block of a table meets one delta.

use syncline_tensor::kernels::{
    PairOp, ReduceOp, Step, StepBuffers, copy_past_cache, pair_into_both, reduce_into, reduce_pair_into, step_into, subtract_into,
    subtract_pair_into,
};
use syncline_tensor::{DType, TensorError};

use super::{AddOptions, Updater};

/// New values and states are computed beside the old ones, which stay as they are until the caller copies over them.
///
/// The states are those of [`Updater::lanes_touched`], in that order; the others are empty. An add only reads a backup:
/// its new state may be empty too, or else becomes a copy of the old one.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) old: &'a [u8],
    pub(crate) delta: &'a [u8],
    pub(crate) new: &'a mut [u8],
    pub(crate) states_old: [&'a [u8]; 2],
    pub(crate) states_new: [&'a mut [u8]; 2],
}

/// Rows of embeddings are often this short: then finding the kernel for this CPU costs more than it gains.
const SHORT: usize = 1024;

/// `x + d` or `x − d` for a short row of f32: the same bits as the kernels, without the way to them.
#[inline]
fn short_rows(updater: Updater, old: &[u8], delta: &[u8], new: &mut [u8]) {
    assert!(old.len() == delta.len() && old.len() == new.len() && old.len().is_multiple_of(4), "one delta for each value");
    let number = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().expect("four bytes"));
    let values = new.chunks_exact_mut(4).zip(old.chunks_exact(4).zip(delta.chunks_exact(4)));
    if updater == Updater::Sgd {
        values.for_each(|(new, (old, delta))| new.copy_from_slice(&(number(old) - number(delta)).to_ne_bytes()));
    } else {
        values.for_each(|(new, (old, delta))| new.copy_from_slice(&(number(old) + number(delta)).to_ne_bytes()));
    }
}

/// Computes what `block.delta` makes of the block. The slices may begin anywhere.
///
/// # Panics
/// When lengths disagree or a stateful updater meets whole numbers: both were checked when the table was made.
pub(crate) fn apply(updater: Updater, dtype: DType, options: &AddOptions, block: Block<'_>) {
    let Block { old, delta, new, states_old, states_new } = block;
    if let (true, DType::F32, Updater::Add | Updater::Sgd) = (old.len() <= SHORT, dtype, updater) {
        return short_rows(updater, old, delta, new);
    }
    let done = match (updater, options.step(updater)) {
        (Updater::Add, _) => reduce_pair_into(ReduceOp::Sum, dtype, new, old, delta),
        (Updater::Sgd, _) => subtract_pair_into(dtype, new, old, delta),
        (_, Some(step)) => stateful(step, dtype, Block { old, delta, new, states_old, states_new }),
        (_, None) => unreachable!("every other updater has a step"),
    };
    assert!(done.is_ok(), "updater {updater} on {dtype}: {done:?}");
}

/// [`apply`], with the new values in `also` too; past the cache if nobody finds them there anyway.
#[inline]
pub(crate) fn apply_into_both(updater: Updater, dtype: DType, options: &AddOptions, block: Block<'_>, also: &mut [u8], past_cache: bool) {
    let Block { old, delta, new, states_old, states_new } = block;
    let op = match updater {
        Updater::Add => PairOp::Sum,
        Updater::Sgd => PairOp::Difference,
        _ => {
            apply(updater, dtype, options, Block { old, delta, new: &mut *new, states_old, states_new });
            return if past_cache { copy_past_cache(also, new) } else { also.copy_from_slice(new) };
        }
    };
    let done = pair_into_both(op, dtype, new, also, past_cache, old, delta);
    assert!(done.is_ok(), "updater {updater} on {dtype}: {done:?}");
}

fn stateful(step: Step, dtype: DType, block: Block<'_>) -> Result<(), TensorError> {
    let Block { old, delta, new, states_old: [first, second], states_new: [new_first, new_second] } = block;
    let (backup, new_backup, state_old, state_new) = match step {
        Step::Momentum { .. } | Step::Adagrad { .. } => (second, new_second, first, new_first),
        Step::Compensated { .. } | Step::AdaptivelyCompensated { .. } => (first, new_first, second, new_second),
    };
    step_into(step, dtype, StepBuffers { old, delta, new, backup, state_old, state_new })?;
    if !new_backup.is_empty() {
        new_backup.copy_from_slice(backup);
    }
    Ok(())
}

/// `values += delta` or `values −= delta`, for the stateless updaters: how deltas of several workers are chained.
///
/// # Panics
/// When lengths disagree or the updater keeps states.
pub(crate) fn apply_in_place(updater: Updater, dtype: DType, values: &mut [u8], delta: &[u8]) {
    let done = match updater {
        Updater::Add => reduce_into(ReduceOp::Sum, dtype, values, delta),
        Updater::Sgd => subtract_into(dtype, values, delta),
        _ => panic!("updater {updater} keeps states and cannot work in place"),
    };
    assert!(done.is_ok(), "updater {updater} on {dtype}: {done:?}");
}
