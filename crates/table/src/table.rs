//! One table as a worker holds it.

use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use crate::{AddOptions, Spec};

/// A handle on a table. Clones are handles on the same table; any number of threads may use them.
#[derive(Debug, Clone)]
pub struct Table {
    spec: Spec,
}

impl Table {
    /// What was agreed on.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number every worker knows the table by, in order of creation.
    pub fn id(&self) -> u32 {
        0
    }

    /// The table's name, given or made up.
    pub fn name(&self) -> &str {
        ""
    }

    /// Adds `delta`, raw bytes of the table's dtype: the whole table, or one row per id of `rows` in their order.
    ///
    /// Returns when the delta is taken over (the caller may change it again), or with `wait` when it is applied.
    pub fn add(&self, _delta: &[u8], _rows: Option<&[i64]>, _options: &AddOptions, _wait: bool, _by: Deadline) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }

    /// Fetches the whole table, or one row per id of `rows` in their order, into `out`.
    pub fn get(&self, _out: &mut [u8], _rows: Option<&[i64]>, _by: Deadline) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }

    /// Adds and fetches in one pass.
    pub fn add_get(
        &self,
        _delta: &[u8],
        _out: &mut [u8],
        _rows: Option<&[i64]>,
        _options: &AddOptions,
        _by: Deadline,
    ) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }

    /// Begins to fetch; the result waits in what is returned.
    pub fn get_async(&self, _rows: Option<Vec<i64>>) -> Result<Pending, Error> {
        unimplemented!("tables are not here yet")
    }

    /// Writes into `out`, which holds the whole table, the rows that others changed since this worker's last call, and
    /// returns their ids in order. The first call fetches every row.
    pub fn get_changed(&self, _out: &mut [u8], _by: Deadline) -> Result<Vec<i64>, Error> {
        unimplemented!("tables are not here yet")
    }

    /// Adds one value per key of a key-value table.
    pub fn add_keys(&self, _keys: &[i64], _values: &[u8], _wait: bool, _by: Deadline) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }

    /// Fetches one value per key into `out`; keys never added to read as zero.
    pub fn get_keys(&self, _keys: &[i64], _out: &mut [u8], _by: Deadline) -> Result<(), Error> {
        unimplemented!("tables are not here yet")
    }

    /// How many adds each worker has made, as far as this process knows.
    pub fn clocks(&self) -> Vec<u64> {
        unimplemented!("tables are not here yet")
    }
}

/// A get that is under way.
#[derive(Debug)]
pub struct Pending {}

impl Pending {
    /// Whether [`wait`](Pending::wait) would return at once.
    pub fn done(&self) -> bool {
        unimplemented!("tables are not here yet")
    }

    /// The bytes fetched. May be called again: the result stays.
    pub fn wait(&self, _timeout: Option<Duration>, _by: Deadline) -> Result<std::sync::Arc<Vec<u8>>, Error> {
        unimplemented!("tables are not here yet")
    }
}
