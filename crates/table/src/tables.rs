//! All tables of one job, as this process sees them.

use std::path::Path;
use std::sync::Arc;

use syncline_cluster::{Deadline, Error, Job};
use syncline_tensor::DType;
use syncline_tensor::kernels::ReduceOp;

use crate::{Spec, Table};

/// The tables of a job. Making, saving and loading them is collective over its workers.
#[derive(Debug, Clone)]
pub struct Tables {
    _job: Arc<Job>,
}

impl Tables {
    /// The tables of `job`: none yet. On a dedicated server this starts to serve.
    pub fn new(job: Arc<Job>) -> Tables {
        Tables { _job: job }
    }

    /// Makes a table. Every worker calls it in the same order with the same `spec`; worker 0's `initial` counts.
    ///
    /// `site` says where the caller stands (file and line), for the error that names two calls that differ.
    /// Returns when the initial value is in place everywhere.
    pub fn create(&self, _spec: Spec, _initial: Option<&[u8]>, _site: &str, _by: Deadline) -> Result<Table, Error> {
        unimplemented!("tables are not here yet")
    }

    /// Returns when every add this process issued is applied.
    pub fn flush(&self, _by: Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// Flushes and says that this worker is done: nobody's clock waits for it any more.
    pub fn finish(&self, _by: Deadline) -> Result<(), Error> {
        Ok(())
    }

    /// Writes all tables with their updater states below `path`.
    pub fn save(&self, _path: &Path, _by: Deadline) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }

    /// Fills all tables from what [`save`](Tables::save) wrote, by any number of servers and workers.
    pub fn load(&self, _path: &Path, _by: Deadline) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }

    /// Combines `array` over all workers, in place and in order of worker, without servers.
    pub fn aggregate(&self, _array: &mut [u8], _dtype: DType, _op: ReduceOp, _by: Deadline) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }
}
