//! Optimizers by name and keyword options, as `create("sgd", learning_rate=0.1)` has them.

use std::collections::BTreeMap;

use crate::{Key, Method, Optimizer, OptimizerError, Schedule, Settings};

/// What a keyword option may be.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// Any number; where a truth is wanted, 0 is false.
    Number(f64),
    /// True or false; where a number is wanted, 1 or 0.
    Truth(bool),
    /// A text: the formula of a custom update.
    Text(String),
    /// As if the option had not been given.
    Nothing,
    /// A learning-rate schedule.
    Schedule(Schedule),
    /// Numbers by key: multipliers, or by name: parameters of a custom update.
    Numbers(BTreeMap<Key, f64>),
}

impl From<f64> for OptionValue {
    fn from(number: f64) -> OptionValue {
        OptionValue::Number(number)
    }
}

impl From<bool> for OptionValue {
    fn from(truth: bool) -> OptionValue {
        OptionValue::Truth(truth)
    }
}

impl From<&str> for OptionValue {
    fn from(text: &str) -> OptionValue {
        OptionValue::Text(text.to_owned())
    }
}

impl From<Schedule> for OptionValue {
    fn from(schedule: Schedule) -> OptionValue {
        OptionValue::Schedule(schedule)
    }
}

const COMMON: [&str; 9] =
    ["learning_rate", "wd", "rescale_grad", "clip_gradient", "lr_scheduler", "begin_num_update", "multi_precision", "lr_mult", "wd_mult"];

/// Every optimizer with the options that only it has.
const KNOWN: [(&str, &[&str]); 18] = [
    ("sgd", &["momentum", "lazy_update"]),
    ("nag", &["momentum"]),
    ("signum", &["momentum", "wd_lh"]),
    ("ftml", &["beta1", "beta2", "epsilon"]),
    ("dcasgd", &["momentum", "lamda"]),
    ("sgld", &["seed"]),
    ("adam", &["beta1", "beta2", "epsilon", "lazy_update"]),
    ("adamw", &["beta1", "beta2", "epsilon", "correct_bias"]),
    ("adagrad", &["eps"]),
    ("rmsprop", &["gamma1", "gamma2", "epsilon", "centered", "clip_weights"]),
    ("adadelta", &["rho", "epsilon"]),
    ("ftrl", &["lamda1", "beta"]),
    ("adamax", &["beta1", "beta2"]),
    ("nadam", &["beta1", "beta2", "epsilon", "schedule_decay"]),
    ("lamb", &["beta1", "beta2", "epsilon", "lower_bound", "upper_bound", "bias_correction"]),
    ("lars", &["momentum", "lazy_update", "eta", "eps", "momentum_correction"]),
    ("test", &[]),
    ("custom", &["update", "params"]),
];

impl Optimizer {
    /// The optimizer of this name, in any case, with these options; those that are absent have MXNet's defaults.
    ///
    /// # Errors
    /// An unknown name or option, with all that there are; a value of the wrong kind or outside of its range.
    ///
    /// ```
    /// use syncline_optimizer::Optimizer;
    ///
    /// let sgd = Optimizer::create("SGD", &[("learning_rate", 0.1.into()), ("momentum", 0.9.into())])?;
    /// assert_eq!(sgd.method.name(), "sgd");
    /// let error = Optimizer::create("sgd", &[("momentun", 0.9.into())]).unwrap_err();
    /// assert!(error.to_string().starts_with("sgd has no option \"momentun\"; it has momentum, lazy_update, learning_rate"));
    /// # Ok::<(), syncline_optimizer::OptimizerError>(())
    /// ```
    pub fn create(name: &str, options: &[(&str, OptionValue)]) -> Result<Optimizer, OptimizerError> {
        let lower = name.to_lowercase();
        let Some((optimizer, own)) = KNOWN.into_iter().find(|(known, _)| *known == lower) else {
            return Err(OptimizerError::UnknownName { name: name.to_owned(), known: KNOWN.iter().map(|(known, _)| *known).collect() });
        };
        for (option, _) in options {
            if !own.contains(option) && !COMMON.contains(option) {
                let known = own.iter().chain(&COMMON).copied().collect();
                return Err(OptimizerError::UnknownOption { optimizer, option: (*option).to_owned(), known });
            }
        }
        let given = Given { optimizer, options };
        let (number, truth) = (|name, default| given.number(name, default), |name, default| given.truth(name, default));
        let method = match optimizer {
            "sgd" => Method::Sgd { momentum: number("momentum", 0.0)?, lazy_update: truth("lazy_update", true)? },
            "nag" => Method::Nag { momentum: number("momentum", 0.0)? },
            "signum" => Method::Signum { momentum: number("momentum", 0.9)?, wd_lh: number("wd_lh", 0.0)? },
            "ftml" => Method::Ftml { beta1: number("beta1", 0.6)?, beta2: number("beta2", 0.999)?, epsilon: number("epsilon", 1e-8)? },
            "dcasgd" => Method::Dcasgd { momentum: number("momentum", 0.0)?, lamda: number("lamda", 0.04)? },
            "sgld" => Method::Sgld { seed: given.whole("seed")? },
            "adam" => Method::Adam {
                beta1: number("beta1", 0.9)?,
                beta2: number("beta2", 0.999)?,
                epsilon: number("epsilon", 1e-8)?,
                lazy_update: truth("lazy_update", true)?,
            },
            "adamw" => Method::AdamW {
                beta1: number("beta1", 0.9)?,
                beta2: number("beta2", 0.999)?,
                epsilon: number("epsilon", 1e-8)?,
                correct_bias: truth("correct_bias", true)?,
            },
            "adagrad" => Method::AdaGrad { epsilon: number("eps", 1e-7)? },
            "rmsprop" => Method::RmsProp {
                gamma1: number("gamma1", 0.9)?,
                gamma2: number("gamma2", 0.9)?,
                epsilon: number("epsilon", 1e-8)?,
                centered: truth("centered", false)?,
                clip_weights: given.bound("clip_weights")?,
            },
            "adadelta" => Method::AdaDelta { rho: number("rho", 0.9)?, epsilon: number("epsilon", 1e-5)? },
            "ftrl" => Method::Ftrl { lamda1: number("lamda1", 0.01)?, beta: number("beta", 1.0)? },
            "adamax" => Method::Adamax { beta1: number("beta1", 0.9)?, beta2: number("beta2", 0.999)? },
            "nadam" => Method::Nadam {
                beta1: number("beta1", 0.9)?,
                beta2: number("beta2", 0.999)?,
                epsilon: number("epsilon", 1e-8)?,
                schedule_decay: number("schedule_decay", 0.004)?,
            },
            "lamb" => Method::Lamb {
                beta1: number("beta1", 0.9)?,
                beta2: number("beta2", 0.999)?,
                epsilon: number("epsilon", 1e-6)?,
                lower_bound: given.bound("lower_bound")?,
                upper_bound: given.bound("upper_bound")?,
                bias_correction: truth("bias_correction", true)?,
            },
            "lars" => Method::Lars {
                momentum: number("momentum", 0.0)?,
                eta: number("eta", 0.001)?,
                epsilon: number("eps", 0.0)?,
                momentum_correction: truth("momentum_correction", true)?,
                lazy_update: truth("lazy_update", true)?,
            },
            "custom" => Method::Custom { text: given.text("update")?, parameters: given.named("params")? },
            _ => Method::Test,
        };
        let settings = Settings {
            learning_rate: given.maybe("learning_rate")?,
            wd: number("wd", 0.0)?,
            rescale_grad: number("rescale_grad", 1.0)?,
            clip_gradient: given.bound("clip_gradient")?,
            schedule: given.schedule()?,
            begin_num_update: given.whole("begin_num_update")?,
            multi_precision: truth("multi_precision", false)?,
            lr_mult: given.by_key("lr_mult")?,
            wd_mult: given.by_key("wd_mult")?,
        };
        Optimizer::new(method, settings)
    }
}

struct Given<'a> {
    optimizer: &'static str,
    options: &'a [(&'a str, OptionValue)],
}

impl Given<'_> {
    fn find(&self, name: &str) -> Option<&OptionValue> {
        let found = self.options.iter().rev().find(|(option, _)| *option == name).map(|(_, value)| value);
        found.filter(|value| **value != OptionValue::Nothing)
    }

    fn refuse<T>(&self, option: &str, found: &OptionValue, must: &'static str) -> Result<T, OptimizerError> {
        let found = match found {
            OptionValue::Number(number) => number.to_string(),
            OptionValue::Truth(truth) => truth.to_string(),
            OptionValue::Text(text) => format!("{text:?}"),
            other => format!("{other:?}"),
        };
        Err(OptimizerError::BadOption { optimizer: self.optimizer, option: option.to_owned(), found, must })
    }

    fn maybe(&self, name: &str) -> Result<Option<f64>, OptimizerError> {
        match self.find(name) {
            None => Ok(None),
            Some(OptionValue::Number(number)) => Ok(Some(*number)),
            Some(OptionValue::Truth(truth)) => Ok(Some(f64::from(u8::from(*truth)))),
            Some(other) => self.refuse(name, other, "a number"),
        }
    }

    fn number(&self, name: &str, default: f64) -> Result<f64, OptimizerError> {
        Ok(self.maybe(name)?.unwrap_or(default))
    }

    /// A limit; 0 or less is none, as MXNet has it.
    fn bound(&self, name: &str) -> Result<Option<f64>, OptimizerError> {
        Ok(self.maybe(name)?.filter(|bound| *bound > 0.0 || bound.is_nan()))
    }

    fn truth(&self, name: &str, default: bool) -> Result<bool, OptimizerError> {
        match self.find(name) {
            None => Ok(default),
            Some(OptionValue::Truth(truth)) => Ok(*truth),
            Some(OptionValue::Number(number)) => Ok(*number != 0.0),
            Some(other) => self.refuse(name, other, "true or false"),
        }
    }

    fn whole(&self, name: &str) -> Result<u64, OptimizerError> {
        const LARGEST: f64 = (1u64 << 53) as f64;
        match self.maybe(name)? {
            None => Ok(0),
            Some(number) if (0.0..=LARGEST).contains(&number) && number.fract() == 0.0 => Ok(number as u64),
            Some(number) => self.refuse(name, &OptionValue::Number(number), "a whole number from 0 to 2^53"),
        }
    }

    fn text(&self, name: &str) -> Result<String, OptimizerError> {
        match self.find(name) {
            Some(OptionValue::Text(text)) => Ok(text.clone()),
            other => self.refuse(name, other.unwrap_or(&OptionValue::Nothing), "the text of an update"),
        }
    }

    fn schedule(&self) -> Result<Option<Schedule>, OptimizerError> {
        match self.find("lr_scheduler") {
            None => Ok(None),
            Some(OptionValue::Schedule(schedule)) => Ok(Some(schedule.clone())),
            Some(other) => self.refuse("lr_scheduler", other, "a schedule"),
        }
    }

    fn by_key(&self, name: &str) -> Result<BTreeMap<Key, f64>, OptimizerError> {
        match self.find(name) {
            None => Ok(BTreeMap::new()),
            Some(OptionValue::Numbers(numbers)) => Ok(numbers.clone()),
            Some(other) => self.refuse(name, other, "numbers by key"),
        }
    }

    fn named(&self, name: &str) -> Result<BTreeMap<String, f64>, OptimizerError> {
        Ok(self.by_key(name)?.into_iter().map(|(key, number)| (key.to_string(), number)).collect())
    }
}
