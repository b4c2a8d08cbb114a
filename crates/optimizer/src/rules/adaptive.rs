//! A rate for each number, from what its gradients were.

use super::{Common, Gradient, Rule, States};
use crate::real::Real;

/// A running mean with its two weights.
#[derive(Clone, Copy)]
struct Mean<W> {
    past: W,
    present: W,
}

impl<W: Real> Mean<W> {
    /// 1 − past in the weight's type, as MXNet's operators have it.
    fn new(past: f64) -> Mean<W> {
        let past = W::of(past);
        Mean { past, present: W::ONE - past }
    }

    /// 1 − past in f64, as MXNet's Python side has it.
    fn in_f64(past: f64) -> Mean<W> {
        Mean { past: W::of(past), present: W::of(1.0 - past) }
    }

    #[inline(always)]
    fn of(self, mean: W, number: W) -> W {
        self.past * mean + self.present * number
    }

    #[inline(always)]
    fn of_square(self, mean: W, number: W) -> W {
        self.past * mean + self.present * number * number
    }

    /// The same with the square first: some operators of MXNet round this way.
    #[inline(always)]
    fn of_whole_square(self, mean: W, number: W) -> W {
        self.past * mean + self.present * (number * number)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Adam<W> {
    gradient: Gradient<W>,
    mean: Mean<W>,
    var: Mean<W>,
    lr: W,
    epsilon: W,
}

impl<W: Real> Adam<W> {
    /// `common.lr` is already corrected.
    pub(crate) fn new(common: &Common, beta1: f64, beta2: f64, epsilon: f64) -> Adam<W> {
        let (mean, var) = (Mean::new(beta1), Mean::new(beta2));
        Adam { gradient: Gradient::new(common), mean, var, lr: W::of(common.lr), epsilon: W::of(epsilon) }
    }
}

impl<W: Real> Rule<W> for Adam<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [mean, var, _]: States<W>) -> (W, States<W>) {
        let g = self.gradient.decayed(g, w);
        let (mean, var) = (self.mean.of(mean, g), self.var.of_square(var, g));
        (w - self.lr * mean / (var.root() + self.epsilon), [mean, var, W::ZERO])
    }
}

/// Adam for row-sparse gradients of a method that is not lazy, where MXNet squares first.
#[derive(Clone, Copy)]
pub(crate) struct AdamOfRows<W>(pub(crate) Adam<W>);

impl<W: Real> Rule<W> for AdamOfRows<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [mean, var, _]: States<W>) -> (W, States<W>) {
        let adam = self.0;
        let g = adam.gradient.decayed(g, w);
        let (mean, var) = (adam.mean.of(mean, g), adam.var.of_whole_square(var, g));
        (w - adam.lr * mean / (var.root() + adam.epsilon), [mean, var, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct AdamW<W> {
    adam: Adam<W>,
    decay: W,
}

impl<W: Real> AdamW<W> {
    /// `common.lr` is already corrected, `decay` is rate times weight decay.
    pub(crate) fn new(common: &Common, beta1: f64, beta2: f64, epsilon: f64, decay: f64) -> AdamW<W> {
        AdamW { adam: Adam::new(common, beta1, beta2, epsilon), decay: W::of(decay) }
    }
}

impl<W: Real> Rule<W> for AdamW<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [mean, var, _]: States<W>) -> (W, States<W>) {
        let adam = self.adam;
        let g = adam.gradient.plain(g);
        let (mean, var) = (adam.mean.of(mean, g), adam.var.of_whole_square(var, g));
        (w - (adam.lr * mean / (var.root() + adam.epsilon) + self.decay * w), [mean, var, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct AdaGrad<W> {
    gradient: Gradient<W>,
    lr: W,
    wd: W,
    epsilon: W,
}

impl<W: Real> AdaGrad<W> {
    pub(crate) fn new(common: &Common, epsilon: f64) -> AdaGrad<W> {
        AdaGrad { gradient: Gradient::new(common), lr: W::of(-common.lr), wd: W::of(common.wd), epsilon: W::of(epsilon) }
    }
}

impl<W: Real> Rule<W> for AdaGrad<W> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [history, ..]: States<W>) -> (W, States<W>) {
        let g = self.gradient.plain(g);
        let history = history + g * g;
        let step = g / (history + self.epsilon).root() + w * self.wd;
        (w + step * self.lr, [history, W::ZERO, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct RmsProp<W> {
    gradient: Gradient<W>,
    square: Mean<W>,
    lr: W,
    epsilon: W,
    bound: W,
}

impl<W: Real> RmsProp<W> {
    pub(crate) fn new(common: &Common, gamma1: f64, epsilon: f64, clip_weights: Option<f64>) -> RmsProp<W> {
        let bound = W::of(clip_weights.unwrap_or(f64::INFINITY));
        RmsProp { gradient: Gradient::new(common), square: Mean::new(gamma1), lr: W::of(common.lr), epsilon: W::of(epsilon), bound }
    }
}

impl<W: Real> Rule<W> for RmsProp<W> {
    const STATES: usize = 1;
    #[inline(always)]
    fn apply(self, w: W, g: W, [n, ..]: States<W>) -> (W, States<W>) {
        let g = self.gradient.decayed(g, w);
        let n = self.square.of_whole_square(n, g);
        let moved = w - self.lr * (g / (n + self.epsilon).root());
        (moved.clipped(self.bound), [n, W::ZERO, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct RmsPropCentered<W> {
    plain: RmsProp<W>,
    gamma2: W,
}

impl<W: Real> RmsPropCentered<W> {
    pub(crate) fn new(common: &Common, gamma1: f64, gamma2: f64, epsilon: f64, clip_weights: Option<f64>) -> RmsPropCentered<W> {
        RmsPropCentered { plain: RmsProp::new(common, gamma1, epsilon, clip_weights), gamma2: W::of(gamma2) }
    }
}

impl<W: Real> Rule<W> for RmsPropCentered<W> {
    const STATES: usize = 3;
    #[inline(always)]
    fn apply(self, w: W, g: W, [n, mean, delta]: States<W>) -> (W, States<W>) {
        let plain = self.plain;
        let g = plain.gradient.decayed(g, w);
        let (n, mean) = (plain.square.of_square(n, g), plain.square.of(mean, g));
        let delta = self.gamma2 * delta - plain.lr * g / (n - mean * mean + plain.epsilon).root();
        ((w + delta).clipped(plain.bound), [n, mean, delta])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct AdaDelta<W> {
    gradient: Gradient<W>,
    square: Mean<W>,
    epsilon: W,
    wd: W,
}

impl<W: Real> AdaDelta<W> {
    pub(crate) fn new(common: &Common, rho: f64, epsilon: f64) -> AdaDelta<W> {
        AdaDelta { gradient: Gradient::new(common), square: Mean::in_f64(rho), epsilon: W::of(epsilon), wd: W::of(common.wd) }
    }
}

impl<W: Real> Rule<W> for AdaDelta<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [acc_g, acc_delta, _]: States<W>) -> (W, States<W>) {
        let g = self.gradient.plain(g);
        let acc_g = self.square.of_square(acc_g, g);
        let delta = (acc_delta + self.epsilon).root() / (acc_g + self.epsilon).root() * g;
        let acc_delta = self.square.of_square(acc_delta, delta);
        (w - (delta + self.wd * w), [acc_g, acc_delta, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Adamax<W> {
    gradient: Gradient<W>,
    mean: Mean<W>,
    beta2: W,
    lr: W,
}

impl<W: Real> Adamax<W> {
    /// `common.lr` is already corrected.
    pub(crate) fn new(common: &Common, beta1: f64, beta2: f64) -> Adamax<W> {
        Adamax { gradient: Gradient::new(common), mean: Mean::in_f64(beta1), beta2: W::of(beta2), lr: W::of(common.lr) }
    }
}

impl<W: Real> Rule<W> for Adamax<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [mean, largest, _]: States<W>) -> (W, States<W>) {
        let g = self.gradient.decayed(g, w);
        let mean = self.mean.of(mean, g);
        let (faded, now) = (self.beta2 * largest, g.magnitude());
        // A NaN on either side wins, as it must be seen.
        let largest = if faded > now || faded.magnitude() != faded { faded } else { now };
        // Nothing has ever come: MXNet divides zero by zero here and loses the weight.
        let step = if largest == W::ZERO { W::ZERO } else { self.lr * mean / largest };
        (w - step, [mean, largest, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Nadam<W> {
    gradient: Gradient<W>,
    mean: Mean<W>,
    var: Mean<W>,
    lr: W,
    epsilon: W,
    /// What gradient, mean and variance are divided by.
    corrections: [W; 3],
    /// What gradient and mean are multiplied with.
    shares: [W; 2],
}

impl<W: Real> Nadam<W> {
    pub(crate) fn new(common: &Common, betas: [f64; 2], epsilon: f64, corrections: [f64; 3], shares: [f64; 2]) -> Nadam<W> {
        Nadam {
            gradient: Gradient::new(common),
            mean: Mean::in_f64(betas[0]),
            var: Mean::in_f64(betas[1]),
            lr: W::of(common.lr),
            epsilon: W::of(epsilon),
            corrections: corrections.map(W::of),
            shares: shares.map(W::of),
        }
    }
}

impl<W: Real> Rule<W> for Nadam<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [mean, var, _]: States<W>) -> (W, States<W>) {
        let g = self.gradient.decayed(g, w);
        let (mean, var) = (self.mean.of(mean, g), self.var.of_square(var, g));
        let [by_g, by_mean, by_var] = self.corrections;
        let direction = self.shares[0] * (g / by_g) + self.shares[1] * (mean / by_mean);
        let next = w - self.lr * direction / ((var / by_var).root() + self.epsilon);
        (next, [mean, var, W::ZERO])
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Lamb<W> {
    gradient: Gradient<W>,
    mean: Mean<W>,
    var: Mean<W>,
    mean_correction: f64,
    var_correction: W,
    epsilon: W,
    wd: W,
    /// Rate times the ratio of norms.
    lr: W,
}

impl<W: Real> Lamb<W> {
    pub(crate) fn new(common: &Common, betas: [f64; 2], epsilon: f64, bias_correction: bool) -> Lamb<W> {
        let count = W::of(common.count as f64);
        let faded = |beta: f64| if bias_correction { W::of(beta).power(count) } else { W::ZERO };
        Lamb {
            gradient: Gradient::new(common),
            mean: Mean::new(betas[0]),
            var: Mean::new(betas[1]),
            // MXNet subtracts the first power from 1.0 and the second from 1, a double and a whole number.
            mean_correction: 1.0 - faded(betas[0]).to_f64(),
            var_correction: W::ONE - faded(betas[1]),
            epsilon: W::of(epsilon),
            wd: W::of(common.wd),
            lr: W::of(common.lr),
        }
    }

    /// What the weight would move along, and the new states.
    #[inline(always)]
    pub(crate) fn direction(self, w: W, g: W, mean: W, var: W) -> (W, W, W) {
        let g = self.gradient.plain(g);
        let (mean, var) = (self.mean.of(mean, g), self.var.of_square(var, g));
        let direction = mean.divided(self.mean_correction) / ((var / self.var_correction).root() + self.epsilon) + self.wd * w;
        (direction, mean, var)
    }
}

impl<W: Real> Rule<W> for Lamb<W> {
    const STATES: usize = 2;
    #[inline(always)]
    fn apply(self, w: W, g: W, [mean, var, _]: States<W>) -> (W, States<W>) {
        let (direction, mean, var) = self.direction(w, g, mean, var);
        (w - self.lr * direction, [mean, var, W::ZERO])
    }
}
