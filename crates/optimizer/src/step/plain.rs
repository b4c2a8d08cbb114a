//! Plain descent of f32 weights by f32 gradients, made ready once per step.
//!
//! A row of an embedding is a few lines of the cache: working out the rule for each of them, and handing it over in words that were stored a moment ago, takes
//! as long as the step itself.

use syncline_tensor::DType;
use syncline_tensor::kernels::SimdLevel;

use super::{Block, Kernel};
use crate::rules::{Common, Sgd, SgdKept};
use crate::walk::{step_each, step_each_from};

/// A rule without states, clipping or a master copy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plain {
    Sgd(Sgd<f32, false>),
    Kept(SgdKept<f32, false>),
}

impl Plain {
    /// The rule of this kernel, if it is one of these.
    pub(super) fn of(kernel: &Kernel, common: &Common) -> Option<Plain> {
        match kernel {
            Kernel::Sgd if !common.clips() => Some(Plain::Sgd(Sgd::new(common))),
            Kernel::SgdKept if !common.clips() => Some(Plain::Kept(SgdKept::new(common))),
            _ => None,
        }
    }

    /// Takes the step in place. False, and nothing done, where types, lengths or alignments are not as simple.
    #[inline]
    pub(super) fn apply(&self, level: SimdLevel, block: &mut Block<'_, '_>) -> bool {
        let Some(grad) = gradient_of(block) else { return false };
        let Ok(weight) = bytemuck::try_cast_slice_mut(block.weight) else { return false };
        match self {
            Plain::Sgd(rule) => step_each(level, rule, weight, grad),
            Plain::Kept(rule) => step_each(level, rule, weight, grad),
        }
        true
    }

    /// The same from weights that stand elsewhere.
    #[inline]
    pub(super) fn apply_from(&self, level: SimdLevel, old: &[u8], block: &mut Block<'_, '_>) -> bool {
        let (Some(grad), Ok(old)) = (gradient_of(block), bytemuck::try_cast_slice(old)) else { return false };
        let Ok(new) = bytemuck::try_cast_slice_mut(block.weight) else { return false };
        if old.len() != new.len() {
            return false;
        }
        match self {
            Plain::Sgd(rule) => step_each_from(level, rule, old, new, grad),
            Plain::Kept(rule) => step_each_from(level, rule, old, new, grad),
        }
        true
    }
}

/// The gradient of a block that has nothing but it and as many weights, both f32.
#[inline]
fn gradient_of<'a>(block: &Block<'a, '_>) -> Option<&'a [f32]> {
    let simple = block.dtype == DType::F32 && block.grad_dtype == DType::F32 && block.states.is_empty();
    if simple && block.weight.len() == block.grad.len() { bytemuck::try_cast_slice(block.grad).ok() } else { None }
}
