//! What concerns all tables, or none: checkpoints, and reductions without servers.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyString;
use syncline::{DType, ReduceOp};

use crate::arrays::{dtype_named, python};
use crate::memory::Lent;
use crate::view::View;
use crate::{errors, interrupt, job};

/// Saves all tables with their updater states below `path`. Every worker calls it.
///
/// A crash while saving leaves the previous checkpoint as it was.
#[pyfunction]
pub(crate) fn save(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let session = job::current(py, "save")?;
    job::wait(py, || session.save_by(&path, interrupt::deadline(session.timeout())))
}

/// Fills all tables from what `save` wrote, by any number of workers and servers. Every worker calls it.
///
/// The tables are made first, in the same manner; they are matched by name, else by order.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let session = job::current(py, "load")?;
    job::wait(py, || session.load_by(&path, interrupt::deadline(session.timeout())))
}

/// Combines `array` over all workers, in place and in order of worker, and returns it; no server takes part.
///
/// `op` is sum, prod, min, max or mean. Arrays that are not C-contiguous take one copy each way.
#[pyfunction]
#[pyo3(signature = (array, op = "sum"))]
pub(crate) fn aggregate<'py>(py: Python<'py>, array: &Bound<'py, PyAny>, op: &str) -> PyResult<Bound<'py, PyAny>> {
    let session = job::current(py, "aggregate")?;
    let Some(reduce) = ReduceOp::ALL.into_iter().find(|known| known.name() == op) else {
        let text = format!("aggregate: op={op:?} is not one of sum, prod, min, max, mean");
        return Err(errors::of_class(py, "ConfigurationError", text));
    };
    let mean = reduce == ReduceOp::Mean;
    // `work` is what is reduced: the caller's own memory, or a copy that is written back.
    let (work, name, direct): (Bound<'py, PyAny>, String, bool) = match Lent::by(array) {
        Some(lent) if lent.writable && lent.dtype.is_some_and(|dtype| !mean || dtype.is_float()) => {
            (array.clone(), lent.dtype.map_or("", DType::name).to_owned(), true)
        }
        _ => python(py)?.call_method1("reducible", (array, mean))?.extract()?,
    };
    let dtype = dtype_named(Some(PyString::new(py, &name).as_any()))?;
    let mut lent = Lent::by(&work).ok_or_else(|| errors::of_class(py, "SynclineError", "aggregate: the array lends no memory"))?;
    let bytes = lent.bytes_mut();
    job::wait(py, || session.aggregate_bytes(bytes, dtype, reduce, interrupt::deadline(session.timeout())))?;
    drop(lent);
    if !direct {
        python(py)?.call_method1("reduced", (array, &work, &name))?;
    }
    Ok(array.clone())
}

/// So many zero bytes in shared memory; the package gives them a dtype and a shape.
#[pyfunction]
pub(crate) fn empty_shared(py: Python<'_>, bytes: usize) -> PyResult<View> {
    let session = job::current(py, "empty_shared")?;
    Ok(View::of_shared(job::wait(py, || session.empty_shared(bytes))?))
}
