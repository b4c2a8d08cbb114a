//! Python objects on their way between processes of one family, and back.
//!
//! ```text
//!   None bool int float str bytes, lists and dicts of these     plain values, which every language reads
//!   tuples of these                                             [empty opaque, item…]
//!   numpy.ndarray of our dtypes                                 a tensor: one copy in, none out; none at all between threads if it is frozen
//!   channel, queue, mutex, table                                a handle
//!   anything else                                               [opaque pickle, handle…, tensor…]: its buffers travel beside it
//! ```
//! Pickles exist inside a family only: processes that this program started itself, or ranks of one job on one host. What comes over a
//! connection goes another way (`values.rs`), which refuses them.

use std::cell::RefCell;
use std::sync::Arc;

use pyo3::exceptions::PyRecursionError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple};
use syncline::DType;
use syncline::ipc::{Data, Shape, SharedBytes, Value, WireError};

use super::handle::{handle_of, of_value};
use crate::arrays::{presented, python as arrays};
use crate::errors;
use crate::memory::Lent;
use crate::view::View;

/// As deep as plain lists and dicts may be nested; deeper ones are pickled, which follows objects that contain themselves.
const DEEPEST: usize = 64;

/// Bytes of a frozen array from which on threads share it: fewer are copied sooner.
const WORTH_SHARING: usize = 8 << 10;

/// An object that borrows its bytes and arrays from Python while it is written.
pub(super) enum Parcel {
    Plain(Value<'static>),
    /// Text and bytes, which stay where Python has them.
    Text(Py<PyString>),
    Bytes(Lent),
    Tensor(Lent, DType, Shape),
    /// An array that nobody can change: threads are given its memory.
    Frozen(SharedBytes, DType, Shape),
    List(Vec<Parcel>),
    Tuple(Vec<Parcel>),
    Map(Vec<(Parcel, Parcel)>),
    Pickled {
        pickle: Lent,
        handles: Vec<Value<'static>>,
        buffers: Vec<Lent>,
    },
}

thread_local! {
    /// The handles of the object that this thread pickles; none while it pickles for somebody else.
    static LEAVING: RefCell<Option<Vec<Value<'static>>>> = const { RefCell::new(None) };
    /// The handles of the object that this thread is unpickling.
    static ARRIVED: RefCell<Vec<Py<PyAny>>> = const { RefCell::new(Vec::new()) };
}

/// Puts a handle beside the pickle that is being made and returns its place there; none when the pickle is somebody else's.
pub(super) fn beside_pickle(handle: Value<'static>) -> Option<usize> {
    LEAVING.with_borrow_mut(|leaving| {
        let handles = leaving.as_mut()?;
        handles.push(handle);
        Some(handles.len() - 1)
    })
}

/// The handle that travelled beside the pickle which is being read.
#[pyfunction]
pub(crate) fn ipc_handle_beside(py: Python<'_>, place: usize) -> PyResult<Py<PyAny>> {
    let found = ARRIVED.with_borrow(|arrived| arrived.get(place).map(|handle| handle.clone_ref(py)));
    found.ok_or_else(|| errors::of_class(py, "SynclineError", "a handle was pickled for a channel and read elsewhere"))
}

impl Parcel {
    pub(super) fn of(object: &Bound<'_, PyAny>) -> PyResult<Parcel> {
        match Parcel::plain(object, 0)? {
            Some(parcel) => Ok(parcel),
            None => Parcel::pickled(object),
        }
    }

    /// None when only a pickle keeps what it is.
    fn plain(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Option<Parcel>> {
        let py = object.py();
        if object.is_none() {
            return Ok(Some(Parcel::Plain(Value::Nil)));
        }
        if let Ok(number) = object.cast_exact::<PyInt>() {
            return Ok(number.extract::<i64>().ok().map(|number| Parcel::Plain(Value::Int(number))));
        }
        if let Ok(text) = object.cast_exact::<PyString>() {
            // Text with half a surrogate pair is no UTF-8.
            return Ok(text.to_str().is_ok().then(|| Parcel::Text(text.clone().unbind())));
        }
        if let Ok(number) = object.cast_exact::<PyFloat>() {
            return Ok(Some(Parcel::Plain(Value::Float(number.value()))));
        }
        if object.cast_exact::<PyBytes>().is_ok() {
            return Ok(Lent::by(object).map(Parcel::Bytes));
        }
        if let Ok(truth) = object.cast_exact::<PyBool>() {
            return Ok(Some(Parcel::Plain(Value::Bool(truth.is_true()))));
        }
        if let Some(numpy) = ndarray(py)
            && object.get_type().is(numpy)
        {
            return Ok(Parcel::array(object));
        }
        if depth < DEEPEST {
            if let Ok(list) = object.cast_exact::<PyList>() {
                return Ok(Parcel::all(list.iter(), depth)?.map(Parcel::List));
            }
            if let Ok(tuple) = object.cast_exact::<PyTuple>() {
                return Ok(Parcel::all(tuple.iter(), depth)?.map(Parcel::Tuple));
            }
            if let Ok(map) = object.cast_exact::<PyDict>() {
                let mut pairs = Vec::with_capacity(map.len());
                for (key, value) in map {
                    match (Parcel::plain(&key, depth + 1)?, Parcel::plain(&value, depth + 1)?) {
                        (Some(key), Some(value)) if key.may_be_a_key() => pairs.push((key, value)),
                        _ => return Ok(None),
                    }
                }
                return Ok(Some(Parcel::Map(pairs)));
            }
        }
        Ok(handle_of(object)?.map(Parcel::Plain))
    }

    /// None when one of them needs a pickle.
    fn all<'py>(objects: impl ExactSizeIterator<Item = Bound<'py, PyAny>>, depth: usize) -> PyResult<Option<Vec<Parcel>>> {
        let mut items = Vec::with_capacity(objects.len());
        for object in objects {
            match Parcel::plain(&object, depth + 1)? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(items))
    }

    /// Whether writing it takes no longer than letting the interpreter go for it would.
    pub(super) fn is_small(&self, py: Python<'_>) -> bool {
        const FEW: usize = 8;
        const SHORT: usize = 512;
        match self {
            Parcel::Plain(_) => true,
            Parcel::Text(text) => text.to_str(py).is_ok_and(|text| text.len() <= SHORT),
            Parcel::Bytes(lent) => lent.bytes().len() <= SHORT,
            Parcel::Tensor(lent, ..) => lent.bytes().len() <= SHORT,
            Parcel::Frozen(..) => false,
            Parcel::List(items) | Parcel::Tuple(items) => items.len() <= FEW && items.iter().all(|item| item.is_small(py)),
            Parcel::Map(pairs) => pairs.len() <= FEW && pairs.iter().all(|(key, value)| key.is_small(py) && value.is_small(py)),
            Parcel::Pickled { pickle, buffers, .. } => pickle.bytes().len() <= SHORT && buffers.is_empty(),
        }
    }

    /// None for arrays that a tensor would not give back as they are.
    fn array(object: &Bound<'_, PyAny>) -> Option<Parcel> {
        let lent = Lent::by(object)?;
        let dtype = lent.dtype?;
        let shape = Shape::new(&lent.shape()).ok()?;
        if lent.bytes().len() >= WORTH_SHARING && !lent.writable && is_frozen(object) {
            return Some(Parcel::Frozen(SharedBytes::lent(Arc::new(lent)), dtype, shape));
        }
        Some(Parcel::Tensor(lent, dtype, shape))
    }

    /// What a list cannot be in Python.
    fn may_be_a_key(&self) -> bool {
        matches!(self, Parcel::Plain(Value::Bool(_) | Value::Int(_) | Value::Float(_)) | Parcel::Text(_) | Parcel::Bytes(_))
    }

    fn pickled(object: &Bound<'_, PyAny>) -> PyResult<Parcel> {
        let py = object.py();
        let outside = PyList::empty(py);
        let before = LEAVING.replace(Some(Vec::new()));
        let options = PyDict::new(py);
        let pickled = options
            .set_item(intern!(py, "buffer_callback"), outside.getattr(intern!(py, "append"))?)
            .and_then(|()| pickle(py)?.0.bind(py).call((object, 5), Some(&options)));
        let handles = LEAVING.replace(before).unwrap_or_default();
        let pickled = pickled.map_err(|error| match error.is_instance_of::<PyRecursionError>(py) {
            true => error,
            false => untravelled(py, object, &error),
        })?;
        let raw = |buffer: Bound<'_, PyAny>| -> PyResult<Lent> {
            let raw = buffer.call_method0(intern!(py, "raw"))?;
            Lent::by(&raw).ok_or_else(|| errors::of_class(py, "SynclineError", "a buffer of the object lends no memory"))
        };
        let pickle = Lent::by(&pickled).expect("bytes lend their memory");
        Ok(Parcel::Pickled { pickle, handles, buffers: outside.iter().map(raw).collect::<PyResult<_>>()? })
    }

    /// The value, over the memory that was lent.
    pub(super) fn value(&self, py: Python<'_>) -> Result<Value<'_>, WireError> {
        Ok(match self {
            Parcel::Plain(Value::Int(number)) => Value::Int(*number),
            Parcel::Plain(value) => value.clone(),
            // Held by the parcel, and text of Python's never changes: its bytes stay where they are.
            Parcel::Text(text) => Value::from(text.to_str(py).unwrap_or_default()),
            Parcel::Bytes(lent) => Value::from(lent.bytes()),
            Parcel::Tensor(lent, dtype, shape) => Value::tensor(*dtype, shape.clone(), lent.bytes())?,
            Parcel::Frozen(bytes, dtype, shape) => Value::tensor(*dtype, shape.clone(), bytes.clone())?,
            Parcel::List(items) => Value::List(items.iter().map(|item| item.value(py)).collect::<Result<_, _>>()?),
            Parcel::Tuple(items) => {
                let mark = std::iter::once(Ok(Value::Opaque((&[][..]).into())));
                Value::List(mark.chain(items.iter().map(|item| item.value(py))).collect::<Result<_, WireError>>()?)
            }
            Parcel::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| Ok((key.value(py)?, value.value(py)?)));
                Value::Map(pairs.collect::<Result<_, WireError>>()?)
            }
            Parcel::Pickled { pickle, handles, buffers } if handles.is_empty() && buffers.is_empty() => {
                Value::Opaque(pickle.bytes().into())
            }
            Parcel::Pickled { pickle, handles, buffers } => {
                let mut parts = vec![Value::Opaque(pickle.bytes().into())];
                parts.extend(handles.iter().cloned());
                for buffer in buffers {
                    parts.push(Value::tensor(DType::U8, flat(buffer.bytes().len())?, buffer.bytes())?);
                }
                Value::List(parts)
            }
        })
    }
}

/// Whether an array that is read-only lies on memory that is so, too: on bytes, or on an array that owns it. Others may be views of
/// something that is still written to, as pandas hands them out.
fn is_frozen(array: &Bound<'_, PyAny>) -> bool {
    let py = array.py();
    let Ok(base) = array.getattr(intern!(py, "base")) else { return false };
    if base.is_none() || base.cast_exact::<PyBytes>().is_ok() {
        return true;
    }
    let writable = || base.getattr(intern!(py, "flags"))?.getattr(intern!(py, "writeable"))?.is_truthy();
    ndarray(py).is_some_and(|numpy| base.get_type().is(numpy)) && writable().is_ok_and(|writable| !writable) && is_frozen(&base)
}

fn flat(bytes: usize) -> Result<Shape, WireError> {
    Shape::new(&[bytes]).map_err(|_| WireError::TooLarge { part: "buffer", len: bytes as u64, max: isize::MAX as u64 })
}

fn untravelled(py: Python<'_>, object: &Bound<'_, PyAny>, cause: &PyErr) -> PyErr {
    let kind = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    let text = format!(
        "an object of type {kind} cannot travel to another process: {cause}\nhint: plain data, arrays, handles and picklable objects can"
    );
    let error = errors::of_class(py, "ConfigurationError", text);
    error.set_cause(py, Some(cause.clone_ref(py)));
    error
}

/// Who else may hold the arrays of a value that was read.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Arrays {
    /// Nobody: they are this reader's, to be written to as well.
    Own,
    /// Others may read the same memory.
    Common,
}

/// A value as Python objects.
pub(super) fn unpacked<'py>(py: Python<'py>, value: Value<'_>, held: Arrays) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Nil => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, truth).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => PyFloat::new(py, number).into_any(),
        Value::Str(text) => PyString::new(py, &text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
        Value::Opaque(data) => pickle(py)?.1.bind(py).call1((PyBytes::new(py, &data),))?,
        Value::List(items) if matches!(items.first(), Some(Value::Opaque(mark)) if mark.is_empty()) => {
            let items: Vec<Bound<'py, PyAny>> = items.into_iter().skip(1).map(|item| unpacked(py, item, held)).collect::<PyResult<_>>()?;
            PyTuple::new(py, items)?.into_any()
        }
        Value::List(parts) if matches!(parts.first(), Some(Value::Opaque(_))) => unpickled(py, parts, held)?,
        Value::List(items) => {
            let items: Vec<Bound<'py, PyAny>> = items.into_iter().map(|item| unpacked(py, item, held)).collect::<PyResult<_>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Map(pairs) => {
            let map = PyDict::new(py);
            for (key, value) in pairs {
                // Another language may have a list as a key; here a tuple stands for it.
                let key = match key {
                    Value::List(_) => unpacked(py, key, held)?.cast_into::<PyList>()?.to_tuple().into_any(),
                    key => unpacked(py, key, held)?,
                };
                map.set_item(key, unpacked(py, value, held)?)?;
            }
            map.into_any()
        }
        Value::Tensor(tensor) => {
            let (dtype, shape, data) = tensor.into_data();
            if !matches!(data, Data::Shared(_)) && dtype != DType::BF16 {
                return small_array(py, &data, dtype, shape.dims());
            }
            let view = seen(data, dtype, shape.dims(), held);
            presented(arrays(py)?.call_method1(intern!(py, "array_over"), (view,))?, dtype)?
        }
        Value::Handle(_) => of_value(py, &value)?,
    })
}

/// An array that came inside of its record, with memory of its own. NumPy makes it over a bytearray in a third of the time that it
/// needs to ask a view for its layout.
fn small_array<'py>(py: Python<'py>, data: &[u8], dtype: DType, dims: &[usize]) -> PyResult<Bound<'py, PyAny>> {
    static DTYPES: PyOnceLock<Vec<(DType, Py<PyAny>)>> = PyOnceLock::new();
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = CLASS.get_or_try_init(py, || py.import("numpy")?.getattr("ndarray").map(Bound::unbind))?;
    let dtypes = DTYPES.get_or_try_init(py, || {
        let numpy = py.import("numpy")?;
        let known = DType::ALL.iter().filter(|dtype| **dtype != DType::BF16);
        known.map(|dtype| Ok((*dtype, numpy.call_method1("dtype", (dtype.name(),))?.unbind()))).collect::<PyResult<_>>()
    })?;
    let (_, named) = dtypes.iter().find(|(each, _)| *each == dtype).expect("every dtype but bfloat16 is NumPy's");
    class.bind(py).call1((PyTuple::new(py, dims)?, named, PyByteArray::new(py, data)))
}

/// A pickle with what travelled beside it.
fn unpickled<'py>(py: Python<'py>, parts: Vec<Value<'_>>, held: Arrays) -> PyResult<Bound<'py, PyAny>> {
    let (mut data, mut handles, buffers) = (None, Vec::new(), PyList::empty(py));
    for part in parts {
        match part {
            Value::Opaque(bytes) => data = Some(PyBytes::new(py, &bytes)),
            Value::Tensor(tensor) => {
                let (dtype, shape, bytes) = tensor.into_data();
                let view = Bound::new(py, seen(bytes, dtype, shape.dims(), held))?;
                buffers.append(PyMemoryView::from(&view)?)?;
            }
            handle => handles.push(of_value(py, &handle)?.unbind()),
        }
    }
    let options = PyDict::new(py);
    options.set_item(intern!(py, "buffers"), buffers)?;
    let before = ARRIVED.replace(handles);
    let object = pickle(py).and_then(|(_, loads)| loads.bind(py).call((data,), Some(&options)));
    ARRIVED.set(before);
    object
}

fn seen(data: Data<'_>, dtype: DType, dims: &[usize], held: Arrays) -> View {
    match data {
        Data::Shared(bytes) => {
            let own = held == Arrays::Own && !bytes.is_lent();
            View::of_shared_bytes(bytes, dtype, dims, own)
        }
        data => View::of_bytes(data.to_vec(), dtype, dims),
    }
}

/// `pickle.dumps` and `pickle.loads`, from where `pickle` has them: it loads a dozen modules besides.
fn pickle(py: Python<'_>) -> PyResult<&'static (Py<PyAny>, Py<PyAny>)> {
    static PICKLE: PyOnceLock<(Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();
    PICKLE.get_or_try_init(py, || {
        let module = py.import("_pickle")?;
        Ok((module.getattr("dumps")?.unbind(), module.getattr("loads")?.unbind()))
    })
}

/// The class of arrays, once the program has loaded NumPy: before that it has no arrays.
fn ndarray(py: Python<'_>) -> Option<&'static Py<PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    if let Some(class) = CLASS.get(py) {
        return Some(class);
    }
    let modules = py.import(intern!(py, "sys")).ok()?.getattr(intern!(py, "modules")).ok()?;
    let numpy = modules.get_item(intern!(py, "numpy")).ok()?;
    let class = numpy.getattr(intern!(py, "ndarray")).ok()?;
    CLASS.set(py, class.unbind()).ok();
    CLASS.get(py)
}
