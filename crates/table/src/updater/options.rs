//! The numbers that travel with an add.

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;
use syncline_tensor::kernels::Step;

use super::Updater;

/// What travels with an add; absent ones take the updater's defaults, and those an updater has no use for are ignored.
///
/// ```
/// use syncline_table::{AddOptions, Updater};
///
/// let options = AddOptions { learning_rate: Some(0.1), ..AddOptions::default() };
/// assert!(options.check(Updater::Adagrad).is_ok());
/// let options = AddOptions { momentum: Some(1.0), ..options };
/// let error = options.check(Updater::MomentumSgd).unwrap_err();
/// assert!(error.to_string().contains("momentum"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct AddOptions {
    /// The learning rate that is already inside the delta; 0.01 when absent.
    pub learning_rate: Option<f32>,
    /// Weight of the past; absent, 0 for `momentum_sgd` and 0.95 for the running mean of `dcasgda`.
    pub momentum: Option<f32>,
    /// Step of AdaGrad; 0.1 when absent.
    pub rho: Option<f32>,
    /// Strength of the delay compensation; 0.1 when absent.
    pub lambda: Option<f32>,
}

const LEARNING_RATE: f32 = 0.01;
const RHO: f32 = 0.1;
const LAMBDA: f32 = 0.1;
const MOMENTUM: f32 = 0.0;
const MOMENTUM_OF_SQUARES: f32 = 0.95;

impl AddOptions {
    /// Refuses numbers with which this updater would ruin the table, before anything changes.
    ///
    /// # Errors
    /// `Configuration` naming the option: a learning rate or rho that is not above 0, a momentum outside of [0, 1), a
    /// negative lambda, or any of them infinite or NaN. Options that the updater does not use are not looked at.
    pub fn check(&self, updater: Updater) -> Result<(), Error> {
        let above_zero = |number: f32| number > 0.0 && number.is_finite();
        let not_negative = |number: f32| number >= 0.0 && number.is_finite();
        let fraction = |number: f32| (0.0..1.0).contains(&number);
        let refuse = |name: &str, given: Option<f32>, fits: &dyn Fn(f32) -> bool, range: &str| match given {
            Some(number) if !fits(number) => {
                Err(Error::Configuration { detail: format!("add: {name} {number} makes no sense to updater `{updater}`\nhint: {range}") })
            }
            _ => Ok(()),
        };
        let learning_rate = || refuse("learning_rate", self.learning_rate, &above_zero, "it must be finite and above 0");
        let momentum = || refuse("momentum", self.momentum, &fraction, "it must be at least 0 and below 1");
        let rho = || refuse("rho", self.rho, &above_zero, "it must be finite and above 0");
        let lambda = || refuse("lambda", self.lambda, &not_negative, "it must be finite and not negative");
        match updater {
            Updater::Add | Updater::Sgd | Updater::Gradient => Ok(()),
            Updater::MomentumSgd => momentum(),
            Updater::Adagrad => learning_rate().and_then(|()| rho()),
            Updater::Dcasgd => learning_rate().and_then(|()| lambda()),
            Updater::Dcasgda => learning_rate().and_then(|()| lambda()).and_then(|()| momentum()),
        }
    }

    /// As an outbox keeps them: the bits of each number, NaN for absent ones.
    pub(crate) fn to_bits(self) -> [u32; 4] {
        [self.learning_rate, self.momentum, self.rho, self.lambda].map(|number| number.unwrap_or(f32::NAN).to_bits())
    }

    /// From an outbox.
    pub(crate) fn from_bits(bits: [u32; 4]) -> AddOptions {
        let [learning_rate, momentum, rho, lambda] = bits.map(|bits| Some(f32::from_bits(bits)).filter(|number| !number.is_nan()));
        AddOptions { learning_rate, momentum, rho, lambda }
    }

    /// The step that a stateful updater makes with these options.
    pub(super) fn step(&self, updater: Updater) -> Option<Step> {
        let learning_rate = self.learning_rate.unwrap_or(LEARNING_RATE).into();
        let lambda = self.lambda.unwrap_or(LAMBDA).into();
        match updater {
            Updater::Add | Updater::Sgd | Updater::Gradient => None,
            Updater::MomentumSgd => Some(Step::Momentum { momentum: self.momentum.unwrap_or(MOMENTUM).into() }),
            Updater::Adagrad => Some(Step::Adagrad { learning_rate, rho: self.rho.unwrap_or(RHO).into() }),
            Updater::Dcasgd => Some(Step::Compensated { learning_rate, lambda }),
            Updater::Dcasgda => {
                let momentum = self.momentum.unwrap_or(MOMENTUM_OF_SQUARES).into();
                Some(Step::AdaptivelyCompensated { learning_rate, lambda, momentum })
            }
        }
    }
}
