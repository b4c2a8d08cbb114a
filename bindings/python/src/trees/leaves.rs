//! What `python/syncline/_trees.py` calls with the leaves of a structure that it has walked.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyList;
use syncline::collective::{How, Leaf};
use syncline::{DType, Error, ReduceOp, Value};
use syncline_tensor::Shape;

use super::found::Raised;
use super::future::{Folding, Reduction};
use super::tree::{Tree, message, named, refused};
use super::under_way::UnderWay;
use crate::ipc::values::{Draft, to_python};
use crate::memory::Lent;
use crate::view::View;
use crate::{errors, job, site};

/// Reduces contiguous, writable arrays where they lie, all in one operation; bfloat16 is held as 16 bits.
#[pyfunction]
pub(crate) fn reduce_leaves(
    py: Python<'_>,
    tree: &Bound<'_, Tree>,
    arrays: Vec<Bound<'_, PyAny>>,
    dtypes: Vec<String>,
    names: Vec<String>,
    op: &str,
    contributes: bool,
) -> PyResult<u32> {
    let op = operation(py, op)?;
    let mut lent = arrays.iter().map(|array| writable(py, array)).collect::<PyResult<Vec<_>>>()?;
    let mut leaves = Vec::with_capacity(lent.len());
    for ((lent, dtype), name) in lent.iter_mut().zip(&dtypes).zip(&names) {
        let shape = shape_of(py, lent, name)?;
        leaves.push(Leaf { name, dtype: dtype_named(py, dtype)?, shape, bytes: lent.bytes_mut() });
    }
    tree.get().call(py, "all_reduce", |tree, how| tree.all_reduce_leaves(&mut leaves, op, contributes, how))
}

/// Folds leaves of any kind by `function(mine, received)`, once per leaf and child.
#[pyfunction]
pub(crate) fn fold_leaves<'py>(
    py: Python<'py>,
    tree: &Bound<'py, Tree>,
    leaves: Vec<Bound<'py, PyAny>>,
    structure: &str,
    function: &Bound<'py, PyAny>,
    contributes: bool,
) -> PyResult<(Bound<'py, PyList>, u32)> {
    let drafts = leaves.iter().map(|leaf| Draft::of(leaf, "all_reduce")).collect::<PyResult<Vec<_>>>()?;
    let leaves = drafts.iter().map(|draft| message(py, "all_reduce", draft)).collect::<PyResult<Vec<_>>>()?;
    let function = function.clone().unbind();
    let raised = Raised::default();
    let folded = {
        let mut merge = |mine, received| merged(&raised, &function, mine, received);
        tree.get().call(py, "all_reduce", |tree, how| tree.fold_leaves(leaves, structure, &mut merge, contributes, how))
    };
    if let Some(error) = raised.take() {
        return Err(error);
    }
    let (leaves, contributors) = folded?;
    let leaves = leaves.into_iter().map(|leaf| to_python(py, leaf)).collect::<PyResult<Vec<_>>>()?;
    Ok((PyList::new(py, leaves)?, contributors))
}

/// Begins to fold leaves of any kind by `function(mine, received)`, which the engine's thread calls.
#[pyfunction]
pub(crate) fn start_fold<'py>(
    py: Python<'py>,
    tree: &Bound<'py, Tree>,
    leaves: Vec<Bound<'py, PyAny>>,
    structure: &str,
    function: &Bound<'py, PyAny>,
) -> PyResult<Folding> {
    job::refuse_fork(py, || "all_reduce_async".into())?;
    let drafts = leaves.iter().map(|leaf| Draft::of(leaf, "all_reduce_async")).collect::<PyResult<Vec<_>>>()?;
    let leaves = drafts.iter().map(|draft| message(py, "all_reduce_async", draft)).collect::<PyResult<Vec<_>>>()?;
    let raised = Arc::new(Raised::default());
    let (keeps, function) = (Arc::clone(&raised), function.clone().unbind());
    let merge = move |mine, received| merged(&keeps, &function, mine, received);
    let site = site::here(py)?;
    let inner = tree.get().inner();
    // Nobody presses Ctrl-C in the engine's thread: whoever waits hears it.
    let how = How { site: &site, by: inner.deadline() };
    let started = inner.fold_leaves_start(leaves, structure, merge, how).map_err(|error| errors::exception(py, &error))?;
    Ok(Folding::new(UnderWay::new(started), raised, tree.get()))
}

/// What the user's function makes of two leaves; what it raises is kept.
fn merged(raised: &Raised, function: &Py<PyAny>, mine: Value<'static>, received: Value<'static>) -> Result<Value<'static>, Error> {
    let mut told = "an exception".to_owned();
    let merged = raised.by(|py| {
        let call = || {
            let (mine, received) = (to_python(py, mine)?, to_python(py, received)?);
            let result = function.bind(py).call1((&mine, received))?;
            let draft = Draft::of(if result.is_none() { &mine } else { &result }, "all_reduce")?;
            Ok(message(py, "all_reduce", &draft)?.into_owned())
        };
        call().inspect_err(|error: &PyErr| told = first_line(error))
    });
    merged.ok_or_else(|| Error::of_function("all_reduce", format!("the function that reduces raised {told}")))
}

/// An exception as the other nodes hear of it: its type and the beginning of what it says.
fn first_line(error: &PyErr) -> String {
    error.to_string().lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Reduces an array and returns this node's part of the numbers.
#[pyfunction]
pub(crate) fn scatter_reduced(py: Python<'_>, tree: &Bound<'_, Tree>, array: &Bound<'_, PyAny>, dtype: &str, op: &str) -> PyResult<View> {
    let (op, dtype) = (operation(py, op)?, dtype_named(py, dtype)?);
    let lent = Lent::by(array).ok_or_else(|| refused(py, "reduce_scatter: the array lends no memory"))?;
    let bytes = lent.bytes();
    let part = tree.get().call(py, "reduce_scatter", |tree, how| match tree.collectives() {
        None => Ok(bytes.to_vec()),
        Some(collectives) => Ok(collectives.reduce_scatter(bytes, dtype, op, how)?),
    })?;
    let count = part.len() / dtype.size();
    Ok(View::of_bytes(part, dtype, &[count]))
}

/// Begins to reduce contiguous, writable arrays where they lie, all in one operation.
#[pyfunction]
pub(crate) fn start_leaves(
    py: Python<'_>,
    tree: &Bound<'_, Tree>,
    arrays: Vec<Bound<'_, PyAny>>,
    dtypes: Vec<String>,
    names: Vec<String>,
    op: &str,
) -> PyResult<Reduction> {
    job::refuse_fork(py, || "all_reduce_async".into())?;
    let op = operation(py, op)?;
    let dtypes = dtypes.iter().map(|dtype| dtype_named(py, dtype)).collect::<PyResult<Vec<_>>>()?;
    let lent = arrays.iter().map(|array| writable(py, array)).collect::<PyResult<Vec<_>>>()?;
    let shapes = lent.iter().zip(&names).map(|(lent, name)| shape_of(py, lent, name)).collect::<PyResult<Vec<_>>>()?;
    Reduction::start(py, tree.get(), lent, names.into_iter().zip(dtypes).zip(shapes), op)
}

/// The value of the tree's last ordinary call.
#[pyfunction]
pub(crate) fn last_value(py: Python<'_>, tree: &Bound<'_, Tree>) -> Option<Py<PyAny>> {
    tree.get().last(py)
}

/// Notes the value of an ordinary call.
#[pyfunction]
pub(crate) fn remember_value(tree: &Bound<'_, Tree>, value: Py<PyAny>) {
    tree.get().remember(Some(value));
}

fn writable(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<Lent> {
    Lent::by(array).filter(|lent| lent.writable).ok_or_else(|| refused(py, "all_reduce: an array that was just made lends no memory"))
}

fn shape_of(py: Python<'_>, lent: &Lent, name: &str) -> PyResult<Shape> {
    Shape::new(&lent.shape()).map_err(|error| refused(py, &format!("all_reduce: `{name}`: {error}")))
}

fn operation(py: Python<'_>, name: &str) -> PyResult<ReduceOp> {
    named(name).ok_or_else(|| {
        let known = ReduceOp::ALL.map(ReduceOp::name).join(", ");
        refused(py, &format!("reduce={name:?} is not one of {known}, and no function"))
    })
}

fn dtype_named(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::from_name(name).map_err(|error| errors::of_class(py, "DTypeMismatch", error.to_string()))
}
