//! Python objects as messages and back: plain data only. Nothing is pickled, and nothing that arrives is executed.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple};
use syncline::DType;
use syncline::ipc::{Error, Shape, Value, WireError};

use crate::arrays::{presented, python as arrays};
use crate::errors;
use crate::memory::Lent;
use crate::view::View;

/// As deep as a message may be nested.
const DEEPEST: usize = 128;

/// A message that borrows its arrays and bytes from Python while it is sent.
pub(crate) enum Draft {
    Plain(Value<'static>),
    Bytes(Lent),
    Tensor(Lent, DType, Shape),
    List(Vec<Draft>),
    Map(Vec<(Draft, Draft)>),
}

impl Draft {
    pub(crate) fn of(object: &Bound<'_, PyAny>, operation: &str) -> PyResult<Draft> {
        Draft::nested(object, operation, 0)
    }

    fn nested(object: &Bound<'_, PyAny>, operation: &str, depth: usize) -> PyResult<Draft> {
        let py = object.py();
        if depth > DEEPEST {
            let text = format!("{operation}: the value is nested deeper than {DEEPEST}\nhint: does it contain itself?");
            return Err(errors::of_class(py, "ConfigurationError", text));
        }
        let inside = |item: &Bound<'_, PyAny>| Draft::nested(item, operation, depth + 1);
        if object.is_none() {
            return Ok(Draft::Plain(Value::Nil));
        }
        if let Ok(truth) = object.cast_exact::<PyBool>() {
            return Ok(Draft::Plain(Value::Bool(truth.is_true())));
        }
        if object.is_instance_of::<PyInt>() {
            let number = object.extract().map_err(|_| {
                errors::of_class(py, "ConfigurationError", format!("{operation}: whole numbers travel with 64 bits, {object} has more"))
            })?;
            return Ok(Draft::Plain(Value::Int(number)));
        }
        if object.is_instance_of::<PyFloat>() {
            return Ok(Draft::Plain(Value::Float(object.extract()?)));
        }
        if object.is_instance_of::<PyString>() {
            return Ok(Draft::Plain(Value::from(object.extract::<String>()?)));
        }
        if object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyByteArray>() || object.is_instance_of::<PyMemoryView>() {
            return match Lent::by(object) {
                Some(lent) => Ok(Draft::Bytes(lent)),
                None => Ok(Draft::Plain(Value::from(object.call_method0("tobytes")?.extract::<Vec<u8>>()?))),
            };
        }
        if let Ok(list) = object.cast::<PyList>() {
            return Ok(Draft::List(list.iter().map(|item| inside(&item)).collect::<PyResult<_>>()?));
        }
        if let Ok(tuple) = object.cast::<PyTuple>() {
            return Ok(Draft::List(tuple.iter().map(|item| inside(&item)).collect::<PyResult<_>>()?));
        }
        if let Ok(map) = object.cast::<PyDict>() {
            let pairs = map.iter().map(|(key, value)| Ok((inside(&key)?, inside(&value)?)));
            return Ok(Draft::Map(pairs.collect::<PyResult<_>>()?));
        }
        // An array, a number of NumPy's, or something that cannot travel.
        let opened = py.import("syncline.ipc._arrays")?.call_method1("opened", (object, operation))?;
        let Ok((memory, dtype, dims)) = opened.extract::<(Bound<'_, PyAny>, String, Vec<usize>)>() else { return inside(&opened) };
        let refused = |text: String| errors::of_class(py, "ShapeMismatch", format!("{operation}: {text}"));
        let shape = Shape::new(&dims).map_err(|error| refused(error.to_string()))?;
        let lent = Lent::by(&memory).ok_or_else(|| refused("the array lends no memory".into()))?;
        Ok(Draft::Tensor(lent, DType::from_name(&dtype).map_err(|error| refused(error.to_string()))?, shape))
    }

    /// The message, over the memory that was lent.
    pub(crate) fn value(&self, py: Python<'_>, operation: &'static str) -> PyResult<Value<'_>> {
        self.laid_out().map_err(|cause| errors::of_ipc(py, &Error::Unsendable { operation, cause }))
    }

    /// The same for callers with an error of their own.
    pub(crate) fn laid_out(&self) -> Result<Value<'_>, WireError> {
        Ok(match self {
            Draft::Plain(Value::Str(text)) => Value::from(text.as_ref()),
            Draft::Plain(value) => value.clone(),
            Draft::Bytes(lent) => Value::from(lent.bytes()),
            Draft::Tensor(lent, dtype, shape) => Value::tensor(*dtype, shape.clone(), lent.bytes())?,
            Draft::List(items) => Value::List(items.iter().map(Draft::laid_out).collect::<Result<_, _>>()?),
            Draft::Map(pairs) => {
                Value::Map(pairs.iter().map(|(key, value)| Ok((key.laid_out()?, value.laid_out()?))).collect::<Result<_, WireError>>()?)
            }
        })
    }
}

/// A message as Python objects: maps are dicts, tensors are NumPy arrays of their own memory.
pub(crate) fn to_python<'py>(py: Python<'py>, value: Value<'static>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Nil => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, truth).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => PyFloat::new(py, number).into_any(),
        Value::Str(text) => PyString::new(py, &text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        Value::List(items) => {
            let items: Vec<Bound<'py, PyAny>> = items.into_iter().map(|item| to_python(py, item)).collect::<PyResult<_>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Map(pairs) => {
            let map = PyDict::new(py);
            for (key, value) in pairs {
                // A list cannot be a key in Python, a tuple can.
                let key = match key {
                    Value::List(_) => to_python(py, key)?.cast_into::<PyList>()?.to_tuple().into_any(),
                    key => to_python(py, key)?,
                };
                map.set_item(key, to_python(py, value)?)?;
            }
            map.into_any()
        }
        Value::Tensor(tensor) => {
            let (dtype, shape, data) = tensor.into_parts();
            let view = View::of_bytes(data.into_owned(), dtype, shape.dims());
            presented(arrays(py)?.call_method1("array_over", (view,))?, dtype)?
        }
        // A connection refuses them before they get here.
        Value::Opaque(_) | Value::Handle(_) => {
            return Err(pyo3::exceptions::PyTypeError::new_err("opaque objects and handles stay inside a family of processes"));
        }
    })
}
