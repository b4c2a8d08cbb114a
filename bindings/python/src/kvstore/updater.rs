//! Functions of the user's that a local store calls for each push.

use std::cell::RefCell;

use pyo3::prelude::*;
use syncline::kvstore::{DenseMut, Key, Value};
use syncline::{DType, Error};

use super::values::{contiguous, helpers, python_rows};
use crate::arrays;
use crate::optimizer::python_key;
use crate::view::View;

thread_local! {
    /// What the function raised in this thread's last push.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The exception of the user's function, when a call failed because of it.
pub(super) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}

/// `function(key, recv, local)`, as the store calls it.
///
/// What Python sees are copies: it may keep its arrays for as long as it likes, and the store's memory stays the store's.
pub(super) fn updater(function: Py<PyAny>) -> impl FnMut(&Key, Value<'_>, DenseMut<'_>) -> Result<(), Error> + Send + 'static {
    move |key, pushed, mut stored| {
        Python::attach(|py| {
            call(py, &function, key, pushed, &mut stored).map_err(|raised| {
                let error = Error::of_function("push", format!("key {key}: the updater raised {raised}"));
                RAISED.set(Some(raised));
                error
            })
        })
    }
}

fn call(py: Python<'_>, function: &Py<PyAny>, key: &Key, pushed: Value<'_>, stored: &mut DenseMut<'_>) -> PyResult<()> {
    let (dtype, shape) = (stored.dtype(), stored.shape().to_vec());
    let received = match pushed {
        Value::Dense(dense) => array(py, dense.bytes().to_vec(), dtype, &shape)?,
        Value::RowSparse(rows) => python_rows(py, rows.clone())?,
    };
    let local = array(py, stored.bytes().to_vec(), dtype, &shape)?;
    function.bind(py).call1((python_key(py, key)?, received, &local))?;
    let result = helpers(py)?.call_method1("bits", (local, dtype.name()))?;
    let left = contiguous(&result)?;
    stored.bytes().copy_from_slice(left.bytes());
    Ok(())
}

fn array<'py>(py: Python<'py>, bytes: Vec<u8>, dtype: DType, shape: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    let view = Bound::new(py, View::of_bytes(bytes, dtype, shape))?;
    let array = arrays::python(py)?.call_method1("array_over", (view,))?;
    helpers(py)?.call_method1("lent", (array, dtype.name()))
}
