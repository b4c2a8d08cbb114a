//! `ArrayTable`: so many numbers, always moved whole.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::Spec;

use crate::arrays::{Out, dtype_named};
use crate::tables::Future;
use crate::tables::handle::{Handle, length, options, shape_tuple, specified};

/// Numbers that all workers share, always fetched and added to as a whole.
///
/// Making one is collective: every worker makes the same tables in the same order. Only worker 0's `init_value` counts,
/// and it is in place everywhere when the constructor returns.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct ArrayTable {
    handle: Handle,
    count: usize,
    shape: Py<PyTuple>,
}

#[pymethods]
impl ArrayTable {
    #[new]
    #[pyo3(signature = (size, init_value = None, *, dtype = None, updater = "add", name = None, staleness = None),
           text_signature = "(size, init_value=None, *, dtype=\"float32\", updater=\"add\", name=None, staleness=None)")]
    fn new(
        py: Python<'_>,
        size: &Bound<'_, PyAny>,
        init_value: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        updater: &str,
        name: Option<String>,
        staleness: Option<i64>,
    ) -> PyResult<ArrayTable> {
        let count = length(py, "size", size)?;
        let dtype = dtype_named(dtype)?;
        let spec = specified(py, Spec::array(count as u64), dtype, updater, name, staleness)?;
        Ok(ArrayTable { handle: Handle::create(py, spec, init_value)?, count, shape: shape_tuple(py, &[count])? })
    }

    /// Fetches the table: a new array, or `out` filled in place.
    #[pyo3(signature = (out = None))]
    fn get<'py>(&self, py: Python<'py>, out: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let out = self.out(py, out, "get from")?;
        self.handle.get(py, None, out)
    }

    /// Begins to fetch the table; the answer is a future with `wait(timeout=None)` and `done()`.
    fn get_async(&self, py: Python<'_>) -> PyResult<Future> {
        self.handle.get_async(py, None, vec![self.count])
    }

    /// Adds `delta`, as many numbers as the table has, whatever their shape.
    ///
    /// Returns when `delta` is taken over and may be changed again; with `sync` when it is applied.
    #[pyo3(signature = (delta, sync = false, *, learning_rate = None, momentum = None, rho = None, lambda_ = None))]
    fn add(
        &self,
        delta: &Bound<'_, PyAny>,
        sync: bool,
        learning_rate: Option<f32>,
        momentum: Option<f32>,
        rho: Option<f32>,
        lambda_: Option<f32>,
    ) -> PyResult<()> {
        self.handle.add(delta, None, self.count, &options(learning_rate, momentum, rho, lambda_), sync)
    }

    /// Adds `delta` and fetches what the table is then, in one pass.
    #[pyo3(signature = (delta, out = None, *, learning_rate = None, momentum = None, rho = None, lambda_ = None))]
    #[expect(clippy::too_many_arguments, reason = "the options of updaters are keywords")]
    fn add_get<'py>(
        &self,
        py: Python<'py>,
        delta: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
        learning_rate: Option<f32>,
        momentum: Option<f32>,
        rho: Option<f32>,
        lambda_: Option<f32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let out = self.out(py, out, "add_get to")?;
        self.handle.add_get(delta, None, self.count, &options(learning_rate, momentum, rho, lambda_), out)
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

    /// `(size,)`.
    #[getter]
    fn shape(&self, py: Python<'_>) -> Py<PyTuple> {
        self.shape.clone_ref(py)
    }

    /// How many numbers it has.
    #[getter]
    fn size(&self) -> usize {
        self.count
    }

    /// NumPy's object for its dtype.
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
        format!("<syncline.ArrayTable: {}>", self.handle.words())
    }
}

impl ArrayTable {
    fn out<'py>(&self, py: Python<'py>, out: Option<&Bound<'py, PyAny>>, verb: &str) -> PyResult<Out<'py>> {
        let Handle { numpy, dtype, .. } = &self.handle;
        Out::of(out, numpy, *dtype, self.shape.bind(py), self.count, &|| self.handle.operation(verb))
    }
}
