//! One key of a store: what it is, where it is kept, and what is under way.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};

use syncline_cluster::{Deadline, Error};
use syncline_tensor::DType;

use crate::compression::{Compression, Residuals, sum_of_devices};
use crate::distributed::TableKey;
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

/// How a value travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) compression: Option<Compression>,
    /// Among frames that wait for the same way; none takes no turns.
    pub(crate) priority: Option<i32>,
    pub(crate) by: Deadline,
}

/// Where a key is kept.
pub(crate) enum Held {
    Memory { key: MemoryKey, rule: Arc<Rule> },
    Table(TableKey),
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
            Held::Table(table) => table.ready_to_push(operation),
        }
    }

    /// Refuses to be pulled by rows where it was not initialised with any.
    pub(crate) fn has_rows(&self, operation: &str) -> Result<(), Error> {
        if self.spec.sparse {
            return Ok(());
        }
        let key = &self.spec.key;
        let detail = format!("{operation}: key {key} was not initialised with a row-sparse value\nhint: `pull` gets all of it");
        Err(Error::Configuration { detail })
    }

    /// Applies the values of one push, checked before.
    pub(crate) fn push(&self, values: &[Value<'_>], how: How) -> Result<(), Error> {
        let spec = &self.spec;
        match &self.held {
            Held::Memory { key, rule } => {
                let gradient = match how.compression {
                    Some(compression) => {
                        let values: Vec<Gradient<'_>> =
                            values.iter().map(|value| Gradient::sum(spec, std::slice::from_ref(value))).collect();
                        Gradient::Dense(Cow::Owned(sum_of_devices(compression.quantizer, spec, &self.residuals, &values)))
                    }
                    None => Gradient::sum(spec, values),
                };
                key.push(spec, rule, gradient)
            }
            Held::Table(table) => {
                if let ([Value::Dense(dense)], None) = (values, how.compression) {
                    return table.push_whole(dense.bytes(), how.priority, how.by);
                }
                let gradient = Gradient::sum(spec, values);
                match how.compression {
                    Some(Compression { quantizer, .. }) => {
                        let words = self.residuals.encode(quantizer, spec, 0, &gradient.into_dense(spec));
                        table.push_words(quantizer, &words, how.priority, how.by)
                    }
                    None => table.push(spec, gradient, how.priority, how.by),
                }
            }
        }
    }

    /// Copies the stored value into `out`, which has its size.
    #[inline]
    pub(crate) fn pull(&self, out: &mut [u8], how: How) -> Result<(), Error> {
        match &self.held {
            Held::Memory { key, .. } => {
                key.pull(out);
                Ok(())
            }
            Held::Table(table) => {
                let code = how.compression.filter(|compression| compression.pulls && self.spec.dtype == DType::F32);
                table.pull(out, code.map(|compression| compression.quantizer), how.priority, how.by)
            }
        }
    }

    /// Copies rows, sorted and checked before, into `out`.
    #[inline]
    pub(crate) fn pull_rows(&self, ids: &[i64], out: &mut [u8], how: How) -> Result<(), Error> {
        match &self.held {
            Held::Memory { key, .. } => {
                key.pull_rows(&self.spec, ids, out);
                Ok(())
            }
            Held::Table(table) => table.pull_rows(ids, out, how.priority, how.by),
        }
    }

    /// A push and a pull in one pass, where that is possible; otherwise nothing has happened.
    pub(crate) fn push_pull(&self, values: &[Value<'_>], out: &mut [u8], how: How) -> Result<bool, Error> {
        match (&self.held, values) {
            (Held::Table(table), [Value::Dense(dense)]) if how.compression.is_none() => {
                table.push_pull(dense.bytes(), out, how.by)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Keeps the error of a push in the background for the next pull.
    pub(crate) fn complain(&self, error: Error) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.troubled.store(true, Release);
    }

    /// The error of an earlier push, once.
    #[inline]
    pub(crate) fn take_trouble(&self) -> Result<(), Error> {
        if self.troubled.load(Acquire) { self.trouble() } else { Ok(()) }
    }

    #[cold]
    fn trouble(&self) -> Result<(), Error> {
        self.troubled.store(false, Release);
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}
