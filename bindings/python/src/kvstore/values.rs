//! What goes into a store and what comes out of it: arrays by pointer where their layout allows, row-sparse ones as ids and values.

use std::fmt;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyList, PyTuple, PyType};
use syncline::DType;
use syncline::kvstore::{Dense, DenseMut, Key, Output, RowSparse, Tensor, Value};

use crate::arrays::presented;
use crate::memory::Lent;
use crate::view::View;
use crate::{arrays, errors};

/// What an array was given for, as errors begin.
#[derive(Clone, Copy)]
pub(super) struct Purpose<'a> {
    pub(super) operation: &'static str,
    /// None where all outputs have passed with their keys before.
    pub(super) key: Option<&'a Key>,
}

impl<'a> Purpose<'a> {
    pub(super) fn new(operation: &'static str, key: &'a Key) -> Purpose<'a> {
        Purpose { operation, key: Some(key) }
    }
}

impl fmt::Display for Purpose<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key {
            Some(key) => write!(out, "{}: key {key}", self.operation),
            None => out.write_str(self.operation),
        }
    }
}

/// One array that came in.
pub(super) enum Item {
    Dense { lent: Lent, dtype: DType, shape: Vec<usize> },
    Rows(RowSparse),
}

impl Item {
    pub(super) fn of(object: &Bound<'_, PyAny>, purpose: Purpose<'_>) -> PyResult<Item> {
        if is_rows(object)? {
            return rows_from(object).map(Item::Rows);
        }
        if let Some(lent) = Lent::by(object)
            && let Some(dtype) = lent.dtype
            && !object.is_instance_of::<PyBytes>()
        {
            let shape = lent.shape();
            return Ok(Item::Dense { lent, dtype, shape });
        }
        let (array, name, shape): (Bound<'_, PyAny>, String, Vec<usize>) =
            helpers(object.py())?.call_method1("opened", (object, purpose.to_string()))?.extract()?;
        Ok(Item::Dense { lent: contiguous(&array)?, dtype: dtype(object.py(), &name)?, shape })
    }

    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Item::Dense { lent, dtype, shape } => {
                Value::Dense(Dense::new(*dtype, shape, lent.bytes()).expect("the memory of an array has the bytes of its shape"))
            }
            Item::Rows(rows) => Value::RowSparse(rows),
        }
    }
}

/// One array that will be filled.
pub(super) enum Target<'py> {
    /// Its own memory.
    Direct {
        lent: Lent,
        dtype: DType,
        shape: Vec<usize>,
    },
    /// A fresh array first, since it lies oddly in memory.
    Through {
        fresh: Bound<'py, PyAny>,
        lent: Lent,
        dtype: DType,
        shape: Vec<usize>,
        memory: Bound<'py, PyAny>,
    },
    Rows {
        object: Bound<'py, PyAny>,
        rows: RowSparse,
    },
}

impl<'py> Target<'py> {
    pub(super) fn of(object: &Bound<'py, PyAny>, purpose: Purpose<'_>) -> PyResult<Target<'py>> {
        let py = object.py();
        if is_rows(object)? {
            let shape: Vec<usize> = object.getattr(intern!(py, "shape"))?.extract()?;
            let name: String = helpers(py)?.call_method1("name_of", (object,))?.extract()?;
            let rows = RowSparse::empty(dtype(py, &name)?, &shape).map_err(|error| errors::exception(py, &error.into()))?;
            return Ok(Target::Rows { object: object.clone(), rows });
        }
        if let Some(lent) = Lent::by(object)
            && let Some(dtype) = lent.dtype
            && lent.writable
        {
            let shape = lent.shape();
            return Ok(Target::Direct { lent, dtype, shape });
        }
        let (memory, name, shape, fresh): (Bound<'py, PyAny>, String, Vec<usize>, Option<Bound<'py, PyAny>>) =
            helpers(py)?.call_method1("opened_out", (object, purpose.to_string()))?.extract()?;
        let dtype = dtype(py, &name)?;
        Ok(match fresh {
            None => Target::Direct { lent: contiguous(&memory)?, dtype, shape },
            Some(fresh) => Target::Through { lent: contiguous(&fresh)?, fresh, dtype, shape, memory },
        })
    }

    /// The memory that will be written, if it is dense.
    pub(super) fn memory(&self) -> Option<&Lent> {
        match self {
            Target::Direct { lent, .. } | Target::Through { lent, .. } => Some(lent),
            Target::Rows { .. } => None,
        }
    }

    pub(super) fn output(&mut self) -> Output<'_> {
        match self {
            Target::Direct { lent, dtype, shape } | Target::Through { lent, dtype, shape, .. } => {
                Output::Dense(DenseMut::new(*dtype, shape, lent.bytes_mut()).expect("the memory of an array has the bytes of its shape"))
            }
            Target::Rows { rows, .. } => Output::RowSparse(rows),
        }
    }

    /// Writes a result that came as a tensor of its own.
    pub(super) fn fill(&mut self, tensor: &Tensor, operation: &str, py: Python<'_>) -> PyResult<()> {
        let fits = match self {
            Target::Direct { dtype, shape, .. } | Target::Through { dtype, shape, .. } => {
                *dtype == tensor.dtype() && shape == tensor.shape().dims()
            }
            Target::Rows { .. } => return Ok(()), // left alone, as a pull that waits does
        };
        if !fits {
            let text = format!("{operation}: the value is {} of shape {:?}, `out` is not", tensor.dtype(), tensor.shape().dims());
            return Err(errors::of_class(py, "ShapeMismatch", text));
        }
        if let Output::Dense(mut dense) = self.output() {
            dense.bytes().copy_from_slice(tensor.bytes());
        }
        Ok(())
    }

    /// Takes over rows that came as an array of their own.
    pub(super) fn fill_rows(self, found: RowSparse, operation: &str, py: Python<'_>) -> PyResult<()> {
        match self {
            Target::Rows { object, rows } if rows.dtype() == found.dtype() && rows.shape() == found.shape() => fill_rows(&object, found),
            _ => {
                let text = format!("{operation}: the value is {} of shape {:?}, `out` is not", found.dtype(), found.shape());
                Err(errors::of_class(py, "ShapeMismatch", text))
            }
        }
    }

    /// Makes what was written visible where the caller looks.
    pub(super) fn finish(self, filled: bool) -> PyResult<()> {
        match self {
            Target::Direct { .. } => Ok(()),
            Target::Through { fresh, memory, .. } => {
                helpers(fresh.py())?.call_method1("pour", (fresh, memory))?;
                Ok(())
            }
            Target::Rows { object, rows } if filled => fill_rows(&object, rows),
            Target::Rows { .. } => Ok(()),
        }
    }
}

/// Several things in a list or tuple, or one.
pub(super) fn listed<'py>(object: &Bound<'py, PyAny>) -> Option<Vec<Bound<'py, PyAny>>> {
    if let Ok(list) = object.cast::<PyList>() {
        return Some(list.iter().collect());
    }
    object.cast::<PyTuple>().ok().map(|tuple| tuple.iter().collect())
}

/// A new array for Python.
pub(super) fn array_of<'py>(py: Python<'py>, tensor: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let dtype = tensor.dtype();
    let view = Bound::new(py, View::of_tensor(tensor))?;
    presented(arrays::python(py)?.call_method1("array_over", (view,))?, dtype)
}

/// A new row-sparse array for Python.
pub(super) fn python_rows(py: Python<'_>, rows: RowSparse) -> PyResult<Bound<'_, PyAny>> {
    let shape = PyTuple::new(py, rows.shape())?;
    let made = rows_class(py)?.call_method1("_blank", (shape,))?;
    fill_rows(&made, rows)?;
    Ok(made)
}

pub(super) fn fill_rows(object: &Bound<'_, PyAny>, rows: RowSparse) -> PyResult<()> {
    let py = object.py();
    let (dtype, shape) = (rows.dtype(), rows.shape().to_vec());
    let (indices, values) = (rows.indices().to_vec(), rows.values().to_vec());
    let count = indices.len();
    let ids = View::of_ids(indices);
    let lengths: Vec<usize> = std::iter::once(count).chain(shape[1..].iter().copied()).collect();
    let module = arrays::python(py)?;
    let ids = module.call_method1("array_over", (Bound::new(py, ids)?,))?;
    let values = module.call_method1("array_over", (Bound::new(py, View::of_bytes(values, dtype, &lengths))?,))?;
    object.setattr(intern!(py, "indices"), ids)?;
    object.setattr(intern!(py, "values"), presented(values, dtype)?)
}

fn rows_from(object: &Bound<'_, PyAny>) -> PyResult<RowSparse> {
    let py = object.py();
    let shape: Vec<usize> = object.getattr(intern!(py, "shape"))?.extract()?;
    let (ids, values, name): (Bound<'_, PyAny>, Bound<'_, PyAny>, String) = helpers(py)?.call_method1("parts", (object,))?.extract()?;
    let (ids, values) = (contiguous(&ids)?, contiguous(&values)?);
    let ids = ids.ids().map(<[i64]>::to_vec).unwrap_or_default();
    RowSparse::new(dtype(py, &name)?, &shape, ids, values.bytes().to_vec()).map_err(|error| errors::exception(py, &error.into()))
}

pub(super) fn is_rows(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.is_instance(rows_class(object.py())?)
}

fn rows_class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let find = || Ok::<_, PyErr>(py.import("syncline._rows")?.getattr("RowSparse")?.cast_into::<PyType>()?.unbind());
    Ok(CLASS.get_or_try_init(py, find)?.bind(py))
}

/// The module with all that is better said in NumPy.
pub(super) fn helpers(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(MODULE.get_or_try_init(py, || py.import("syncline._store_arrays").map(Bound::unbind))?.bind(py))
}

pub(super) fn contiguous(array: &Bound<'_, PyAny>) -> PyResult<Lent> {
    Lent::by(array).ok_or_else(|| errors::of_class(array.py(), "SynclineError", "an array that was just made lends no memory"))
}

fn dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::from_name(name).map_err(|_| errors::of_class(py, "DTypeMismatch", format!("kvstore: no value is of dtype {name}")))
}
