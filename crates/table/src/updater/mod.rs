//! What an add does to the values it meets.
//!
//! | updater | reads and writes per element | options, and their values when absent |
//! |---|---|---|
//! | `add` | value | |
//! | `sgd` | value | |
//! | `momentum_sgd` | value, momentum | momentum 0 (which is plain `sgd`) |
//! | `adagrad` | value, the worker's history | learning_rate 0.01, rho 0.1 |
//! | `dcasgd` | value, the worker's backup (read only) | learning_rate 0.01, lambda 0.1 |
//! | `gradient` | value, and what its optimizer keeps: see `gradient` | none |
//! | `dcasgda` | value, the worker's backup (read only), mean of squares | learning_rate 0.01, lambda 0.1, momentum 0.95 |
//!
//! This folder knows one block of memory and nothing of locks, workers in flight or files: [`Updater::state_lanes`]
//! says which numbers a table keeps beside its values, and `block` computes new ones from old ones. The README beside
//! this file has the mathematics.

mod block;
mod options;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;
use syncline_tensor::DType;

use crate::gradient::{self, wide as wide_of_gradients};
pub(crate) use block::{Block, apply, apply_in_place, apply_into_both};
pub use options::AddOptions;

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
    /// Delay-compensated: x −= d + λ·d²/lr·(x − what this worker last got)
    Dcasgd,
    /// The same with λ divided by the root of the running mean of squares
    Dcasgda,
    /// Adds are gradients; the rule of the table's family says what they do
    Gradient,
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
            "gradient" => Updater::Gradient,
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
            Updater::Gradient => "gradient",
        }
    }
}

impl std::fmt::Display for Updater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The extra numbers an updater keeps beside each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateLane {
    /// As checkpoints call it: `momentum`, `history.0`, …
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// The only worker whose adds touch it; none if all share it.
    pub(crate) of_worker: Option<u32>,
    /// Whether it begins as a copy of the values; otherwise as zeros.
    pub(crate) starts_as_value: bool,
}

impl Updater {
    /// The lanes of a table of `dtype` with so many workers. The indices of the other methods count in this list.
    ///
    /// Half-precision tables keep their states in f32, where small changes last; a backup is what a worker got, so it
    /// has the table's dtype.
    pub(crate) fn state_lanes(self, dtype: DType, workers: u32) -> Vec<StateLane> {
        let wide = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
        let shared = |name: &str| StateLane { name: name.to_owned(), dtype: wide, of_worker: None, starts_as_value: false };
        let history =
            |worker| StateLane { name: format!("history.{worker}"), dtype: wide, of_worker: Some(worker), starts_as_value: false };
        let backup = |worker| StateLane { name: format!("backup.{worker}"), dtype, of_worker: Some(worker), starts_as_value: true };
        match self {
            Updater::Add | Updater::Sgd => Vec::new(),
            Updater::MomentumSgd => vec![shared("momentum")],
            Updater::Adagrad => (0..workers).map(history).collect(),
            Updater::Dcasgd => (0..workers).map(backup).collect(),
            Updater::Dcasgda => (0..workers).map(backup).chain([shared("mean_square")]).collect(),
            // Room for those of any optimizer; which they are is the rule's business.
            Updater::Gradient => wide_of_gradients(dtype)
                .map(|dtype| {
                    let lane = |index| StateLane { name: format!("state.{index}"), dtype, of_worker: None, starts_as_value: false };
                    (0..gradient::LANES).map(lane).collect()
                })
                .unwrap_or_default(),
        }
    }

    /// The lanes that an add by `worker` reads or writes, in the order in which [`Block`] wants them, and how many.
    pub(crate) fn lanes_touched(self, worker: u32, workers: u32) -> ([usize; 2], usize) {
        debug_assert!(worker < workers, "worker {worker} of {workers}");
        match self {
            Updater::Add | Updater::Sgd | Updater::Gradient => ([0, 0], 0),
            Updater::MomentumSgd => ([0, 0], 1),
            Updater::Adagrad | Updater::Dcasgd => ([worker as usize, 0], 1),
            Updater::Dcasgda => ([worker as usize, workers as usize], 2),
        }
    }

    /// The lane into which a get by `worker` must copy what it got, for updaters that compensate delays.
    pub(crate) fn backup_lane(self, worker: u32, workers: u32) -> Option<usize> {
        debug_assert!(worker < workers, "worker {worker} of {workers}");
        matches!(self, Updater::Dcasgd | Updater::Dcasgda).then_some(worker as usize)
    }

    /// Whether values alone are enough, so that adds of several workers may be applied to a block in one pass.
    pub(crate) fn is_stateless(self) -> bool {
        matches!(self, Updater::Add | Updater::Sgd)
    }
}
