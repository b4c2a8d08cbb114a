//! What each optimizer does to one number, in the order of operations that MXNet has, so that f32 weights agree with its.
//!
//! Nothing is fused: every operation is one rounding, on every CPU. A rule is made once per step from f64 numbers; what MXNet computes in the
//! weight's type (such as 1 − β₁) is computed in it here, what its Python side computes in f64 stays f64 until then.

mod adaptive;
mod descent;
mod leaders;

pub(crate) use adaptive::{AdaDelta, AdaGrad, Adam, AdamOfRows, AdamW, Adamax, Lamb, Nadam, RmsProp, RmsPropCentered};
pub(crate) use descent::{Dcasgd, DcasgdMomentum, Nag, NagOfRows, Sgd, SgdKept, SgdMomentum, Sgld, SignSgd, Signum, Test};
pub(crate) use leaders::{Ftml, Ftrl};

use crate::real::Real;

/// The states of one number; those that a rule does not have are zero.
pub(crate) type States<W> = [W; 3];

/// One step for one number.
pub(crate) trait Rule<W>: Copy {
    /// How many of the states are used.
    const STATES: usize;
    /// The new weight and states; always inlined.
    fn apply(self, w: W, g: W, states: States<W>) -> (W, States<W>);
}

/// The numbers of a step that all rules share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Common {
    pub(crate) lr: f64,
    pub(crate) wd: f64,
    pub(crate) rescale: f64,
    /// Infinite if gradients are not clipped: then clipping changes nothing.
    pub(crate) clip: f64,
    pub(crate) count: u64,
}

impl Common {
    /// Whether gradients are clipped.
    pub(crate) fn clips(&self) -> bool {
        self.clip.is_finite()
    }
}

/// A gradient that is scaled, then clipped; `decayed` adds the weight decay in between.
#[derive(Clone, Copy)]
pub(super) struct Gradient<W> {
    scale: W,
    bound: W,
    decay: W,
}

impl<W: Real> Gradient<W> {
    pub(super) fn new(common: &Common) -> Gradient<W> {
        Gradient { scale: W::of(common.rescale), bound: W::of(common.clip), decay: W::of(common.wd) }
    }

    #[inline(always)]
    pub(super) fn plain(self, g: W) -> W {
        (self.scale * g).clipped(self.bound)
    }

    #[inline(always)]
    pub(super) fn decayed(self, g: W, w: W) -> W {
        (self.scale * g + self.decay * w).clipped(self.bound)
    }
}

/// A gradient times a factor. MXNet multiplies factor and scale first where nothing is clipped, and the gradient then.
///
/// Whether anything is clipped is known once per step and not asked for each number: the loop without it has half as many instructions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaled<W, const CLIPS: bool> {
    before: W,
    bound: W,
    after: W,
}

impl<W: Real, const CLIPS: bool> Scaled<W, CLIPS> {
    pub(super) fn new(common: &Common, factor: W) -> Scaled<W, CLIPS> {
        debug_assert_eq!(CLIPS, common.clips());
        let rescale = W::of(common.rescale);
        if CLIPS {
            Scaled { before: rescale, bound: W::of(common.clip), after: factor }
        } else {
            Scaled { before: W::ONE, bound: W::of(f64::INFINITY), after: factor * rescale }
        }
    }

    #[inline(always)]
    pub(super) fn of(self, g: W) -> W {
        self.after * if CLIPS { (self.before * g).clipped(self.bound) } else { g }
    }
}
