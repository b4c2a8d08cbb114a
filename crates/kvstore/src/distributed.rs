//! Keys of a job: each is a table whose adds are gradients, made by name, and all of a store follow one rule.
//!
//! Tables do the work: adds are whole and counted once whoever dies, a round sums in order of worker, a get contains the worker's own adds. This file names
//! and places them, and says what a push and a pull are in their words.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use syncline_cluster::{Deadline, Error, Job};
use syncline_collective::Collectives;
use syncline_optimizer::{Key, Optimizer, OptimizerError};
use syncline_table::{AddOptions, Consistency, Placement, Spec, Table, Tables, Updater};
use syncline_tensor::kernels::quantize::Quantizer;
use syncline_wire::Fingerprint;

use crate::Kind;
use crate::gradient::Gradient;
use crate::value::{KeySpec, Value};

/// What a distributed store stands on.
#[derive(Clone, Debug)]
pub struct Member {
    /// The job.
    pub job: Arc<Job>,
    /// Its tables.
    pub tables: Tables,
    /// The collective operations of its workers.
    pub collectives: Collectives,
    /// The number of this store among those of the job, from 1: all workers make them in the same order.
    pub number: u32,
    /// Arrays of fewer numbers live whole with one server.
    pub whole_below: u64,
}

impl Member {
    /// What MXNet takes for a small array.
    pub const WHOLE_BELOW: u64 = 1_000_000;
}

pub(crate) struct Distributed {
    pub(crate) member: Member,
    kind: Kind,
    pub(crate) worker: u32,
    pub(crate) workers: u32,
    /// How often this worker set an optimizer. Held while one is set: changes of one worker do not cross.
    calls: Mutex<u32>,
}

/// One key.
pub(crate) struct TableKey {
    table: Table,
}

impl Distributed {
    /// Joins the store. Every worker does, and all must want the same.
    pub(crate) fn join(kind: Kind, member: Member, site: &str, by: Deadline) -> Result<Distributed, Error> {
        let workers = member.job.topology().workers();
        let Some(worker) = workers.iter().position(|rank| *rank == member.job.rank()) else {
            return Err(Error::Configuration {
                detail: "kvstore: a dedicated server keeps values and makes no store; its workers do".into(),
            });
        };
        let operation = format!("kvstore {} of type {}", member.number, kind.name());
        member.job.agree(&operation, Fingerprint::of("kvstore").name(&operation).finish(), site, &[], by)?;
        Ok(Distributed { kind, worker: worker as u32, workers: workers.len() as u32, member, calls: Mutex::new(0) })
    }

    /// Makes keys: all of them, or none.
    pub(crate) fn make(&self, keys: &[(KeySpec, Value<'_>)], site: &str, by: Deadline) -> Result<Vec<TableKey>, Error> {
        let values: Vec<Option<Cow<'_, [u8]>>> = keys.iter().map(|(spec, value)| (self.worker == 0).then(|| whole(spec, value))).collect();
        // Worker 0 says for all where a key lives; an optimizer that it knows of may want all of a key in one place.
        let in_one_place = self.worker == 0 && self.optimizer(by)?.is_some_and(|optimizer| optimizer.needs_norms());
        let wanted: Vec<(Spec, Option<&[u8]>)> =
            keys.iter().zip(&values).map(|((spec, _), value)| (self.spec(spec, in_one_place), value.as_deref())).collect();
        let tables = self.member.tables.create_named_many(&wanted, site, by)?;
        Ok(tables.into_iter().map(|table| TableKey { table }).collect())
    }

    fn spec(&self, key: &KeySpec, in_one_place: bool) -> Spec {
        let (rows, cols) = (key.rows() as u64, key.row_len() as u64);
        let spec = if key.sparse { Spec::matrix(rows, cols) } else { Spec::array(key.elements() as u64) };
        let placement = match in_one_place || (key.elements() as u64) < self.member.whole_below {
            true => Placement::Whole { on: place(&key.key) },
            false => Placement::Split,
        };
        let consistency = if self.kind.is_sync() { Consistency::Sync } else { Consistency::Async };
        // A number and a name are never both keys of one store.
        let name = format!("key {} of kvstore {}", key.key, self.member.number);
        spec.with_dtype(key.dtype)
            .with_updater(Updater::Gradient)
            .with_consistency(consistency)
            .with_family(self.member.number)
            .with_key(key.key.clone())
            .placed(placement)
            .with_extents(key.shape.dims())
            .named(name)
    }

    fn calls(&self) -> MutexGuard<'_, u32> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn optimizer(&self, by: Deadline) -> Result<Option<Optimizer>, Error> {
        self.member.tables.rule(self.member.number, by)
    }

    /// All workers may set the same optimizer, as MXNet's programs do: states begin anew once.
    pub(crate) fn set_optimizer(&self, optimizer: Optimizer, by: Deadline) -> Result<(), Error> {
        let mut calls = self.calls();
        *calls += 1;
        self.member.tables.renew_rule(self.member.number, &optimizer, *calls, by)
    }

    /// The states of all keys begin anew under this optimizer, whatever there was.
    pub(crate) fn begin_anew(&self, optimizer: &Optimizer, by: Deadline) -> Result<(), Error> {
        let _changing = self.calls();
        self.member.tables.set_rule(self.member.number, Some(optimizer.clone()), false, by)
    }

    /// Changes the newest optimizer, whoever set it; states stay.
    pub(crate) fn change_optimizer(
        &self,
        operation: &str,
        by: Deadline,
        change: impl FnOnce(&mut Optimizer) -> Result<(), OptimizerError>,
    ) -> Result<(), Error> {
        let refused = |detail: String| Error::Configuration { detail: format!("{operation}: {detail}") };
        let _changing = self.calls();
        let Some(mut optimizer) = self.optimizer(by)? else {
            return Err(refused("there is no optimizer\nhint: call set_optimizer first".into()));
        };
        change(&mut optimizer).map_err(|error| refused(error.to_string()))?;
        self.member.tables.set_rule(self.member.number, Some(optimizer), true, by)
    }

    pub(crate) fn barrier(&self, by: Deadline) -> Result<(), Error> {
        self.member.tables.flush(by)?;
        self.member.job.barrier(by)?;
        self.member.tables.settle_losses(by)
    }

    pub(crate) fn dead(&self) -> u32 {
        let vigil = self.member.job.vigil();
        (0..vigil.topology().world()).filter(|rank| vigil.is_over(*rank) && !vigil.has_left(*rank)).count() as u32
    }
}

/// Worker 0's value as a table takes it.
fn whole<'v>(spec: &KeySpec, value: &Value<'v>) -> Cow<'v, [u8]> {
    match value {
        Value::Dense(dense) => Cow::Borrowed(dense.bytes()),
        Value::RowSparse(rows) => {
            let mut bytes = vec![0; spec.bytes()];
            rows.write_dense(&mut bytes);
            Cow::Owned(bytes)
        }
    }
}

/// The server that a small array goes to: MXNet's choice for numbers, a hash of the name for names.
fn place(key: &Key) -> u64 {
    match key {
        Key::Int(number) => (*number as u64).wrapping_mul(9973),
        Key::Name(name) => name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)),
    }
}

/// A refusal in the words of the operation that was refused.
fn named(operation: &str, checked: Result<(), Error>) -> Result<(), Error> {
    checked.map_err(|error| match error {
        Error::Configuration { detail } => Error::Configuration { detail: format!("{operation}: {detail}") },
        other => other,
    })
}

impl TableKey {
    /// Refuses what every push of this key would be refused for.
    pub(crate) fn ready_to_push(&self, operation: &str) -> Result<(), Error> {
        named(operation, self.table.accepts_adds())
    }

    /// What the caller of `operation` hears of a push that the table refused: the table looks at all that [`ready_to_push`](Self::ready_to_push) does, but
    /// speaks of itself.
    #[cold]
    pub(crate) fn refusal(&self, operation: &str, error: Error) -> Error {
        self.ready_to_push(operation).err().unwrap_or(error)
    }

    /// Calls on the table, with a turn if there is one.
    #[inline]
    fn in_turn<T>(&self, priority: Option<i32>, call: impl FnOnce(&Table) -> T) -> T {
        match priority {
            None => call(&self.table),
            Some(priority) => call(&self.table.prioritised(priority)),
        }
    }

    pub(crate) fn push(&self, spec: &KeySpec, gradient: Gradient<'_>, priority: Option<i32>, by: Deadline) -> Result<(), Error> {
        match gradient {
            Gradient::Rows { ids, values } if spec.sparse => self.push_rows(&ids, &values, priority, by),
            gradient => self.push_whole(&gradient.into_dense(spec), priority, by),
        }
    }

    #[inline]
    pub(crate) fn push_whole(&self, gradient: &[u8], priority: Option<i32>, by: Deadline) -> Result<(), Error> {
        self.in_turn(priority, |table| table.add(gradient, None, &AddOptions::default(), false, by))
    }

    #[inline]
    pub(crate) fn push_rows(&self, ids: &[i64], values: &[u8], priority: Option<i32>, by: Deadline) -> Result<(), Error> {
        self.in_turn(priority, |table| table.add(values, Some(ids), &AddOptions::default(), false, by))
    }

    pub(crate) fn push_words(&self, quantizer: Quantizer, words: &[u8], priority: Option<i32>, by: Deadline) -> Result<(), Error> {
        self.in_turn(priority, |table| table.add_quantized(&quantizer, words, &AddOptions::default(), false, by))
    }

    #[inline]
    pub(crate) fn pull(&self, out: &mut [u8], code: Option<Quantizer>, priority: Option<i32>, by: Deadline) -> Result<(), Error> {
        self.in_turn(priority, |table| match code {
            Some(code) => table.get_quantized(&code, out, by),
            None => table.get(out, None, by),
        })
    }

    #[inline]
    pub(crate) fn pull_rows(&self, ids: &[i64], out: &mut [u8], priority: Option<i32>, by: Deadline) -> Result<(), Error> {
        self.in_turn(priority, |table| table.get(out, Some(ids), by))
    }

    /// Both in one pass.
    pub(crate) fn push_pull(&self, gradient: &[u8], out: &mut [u8], by: Deadline) -> Result<(), Error> {
        self.table.add_get(gradient, out, None, &AddOptions::default(), by)
    }

    /// Refuses an optimizer that this key could not follow.
    pub(crate) fn ready_for(&self, operation: &str, optimizer: &Optimizer) -> Result<(), Error> {
        named(operation, self.table.accepts_optimizer(optimizer))
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}
