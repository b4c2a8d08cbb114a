//! Descent along the gradient: plain, with momentum, by signs, compensated, with noise.

use super::{Common, Gradient, Rule, Scaled, States};
use crate::real::Real;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sgd<W, const CLIPS: bool> {
    /// What a weight loses to its decay, as a factor below zero: a product's sign costs nothing, turning it around for each number does.
    growth: W,
    step: Scaled<W, CLIPS>,
}

impl<W: Real, const CLIPS: bool> Sgd<W, CLIPS> {
    pub(crate) fn new(common: &Common) -> Sgd<W, CLIPS> {
        let lr = W::of(common.lr);
        Sgd { growth: -(lr * W::of(common.wd)), step: Scaled::new(common, lr) }
    }
}

impl<W: Real, const CLIPS: bool> Rule<W> for Sgd<W, CLIPS> {
    const STATES: usize = 0;
    #[inline(always)]
    fn apply(self, w: W, g: W, states: States<W>) -> (W, States<W>) {
        (w + (self.growth * w - self.step.of(g)), states)
    }
}

/// Plain descent as MXNet has it for rows and for NAG without momentum: the decay is one factor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SgdKept<W, const CLIPS: bool> {
    kept: W,
    step: Scaled<W, CLIPS>,
}

impl<W: Real, const CLIPS: bool> SgdKept<W, CLIPS> {
    pub(crate) fn new(common: &Common) -> SgdKept<W, CLIPS> {
        let lr = W::of(common.lr);
        SgdKept { kept: W::ONE - lr * W::of(common.wd), step: Scaled::new(common, lr) }
    }
}

impl<W: Real, const CLIPS: bool> Rule<W> for SgdKept<W, CLIPS> {
    const STATES: usize = 0;
    #[inline(always)]
    fn apply(self, w: W, g: W, states: States<W>) -> (W, States<W>) {
        (self.kept * w - self.step.of(g), states)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct SgdMomentum<W, const CLIPS: bool> {
    momentum: W,
    decay: W,
    step: Scaled<W, CLIPS>,
}

impl<W: Real, const CLIPS: bool> SgdMomentum<W, CLIPS> {
    pub(crate) fn new(common: &Common, momentum: f64) -> SgdMomentum<W, CLIPS> {
        let lr = W::of(common.lr);
        SgdMomentum { momentum: W::of(momentum), decay: lr * W::of(common.wd), step: Scaled::new(common, lr) }
    }
}

impl<W: Real, const CLIPS: bool> Rule<W> for SgdMomentum<W, CLIPS> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [m, ..]: States<W>) -> (W, States<W>) {
        let m = self.momentum * m - self.decay * w - self.step.of(g);
        (w + m, [m, W::ZERO, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Nag<W> {
    momentum: W,
    lr: W,
    wd: W,
    gradient: Gradient<W>,
}

impl<W: Real> Nag<W> {
    pub(crate) fn new(common: &Common, momentum: f64) -> Nag<W> {
        Nag { momentum: W::of(momentum), lr: W::of(common.lr), wd: W::of(common.wd), gradient: Gradient::new(common) }
    }
}

impl<W: Real> Rule<W> for Nag<W> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [m, ..]: States<W>) -> (W, States<W>) {
        let (m, g) = (self.momentum * m, self.gradient.plain(g));
        let next = w - m + (self.momentum + W::ONE) * (m - self.lr * (g + self.wd * w));
        // The decay of the new weight, not of the old one: MXNet has stored it by now, and so its momentum has it.
        let m = m - self.lr * (g + self.wd * next);
        (next, [m, W::ZERO, W::ZERO])
    }
}

/// The same as MXNet has it for rows: there the weight is stored after the momentum, which so has the decay of the old one.
#[derive(Clone, Copy)]
pub(crate) struct NagOfRows<W>(pub(crate) Nag<W>);

impl<W: Real> Rule<W> for NagOfRows<W> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [m, ..]: States<W>) -> (W, States<W>) {
        let Nag { momentum, lr, wd, gradient } = self.0;
        let (m, g) = (momentum * m, gradient.plain(g));
        let change = m - lr * (g + wd * w);
        (w - m + (momentum + W::ONE) * change, [change, W::ZERO, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct SignSgd<W> {
    kept: W,
    lr: W,
}

impl<W: Real> SignSgd<W> {
    pub(crate) fn new(common: &Common) -> SignSgd<W> {
        let lr = W::of(common.lr);
        SignSgd { kept: W::ONE - lr * W::of(common.wd), lr }
    }
}

impl<W: Real> Rule<W> for SignSgd<W> {
    const STATES: usize = 0;
    #[inline(always)]
    fn apply(self, w: W, g: W, states: States<W>) -> (W, States<W>) {
        (self.kept * w - self.lr * g.sign(), states)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Signum<W, const CLIPS: bool> {
    momentum: W,
    decay: W,
    step: Scaled<W, CLIPS>,
    kept: W,
    lr: W,
}

impl<W: Real, const CLIPS: bool> Signum<W, CLIPS> {
    pub(crate) fn new(common: &Common, momentum: f64, wd_lh: f64) -> Signum<W, CLIPS> {
        let (momentum, lr) = (W::of(momentum), W::of(common.lr));
        let present = W::ONE - momentum;
        let kept = W::ONE - lr * W::of(wd_lh);
        Signum { momentum, decay: present * W::of(common.wd), step: Scaled::new(common, present), kept, lr }
    }
}

impl<W: Real, const CLIPS: bool> Rule<W> for Signum<W, CLIPS> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [m, ..]: States<W>) -> (W, States<W>) {
        let m = self.momentum * m - self.decay * w - self.step.of(g);
        (self.kept * w + self.lr * m.sign(), [m, W::ZERO, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Dcasgd<W> {
    lr: W,
    wd: W,
    lamda: W,
    gradient: Gradient<W>,
}

impl<W: Real> Dcasgd<W> {
    pub(crate) fn new(common: &Common, lamda: f64) -> Dcasgd<W> {
        Dcasgd { lr: W::of(common.lr), wd: W::of(common.wd), lamda: W::of(lamda), gradient: Gradient::new(common) }
    }

    #[inline(always)]
    fn step(self, w: W, g: W, previous: W) -> W {
        let g = self.gradient.plain(g);
        -self.lr * (g + self.wd * w + self.lamda * g * g * (w - previous))
    }
}

impl<W: Real> Rule<W> for Dcasgd<W> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [previous, ..]: States<W>) -> (W, States<W>) {
        (w + self.step(w, g, previous), [w, W::ZERO, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct DcasgdMomentum<W> {
    momentum: W,
    step: Dcasgd<W>,
}

impl<W: Real> DcasgdMomentum<W> {
    pub(crate) fn new(common: &Common, lamda: f64, momentum: f64) -> DcasgdMomentum<W> {
        DcasgdMomentum { momentum: W::of(momentum), step: Dcasgd::new(common, lamda) }
    }
}

impl<W: Real> Rule<W> for DcasgdMomentum<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [previous, m, _]: States<W>) -> (W, States<W>) {
        let m = self.momentum * m + self.step.step(w, g, previous);
        (w + m, [w, m, W::ZERO])
    }
}

/// Its one state is no lane but the noise, which is only read.
#[derive(Clone, Copy)]
pub(crate) struct Sgld<W> {
    half_rate: W,
    deviation: W,
    wd: W,
    gradient: Gradient<W>,
}

impl<W: Real> Sgld<W> {
    pub(crate) fn new(common: &Common) -> Sgld<W> {
        let deviation = W::of(common.lr.max(0.0).sqrt());
        Sgld { half_rate: W::of(-common.lr / 2.0), deviation, wd: W::of(common.wd), gradient: Gradient::new(common) }
    }
}

impl<W: Real> Rule<W> for Sgld<W> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [noise, ..]: States<W>) -> (W, States<W>) {
        let moved = w + self.half_rate * (self.gradient.plain(g) + self.wd * w);
        (moved + self.deviation * noise, [noise, W::ZERO, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Test<W> {
    rescale: W,
}

impl<W: Real> Test<W> {
    pub(crate) fn new(common: &Common) -> Test<W> {
        Test { rescale: W::of(common.rescale) }
    }
}

impl<W: Real> Rule<W> for Test<W> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, _: States<W>) -> (W, States<W>) {
        let w = w + g * self.rescale;
        (w, [w, W::ZERO, W::ZERO])
    }
}
