//! From an optimizer's settings to the numbers of one step.

use super::{Kernel, Plain, Step};
use crate::noise::Noise;
use crate::rules::Common;
use crate::{Key, Method, Optimizer};

/// The step of update `count` of a key, whose rate and decay already have their multipliers.
pub(crate) fn resolve(
    optimizer: &Optimizer,
    key: &Key,
    count: u64,
    (lr, wd): (f64, f64),
    momentum_change: f64,
    m_schedule: &mut Option<f64>,
) -> Step {
    let settings = &optimizer.settings;
    let clip = settings.clip_gradient.unwrap_or(f64::INFINITY);
    let mut common = Common { lr, wd, rescale: settings.rescale_grad, clip, count };
    let t = count as f64;
    // By the C library's pow, as Python's `**`.
    let correction = |beta: f64| 1.0 - beta.powf(t);
    let mut needs_norms = false;
    let kernel = match &optimizer.method {
        Method::Sgd { momentum, .. } if *momentum == 0.0 => Kernel::Sgd,
        Method::Sgd { momentum, .. } => Kernel::SgdMomentum { momentum: *momentum },
        Method::Nag { momentum } if *momentum == 0.0 => Kernel::SgdKept,
        Method::Nag { momentum } => Kernel::Nag { momentum: *momentum },
        Method::Signum { momentum, .. } if *momentum == 0.0 => Kernel::SignSgd,
        Method::Signum { momentum, wd_lh } => Kernel::Signum { momentum: *momentum, wd_lh: *wd_lh },
        Method::Ftml { beta1, beta2, epsilon } => Kernel::Ftml { betas: [*beta1, *beta2], epsilon: *epsilon },
        Method::Dcasgd { momentum, lamda } => Kernel::Dcasgd { lamda: *lamda, momentum: *momentum },
        Method::Sgld { seed } => Kernel::Sgld { noise: Noise::new(*seed, key, count) },
        Method::Adam { beta1, beta2, epsilon, .. } => {
            common.lr *= correction(*beta2).sqrt() / correction(*beta1);
            Kernel::Adam { beta1: *beta1, beta2: *beta2, epsilon: *epsilon }
        }
        Method::AdamW { beta1, beta2, epsilon, correct_bias } => {
            if *correct_bias {
                common.lr *= correction(*beta2).sqrt() / correction(*beta1);
            }
            Kernel::AdamW { beta1: *beta1, beta2: *beta2, epsilon: *epsilon, decay: lr * wd }
        }
        Method::AdaGrad { epsilon } => Kernel::AdaGrad { epsilon: *epsilon },
        Method::RmsProp { gamma1, gamma2, epsilon, centered, clip_weights } => {
            Kernel::RmsProp { gamma1: *gamma1, gamma2: centered.then_some(*gamma2), epsilon: *epsilon, clip_weights: *clip_weights }
        }
        Method::AdaDelta { rho, epsilon } => Kernel::AdaDelta { rho: *rho, epsilon: *epsilon },
        Method::Ftrl { lamda1, beta } => Kernel::Ftrl { lamda1: *lamda1, beta: *beta },
        Method::Adamax { beta1, beta2 } => {
            common.lr /= correction(*beta1);
            Kernel::Adamax { beta1: *beta1, beta2: *beta2 }
        }
        Method::Nadam { beta1, beta2, epsilon, schedule_decay } => {
            let momentum = |t: f64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t * schedule_decay));
            let (now, next) = (momentum(t), momentum(t + 1.0));
            let schedule = m_schedule.unwrap_or(1.0) * now;
            *m_schedule = Some(schedule);
            Kernel::Nadam {
                betas: [*beta1, *beta2],
                epsilon: *epsilon,
                corrections: [1.0 - schedule, 1.0 - schedule * next, correction(*beta2)],
                shares: [1.0 - now, next],
            }
        }
        Method::Lamb { beta1, beta2, epsilon, lower_bound, upper_bound, bias_correction } => {
            needs_norms = true;
            let bounds = [*lower_bound, *upper_bound];
            Kernel::Lamb { betas: [*beta1, *beta2], epsilon: *epsilon, bounds, bias_correction: *bias_correction }
        }
        Method::Lars { momentum, eta, epsilon, momentum_correction, .. } => {
            // Scales and offsets keep the plain rate, as in MXNet.
            let name = key.to_string();
            needs_norms = !["gamma", "beta", "bias"].iter().any(|end| name.ends_with(end));
            let momentum = if *momentum_correction { momentum * momentum_change } else { *momentum };
            Kernel::Lars { momentum, eta: *eta, epsilon: *epsilon }
        }
        Method::Test => Kernel::Test,
        Method::Custom { .. } => Kernel::Custom { program: optimizer.program().expect("a custom optimizer was compiled when it was made") },
    };
    let lanes = optimizer.states();
    let (name, master, lazy) = (optimizer.method.name(), settings.multi_precision, optimizer.method.is_lazy());
    let plain = Plain::of(&kernel, &common);
    Step { name, lanes, master, lazy, common, kernel, needs_norms, plain }
}
