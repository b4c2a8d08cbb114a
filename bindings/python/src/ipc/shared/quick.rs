//! Small plain objects on their shortest way into a channel: one walk, nothing lent, nothing that a wait would have to keep.
//!
//! Most items are a number, a short text or a few of them. What they cost is what surrounds the copy, so they go without the parcel
//! that larger objects need (`parcel.rs`); both make the same values of the same objects.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use syncline::ipc::Value;

/// Bytes of a text that is short.
const SHORT: usize = 512;

/// Items of a tuple, list or dict that is small.
const FEW: usize = 8;

/// The value of a small plain object. None where a parcel has to look closer.
pub(super) fn value<'a>(object: &'a Bound<'_, PyAny>) -> Option<Value<'a>> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return (bytes.len() <= SHORT).then(|| Value::from(bytes));
    }
    if let Ok(text) = object.cast_exact::<PyString>() {
        return text.to_str().ok().filter(|text| text.len() <= SHORT).map(Value::from);
    }
    held(object, 0)
}

/// The same, holding its text: what lies in a list may be taken out of it at any time.
fn held(object: &Bound<'_, PyAny>, depth: usize) -> Option<Value<'static>> {
    if object.is_none() {
        return Some(Value::Nil);
    }
    if let Ok(number) = object.cast_exact::<PyInt>() {
        return number.extract().ok().map(Value::Int);
    }
    if let Ok(text) = object.cast_exact::<PyString>() {
        return text.to_str().ok().filter(|text| text.len() <= SHORT).map(|text| Value::from(text.to_owned()));
    }
    if let Ok(number) = object.cast_exact::<PyFloat>() {
        return Some(Value::Float(number.value()));
    }
    if let Ok(truth) = object.cast_exact::<PyBool>() {
        return Some(Value::Bool(truth.is_true()));
    }
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return (bytes.as_bytes().len() <= SHORT).then(|| Value::from(bytes.as_bytes().to_owned()));
    }
    if depth > 1 {
        return None;
    }
    if let Ok(tuple) = object.cast_exact::<PyTuple>() {
        // A tuple is a list behind an empty opaque mark.
        let mark = std::iter::once(Some(Value::Opaque((&[][..]).into())));
        let items = (tuple.len() <= FEW).then(|| mark.chain(tuple.iter().map(|item| held(&item, depth + 1))).collect::<Option<Vec<_>>>());
        return items.flatten().map(Value::List);
    }
    if let Ok(list) = object.cast_exact::<PyList>() {
        let items = (list.len() <= FEW).then(|| list.iter().map(|item| held(&item, depth + 1)).collect::<Option<Vec<_>>>());
        return items.flatten().map(Value::List);
    }
    if let Ok(map) = object.cast_exact::<PyDict>()
        && map.len() <= FEW
    {
        let pair = |(key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            // Other keys are for the parcel to judge.
            key.is_exact_instance_of::<PyString>().then(|| Some((held(&key, 2)?, held(&value, depth + 1)?))).flatten()
        };
        return map.iter().map(pair).collect::<Option<Vec<_>>>().map(Value::Map);
    }
    None
}
