//! Casts that NumPy does not know: to and from bfloat16.

use pyo3::prelude::*;
use syncline::DType;
use syncline_tensor::TensorError;
use syncline_tensor::kernels;

use crate::errors;
use crate::memory::Lent;

/// Writes the numbers of `source` into `target`, both C-contiguous, each rounded once; bfloat16 is held as 16 bits.
#[pyfunction]
pub(crate) fn cast(source: &Bound<'_, PyAny>, source_dtype: &str, target: &Bound<'_, PyAny>, target_dtype: &str) -> PyResult<()> {
    let py = source.py();
    let memory = |array: &Bound<'_, PyAny>| Lent::by(array).ok_or_else(|| refused(py, "the array lends no contiguous memory"));
    let (from, mut to) = (memory(source)?, memory(target)?);
    if !to.writable || from.overlaps(&to) {
        return Err(refused(py, "the target is read-only or is the source"));
    }
    let mut convert = || -> Result<(), TensorError> {
        kernels::cast(DType::from_name(source_dtype)?, from.bytes(), DType::from_name(target_dtype)?, to.bytes_mut())
    };
    convert().map_err(|error| refused(py, &error.to_string()))
}

fn refused(py: Python<'_>, why: &str) -> PyErr {
    errors::of_class(py, "ShapeMismatch", format!("cast: {why}"))
}
