//! One key of a store: what it is, where it is kept, and what is under way.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

use syncline_cluster::{Deadline, Error};

use crate::compression::{Compression, Residuals, sum_of_devices};
use crate::gradient::Gradient;
use crate::memory::{MemoryKey, Rule};
use crate::queue::Line;
use crate::value::{KeySpec, Value};

pub(crate) struct Slot {
    pub(crate) spec: KeySpec,
    pub(crate) held: Held,
    /// Calls of this key in the background.
    pub(crate) line: Arc<Line>,
    pub(crate) residuals: Residuals,
    /// Whether somebody was told that pulls leave row-sparse outputs alone.
    pub(crate) warned: AtomicBool,
    troubled: AtomicBool,
    trouble: Mutex<Option<Error>>,
}

/// Where a key is kept.
pub(crate) enum Held {
    Memory { key: MemoryKey, rule: Arc<Rule> },
}

impl Slot {
    pub(crate) fn new(spec: KeySpec, held: Held) -> Slot {
        Slot {
            spec,
            held,
            line: Arc::default(),
            residuals: Residuals::default(),
            warned: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// Refuses a push that could not be applied, whatever it brings.
    pub(crate) fn ready_to_push(&self, operation: &str) -> Result<(), Error> {
        match &self.held {
            Held::Memory { rule, .. } => rule.check(operation, &self.spec),
        }
    }

    /// Applies the values of one push, checked before.
    pub(crate) fn push(&self, values: &[Value<'_>], compression: Option<Compression>, _by: Deadline) -> Result<(), Error> {
        let spec = &self.spec;
        match &self.held {
            Held::Memory { key, rule } => {
                let gradient = match compression {
                    Some(compression) => {
                        let values: Vec<Gradient<'_>> =
                            values.iter().map(|value| Gradient::sum(spec, std::slice::from_ref(value))).collect();
                        Gradient::Dense(Cow::Owned(sum_of_devices(compression.quantizer, spec, &self.residuals, &values)))
                    }
                    None => Gradient::sum(spec, values),
                };
                key.push(spec, rule, gradient)
            }
        }
    }

    /// Copies the stored value into `out`, which has its size.
    pub(crate) fn pull(&self, out: &mut [u8], _compression: Option<Compression>, _by: Deadline) -> Result<(), Error> {
        match &self.held {
            Held::Memory { key, .. } => {
                key.pull(out);
                Ok(())
            }
        }
    }

    /// Copies rows, sorted and checked before, into `out`.
    pub(crate) fn pull_rows(&self, ids: &[i64], out: &mut [u8], _by: Deadline) -> Result<(), Error> {
        match &self.held {
            Held::Memory { key, .. } => {
                key.pull_rows(&self.spec, ids, out);
                Ok(())
            }
        }
    }

    /// Keeps the error of a push in the background for the next pull.
    pub(crate) fn complain(&self, error: Error) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.troubled.store(true, Release);
    }

    /// The error of an earlier push, once.
    pub(crate) fn take_trouble(&self) -> Result<(), Error> {
        if !self.troubled.load(Acquire) {
            return Ok(());
        }
        self.troubled.store(false, Release);
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}
