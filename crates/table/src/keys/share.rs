//! One server's part of a key-value table.
//!
//! One lock around map and clocks: an add is one pass over its keys, and whoever waits for a round sleeps on a condition.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};
use syncline_tensor::DType;

use super::Rounds;
use super::values::Values;
use crate::share::{LaneInfo, Selection, Share};
use crate::spread::Reach;
use crate::{AddOptions, Consistency};

/// The keys of one server. Ids are keys; there is no "all".
pub(crate) struct KeyShare {
    name: String,
    workers: Vec<u32>,
    dtype: DType,
    state: Mutex<State>,
    changed: Condvar,
    reach: Arc<dyn Reach>,
}

/// Keys and their values.
pub(crate) type Pairs = (Vec<i64>, Vec<u8>);

struct State {
    rounds: Rounds<Pairs>,
    values: Values,
}

impl State {
    fn apply(&mut self, ready: Vec<(u32, Pairs)>) {
        for (_, (keys, values)) in ready {
            self.values.add(&keys, &values);
        }
    }
}

impl KeyShare {
    /// An empty part of the table that errors call `name`, for the workers with these ranks (by worker id).
    pub(crate) fn new(name: String, dtype: DType, consistency: Consistency, workers: Vec<u32>, reach: Arc<dyn Reach>) -> KeyShare {
        let state = State { rounds: Rounds::new(consistency, workers.len()), values: Values::new(dtype) };
        KeyShare { name, workers, dtype, state: Mutex::new(state), changed: Condvar::new(), reach }
    }

    /// All pairs, by key.
    pub(crate) fn export(&self) -> Pairs {
        self.lock().values.export()
    }

    /// These pairs and no others.
    pub(crate) fn import(&self, keys: &[i64], values: &[u8]) {
        self.lock().values.import(keys, values);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // a panic in a kernel leaves numbers, not lengths, in doubt
    }

    /// Waits until nobody is missing.
    fn wait(&self, operation: &str, by: Deadline, missing: impl Fn(&State) -> Vec<u32>) -> Result<MutexGuard<'_, State>, Error> {
        const NAP: Duration = Duration::from_millis(100);
        let mut state = self.lock();
        let mut late = missing(&state);
        if late.is_empty() {
            return Ok(state);
        }
        let (operation, started) = (format!("{operation} of {}", self.name), Instant::now());
        loop {
            let ranks: Vec<u32> = late.iter().map(|worker| self.workers[*worker as usize]).collect();
            drop(state); // naming a culprit takes a moment
            if let Some(error) = self.reach.hopeless(&operation, &ranks, started) {
                return Err(error);
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation, waited: started.elapsed() });
            }
            if by.expired() {
                return Err(self.reach.late(&operation, &ranks, started));
            }
            state = self.lock();
            late = missing(&state);
            if late.is_empty() {
                return Ok(state);
            }
            state = self.changed.wait_timeout(state, by.slice(NAP)).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            late = missing(&state);
            if late.is_empty() {
                return Ok(state);
            }
        }
    }

    fn unknown(&self, operation: &str, detail: &str) -> Error {
        Error::UnknownKey { operation: format!("{operation} of {}", self.name), detail: detail.into() }
    }
}

impl Share for KeyShare {
    fn rows(&self) -> Range<u64> {
        0..0
    }

    fn stage(
        &self,
        worker: u32,
        sequence: u64,
        rows: Selection<'_>,
        _options: &AddOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        _by: Deadline,
    ) -> Result<(), Error> {
        let Selection::Rows(keys) = rows else {
            return Err(self.unknown("add", "a key-value table needs a list of keys"));
        };
        let mut values = vec![0; keys.len() * self.dtype.size()];
        if !values.is_empty() {
            fill(&mut values)?;
        }
        let staged = self.lock().rounds.stage(worker, sequence, (keys.to_vec(), values));
        staged.map_err(|detail| Error::ContractMismatch { operation: format!("add of {}", self.name), detail })
    }

    fn publish(&self, worker: u32, sequence: u64) -> Result<(), Error> {
        let mut state = self.lock();
        let ready = state.rounds.publish(worker, sequence);
        state.apply(ready);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn discard(&self, worker: u32, sequence: u64) {
        self.lock().rounds.discard(worker, sequence);
    }

    fn published(&self, worker: u32) -> u64 {
        self.lock().rounds.published(worker)
    }

    fn settle(&self, worker: u32, sequence: u64, by: Deadline) -> Result<(), Error> {
        self.wait("flush", by, |state| state.rounds.missing_for_settle(worker, sequence)).map(drop)
    }

    fn read(
        &self,
        _worker: u32,
        own_adds: u64,
        rows: Selection<'_>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error> {
        let Selection::Rows(keys) = rows else {
            return Err(self.unknown("get", "a key-value table needs a list of keys"));
        };
        let mut out = Vec::new();
        self.wait("get", by, |state| state.rounds.missing_for_get(own_adds))?.values.get(keys, &mut out);
        sink(&out)
    }

    fn read_changed(&self, _worker: u32, _own_adds: u64, _received: Option<u64>, _by: Deadline) -> Result<Pairs, Error> {
        Err(self.unknown("get_changed", "a key-value table has no rows"))
    }

    fn finish(&self, worker: u32) {
        let mut state = self.lock();
        let ready = state.rounds.finish(worker);
        state.apply(ready);
        drop(state);
        self.changed.notify_all();
    }

    fn unfinished(&self) -> Vec<u32> {
        self.lock().rounds.unfinished()
    }

    fn lanes(&self) -> Vec<LaneInfo> {
        vec![LaneInfo { name: "value".into(), dtype: self.dtype, row_bytes: self.dtype.size() }]
    }

    fn read_lane(&self, _lane: usize, _first_row: u64, _out: &mut [u8], _by: Deadline) -> Result<(), Error> {
        Err(self.unknown("save", "a key-value table is exported as pairs"))
    }

    fn write_lane(&self, _lane: usize, _first_row: u64, _bytes: &[u8], _by: Deadline) -> Result<(), Error> {
        Err(self.unknown("load", "a key-value table is imported as pairs"))
    }
}
