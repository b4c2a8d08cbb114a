//! Following the leader: the weight is what would have been best so far, regularised.

use super::{Common, Gradient, Rule, States};
use crate::real::Real;

#[derive(Clone, Copy)]
pub(crate) struct Ftml<W> {
    gradient: Gradient<W>,
    betas: [W; 2],
    corrections: [W; 2],
    lr: W,
    epsilon: W,
}

impl<W: Real> Ftml<W> {
    pub(crate) fn new(common: &Common, betas: [f64; 2], epsilon: f64) -> Ftml<W> {
        let (count, betas) = (W::of(common.count as f64), betas.map(W::of));
        let corrections = betas.map(|beta| W::ONE - beta.power(count));
        Ftml { gradient: Gradient::new(common), betas, corrections, lr: W::of(common.lr), epsilon: W::of(epsilon) }
    }
}

impl<W: Real> Rule<W> for Ftml<W> {
    const STATES: usize = 3;
    #[inline(always)]
    fn apply(self, w: W, g: W, [d, v, z]: States<W>) -> (W, States<W>) {
        let ([beta1, beta2], [correction1, correction2]) = (self.betas, self.corrections);
        let g = self.gradient.decayed(g, w);
        let v = beta2 * v + (W::ONE - beta2) * (g * g);
        let next_d = correction1 / self.lr * ((v / correction2).root() + self.epsilon);
        let z = beta1 * z + (W::ONE - beta1) * g - (next_d - beta1 * d) * w;
        (-z / next_d, [next_d, v, z])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Ftrl<W> {
    gradient: Gradient<W>,
    lamda1: W,
    beta: W,
    lr: W,
    wd: W,
}

impl<W: Real> Ftrl<W> {
    pub(crate) fn new(common: &Common, lamda1: f64, beta: f64) -> Ftrl<W> {
        let lr = W::of(common.lr);
        Ftrl { gradient: Gradient::new(common), lamda1: W::of(lamda1), beta: W::of(beta), lr, wd: W::of(common.wd) }
    }
}

impl<W: Real> Rule<W> for Ftrl<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [z, n, _]: States<W>) -> (W, States<W>) {
        let g = self.gradient.plain(g);
        let square = g * g;
        let z = z + (g - ((n + square).root() - n.root()) * w / self.lr);
        let n = n + square;
        let next = (z.sign() * self.lamda1 - z) / ((self.beta + n.root()) / self.lr + self.wd);
        // A comparison that NaN fails: then the weight must be NaN too, not zero.
        (if z.magnitude() <= self.lamda1 { W::ZERO } else { next }, [z, n, W::ZERO])
    }
}
