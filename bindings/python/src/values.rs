//! Dynamic values: a Python object becomes what every language of Syncline can read, and comes back.
//!
//! | Python | travels as | comes back as |
//! |---|---|---|
//! | None, bool, int (64 bits), float, str | the same | the same |
//! | bytes, bytearray | bytes | bytes |
//! | list, tuple | a list | a list |
//! | dict | pairs in their order | a dict |
//! | an array of any framework, in main memory | a tensor | a NumPy array |
//!
//! Nothing is pickled: what arrives is data, never code.

use std::borrow::Cow;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use syncline::{DType, TensorValue, Value};
use syncline_tensor::Shape;

use crate::arrays::{presented, python};
use crate::errors;
use crate::memory::Lent;
use crate::view::View;

/// Deeper structures are refused, as on the wire; a list that contains itself ends here too.
const MAX_DEPTH: usize = 100;

/// What `object` says, with its bytes copied; `operation` begins the error's text.
pub(crate) fn from_python(object: &Bound<'_, PyAny>, operation: &str) -> PyResult<Value<'static>> {
    read(object, operation, 0)
}

fn read(object: &Bound<'_, PyAny>, operation: &str, depth: usize) -> PyResult<Value<'static>> {
    let py = object.py();
    if depth > MAX_DEPTH {
        let text = format!("{operation}: lists and dicts are nested more than {MAX_DEPTH} deep; does one contain itself?");
        return Err(errors::of_class(py, "ConfigurationError", text));
    }
    let inside = |item: Bound<'_, PyAny>| read(&item, operation, depth + 1);
    Ok(if object.is_none() {
        Value::Nil
    } else if let Ok(truth) = object.cast::<PyBool>() {
        Value::Bool(truth.is_true())
    } else if object.is_instance_of::<PyInt>() {
        Value::Int(object.extract().map_err(|_| unfit(object, operation, "it does not fit into 64 bits"))?)
    } else if let Ok(number) = object.cast::<PyFloat>() {
        Value::Float(number.value())
    } else if let Ok(text) = object.cast::<PyString>() {
        Value::Str(Cow::Owned(text.to_str()?.to_owned()))
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        Value::Bytes(Cow::Owned(bytes.as_bytes().to_vec()))
    } else if let Ok(bytes) = object.cast::<PyByteArray>() {
        Value::Bytes(Cow::Owned(bytes.to_vec()))
    } else if let Ok(list) = object.cast::<PyList>() {
        Value::List(list.iter().map(inside).collect::<PyResult<_>>()?)
    } else if let Ok(tuple) = object.cast::<PyTuple>() {
        Value::List(tuple.iter().map(inside).collect::<PyResult<_>>()?)
    } else if let Ok(dict) = object.cast::<PyDict>() {
        let mut pairs = Vec::with_capacity(dict.len());
        for (key, item) in dict.iter() {
            pairs.push((read_key(&key, operation)?, inside(item)?));
        }
        Value::Map(pairs)
    } else {
        tensor(object, operation)?
    })
}

fn read_key(key: &Bound<'_, PyAny>, operation: &str) -> PyResult<Value<'static>> {
    match read(key, operation, 0)? {
        key @ (Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Str(_) | Value::Bytes(_)) => Ok(key),
        _ => Err(unfit(key, operation, "a key of a dict must be a number or a text")),
    }
}

fn tensor(object: &Bound<'_, PyAny>, operation: &str) -> PyResult<Value<'static>> {
    let py = object.py();
    let direct = Lent::by(object).and_then(|lent| lent.dtype.map(|dtype| (lent, dtype)));
    let (lent, dtype) = match direct {
        Some(direct) => direct,
        None => {
            let (array, name): (Bound<'_, PyAny>, String) =
                python(py)?.call_method1(intern!(py, "sendable"), (object, operation))?.extract()?;
            let dtype = DType::from_name(&name).map_err(|_| unfit(object, operation, &format!("its elements are {name}")))?;
            (Lent::by(&array).ok_or_else(|| unfit(object, operation, "it lends no memory"))?, dtype)
        }
    };
    let made = Shape::new(&lent.shape()).ok().and_then(|shape| TensorValue::new(dtype, shape, lent.bytes().to_vec()).ok());
    Ok(Value::Tensor(Box::new(made.ok_or_else(|| unfit(object, operation, "it has too many axes"))?)))
}

/// `value` as a Python object; tensors become NumPy arrays over the bytes they hold.
pub(crate) fn to_python<'py>(py: Python<'py>, value: Value<'static>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Nil => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, truth).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => PyFloat::new(py, number).into_any(),
        Value::Str(text) => PyString::new(py, &text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        Value::List(items) => {
            let items = items.into_iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Map(pairs) => {
            let dict = PyDict::new(py);
            for (key, item) in pairs {
                dict.set_item(to_python(py, key)?, to_python(py, item)?)?;
            }
            dict.into_any()
        }
        Value::Tensor(tensor) => {
            let (dtype, shape, data) = tensor.into_parts();
            let view = Bound::new(py, View::of_bytes(data.into_owned(), dtype, shape.dims()))?;
            presented(python(py)?.call_method1(intern!(py, "array_over"), (view,))?, dtype)?
        }
    })
}

fn unfit(object: &Bound<'_, PyAny>, operation: &str, why: &str) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    errors::of_class(object.py(), "DTypeMismatch", format!("{operation}: a {kind} cannot be sent: {why}"))
}
