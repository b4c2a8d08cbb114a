//! `KVTable`: one number for each 64-bit key.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::Spec;

use crate::arrays::{Given, Ids, Out, dtype_named};
use crate::errors;
use crate::tables::handle::{Handle, specified};

/// One number for each whole number of 64 bits; those never added to read as zero.
///
/// Making one is collective, as for `ArrayTable`. `get` and `add` take a sequence of keys, or one key.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct KVTable {
    handle: Handle,
}

#[pymethods]
impl KVTable {
    #[new]
    #[pyo3(signature = (key = None, value = None, *, name = None, staleness = None),
           text_signature = "(key=\"int64\", value=\"float32\", *, name=None, staleness=None)")]
    fn new(
        py: Python<'_>,
        key: Option<&Bound<'_, PyAny>>,
        value: Option<&Bound<'_, PyAny>>,
        name: Option<String>,
        staleness: Option<i64>,
    ) -> PyResult<KVTable> {
        if let Some(key) = key
            && dtype_named(Some(key))? != syncline::DType::I64
        {
            return Err(errors::of_class(py, "ConfigurationError", "the keys of a key-value table are int64"));
        }
        let value = dtype_named(value)?;
        let spec = specified(py, Spec::keys(), value, "add", name, staleness)?;
        Ok(KVTable { handle: Handle::create(py, spec, None)? })
    }

    /// Fetches one value per key: a new array, or `out` filled in place; for one key, its value.
    #[pyo3(signature = (keys, out = None))]
    fn get<'py>(&self, py: Python<'py>, keys: &Bound<'py, PyAny>, out: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let ids = Ids::sequence_or_one(keys, "keys")?;
        let keys = ids.as_slice();
        let Handle { numpy, dtype, .. } = &self.handle;
        let shape = PyTuple::new(py, [keys.len()])?;
        let mut into = Out::of(out, numpy, *dtype, &shape, keys.len(), &|| self.handle.operation("get from"))?;
        let bytes = into.bytes_mut();
        self.handle.call(py, "get from", |table, by| table.get_keys(keys, bytes, by))?;
        let values = into.finish()?;
        if ids.single && out.is_none() { values.get_item(0) } else { Ok(values) }
    }

    /// Adds one value per key; a repeated key is added to repeatedly.
    ///
    /// Returns when the values are taken over and may be changed again; with `sync` when they are applied.
    #[pyo3(signature = (keys, values, sync = false))]
    fn add(&self, py: Python<'_>, keys: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>, sync: bool) -> PyResult<()> {
        let ids = Ids::sequence_or_one(keys, "keys")?;
        let keys = ids.as_slice();
        let values = Given::numbers(values, self.handle.dtype, keys.len(), &|| self.handle.operation("add to"))?;
        let bytes = values.bytes();
        self.handle.call(py, "add to", |table, by| table.add_keys(keys, bytes, sync, by))
    }

    /// How many adds this worker has made.
    fn clock(&self, py: Python<'_>) -> PyResult<u64> {
        self.handle.clock(py)
    }

    /// How many adds each worker has made, as far as this process knows.
    #[getter]
    fn clocks(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.handle.clocks(py)
    }

    /// NumPy's object for the dtype of its values.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.handle.python_dtype(py)
    }

    /// Its name, given or made up.
    #[getter]
    fn name(&self) -> &str {
        self.handle.name()
    }

    fn __repr__(&self) -> String {
        format!("<syncline.KVTable: {}>", self.handle.words())
    }
}
