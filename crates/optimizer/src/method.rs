//! Which optimizers there are, and the numbers that only they have.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An optimizer's own numbers; what all have in common is in [`Settings`](crate::Settings). The README has the formulas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are the letters of the formulas in the README")]
pub enum Method {
    /// Stochastic gradient descent.
    Sgd { momentum: f64, lazy_update: bool },
    /// With Nesterov's momentum.
    Nag { momentum: f64 },
    /// Only the sign of the momentum, or of the gradient.
    Signum { momentum: f64, wd_lh: f64 },
    /// Follow the moving leader.
    Ftml { beta1: f64, beta2: f64, epsilon: f64 },
    /// Compensates for the delay of asynchronous gradients.
    Dcasgd { momentum: f64, lamda: f64 },
    /// Langevin dynamics: gradient descent with noise.
    Sgld { seed: u64 },
    /// Adaptive moments.
    Adam { beta1: f64, beta2: f64, epsilon: f64, lazy_update: bool },
    /// Adam with decoupled weight decay.
    AdamW { beta1: f64, beta2: f64, epsilon: f64, correct_bias: bool },
    /// A rate per number that falls with its gradients.
    AdaGrad { epsilon: f64 },
    /// The same with a memory that fades.
    RmsProp { gamma1: f64, gamma2: f64, epsilon: f64, centered: bool, clip_weights: Option<f64> },
    /// Without a learning rate.
    AdaDelta { rho: f64, epsilon: f64 },
    /// Follow the regularised leader.
    Ftrl { lamda1: f64, beta: f64 },
    /// Adam with a maximum for the second moment.
    Adamax { beta1: f64, beta2: f64 },
    /// Adam with Nesterov's momentum.
    Nadam { beta1: f64, beta2: f64, epsilon: f64, schedule_decay: f64 },
    /// Adam for large batches: the step of an array follows its norm.
    Lamb { beta1: f64, beta2: f64, epsilon: f64, lower_bound: Option<f64>, upper_bound: Option<f64>, bias_correction: bool },
    /// SGD for large batches: the rate of an array follows its norm.
    Lars { momentum: f64, eta: f64, epsilon: f64, momentum_correction: bool, lazy_update: bool },
    /// Adds the gradient; what tests of stores use.
    Test,
    /// A formula of the user's own, see [`expression`](crate::expression).
    Custom { text: String, parameters: BTreeMap<String, f64> },
}

impl Method {
    /// The name that [`create`](crate::Optimizer::create) knows it by.
    pub const fn name(&self) -> &'static str {
        match self {
            Method::Sgd { .. } => "sgd",
            Method::Nag { .. } => "nag",
            Method::Signum { .. } => "signum",
            Method::Ftml { .. } => "ftml",
            Method::Dcasgd { .. } => "dcasgd",
            Method::Sgld { .. } => "sgld",
            Method::Adam { .. } => "adam",
            Method::AdamW { .. } => "adamw",
            Method::AdaGrad { .. } => "adagrad",
            Method::RmsProp { .. } => "rmsprop",
            Method::AdaDelta { .. } => "adadelta",
            Method::Ftrl { .. } => "ftrl",
            Method::Adamax { .. } => "adamax",
            Method::Nadam { .. } => "nadam",
            Method::Lamb { .. } => "lamb",
            Method::Lars { .. } => "lars",
            Method::Test => "test",
            Method::Custom { .. } => "custom",
        }
    }

    /// The learning rate when nobody gave one, neither to the optimizer nor to a schedule.
    pub(crate) const fn default_rate(&self) -> f64 {
        match self {
            Method::Adam { .. } | Method::AdamW { .. } | Method::RmsProp { .. } | Method::Nadam { .. } | Method::Lamb { .. } => 0.001,
            Method::Adamax { .. } => 0.002,
            Method::Ftrl { .. } => 0.1,
            _ => 0.01,
        }
    }

    /// Whether a row-sparse gradient touches only the rows it has; otherwise the others get a gradient of zero.
    pub fn is_lazy(&self) -> bool {
        match self {
            Method::Sgd { lazy_update, .. } | Method::Adam { lazy_update, .. } | Method::Lars { lazy_update, .. } => *lazy_update,
            // Without momentum it is plain descent, which is lazy.
            Method::Nag { momentum } => *momentum == 0.0,
            Method::AdaGrad { .. } | Method::Ftrl { .. } | Method::Test | Method::Custom { .. } => true,
            _ => false,
        }
    }

    /// The option that makes no sense, if one does not: its name, what it is and what it must be.
    pub(crate) fn objection(&self) -> Option<(&'static str, f64, &'static str)> {
        let fraction = |name, number: f64| (!(0.0..1.0).contains(&number)).then_some((name, number, "at least 0 and below 1"));
        let magnitude = |name, number: f64| (!(number >= 0.0 && number.is_finite())).then_some((name, number, "finite and not negative"));
        let any = |name, number: f64| (!number.is_finite()).then_some((name, number, "finite"));
        let bound = |name, number: Option<f64>| number.and_then(|number| magnitude(name, number));
        match self {
            Method::Sgd { momentum, .. } | Method::Nag { momentum } => magnitude("momentum", *momentum),
            Method::Signum { momentum, wd_lh } => magnitude("momentum", *momentum).or(magnitude("wd_lh", *wd_lh)),
            Method::Dcasgd { momentum, lamda } => magnitude("momentum", *momentum).or(any("lamda", *lamda)),
            Method::Ftml { beta1, beta2, epsilon }
            | Method::Adam { beta1, beta2, epsilon, .. }
            | Method::AdamW { beta1, beta2, epsilon, .. } => {
                fraction("beta1", *beta1).or(fraction("beta2", *beta2)).or(magnitude("epsilon", *epsilon))
            }
            Method::Nadam { beta1, beta2, epsilon, schedule_decay } => fraction("beta1", *beta1)
                .or(fraction("beta2", *beta2))
                .or(magnitude("epsilon", *epsilon))
                .or(magnitude("schedule_decay", *schedule_decay)),
            Method::Lamb { beta1, beta2, epsilon, lower_bound, upper_bound, .. } => fraction("beta1", *beta1)
                .or(fraction("beta2", *beta2))
                .or(magnitude("epsilon", *epsilon))
                .or(bound("lower_bound", *lower_bound))
                .or(bound("upper_bound", *upper_bound)),
            Method::Adamax { beta1, beta2 } => fraction("beta1", *beta1).or(fraction("beta2", *beta2)),
            Method::AdaGrad { epsilon } => magnitude("eps", *epsilon),
            Method::RmsProp { gamma1, gamma2, epsilon, clip_weights, .. } => fraction("gamma1", *gamma1)
                .or(fraction("gamma2", *gamma2))
                .or(magnitude("epsilon", *epsilon))
                .or(bound("clip_weights", *clip_weights)),
            Method::AdaDelta { rho, epsilon } => fraction("rho", *rho).or(magnitude("epsilon", *epsilon)),
            Method::Ftrl { lamda1, beta } => magnitude("lamda1", *lamda1).or(magnitude("beta", *beta)),
            Method::Lars { momentum, eta, epsilon, .. } => {
                magnitude("momentum", *momentum).or(magnitude("eta", *eta)).or(magnitude("eps", *epsilon))
            }
            Method::Custom { parameters, .. } => parameters.values().find_map(|number| any("params", *number)),
            Method::Sgld { .. } | Method::Test => None,
        }
    }
}
