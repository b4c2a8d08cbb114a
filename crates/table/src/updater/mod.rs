//! What an add does to the values it meets.

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;

/// The rule that turns a delta into a change of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Updater {
    /// x += d
    Add,
    /// x −= d
    Sgd,
    /// s = m·s + (1−m)·d; x −= s
    MomentumSgd,
    /// h += g²; x −= ρ/√(h+ε)·g with g = d/lr and a history h per worker
    Adagrad,
    /// Delay-compensated: d + λ·d²/lr·(x − what this worker last got)
    Dcasgd,
    /// The same with λ scaled by the running mean of squares
    Dcasgda,
}

impl Updater {
    /// By the names users write; `default` is `add`.
    pub fn from_name(name: &str) -> Result<Updater, Error> {
        Ok(match name {
            "add" | "default" => Updater::Add,
            "sgd" => Updater::Sgd,
            "momentum_sgd" => Updater::MomentumSgd,
            "adagrad" => Updater::Adagrad,
            "dcasgd" => Updater::Dcasgd,
            "dcasgda" => Updater::Dcasgda,
            other => {
                return Err(Error::Configuration {
                    detail: format!("updater `{other}` is unknown\nhint: add, sgd, momentum_sgd, adagrad, dcasgd or dcasgda"),
                });
            }
        })
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Updater::Add => "add",
            Updater::Sgd => "sgd",
            Updater::MomentumSgd => "momentum_sgd",
            Updater::Adagrad => "adagrad",
            Updater::Dcasgd => "dcasgd",
            Updater::Dcasgda => "dcasgda",
        }
    }
}

impl std::fmt::Display for Updater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What travels with an add; absent ones take the updater's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct AddOptions {
    /// The learning rate that is already inside the delta.
    pub learning_rate: Option<f32>,
    /// Weight of the past.
    pub momentum: Option<f32>,
    /// Step of AdaGrad.
    pub rho: Option<f32>,
    /// Strength of the delay compensation.
    pub lambda: Option<f32>,
}
