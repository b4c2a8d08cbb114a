//! What every table does the same way: it is made together, lets the interpreter go while it works, and knows its dtype.

use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::{AddOptions, Consistency, DType, Deadline, Error, Spec, Table, Updater};

use crate::arrays::{Given, Ids, Numpy, Out, python};
use crate::parental::Parental;
use crate::tables::Future;
use crate::{errors, interrupt, job, site};

/// A table, and what is needed to speak of it in Python.
pub(crate) struct Handle {
    table: Parental<Table>,
    timeout: Duration,
    worker: Option<u32>,
    pub(crate) dtype: DType,
    pub(crate) numpy: Numpy,
}

impl Handle {
    /// Makes the table together with all other workers.
    pub(crate) fn create(py: Python<'_>, spec: Spec, initial: Option<&Bound<'_, PyAny>>) -> PyResult<Handle> {
        let session = job::current(py, "create a table")?;
        spec.check().map_err(|error| errors::exception(py, &Error::from(error)))?;
        let dtype = spec.dtype();
        let numpy = Numpy::of(py, dtype)?;
        // Whether it has the right length all workers hear together, from the table.
        let initial = initial.map(|initial| Given::any_numbers(initial, dtype, &|| format!("initial value of {spec}"))).transpose()?;
        let site = call_site(py)?;
        let (timeout, worker) = (session.timeout(), session.worker_id());
        let bytes = initial.as_ref().map(Given::bytes);
        let table = job::wait(py, || session.create_table_at(spec, bytes, &site, interrupt::deadline(timeout)))?;
        Ok(Handle { table: Parental::new(table), timeout, worker, dtype, numpy })
    }

    /// Adds `delta`, `count` numbers, to the whole table or to these rows.
    pub(crate) fn add(&self, delta: &Bound<'_, PyAny>, rows: Option<&Ids>, count: usize, options: &AddOptions, wait: bool) -> PyResult<()> {
        let delta_given = Given::numbers(delta, self.dtype, count, &|| self.operation("add to"))?;
        let (bytes, rows) = (delta_given.bytes(), rows.map(Ids::as_slice));
        self.call(delta.py(), "add to", |table, by| table.add(bytes, rows, options, wait, by))
    }

    /// Fetches the whole table or these rows.
    pub(crate) fn get<'py>(&self, py: Python<'py>, rows: Option<&Ids>, mut out: Out<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (bytes, rows) = (out.bytes_mut(), rows.map(Ids::as_slice));
        self.call(py, "get from", |table, by| table.get(bytes, rows, by))?;
        out.finish()
    }

    /// Adds and fetches in one pass.
    pub(crate) fn add_get<'py>(
        &self,
        delta: &Bound<'py, PyAny>,
        rows: Option<&Ids>,
        count: usize,
        options: &AddOptions,
        mut out: Out<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let given = Given::numbers(delta, self.dtype, count, &|| self.operation("add_get to"))?;
        let copied = given.apart_from(&out);
        let bytes = copied.as_deref().unwrap_or_else(|| given.bytes());
        let (result, rows) = (out.bytes_mut(), rows.map(Ids::as_slice));
        self.call(delta.py(), "add_get to", |table, by| table.add_get(bytes, result, rows, options, by))?;
        out.finish()
    }

    /// Begins to fetch the whole table or these rows; the result will have this shape.
    pub(crate) fn get_async(&self, py: Python<'_>, rows: Option<&Ids>, shape: Vec<usize>) -> PyResult<Future> {
        let rows = rows.map(|rows| rows.as_slice().to_vec());
        let pending = self.call(py, "get_async from", |table, _| table.get_async(rows))?;
        Ok(Future::new(pending, self.dtype, shape))
    }

    /// How many adds each worker has made, as far as this process knows.
    pub(crate) fn clocks(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.call(py, "clocks of", |table, by| table.clocks_by(by))
    }

    /// How many adds this worker has made; 0 in a process that is no worker.
    pub(crate) fn clock(&self, py: Python<'_>) -> PyResult<u64> {
        let clocks = self.clocks(py)?;
        Ok(self.worker.and_then(|worker| clocks.get(worker as usize).copied()).unwrap_or(0))
    }

    pub(crate) fn name(&self) -> &str {
        self.table.name()
    }

    /// The table in words, as errors speak of it.
    pub(crate) fn words(&self) -> String {
        self.table.spec().to_string()
    }

    pub(crate) fn operation(&self, verb: &str) -> String {
        format!("{verb} {}", self.table.spec())
    }

    /// NumPy's object for the dtype; bfloat16 is a plain name where nobody knows better.
    pub(crate) fn python_dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python(py)?.call_method1("dtype_object", (self.dtype.name(),))
    }

    /// Runs one call on the table without the interpreter.
    pub(crate) fn call<T: Send, E: Into<Error> + Send>(
        &self,
        py: Python<'_>,
        verb: &str,
        call: impl FnOnce(&Table, Deadline) -> Result<T, E> + Send,
    ) -> PyResult<T> {
        job::refuse_fork(py, || self.operation(verb))?;
        let (table, timeout) = (&*self.table, self.timeout);
        job::wait(py, move || call(table, interrupt::deadline(timeout)))
    }
}

/// A table's dials, from the words of its constructor.
pub(crate) fn specified(
    py: Python<'_>,
    spec: Spec,
    dtype: DType,
    updater: &str,
    name: Option<String>,
    staleness: Option<i64>,
) -> PyResult<Spec> {
    let updater = Updater::from_name(updater).map_err(|error| errors::exception(py, &Error::from(error)))?;
    if updater == Updater::Gradient {
        return Err(configuration(py, "updater `gradient` is that of key-value stores\nhint: sl.kvstore.create(), or one of add, sgd, momentum_sgd, adagrad, dcasgd, dcasgda".into()));
    }
    let staleness = staleness
        .map(|bound| u32::try_from(bound).map_err(|_| configuration(py, format!("staleness={bound} is not a number of rounds, 0 or more"))))
        .transpose()?;
    let sync = job::current(py, "create a table")?.sync();
    let consistency = Consistency::new(sync, staleness);
    let spec = spec.with_dtype(dtype).with_updater(updater).with_consistency(consistency);
    Ok(match name {
        Some(name) => spec.named(name),
        None => spec,
    })
}

/// A length that a user gave, which may be zero but not less.
pub(crate) fn length(py: Python<'_>, what: &str, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let number: i64 = given.extract()?;
    usize::try_from(number).map_err(|_| configuration(py, format!("{what}={number} is not a length, 0 or more")))
}

/// The options that travel with an add.
pub(crate) fn options(learning_rate: Option<f32>, momentum: Option<f32>, rho: Option<f32>, lambda: Option<f32>) -> AddOptions {
    AddOptions { learning_rate, momentum, rho, lambda }
}

/// A tuple that says a shape.
pub(crate) fn shape_tuple(py: Python<'_>, shape: &[usize]) -> PyResult<Py<PyTuple>> {
    Ok(PyTuple::new(py, shape)?.unbind())
}

/// Where in the user's program the current call stands.
pub(crate) fn call_site(py: Python<'_>) -> PyResult<String> {
    Ok(site::here(py)?.to_string())
}

fn configuration(py: Python<'_>, text: String) -> PyErr {
    errors::of_class(py, "ConfigurationError", text)
}
