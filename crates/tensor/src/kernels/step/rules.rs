//! What each step does to one number.

use super::super::lanes::Lanes;
use super::super::number::Number;
use crate::Element;

/// A type that is computed with and has roots: f32 and f64.
pub(crate) trait Real: Number + Element + Lanes<Wide = Self> {
    fn over(self, other: Self) -> Self;
    fn root(self) -> Self;
}

macro_rules! real {
    ($($T:ident)+) => {$(
        impl Real for $T {
            #[inline(always)]
            fn over(self, other: Self) -> Self {
                self / other
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
        }
    )+};
}
real!(f32 f64);

/// The numbers that belong to one place of a table; zero where the rule has none.
#[derive(Clone, Copy)]
pub(super) struct Place<W> {
    pub(super) x: W,
    pub(super) d: W,
    pub(super) backup: W,
    pub(super) state: W,
}

pub(super) trait Rule<W>: Copy {
    /// Whether the rule reads a backup.
    const HAS_BACKUP: bool;
    /// Whether the rule reads and writes a state.
    const HAS_STATE: bool;
    /// The new x and the new state; always inlined.
    fn apply(self, place: Place<W>) -> (W, W);
}

/// The running mean with its two weights; `1 − m` is computed once.
#[derive(Clone, Copy)]
struct Mean<W> {
    past: W,
    present: W,
}

impl<W: Real> Mean<W> {
    fn new(past: f64) -> Mean<W> {
        let past = W::from_f64(past);
        Mean { past, present: W::from_i64(1).difference(past) }
    }

    #[inline(always)]
    fn with(self, mean: W, number: W) -> W {
        self.past.product(mean).sum(self.present.product(number))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Momentum<W>(Mean<W>);

impl<W: Real> Momentum<W> {
    pub(super) fn new(momentum: f64) -> Momentum<W> {
        Momentum(Mean::new(momentum))
    }
}

impl<W: Real> Rule<W> for Momentum<W> {
    const HAS_BACKUP: bool = false;
    const HAS_STATE: bool = true;

    #[inline(always)]
    fn apply(self, Place { x, d, state, .. }: Place<W>) -> (W, W) {
        let state = self.0.with(state, d);
        (x.difference(state), state)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Adagrad<W> {
    learning_rate: W,
    rho: W,
    epsilon: W,
}

impl<W: Real> Adagrad<W> {
    pub(super) fn new(learning_rate: f64, rho: f64) -> Adagrad<W> {
        Adagrad { learning_rate: W::from_f64(learning_rate), rho: W::from_f64(rho), epsilon: W::from_f64(1e-6) }
    }
}

impl<W: Real> Rule<W> for Adagrad<W> {
    const HAS_BACKUP: bool = false;
    const HAS_STATE: bool = true;

    #[inline(always)]
    fn apply(self, Place { x, d, state, .. }: Place<W>) -> (W, W) {
        let gradient = d.over(self.learning_rate);
        let history = state.sum(gradient.product(gradient));
        let rate = self.rho.over(history.sum(self.epsilon).root());
        (x.difference(rate.product(gradient)), history)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Compensated<W> {
    learning_rate: W,
    lambda: W,
}

impl<W: Real> Compensated<W> {
    pub(super) fn new(learning_rate: f64, lambda: f64) -> Compensated<W> {
        Compensated { learning_rate: W::from_f64(learning_rate), lambda: W::from_f64(lambda) }
    }

    /// `d + strength·(d·d/lr)·(x − b)`
    #[inline(always)]
    fn corrected(self, strength: W, Place { x, d, backup, .. }: Place<W>) -> W {
        let curvature = d.product(d).over(self.learning_rate);
        d.sum(strength.product(curvature).product(x.difference(backup)))
    }
}

impl<W: Real> Rule<W> for Compensated<W> {
    const HAS_BACKUP: bool = true;
    const HAS_STATE: bool = false;

    #[inline(always)]
    fn apply(self, place: Place<W>) -> (W, W) {
        (place.x.difference(self.corrected(self.lambda, place)), place.state)
    }
}

#[derive(Clone, Copy)]
pub(super) struct AdaptivelyCompensated<W> {
    compensated: Compensated<W>,
    mean: Mean<W>,
    epsilon: W,
}

impl<W: Real> AdaptivelyCompensated<W> {
    pub(super) fn new(learning_rate: f64, lambda: f64, momentum: f64) -> AdaptivelyCompensated<W> {
        let compensated = Compensated::new(learning_rate, lambda);
        AdaptivelyCompensated { compensated, mean: Mean::new(momentum), epsilon: W::from_f64(1e-7) }
    }
}

impl<W: Real> Rule<W> for AdaptivelyCompensated<W> {
    const HAS_BACKUP: bool = true;
    const HAS_STATE: bool = true;

    #[inline(always)]
    fn apply(self, place: Place<W>) -> (W, W) {
        let gradient = place.d.over(self.compensated.learning_rate);
        let state = self.mean.with(place.state, gradient.product(gradient));
        let strength = self.compensated.lambda.over(state.sum(self.epsilon).root());
        (place.x.difference(self.compensated.corrected(strength, place)), state)
    }
}
