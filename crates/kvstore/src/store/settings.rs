//! What a store does with pushes: updater, optimizer, compression, and what servers are told of it.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{Optimizer, OptimizerError};

use super::{Home, KvStore};
use crate::compression::Compression;
use crate::memory::{Updater, not_updating};

impl KvStore {
    /// Lets a function decide what a push does, or, without one, lets pushes replace what is stored. Local stores only.
    ///
    /// # Errors
    /// `Configuration` on a distributed store: functions do not travel.
    pub fn set_updater(&self, updater: Option<Updater>) -> Result<(), Error> {
        not_updating("set_updater")?;
        match &self.shared.home {
            Home::Memory(rule) => {
                rule.set_updater(updater);
                Ok(())
            }
            Home::Job(_) => {
                let hint = "set_optimizer with a known optimizer, or with a formula of your own: the optimizer `custom`";
                let detail =
                    format!("set_updater: a function cannot travel to the servers of a {} store\nhint: {hint}", self.kind().name());
                Err(Error::Configuration { detail })
            }
        }
    }

    /// Lets an optimizer decide what a push does; states begin anew. One worker's call is enough in a distributed store, and the newest counts.
    pub fn set_optimizer(&self, optimizer: Optimizer, by: Deadline) -> Result<(), Error> {
        not_updating("set_optimizer")?;
        match &self.shared.home {
            Home::Memory(rule) => {
                rule.set_optimizer(optimizer);
                Ok(())
            }
            Home::Job(job) => {
                self.shared.check_optimizer("set_optimizer", &optimizer)?;
                job.set_optimizer(optimizer, by)
            }
        }
    }

    /// The newest optimizer, whoever set it.
    pub fn optimizer(&self, by: Deadline) -> Result<Option<Optimizer>, Error> {
        match &self.shared.home {
            Home::Memory(rule) => Ok(rule.optimizer()),
            Home::Job(job) => job.optimizer(by),
        }
    }

    /// Changes the learning rate from now on; states stay.
    pub fn set_learning_rate(&self, rate: f64, by: Deadline) -> Result<(), Error> {
        self.change_optimizer("set_learning_rate", by, |optimizer| optimizer.set_learning_rate(rate))
    }

    /// Changes numbers of the optimizer; states stay.
    pub fn change_optimizer(
        &self,
        operation: &str,
        by: Deadline,
        change: impl FnOnce(&mut Optimizer) -> Result<(), OptimizerError>,
    ) -> Result<(), Error> {
        not_updating(operation)?;
        let refused = |detail: String| Error::Configuration { detail: format!("{operation}: {detail}") };
        match &self.shared.home {
            Home::Memory(rule) => rule.change(|optimizer| match optimizer {
                Some(optimizer) => change(optimizer).map_err(|error| refused(error.to_string())),
                None => Err(refused("there is no optimizer\nhint: call set_optimizer first".into())),
            }),
            Home::Job(job) => job.change_optimizer(operation, by, change),
        }
    }

    /// Makes pushes smaller from now on. Each worker of a distributed store sets its own side.
    ///
    /// # Errors
    /// `Configuration` on stores that sum in this process's memory only.
    pub fn set_gradient_compression(&self, compression: Compression) -> Result<(), Error> {
        not_updating("set_gradient_compression")?;
        if !self.kind().is_distributed() && !self.kind().is_device() {
            let detail = format!("Gradient compression is not supported for this type of kvstore ({})", self.kind().name());
            return Err(Error::Configuration { detail });
        }
        *self.shared.compression.write().unwrap_or_else(PoisonError::into_inner) = Some(compression);
        self.shared.compresses.store(true, Relaxed);
        Ok(())
    }
}
