//! Learning rates that follow the number of updates.
//!
//! A schedule is a function of that number alone: asking twice, or after a restart, gives the same rate. MXNet's schedulers change themselves
//! when asked; for numbers that only grow, as there, the rates are the same.

use serde::{Deserialize, Serialize};

use crate::OptimizerError;

/// How the rate falls after the warm-up; n is the number of updates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Decay {
    /// Times `factor` at each update after a multiple of `step`, never below `stop_factor_lr`.
    Factor {
        /// Updates between two changes, at least 1.
        step: u64,
        /// From 0 to 1.
        factor: f64,
        /// Where it stops falling.
        stop_factor_lr: f64,
    },
    /// Times `factor` after each of these updates.
    MultiFactor {
        /// Ascending, the first at least 1.
        steps: Vec<u64>,
        /// From 0 to 1.
        factor: f64,
    },
    /// (1 − progress)^power between base and final rate.
    Poly {
        /// The update at which the final rate is reached.
        max_update: u64,
        /// The power.
        power: f64,
        /// The rate from there on.
        final_lr: f64,
    },
    /// Half a cosine between base and final rate.
    Cosine {
        /// The update at which the final rate is reached.
        max_update: u64,
        /// The rate from there on.
        final_lr: f64,
    },
}

/// The first updates, while n < steps.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Warmup {
    /// How many.
    pub steps: u64,
    /// The rate of the first.
    pub begin_lr: f64,
    /// Whether the rate stays at `begin_lr` instead of rising to the base rate.
    pub constant: bool,
}

/// A rate for every number of updates.
///
/// ```
/// use syncline_optimizer::{Decay, Schedule};
///
/// let halves = Schedule::new(0.8, Decay::Factor { step: 10, factor: 0.5, stop_factor_lr: 0.15 });
/// assert_eq!([1, 10, 11, 21, 999].map(|n| halves.rate(n)), [0.8, 0.8, 0.4, 0.2, 0.15]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// The rate at the end of the warm-up.
    pub base_lr: f64,
    /// How it begins.
    pub warmup: Warmup,
    /// How it goes on.
    pub decay: Decay,
}

impl Schedule {
    /// Without a warm-up.
    pub fn new(base_lr: f64, decay: Decay) -> Schedule {
        Schedule { base_lr, warmup: Warmup::default(), decay }
    }

    /// With a warm-up in front.
    #[must_use]
    pub fn with_warmup(mut self, warmup: Warmup) -> Schedule {
        self.warmup = warmup;
        self
    }

    /// The rate after so many updates.
    pub fn rate(&self, updates: u64) -> f64 {
        let Warmup { steps, begin_lr, constant } = self.warmup;
        if updates < steps {
            let risen = (self.base_lr - begin_lr) * updates as f64 / steps as f64;
            return begin_lr + if constant { 0.0 } else { risen };
        }
        match &self.decay {
            Decay::Factor { step, factor, stop_factor_lr } => {
                let times = updates.saturating_sub(1) / step;
                fallen(self.base_lr, *factor, times, *stop_factor_lr)
            }
            Decay::MultiFactor { steps, factor } => {
                let times = steps.iter().filter(|step| updates > **step).count() as u64;
                fallen(self.base_lr, *factor, times, f64::NEG_INFINITY)
            }
            Decay::Poly { max_update, power, final_lr } => {
                let part = self.part(updates, *max_update);
                final_lr + (self.base_lr - final_lr) * (1.0 - part).powf(*power)
            }
            Decay::Cosine { max_update, final_lr } => {
                let part = std::f64::consts::PI * self.part(updates, *max_update);
                final_lr + (self.base_lr - final_lr) * (1.0 + part.cos()) / 2.0
            }
        }
    }

    /// How much of the way from the end of the warm-up to `max_update` is done.
    fn part(&self, updates: u64, max_update: u64) -> f64 {
        let way = max_update.saturating_sub(self.warmup.steps);
        let done = updates.min(max_update).saturating_sub(self.warmup.steps);
        if way == 0 { 1.0 } else { done as f64 / way as f64 }
    }

    /// Refuses numbers that make no sense.
    ///
    /// # Errors
    /// [`OptimizerError::BadOption`] naming the first of them.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let refuse = |option: &str, found: &dyn std::fmt::Debug, must| {
            Err(OptimizerError::BadOption { optimizer: "lr_scheduler", option: option.to_owned(), found: format!("{found:?}"), must })
        };
        let rate = |rate: f64| rate.is_finite() && rate >= 0.0;
        let Warmup { begin_lr, .. } = self.warmup;
        if !rate(self.base_lr) {
            return refuse("base_lr", &self.base_lr, "finite and not negative");
        }
        if !rate(begin_lr) || begin_lr > self.base_lr {
            return refuse("warmup_begin_lr", &begin_lr, "between 0 and base_lr");
        }
        match &self.decay {
            Decay::Factor { step: 0, .. } => refuse("step", &0, "at least 1"),
            Decay::Factor { factor, .. } | Decay::MultiFactor { factor, .. } if !(0.0..=1.0).contains(factor) => {
                refuse("factor", factor, "from 0 to 1")
            }
            Decay::Factor { stop_factor_lr, .. } if !rate(*stop_factor_lr) => {
                refuse("stop_factor_lr", stop_factor_lr, "finite and not negative")
            }
            Decay::MultiFactor { steps, .. } if steps.is_empty() || steps[0] < 1 || steps.windows(2).any(|pair| pair[0] >= pair[1]) => {
                refuse("step", steps, "a list that ascends from at least 1")
            }
            Decay::Poly { max_update: 0, .. } | Decay::Cosine { max_update: 0, .. } => refuse("max_update", &0, "at least 1"),
            Decay::Poly { power, .. } if !rate(*power) => refuse("pwr", power, "finite and not negative"),
            Decay::Poly { final_lr, .. } | Decay::Cosine { final_lr, .. } if !rate(*final_lr) => {
                refuse("final_lr", final_lr, "finite and not negative")
            }
            _ => Ok(()),
        }
    }
}

/// `base` times `factor`, so many times, each product rounded, until it stops falling.
fn fallen(base: f64, factor: f64, times: u64, stop: f64) -> f64 {
    // So many steps are multiplied one by one, as MXNet does; after that the digits beyond the fifteenth do not matter.
    const ONE_BY_ONE: u64 = 4096;
    let mut rate = base;
    for _ in 0..times.min(ONE_BY_ONE) {
        rate *= factor;
        if rate < stop {
            return stop;
        }
    }
    let rest = times.saturating_sub(ONE_BY_ONE);
    (rate * factor.powf(rest as f64)).max(stop.max(0.0)).min(rate)
}
