//! Init, push, pull and their relatives, as they run in the caller's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::Key;
use syncline_tensor::{DType, Shape, Tensor, TensorError};

use super::{Home, KvStore, Pull, Push, RowPull, Shared, is_name};
use crate::RowSparse;
use crate::compression::{self, Compression};
use crate::memory::{MemoryKey, not_updating};
use crate::row_sparse::check_rows;
use crate::slot::{Held, How, Slot};
use crate::value::{Dense, DenseMut, KeySpec, Output, Value};

/// The values of one key, those of repeated keys together.
pub(super) type Group<'a> = (Arc<Slot>, std::borrow::Cow<'a, [Value<'a>]>);

impl KvStore {
    /// Makes keys with these values. In a distributed store every worker makes the same keys, in any order, worker 0's values count, and the call returns when
    /// they are in place. A row-sparse value may have any of its rows; the others begin as zeros.
    ///
    /// `site` says where the caller stands (file and line), for errors that name two calls that differ.
    ///
    /// # Errors
    /// `Configuration` for a key that exists, or a number among names; `ContractMismatch` when workers differ in shape or dtype.
    pub fn init(&self, pairs: &[(&Key, Value<'_>)], site: &str, by: Deadline) -> Result<(), Error> {
        not_updating("init")?;
        let shared = &self.shared;
        let reserved = shared.reserve(pairs)?;
        let specs: Vec<(KeySpec, Value<'_>)> = pairs.iter().map(|(key, value)| (KeySpec::of(key, value), *value)).collect();
        let held: Vec<Held> = match &shared.home {
            Home::Memory(rule) => {
                specs.iter().map(|(spec, value)| Held::Memory { key: MemoryKey::new(spec, value), rule: Arc::clone(rule) }).collect()
            }
            Home::Job(job) => job.make(&specs, site, by)?.into_iter().map(Held::Table).collect(),
        };
        for ((spec, _), held) in specs.into_iter().zip(held) {
            shared.keys.insert(Arc::new(Slot::new(spec, held)));
        }
        drop(reserved);
        Ok(())
    }

    /// Adds up the values of each key, then lets the updater or optimizer change the stored value; without one, a local store and the round of a synchronous one
    /// replace it. Keys that stand twice are taken together.
    pub fn push(&self, pushes: &[Push<'_>], by: Deadline) -> Result<(), Error> {
        not_updating("push")?;
        let how = self.shared.how(None, by);
        if let [Push { key, values: [Value::Dense(dense)] }] = pushes
            && how.compression.is_none()
        {
            let slot = self.shared.slot("push", key)?;
            slot.spec.check("push", dense.dtype(), dense.shape())?;
            if let Held::Table(table) = &slot.held {
                self.shared.queue.pass(&slot.line, "push", by)?;
                return table.push_whole(dense.bytes(), None, by).map_err(|error| table.refusal("push", error));
            }
        }
        self.push_any(pushes, how)
    }

    /// [`push`](Self::push) of whatever is not one dense array of a table.
    #[inline(never)]
    fn push_any(&self, pushes: &[Push<'_>], how: How) -> Result<(), Error> {
        if let [push] = pushes {
            let slot = self.shared.checked_push("push", push, how.compression)?;
            return self.shared.push(slot, push.values, how);
        }
        for (slot, values) in self.shared.checked("push", pushes, how.compression)? {
            self.shared.push(&slot, &values, how)?;
        }
        Ok(())
    }

    /// Copies the values of keys into all their outputs.
    ///
    /// Row-sparse outputs are left alone, with one line of log per key, unless `ignore_sparse` is off; then a local store gives them all rows, and a
    /// distributed one refuses.
    pub fn pull(&self, pulls: &mut [Pull<'_, '_>], ignore_sparse: bool, by: Deadline) -> Result<(), Error> {
        not_updating("pull")?;
        if let [Pull { key, outputs: [Output::Dense(dense)] }] = pulls {
            let slot = self.shared.slot("pull", key)?;
            slot.spec.check("pull", dense.dtype(), dense.shape())?;
            self.shared.before_pull(slot, by)?;
            return match &slot.held {
                Held::Table(table) if !self.shared.compresses.load(Relaxed) => table.pull(dense.bytes(), None, None, by),
                _ => slot.pull(dense.bytes(), self.shared.how(None, by)),
            };
        }
        self.pull_any(pulls, ignore_sparse, by)
    }

    /// [`pull`](Self::pull) of whatever is not one dense array.
    #[inline(never)]
    fn pull_any(&self, pulls: &mut [Pull<'_, '_>], ignore_sparse: bool, by: Deadline) -> Result<(), Error> {
        if let [pull] = pulls {
            let slot = self.shared.checked_pull("pull", pull, ignore_sparse)?;
            return self.shared.pull(slot, pull.outputs, ignore_sparse, by);
        }
        let slots = self.shared.checked_outputs("pull", pulls, ignore_sparse)?;
        for (slot, pull) in slots.iter().zip(pulls) {
            self.shared.pull(slot, pull.outputs, ignore_sparse, by)?;
        }
        Ok(())
    }

    /// A new array with the value of a key, all rows of it.
    pub fn pull_new(&self, key: &Key, by: Deadline) -> Result<Tensor, Error> {
        not_updating("pull")?;
        let slot = self.shared.slot("pull", key)?;
        self.shared.pull_whole(slot, by)
    }

    /// Pushes and pulls in one call. Keys to pull need not be those that are pushed. Row-sparse outputs are left alone, as `pull` does, by a store
    /// of one process; a distributed one refuses them before anything is pushed, as MXNet's does.
    pub fn push_pull(&self, pushes: &[Push<'_>], pulls: &mut [Pull<'_, '_>], by: Deadline) -> Result<(), Error> {
        not_updating("pushpull")?;
        let compression = self.shared.compression();
        let outputs = self.shared.checked_outputs("pushpull", pulls, !self.shared.kind.is_distributed())?;
        let how = How { compression, priority: None, by };
        let groups = self.shared.checked("pushpull", pushes, compression)?;
        for (slot, values) in &groups {
            self.shared.queue.pass(&slot.line, "pushpull", by)?;
            // One key and one output, as most are, go in one pass.
            if let ([pull], [output]) = (&mut *pulls, &outputs[..])
                && groups.len() == 1
                && Arc::ptr_eq(slot, output)
                && let [Output::Dense(dense)] = &mut *pull.outputs
                && slot.take_trouble().and_then(|()| slot.push_pull(values, dense.bytes(), how))?
            {
                return Ok(());
            }
            slot.push(values, how)?;
        }
        for (slot, pull) in outputs.iter().zip(pulls) {
            self.shared.pull(slot, pull.outputs, true, by)?;
        }
        Ok(())
    }

    /// Makes keys and pulls them: every worker ends with worker 0's values.
    pub fn broadcast(&self, pairs: &[(&Key, Value<'_>)], pulls: &mut [Pull<'_, '_>], site: &str, by: Deadline) -> Result<(), Error> {
        for pull in pulls.iter() {
            let Some((key, value)) = pairs.iter().find(|(key, _)| *key == pull.key) else {
                let detail = format!("key {} is among the outputs and not among the values", pull.key);
                return Err(Error::UnknownKey { operation: "broadcast".into(), detail });
            };
            let spec = KeySpec::of(key, value);
            pull.outputs.iter().try_for_each(|output| spec.check("broadcast", output.dtype(), output.shape()))?;
        }
        self.init(pairs, site, by)?;
        self.pull(pulls, true, by)
    }

    /// Fills row-sparse outputs with exactly the rows asked for. Only keys that were initialised with rows have them.
    pub fn row_sparse_pull(&self, pulls: &mut [RowPull<'_, '_>], by: Deadline) -> Result<(), Error> {
        const WHAT: &str = "row_sparse_pull";
        not_updating(WHAT)?;
        let mut wanted = Vec::with_capacity(pulls.len());
        for pull in pulls.iter() {
            let (slot, ids) = self.shared.checked_rows(WHAT, pull.key, pull.ids)?;
            for output in pull.outputs.iter() {
                slot.spec.check(WHAT, output.dtype(), output.shape())?;
                if matches!(output, Output::Dense(_)) {
                    let detail = format!("{WHAT}: key {}: the output must be row-sparse\nhint: `pull` fills dense outputs", pull.key);
                    return Err(Error::Configuration { detail });
                }
            }
            wanted.push((slot, ids));
        }
        for ((slot, ids), pull) in wanted.into_iter().zip(pulls) {
            let mut outputs = pull.outputs.iter_mut().filter_map(|output| match output {
                Output::RowSparse(rows) => Some(rows),
                Output::Dense(_) => None,
            });
            let Some(first) = outputs.next() else { continue };
            self.shared.before_pull(&slot, by)?;
            let how = self.shared.how(None, by);
            first.fill(ids, |ids, room| slot.pull_rows(ids, room, how))?;
            outputs.for_each(|output| output.clone_from(first));
        }
        Ok(())
    }

    /// Pushes rows as they come: `rows` has one for each id, in any order; those of an id that stands twice are added. The same as a push of a row-sparse array
    /// of them, without making one: nothing is sorted or copied on the way to the table.
    ///
    /// # Errors
    /// As [`push`](Self::push); `ShapeMismatch` for an array that is not one row for each id, `UnknownKey` for an id that is no row.
    pub fn push_rows(&self, key: &Key, ids: &[i64], rows: Dense<'_>, by: Deadline) -> Result<(), Error> {
        const WHAT: &str = "push_rows";
        not_updating(WHAT)?;
        let shared = &self.shared;
        let slot = shared.checked_rows_of(WHAT, key, ids, rows.dtype(), rows.shape())?;
        let how = shared.how(None, by);
        if how.compression.is_none()
            && slot.spec.sparse
            && let Held::Table(table) = &slot.held
        {
            shared.queue.pass(&slot.line, WHAT, by)?;
            return table.push_rows(ids, rows.bytes(), None, by).map_err(|error| table.refusal(WHAT, error));
        }
        let rows = RowSparse::new(slot.spec.dtype, slot.spec.shape.dims(), ids.to_vec(), rows.bytes().to_vec())?;
        self.push(&[Push { key, values: &[Value::RowSparse(&rows)] }], by)
    }

    /// Copies rows into `out`, one for each id in the order of `ids`, in which one may stand more than once. Only keys that were initialised with rows have them.
    ///
    /// # Errors
    /// As [`push_rows`](Self::push_rows), and `Configuration` for a key without rows.
    pub fn pull_rows(&self, key: &Key, ids: &[i64], mut out: DenseMut<'_>, by: Deadline) -> Result<(), Error> {
        const WHAT: &str = "pull_rows";
        not_updating(WHAT)?;
        let slot = self.shared.checked_rows_of(WHAT, key, ids, out.dtype(), out.shape())?;
        slot.has_rows(WHAT)?;
        self.shared.before_pull(slot, by)?;
        slot.pull_rows(ids, out.bytes(), self.shared.how(None, by))
    }

    /// A new array with one row for each id, as [`pull_rows`](Self::pull_rows) fills it.
    pub fn pull_rows_new(&self, key: &Key, ids: &[i64], by: Deadline) -> Result<Tensor, Error> {
        const WHAT: &str = "pull_rows";
        not_updating(WHAT)?;
        let slot = self.shared.slot(WHAT, key)?;
        slot.has_rows(WHAT)?;
        check_rows(|| format!("{WHAT}: key {key}"), ids, slot.spec.rows())?;
        let shape: Vec<usize> = std::iter::once(ids.len()).chain(slot.spec.shape.dims().iter().skip(1).copied()).collect();
        let refused = |error: TensorError| Error::ShapeMismatch { operation: WHAT.into(), detail: format!("key {key}: {error}") };
        let mut rows = Tensor::zeros(slot.spec.dtype, Shape::new(&shape).map_err(refused)?);
        self.shared.before_pull(slot, by)?;
        slot.pull_rows(ids, rows.bytes_mut(), self.shared.how(None, by))?;
        Ok(rows)
    }

    /// A new row-sparse array with the rows asked for.
    pub fn row_sparse_pull_new(&self, key: &Key, ids: &[i64], by: Deadline) -> Result<RowSparse, Error> {
        const WHAT: &str = "row_sparse_pull";
        not_updating(WHAT)?;
        let (slot, ids) = self.shared.checked_rows(WHAT, key, ids)?;
        self.shared.before_pull(&slot, by)?;
        self.shared.pull_sparse_now(&slot, ids, None, by)
    }
}

/// Keys that are being made; dropped, they are not any more.
struct Reserved<'a> {
    shared: &'a Shared,
    keys: Vec<Key>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut making = self.shared.making();
        for key in &self.keys {
            making.under_way.remove(key);
        }
    }
}

impl Shared {
    /// Refuses keys that exist, are being made or stand twice, and keeps them from others.
    fn reserve(&self, pairs: &[(&Key, Value<'_>)]) -> Result<Reserved<'_>, Error> {
        let mut making = self.making();
        let names = making.names.or(pairs.first().map(|(key, _)| is_name(key)));
        for (place, (key, _)) in pairs.iter().enumerate() {
            self.check_kind("init", key, names)?;
            if self.keys.get(key).is_some() || making.under_way.contains(key) || pairs[..place].iter().any(|(other, _)| other == key) {
                return Err(Error::Configuration { detail: format!("init: duplicate init of key {key}") });
            }
        }
        making.names = names;
        let keys: Vec<Key> = pairs.iter().map(|(key, _)| (*key).clone()).collect();
        making.under_way.extend(keys.iter().cloned());
        Ok(Reserved { shared: self, keys })
    }

    /// The key of a push, with everything about it checked.
    #[inline]
    fn checked_push(&self, operation: &str, push: &Push<'_>, compression: Option<Compression>) -> Result<&Arc<Slot>, Error> {
        let slot = self.slot(operation, push.key)?;
        for value in push.values {
            slot.spec.check(operation, value.dtype(), value.shape())?;
        }
        if push.values.is_empty() {
            let detail = format!("{operation}: key {}: there is no value", push.key);
            return Err(Error::Configuration { detail });
        }
        if compression.is_some() {
            compression::check(operation, &slot.spec, push.values.iter().all(|value| matches!(value, Value::Dense(_))))?;
        }
        slot.ready_to_push(operation)?;
        Ok(slot)
    }

    /// The pushes, each key once, checked.
    pub(super) fn checked<'a>(
        &self,
        operation: &str,
        pushes: &[Push<'a>],
        compression: Option<Compression>,
    ) -> Result<Vec<Group<'a>>, Error> {
        let mut groups: Vec<Group<'a>> = Vec::with_capacity(pushes.len());
        let mut places: std::collections::HashMap<*const Slot, usize> = std::collections::HashMap::new();
        for push in pushes {
            let slot = self.checked_push(operation, push, compression)?;
            match places.get(&Arc::as_ptr(slot)) {
                Some(place) => groups[*place].1.to_mut().extend_from_slice(push.values),
                None => {
                    places.insert(Arc::as_ptr(slot), groups.len());
                    groups.push((Arc::clone(slot), push.values.into()));
                }
            }
        }
        Ok(groups)
    }

    /// The key of a pull, with all its outputs checked.
    #[inline]
    fn checked_pull(&self, operation: &str, pull: &Pull<'_, '_>, ignore_sparse: bool) -> Result<&Arc<Slot>, Error> {
        let slot = self.slot(operation, pull.key)?;
        for output in pull.outputs.iter() {
            slot.spec.check(operation, output.dtype(), output.shape())?;
            if self.kind.is_distributed() && !ignore_sparse && matches!(output, Output::RowSparse(_)) {
                let detail = format!("{operation}: key {}: a distributed store fills row-sparse outputs by row_sparse_pull only", pull.key);
                return Err(Error::Configuration { detail });
            }
        }
        Ok(slot)
    }

    /// The keys of a pull, checked.
    fn checked_outputs(&self, operation: &str, pulls: &[Pull<'_, '_>], ignore_sparse: bool) -> Result<Vec<&Arc<Slot>>, Error> {
        pulls.iter().map(|pull| self.checked_pull(operation, pull, ignore_sparse)).collect()
    }

    /// The key, and its rows in order.
    pub(super) fn checked_rows(&self, operation: &str, key: &Key, ids: &[i64]) -> Result<(Arc<Slot>, Vec<i64>), Error> {
        let slot = self.slot(operation, key)?;
        slot.has_rows(operation)?;
        check_rows(|| format!("{operation}: key {key}"), ids, slot.spec.rows())?;
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Ok((Arc::clone(slot), ids))
    }

    /// The key, of which there are rows with these ids, that look like those of an array with this dtype and shape.
    fn checked_rows_of(&self, operation: &str, key: &Key, ids: &[i64], dtype: DType, shape: &[usize]) -> Result<&Arc<Slot>, Error> {
        let slot = self.slot(operation, key)?;
        let (spec, wanted) = (&slot.spec, slot.spec.shape.dims());
        let fits = matches!((shape, wanted), ([rows, row @ ..], [_, of_key @ ..]) if *rows == ids.len() && row == of_key);
        if !fits || dtype != spec.dtype {
            let detail =
                format!("key {key} is {} of shape {wanted:?}, given was {dtype} of shape {shape:?} for {} rows", spec.dtype, ids.len());
            return Err(Error::ShapeMismatch { operation: operation.into(), detail });
        }
        check_rows(|| format!("{operation}: key {key}"), ids, spec.rows())?;
        Ok(slot)
    }

    /// The values of one push, checked before, after all that is queued for their key.
    #[inline]
    fn push(&self, slot: &Slot, values: &[Value<'_>], how: How) -> Result<(), Error> {
        self.queue.pass(&slot.line, "push", how.by)?;
        slot.push(values, how)
    }

    /// What must have happened before a key is read.
    #[inline]
    fn before_pull(&self, slot: &Slot, by: Deadline) -> Result<(), Error> {
        self.queue.pass(&slot.line, "pull", by)?;
        slot.take_trouble()
    }

    fn pull(&self, slot: &Slot, outputs: &mut [Output<'_>], ignore_sparse: bool, by: Deadline) -> Result<(), Error> {
        self.before_pull(slot, by)?;
        let how = self.how(None, by);
        let first = outputs.iter().position(|output| matches!(output, Output::Dense(_)));
        if let Some(first) = first {
            let (head, rest) = outputs[first..].split_first_mut().expect("it is there");
            let Output::Dense(dense) = head else { unreachable!("found as a dense one") };
            slot.pull(dense.bytes(), how)?;
            for output in rest {
                if let Output::Dense(other) = output {
                    other.bytes().copy_from_slice(dense.bytes());
                }
            }
        }
        if !outputs.iter().any(|output| matches!(output, Output::RowSparse(_))) {
            return Ok(());
        }
        if ignore_sparse {
            if !slot.warned.swap(true, Relaxed) {
                tracing::warn!("pull: key {}: row-sparse outputs are left alone; row_sparse_pull fills them", slot.spec.key);
            }
            return Ok(());
        }
        let ids: Vec<i64> = (0..slot.spec.rows() as i64).collect();
        let mut whole = vec![0; slot.spec.bytes()];
        slot.pull(&mut whole, how)?;
        for output in outputs {
            if let Output::RowSparse(rows) = output {
                rows.set_rows(ids.clone(), whole.clone());
            }
        }
        Ok(())
    }

    pub(super) fn pull_whole(&self, slot: &Slot, by: Deadline) -> Result<Tensor, Error> {
        self.before_pull(slot, by)?;
        self.pull_now(slot, None, by)
    }

    #[inline]
    pub(super) fn how(&self, priority: Option<i32>, by: Deadline) -> How {
        How { compression: self.compression(), priority, by }
    }

    /// Without waiting for calls in the background, of which this may be one.
    pub(super) fn pull_now(&self, slot: &Slot, priority: Option<i32>, by: Deadline) -> Result<Tensor, Error> {
        let mut tensor = Tensor::zeros(slot.spec.dtype, slot.spec.shape.clone());
        slot.pull(tensor.bytes_mut(), self.how(priority, by))?;
        Ok(tensor)
    }

    /// Without waiting for calls in the background, of which this may be one.
    pub(super) fn pull_sparse_now(&self, slot: &Slot, ids: Vec<i64>, priority: Option<i32>, by: Deadline) -> Result<RowSparse, Error> {
        let mut rows = RowSparse::empty(slot.spec.dtype, slot.spec.shape.dims())?;
        let how = self.how(priority, by);
        rows.fill(ids, |ids, room| slot.pull_rows(ids, room, how))?;
        Ok(rows)
    }
}
