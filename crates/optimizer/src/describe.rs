//! An optimizer's options, as `create` takes them: what people read, compare and write down.

use crate::{Key, Method, Optimizer, OptionValue};

impl Optimizer {
    /// Every option with its value, absent ones as [`OptionValue::Nothing`]: those that only this optimizer has first, in the order of the
    /// README, then those that all have. [`create`](Self::create) makes the same optimizer of them.
    ///
    /// ```
    /// use syncline_optimizer::{Optimizer, OptionValue};
    ///
    /// let sgd = Optimizer::create("sgd", &[("momentum", 0.9.into())])?;
    /// let options = sgd.options();
    /// assert_eq!(options[..2], [("momentum", 0.9.into()), ("lazy_update", true.into())]);
    /// assert_eq!(options[2], ("learning_rate", OptionValue::Nothing));
    /// assert_eq!(Optimizer::create(sgd.method.name(), &options)?, sgd);
    /// # Ok::<(), syncline_optimizer::OptimizerError>(())
    /// ```
    pub fn options(&self) -> Vec<(&'static str, OptionValue)> {
        let mut options = self.own_options();
        let settings = &self.settings;
        options.extend([
            ("learning_rate", number_or_nothing(settings.learning_rate)),
            ("wd", settings.wd.into()),
            ("rescale_grad", settings.rescale_grad.into()),
            ("clip_gradient", number_or_nothing(settings.clip_gradient)),
            ("lr_scheduler", settings.schedule.clone().map_or(OptionValue::Nothing, OptionValue::Schedule)),
            ("begin_num_update", (settings.begin_num_update as f64).into()),
            ("multi_precision", settings.multi_precision.into()),
            ("lr_mult", OptionValue::Numbers(settings.lr_mult.clone())),
            ("wd_mult", OptionValue::Numbers(settings.wd_mult.clone())),
        ]);
        options
    }

    fn own_options(&self) -> Vec<(&'static str, OptionValue)> {
        let adam = |beta1: &f64, beta2: &f64, epsilon: &f64| {
            vec![("beta1", (*beta1).into()), ("beta2", (*beta2).into()), ("epsilon", (*epsilon).into())]
        };
        match &self.method {
            Method::Sgd { momentum, lazy_update } => vec![("momentum", (*momentum).into()), ("lazy_update", (*lazy_update).into())],
            Method::Nag { momentum } => vec![("momentum", (*momentum).into())],
            Method::Signum { momentum, wd_lh } => vec![("momentum", (*momentum).into()), ("wd_lh", (*wd_lh).into())],
            Method::Ftml { beta1, beta2, epsilon } => adam(beta1, beta2, epsilon),
            Method::Dcasgd { momentum, lamda } => vec![("momentum", (*momentum).into()), ("lamda", (*lamda).into())],
            Method::Sgld { seed } => vec![("seed", (*seed as f64).into())],
            Method::Adam { beta1, beta2, epsilon, lazy_update } => {
                with(adam(beta1, beta2, epsilon), [("lazy_update", (*lazy_update).into())])
            }
            Method::AdamW { beta1, beta2, epsilon, correct_bias } => {
                with(adam(beta1, beta2, epsilon), [("correct_bias", (*correct_bias).into())])
            }
            Method::AdaGrad { epsilon } => vec![("eps", (*epsilon).into())],
            Method::RmsProp { gamma1, gamma2, epsilon, centered, clip_weights } => vec![
                ("gamma1", (*gamma1).into()),
                ("gamma2", (*gamma2).into()),
                ("epsilon", (*epsilon).into()),
                ("centered", (*centered).into()),
                ("clip_weights", number_or_nothing(*clip_weights)),
            ],
            Method::AdaDelta { rho, epsilon } => vec![("rho", (*rho).into()), ("epsilon", (*epsilon).into())],
            Method::Ftrl { lamda1, beta } => vec![("lamda1", (*lamda1).into()), ("beta", (*beta).into())],
            Method::Adamax { beta1, beta2 } => vec![("beta1", (*beta1).into()), ("beta2", (*beta2).into())],
            Method::Nadam { beta1, beta2, epsilon, schedule_decay } => {
                with(adam(beta1, beta2, epsilon), [("schedule_decay", (*schedule_decay).into())])
            }
            Method::Lamb { beta1, beta2, epsilon, lower_bound, upper_bound, bias_correction } => with(
                adam(beta1, beta2, epsilon),
                [
                    ("lower_bound", number_or_nothing(*lower_bound)),
                    ("upper_bound", number_or_nothing(*upper_bound)),
                    ("bias_correction", (*bias_correction).into()),
                ],
            ),
            Method::Lars { momentum, eta, epsilon, momentum_correction, lazy_update } => vec![
                ("momentum", (*momentum).into()),
                ("lazy_update", (*lazy_update).into()),
                ("eta", (*eta).into()),
                ("eps", (*epsilon).into()),
                ("momentum_correction", (*momentum_correction).into()),
            ],
            Method::Test => Vec::new(),
            Method::Custom { text, parameters } => {
                let parameters = parameters.iter().map(|(name, number)| (Key::from(name.as_str()), *number)).collect();
                vec![("update", text.as_str().into()), ("params", OptionValue::Numbers(parameters))]
            }
        }
    }
}

fn number_or_nothing(number: Option<f64>) -> OptionValue {
    number.map_or(OptionValue::Nothing, OptionValue::Number)
}

fn with<const N: usize>(
    mut options: Vec<(&'static str, OptionValue)>,
    more: [(&'static str, OptionValue); N],
) -> Vec<(&'static str, OptionValue)> {
    options.extend(more);
    options
}
