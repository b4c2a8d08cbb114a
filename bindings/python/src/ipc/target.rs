//! An array of Python's that a message is received into.

use pyo3::prelude::*;
use syncline::DType;
use syncline::ipc::{Shape, TensorViewMut};

use crate::errors;
use crate::memory::Lent;

/// The memory of `out`, or memory like it that is copied there afterwards when `out` is not contiguous.
pub(super) struct Target<'py> {
    lent: Lent,
    dtype: DType,
    shape: Shape,
    /// What to copy, and where.
    through: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    out: Bound<'py, PyAny>,
}

impl<'py> Target<'py> {
    pub(super) fn of(out: &Bound<'py, PyAny>) -> PyResult<Target<'py>> {
        let py = out.py();
        let refused = |text: String| errors::of_class(py, "ShapeMismatch", format!("recv: {text}"));
        let opened = py.import("syncline.ipc._arrays")?.call_method1("target", (out,))?;
        let (memory, dtype, dims, other): (Bound<'py, PyAny>, String, Vec<usize>, Option<Bound<'py, PyAny>>) = opened.extract()?;
        let lent = Lent::by(&memory).ok_or_else(|| refused("the array lends no memory".into()))?;
        Ok(Target {
            lent,
            dtype: DType::from_name(&dtype).map_err(|error| refused(error.to_string()))?,
            shape: Shape::new(&dims).map_err(|error| refused(error.to_string()))?,
            through: other.map(|array| (memory, array)),
            out: out.clone(),
        })
    }

    /// Lets `receive` fill it and returns the array that was given.
    pub(super) fn fill(mut self, receive: impl FnOnce(&mut TensorViewMut<'_>) -> PyResult<()>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.out.py();
        let view = TensorViewMut::contiguous(self.lent.bytes_mut(), self.dtype, self.shape.clone());
        let mut view = view.map_err(|error| errors::of_class(py, "ShapeMismatch", format!("recv: {error}")))?;
        receive(&mut view)?;
        if let Some((memory, array)) = &self.through {
            py.import("syncline.ipc._arrays")?.call_method1("pour", (memory, array))?;
        }
        Ok(self.out)
    }
}
