//! The key-value store: convert, call, convert back.
//!
//! `arguments.rs` takes apart what users write, `values.rs` lends their arrays, `future.rs` is a call in the background, `updater.rs` a Python
//! function that a local store calls. All rules are in the crate `syncline-kvstore`.

mod arguments;
mod future;
mod updater;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use syncline::kvstore::{Dense, Key, Kind, KvStore, Optimizer, Output, Pull, Push, RowPull, Value};
use syncline::{Config, Deadline, Error};

use crate::optimizer::{key_from, optimizer_from, python_key, python_options};
use crate::parental::Parental;
use crate::tables::call_site;
use crate::{errors, interrupt, job};
use arguments::{Keys, needs_rows, one_list, row_ids};
use future::Coming;
pub(crate) use future::StoreFuture;
use values::{Item, Purpose, Target, array_of, python_rows};

/// The native half of `syncline.kvstore.KVStore`.
#[pyclass(subclass, frozen, module = "syncline._native")]
pub(crate) struct Store {
    store: Parental<KvStore>,
    timeout: Duration,
}

#[pymethods]
impl Store {
    /// A store of this type; distributed ones need an open session, and all workers make the same stores in the same order.
    #[new]
    fn new(py: Python<'_>, name: &str) -> PyResult<Store> {
        let kind = Kind::from_name(name).map_err(|error| errors::exception(py, &error.into()))?;
        let (store, timeout) = if kind.is_distributed() {
            let session = job::current(py, "kvstore")?;
            let (site, timeout) = (call_site(py)?, session.timeout());
            (job::wait(py, || session.kvstore_at(name, &site, interrupt::deadline(timeout)))?, timeout)
        } else {
            job::wait(py, || Ok::<_, Error>((KvStore::local(name)?, Config::from_env()?.settings().timeout)))?
        };
        Ok(Store { store: Parental::new(store), timeout })
    }

    /// Whether stores of this type need a job; an error for an unknown type, before anybody joins one for it.
    #[staticmethod]
    fn is_distributed(py: Python<'_>, name: &str) -> PyResult<bool> {
        Kind::from_name(name).map(Kind::is_distributed).map_err(|error| errors::exception(py, &error.into()))
    }

    /// Makes keys with these values; every worker makes the same ones, in any order, and worker 0's values count.
    fn init(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, keys) = (key.py(), Keys::of(key)?);
        let items = keys.items(value, "init")?;
        let pairs = single_values(py, "init", &keys, &items)?;
        let site = call_site(py)?;
        self.call(py, "init", |store, by| store.raw().init(&pairs, &site, by))
    }

    /// Adds up the values of each key and lets the updater, the optimizer or nobody decide what they do to the stored one.
    #[pyo3(signature = (key, value, priority = 0, *, wait = true))]
    fn push(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>, priority: i32, wait: bool) -> PyResult<Option<StoreFuture>> {
        let (py, keys) = (key.py(), Keys::of(key)?);
        let items = keys.items(value, "push")?;
        let values = all_values(&items);
        let pushes = pushes(&keys, &values);
        if wait {
            return self.call(py, "push", |store, by| store.raw().push(&pushes, by)).map(|()| None);
        }
        let pending = self.call(py, "push", |store, by| store.raw().push_async(&pushes, priority, by))?;
        Ok(Some(StoreFuture::new(Coming::Nothing(pending), "push", None, keys.many)))
    }

    /// Copies stored values into `out`, or into new arrays; row-sparse outputs are left alone unless `ignore_sparse` is off.
    #[pyo3(signature = (key, out = None, priority = 0, ignore_sparse = true, *, wait = true))]
    fn pull<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        priority: i32,
        ignore_sparse: bool,
        wait: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, keys) = (key.py(), Keys::of(key)?);
        if !wait {
            let wanted: Vec<&Key> = keys.keys.iter().collect();
            if let Some(out) = out {
                keys.targets(out, "pull")?; // refused now rather than later
            }
            let pending = self.call(py, "pull", |store, by| store.raw().pull_async(&wanted, priority, by))?;
            let out = out.map(|out| out.clone().unbind());
            let future = StoreFuture::new(Coming::Arrays(pending), "pull", out, keys.many);
            return Ok(Bound::new(py, future)?.into_any());
        }
        match out {
            None => self.pull_new(py, &keys),
            Some(out) => {
                let mut targets = keys.targets(out, "pull")?;
                self.pull_into(py, &keys, &mut targets, ignore_sparse)?;
                finish(targets, !ignore_sparse)?;
                Ok(out.clone())
            }
        }
    }

    /// Pushes, and copies what is stored then into `out`, or back into the values.
    #[pyo3(signature = (key, value, out = None, priority = 0, *, wait = true))]
    fn pushpull<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        priority: i32,
        wait: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, keys) = (key.py(), Keys::of(key)?);
        let items = keys.items(value, "pushpull")?;
        let out = out.unwrap_or(value);
        let mut targets = keys.targets(out, "pushpull")?;
        let values = all_values(&items);
        let pushes = pushes(&keys, &values);
        if !wait {
            let pending = self.call(py, "pushpull", |store, by| store.raw().push_pull_async(&pushes, priority, by))?;
            let future = StoreFuture::new(Coming::Arrays(pending), "pushpull", Some(out.clone().unbind()), keys.many);
            return Ok(Bound::new(py, future)?.into_any());
        }
        if Keys::collide(&items, &targets) {
            // What is pushed has been copied before the first number is written over it.
            self.call(py, "pushpull", |store, by| store.raw().push(&pushes, by))?;
            drop(pushes);
            drop(values);
            drop(items);
            self.pull_into(py, &keys, &mut targets, true)?;
        } else {
            let mut outputs = all_outputs(&mut targets);
            let mut pulls = pulls(&keys, &mut outputs);
            self.call(py, "pushpull", |store, by| store.raw().push_pull(&pushes, &mut pulls, by))?;
        }
        finish(targets, false)?;
        Ok(out.clone())
    }

    /// Makes keys, and copies worker 0's values into `out`, or into new arrays.
    #[pyo3(signature = (key, value, out = None, priority = 0))]
    fn broadcast<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        priority: i32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = priority; // one call moves everything, and returns when it has
        let (py, keys) = (key.py(), Keys::of(key)?);
        if let Some(out) = out {
            keys.targets(out, "broadcast")?; // refused before anything is made
        }
        self.init(key, value)?;
        match out {
            None => self.pull_new(py, &keys),
            Some(out) => {
                let mut targets = keys.targets(out, "broadcast")?;
                self.pull_into(py, &keys, &mut targets, true)?;
                finish(targets, false)?;
                Ok(out.clone())
            }
        }
    }

    /// Fills row-sparse arrays with exactly the rows of `row_ids`, which may come in any order, repeated, in any shape.
    #[pyo3(signature = (key, out = None, priority = 0, row_ids = None, *, wait = true))]
    fn row_sparse_pull<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        priority: i32,
        row_ids: Option<&Bound<'py, PyAny>>,
        wait: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, keys) = (key.py(), Keys::of(key)?);
        let Some(given_ids) = row_ids else {
            return Err(errors::of_class(py, "ConfigurationError", "row_sparse_pull: row_ids is missing"));
        };
        let outs = out.map(|out| keys.apart(out, "outputs")).transpose()?;
        for each in outs.iter().flatten().flatten() {
            needs_rows(each)?;
        }
        let ids = wanted_rows(&keys, outs.as_deref(), given_ids)?;
        let single = ids.iter().map(|of_key| of_key.first().map_or(&[][..], Vec::as_slice));
        if !wait {
            let wanted: Vec<(&Key, &[i64])> = keys.keys.iter().zip(single).collect();
            if outs.iter().flatten().any(|of_key| of_key.len() != 1) {
                let text = "row_sparse_pull: with wait=False there is one output for each key";
                return Err(errors::of_class(py, "ConfigurationError", text));
            }
            let pending = self.call(py, "row_sparse_pull", |store, by| store.raw().row_sparse_pull_async(&wanted, priority, by))?;
            let out = out.map(|out| out.clone().unbind());
            let future = StoreFuture::new(Coming::Rows(pending), "row_sparse_pull", out, keys.many);
            return Ok(Bound::new(py, future)?.into_any());
        }
        let Some(out) = out else {
            let mut made = Vec::with_capacity(keys.keys.len());
            for (key, ids) in keys.keys.iter().zip(single) {
                let rows = self.call(py, "row_sparse_pull", |store, by| store.raw().row_sparse_pull_new(key, ids, by))?;
                made.push(python_rows(py, rows)?);
            }
            return listed_or_one(py, made, keys.many);
        };
        let mut targets = keys.targets(out, "row_sparse_pull")?;
        {
            let mut outputs = all_outputs(&mut targets);
            let mut pulls = Vec::new();
            for ((key, ids), outputs) in keys.keys.iter().zip(&ids).zip(&mut outputs) {
                let alike = ids.iter().all(|each| *each == ids[0]);
                if alike {
                    pulls.push(RowPull { key, ids: ids.first().map_or(&[], Vec::as_slice), outputs: outputs.as_mut_slice() });
                } else {
                    pulls.extend(ids.iter().zip(outputs.chunks_mut(1)).map(|(ids, outputs)| RowPull { key, ids, outputs }));
                }
            }
            self.call(py, "row_sparse_pull", |store, by| store.raw().row_sparse_pull(&mut pulls, by))?;
        }
        finish(targets, true)?;
        Ok(out.clone())
    }

    /// Pushes one row for each id as they come: in any order, and those of an id that stands twice are added.
    fn push_rows(&self, key: &Bound<'_, PyAny>, row_ids: &Bound<'_, PyAny>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, key) = (key.py(), key_from(key)?);
        let ids = one_list(row_ids, Purpose::new("push_rows", &key))?;
        let Item::Dense { lent, dtype, shape } = Item::of(rows, Purpose::new("push_rows", &key))? else {
            return Err(errors::of_class(py, "DTypeMismatch", "push_rows: the rows are an array\nhint: push() takes a RowSparse"));
        };
        self.call(py, "push_rows", |store, by| store.raw().push_rows(&key, &ids, Dense::new(dtype, &shape, lent.bytes())?, by))
    }

    /// One row for each id, in their order, into `out` or a new array.
    #[pyo3(signature = (key, row_ids, out = None))]
    fn pull_rows<'py>(
        &self,
        key: &Bound<'py, PyAny>,
        row_ids: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, key) = (key.py(), key_from(key)?);
        let ids = one_list(row_ids, Purpose::new("pull_rows", &key))?;
        let Some(out) = out else {
            let rows = self.call(py, "pull_rows", |store, by| store.raw().pull_rows_new(&key, &ids, by))?;
            return array_of(py, rows);
        };
        let mut target = Target::of(out, Purpose::new("pull_rows", &key))?;
        {
            let Output::Dense(dense) = target.output() else {
                return Err(errors::of_class(
                    py,
                    "DTypeMismatch",
                    "pull_rows: the output is an array\nhint: row_sparse_pull() fills a RowSparse",
                ));
            };
            self.call(py, "pull_rows", |store, by| store.raw().pull_rows(&key, &ids, dense, by))?;
        }
        finish(vec![vec![target]], false)?;
        Ok(out.clone())
    }

    /// Lets `updater(key, recv, local)` decide what a push does; None lets pushes replace what is stored.
    fn set_updater(&self, py: Python<'_>, updater: Option<Py<PyAny>>) -> PyResult<()> {
        self.call(py, "set_updater", |store, _| match updater {
            Some(function) => store.set_updater(updater::updater(function)),
            None => store.raw().set_updater(None).map_err(Error::from),
        })
    }

    /// Lets the optimizer of this name decide what a push does; with `keep_states` only numbers of the present one change.
    fn use_optimizer(&self, py: Python<'_>, name: &str, options: &Bound<'_, PyDict>, keep_states: bool) -> PyResult<()> {
        let optimizer = optimizer_from(py, name, options)?;
        self.call(py, "set_optimizer", |store, by| {
            let before = if keep_states { store.raw().optimizer(by)? } else { None };
            match before {
                Some(before) if keeps_the_same(&before, &optimizer) => store.raw().change_optimizer("set_optimizer", by, |held| {
                    *held = optimizer;
                    Ok(())
                }),
                _ => store.raw().set_optimizer(optimizer, by),
            }
        })
    }

    /// Changes the learning rate, at the servers too; states stay.
    fn set_learning_rate(&self, py: Python<'_>, lr: f64) -> PyResult<()> {
        self.call(py, "set_learning_rate", |store, by| store.raw().set_learning_rate(lr, by))
    }

    /// Name and options of the optimizer, if this process knows of one.
    fn known_optimizer<'py>(&self, py: Python<'py>) -> PyResult<Option<(&'static str, Bound<'py, PyDict>)>> {
        let found = self.call(py, "optimizer", |store, by| store.raw().optimizer(by))?;
        found.map(|optimizer| Ok((optimizer.method.name(), python_options(py, &optimizer)?))).transpose()
    }

    /// Makes pushes smaller, by words.
    fn compress(&self, py: Python<'_>, words: Vec<(String, String)>) -> PyResult<()> {
        let words: Vec<(&str, &str)> = words.iter().map(|(word, value)| (word.as_str(), value.as_str())).collect();
        self.call(py, "set_gradient_compression", |store, _| store.set_gradient_compression(&words))
    }

    /// Writes what the optimizer keeps of all keys, residuals of compression, and the optimizer if asked, to one file.
    #[pyo3(signature = (fname, dump_optimizer = false))]
    fn save_optimizer_states(&self, py: Python<'_>, fname: PathBuf, dump_optimizer: bool) -> PyResult<()> {
        self.call(py, "save_optimizer_states", |store, by| store.raw().save_optimizer_states(&fname, dump_optimizer, by))
    }

    /// Reads such a file, written by any number of workers and servers.
    fn load_optimizer_states(&self, py: Python<'_>, fname: PathBuf) -> PyResult<()> {
        self.call(py, "load_optimizer_states", |store, by| store.raw().load_optimizer_states(&fname, by))
    }

    /// Returns when every worker has called it, after what they queued before.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, "barrier", |store, by| store.raw().barrier(by))
    }

    /// Returns when all calls of this process that go on in the background have ended.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, "flush", |store, by| store.raw().flush(by))
    }

    /// Sends a command and returns what became of it, in words. Nothing that is sent is executed.
    fn command(&self, py: Python<'_>, head: i64, body: &[u8]) -> PyResult<String> {
        self.call(py, "send_command_to_servers", |store, by| store.raw().send_command_to_servers(head, body, by))
    }

    /// The keys there are, in order.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys = self.store.raw().keys();
        PyList::new(py, keys.iter().map(|key| python_key(py, key)).collect::<PyResult<Vec<_>>>()?)
    }

    /// Its type, in lower case.
    #[getter]
    fn r#type(&self) -> &'static str {
        self.store.kind().name()
    }

    /// This process's number among the workers; 0 in a local store.
    #[getter]
    fn rank(&self) -> u32 {
        self.store.rank()
    }

    /// How many workers push; 1 in a local store.
    #[getter]
    fn num_workers(&self) -> u32 {
        self.store.num_workers()
    }

    /// How many processes of the job died.
    fn dead(&self) -> u32 {
        self.store.raw().num_dead_node()
    }
}

impl Store {
    /// Runs one call without the interpreter; what an updater raised in it comes out as it was.
    fn call<T: Send, E: Into<Error> + Send>(
        &self,
        py: Python<'_>,
        operation: &str,
        call: impl FnOnce(&KvStore, Deadline) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        job::refuse_fork(py, || operation.into())?;
        let (store, timeout) = (&*self.store, self.timeout);
        job::wait(py, move || call(store, interrupt::deadline(timeout))).map_err(|error| updater::take_raised().unwrap_or(error))
    }

    fn pull_into(&self, py: Python<'_>, keys: &Keys, targets: &mut [Vec<Target<'_>>], ignore_sparse: bool) -> PyResult<()> {
        let mut outputs = all_outputs(targets);
        let mut pulls = pulls(keys, &mut outputs);
        self.call(py, "pull", |store, by| store.raw().pull(&mut pulls, ignore_sparse, by))
    }

    fn pull_new<'py>(&self, py: Python<'py>, keys: &Keys) -> PyResult<Bound<'py, PyAny>> {
        let mut made = Vec::with_capacity(keys.keys.len());
        for key in &keys.keys {
            made.push(array_of(py, self.call(py, "pull", |store, by| store.raw().pull_new(key, by))?)?);
        }
        listed_or_one(py, made, keys.many)
    }
}

/// Whether states of one optimizer mean the same to the other.
fn keeps_the_same(before: &Optimizer, after: &Optimizer) -> bool {
    let dtype = syncline::DType::F32;
    before.method.name() == after.method.name()
        && before.settings.multi_precision == after.settings.multi_precision
        && matches!((before.lanes(dtype), after.lanes(dtype)), (Ok(before), Ok(after)) if before == after)
}

fn all_values(items: &[Vec<Item>]) -> Vec<Vec<Value<'_>>> {
    items.iter().map(|items| items.iter().map(Item::value).collect()).collect()
}

fn all_outputs<'a>(targets: &'a mut [Vec<Target<'_>>]) -> Vec<Vec<Output<'a>>> {
    targets.iter_mut().map(|targets| targets.iter_mut().map(Target::output).collect()).collect()
}

fn pushes<'a>(keys: &'a Keys, values: &'a [Vec<Value<'a>>]) -> Vec<Push<'a>> {
    keys.keys.iter().zip(values).map(|(key, values)| Push { key, values }).collect()
}

fn pulls<'a, 'o>(keys: &'a Keys, outputs: &'a mut [Vec<Output<'o>>]) -> Vec<Pull<'a, 'o>> {
    keys.keys.iter().zip(outputs).map(|(key, outputs)| Pull { key, outputs }).collect()
}

/// One value for each key, as a key is made with.
fn single_values<'a>(py: Python<'_>, operation: &str, keys: &'a Keys, items: &'a [Vec<Item>]) -> PyResult<Vec<(&'a Key, Value<'a>)>> {
    let pair = |(key, items): (&'a Key, &'a Vec<Item>)| match items.as_slice() {
        [item] => Ok((key, item.value())),
        many => {
            let text = format!("{operation}: key {key}: one value is needed, {} were given", many.len());
            Err(errors::of_class(py, "ShapeMismatch", text))
        }
    };
    keys.keys.iter().zip(items).map(pair).collect()
}

/// The rows for each output of each key; without outputs, one list for each key.
fn wanted_rows(keys: &Keys, outs: Option<&[Vec<Bound<'_, PyAny>>]>, given: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<Vec<i64>>>> {
    let count = |place: usize| outs.map_or(1, |outs| outs[place].len());
    let purpose = |place: usize| Purpose::new("row_sparse_pull", &keys.keys[place]);
    if keys.many
        && let Some(list) = values::listed(given)
        && list.len() == keys.keys.len()
        && !values::helpers(given.py())?.call_method1("is_sequence_of_numbers", (given,))?.extract::<bool>()?
    {
        return list.iter().enumerate().map(|(place, ids)| row_ids(ids, count(place), purpose(place))).collect();
    }
    (0..keys.keys.len()).map(|place| row_ids(given, count(place), purpose(place))).collect()
}

fn finish(targets: Vec<Vec<Target<'_>>>, rows_too: bool) -> PyResult<()> {
    targets.into_iter().flatten().try_for_each(|target| target.finish(rows_too))
}

fn listed_or_one<'py>(py: Python<'py>, mut made: Vec<Bound<'py, PyAny>>, many: bool) -> PyResult<Bound<'py, PyAny>> {
    if many { Ok(PyList::new(py, made)?.into_any()) } else { Ok(made.pop().unwrap_or_else(|| py.None().into_bound(py))) }
}
