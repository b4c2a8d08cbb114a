//! `MatrixTable`: rows that move whole or by id.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use syncline::{DType, Spec};

use crate::arrays::{Ids, Out, dtype_named, python};
use crate::tables::Future;
use crate::tables::handle::{Handle, length, options, shape_tuple, specified};
use crate::view::View;

/// Rows of numbers that all workers share, fetched and added to as a whole or by row.
///
/// Making one is collective, as for `ArrayTable`. Row ids count from 0, in any order; a repeated id is fetched twice and
/// added to twice, and one that does not exist is an error that changes nothing.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct MatrixTable {
    handle: Handle,
    rows: usize,
    cols: usize,
    shape: Py<PyTuple>,
}

#[pymethods]
impl MatrixTable {
    #[new]
    #[pyo3(signature = (num_row, num_col, init_value = None, *, dtype = None, updater = "add", name = None, staleness = None),
           text_signature = "(num_row, num_col, init_value=None, *, dtype=\"float32\", updater=\"add\", name=None, staleness=None)")]
    #[expect(clippy::too_many_arguments, reason = "the dials of a table are keywords")]
    fn new(
        py: Python<'_>,
        num_row: &Bound<'_, PyAny>,
        num_col: &Bound<'_, PyAny>,
        init_value: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        updater: &str,
        name: Option<String>,
        staleness: Option<i64>,
    ) -> PyResult<MatrixTable> {
        let (rows, cols) = (length(py, "num_row", num_row)?, length(py, "num_col", num_col)?);
        let dtype = dtype_named(dtype)?;
        let spec = specified(py, Spec::matrix(rows as u64, cols as u64), dtype, updater, name, staleness)?;
        Ok(MatrixTable { handle: Handle::create(py, spec, init_value)?, rows, cols, shape: shape_tuple(py, &[rows, cols])? })
    }

    /// Fetches the table, or one row per id of `row_ids` in their order: a new array, or `out` filled in place.
    #[pyo3(signature = (row_ids = None, out = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        row_ids: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids = ids(row_ids)?;
        let out = self.out(py, out, ids.as_ref(), "get from")?;
        self.handle.get(py, ids.as_ref(), out)
    }

    /// Begins to fetch the table or these rows; the answer is a future with `wait(timeout=None)` and `done()`.
    #[pyo3(signature = (row_ids = None))]
    fn get_async(&self, py: Python<'_>, row_ids: Option<&Bound<'_, PyAny>>) -> PyResult<Future> {
        let ids = ids(row_ids)?;
        self.handle.get_async(py, ids.as_ref(), vec![self.rows_of(ids.as_ref()), self.cols])
    }

    /// Adds `data` to the table, or one row per id of `row_ids`; only the count of numbers matters, not their shape.
    ///
    /// Returns when `data` is taken over and may be changed again; with `sync` when it is applied.
    #[pyo3(signature = (data, row_ids = None, sync = false, *, learning_rate = None, momentum = None, rho = None, lambda_ = None))]
    #[expect(clippy::too_many_arguments, reason = "the options of updaters are keywords")]
    fn add(
        &self,
        data: &Bound<'_, PyAny>,
        row_ids: Option<&Bound<'_, PyAny>>,
        sync: bool,
        learning_rate: Option<f32>,
        momentum: Option<f32>,
        rho: Option<f32>,
        lambda_: Option<f32>,
    ) -> PyResult<()> {
        let ids = ids(row_ids)?;
        let count = self.rows_of(ids.as_ref()) * self.cols;
        self.handle.add(data, ids.as_ref(), count, &options(learning_rate, momentum, rho, lambda_), sync)
    }

    /// Adds `data` and fetches what the table, or these rows, are then, in one pass.
    #[pyo3(signature = (data, row_ids = None, out = None, *, learning_rate = None, momentum = None, rho = None, lambda_ = None))]
    #[expect(clippy::too_many_arguments, reason = "the options of updaters are keywords")]
    fn add_get<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
        row_ids: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
        learning_rate: Option<f32>,
        momentum: Option<f32>,
        rho: Option<f32>,
        lambda_: Option<f32>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ids = ids(row_ids)?;
        let count = self.rows_of(ids.as_ref()) * self.cols;
        let out = self.out(py, out, ids.as_ref(), "add_get to")?;
        self.handle.add_get(data, ids.as_ref(), count, &options(learning_rate, momentum, rho, lambda_), out)
    }

    /// Writes into `out`, which holds the whole table, the rows that others changed since this worker's last call, and
    /// returns their ids. The first call brings every row; a worker's own adds do not come back to it.
    fn get_changed<'py>(&self, py: Python<'py>, out: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let mut out = self.out(py, Some(out), None, "get_changed from")?;
        let bytes = out.bytes_mut();
        let changed = self.handle.call(py, "get_changed from", |table, by| table.get_changed(bytes, by))?;
        let count = changed.len();
        let bytes = changed.iter().flat_map(|id| id.to_ne_bytes()).collect();
        let changed = python(py)?.call_method1("array_over", (View::of_bytes(bytes, DType::I64, &[count]),))?;
        out.finish_rows(&changed, (self.rows, self.cols))?;
        Ok(changed)
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

    /// `(num_row, num_col)`.
    #[getter]
    fn shape(&self, py: Python<'_>) -> Py<PyTuple> {
        self.shape.clone_ref(py)
    }

    /// How many numbers it has.
    #[getter]
    fn size(&self) -> usize {
        self.rows * self.cols
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
        format!("<syncline.MatrixTable: {}>", self.handle.words())
    }
}

impl MatrixTable {
    fn rows_of(&self, ids: Option<&Ids>) -> usize {
        ids.map_or(self.rows, |ids| ids.as_slice().len())
    }

    fn out<'py>(&self, py: Python<'py>, out: Option<&Bound<'py, PyAny>>, ids: Option<&Ids>, verb: &str) -> PyResult<Out<'py>> {
        let Handle { numpy, dtype, .. } = &self.handle;
        let rows = self.rows_of(ids);
        let shape = match ids {
            None => self.shape.bind(py).clone(),
            Some(_) => PyTuple::new(py, [rows, self.cols])?,
        };
        Out::of(out, numpy, *dtype, &shape, rows * self.cols, &|| self.handle.operation(verb))
    }
}

fn ids(row_ids: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Ids>> {
    row_ids.map(|row_ids| Ids::sequence(row_ids, "row_ids")).transpose()
}
