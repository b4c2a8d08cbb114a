//! The facts of a NumPy array, read where NumPy keeps them.
//!
//! The buffer protocol tells the same, but NumPy writes a description of the dtype anew whenever it is asked: 0.2 µs of every call,
//! as much as a small pull takes. The fields below have had their places since NumPy 1.7 and keep them in NumPy 2, as all compiled
//! extensions read them by macros. Subclasses, other layouts and other dtypes go the long way.

use std::ffi::{c_char, c_int};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use syncline::DType;

/// The most axes that are read here.
pub(crate) const AXES: usize = 4;

/// A plain, contiguous array in this machine's byte order.
pub(crate) struct Facts {
    pub(crate) start: *mut u8,
    pub(crate) dtype: DType,
    pub(crate) dimensions: usize,
    /// The length of each axis, then zeros.
    pub(crate) shape: [usize; AXES],
    pub(crate) writable: bool,
}

/// What NumPy calls `PyArrayObject_fields`, as far as it is read here.
#[repr(C)]
struct Fields {
    head: ffi::PyObject,
    data: *mut c_char,
    nd: c_int,
    dimensions: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    descr: *const Description,
    flags: c_int,
}

/// The beginning of NumPy's `PyArray_Descr`: what follows differs between NumPy 1 and 2.
#[repr(C)]
struct Description {
    head: ffi::PyObject,
    typeobj: *mut ffi::PyTypeObject,
    kind: u8,
    letter: u8,
    byte_order: u8,
    flags: u8,
    type_num: c_int,
}

const C_CONTIGUOUS: c_int = 0x0001;
const WRITEABLE: c_int = 0x0400;
/// Writable for now, with a warning; for the buffer protocol it is not.
const WARN_ON_WRITE: c_int = 1 << 31;

/// The facts of `object`, if it is a `numpy.ndarray` (no subclass) of a dtype that is ours too.
pub(crate) fn facts(object: &Bound<'_, PyAny>) -> Option<Facts> {
    if !is_ndarray(object) {
        return None;
    }
    // SAFETY: an object whose type is exactly NumPy's ndarray begins with these fields; the interpreter is held, so nobody
    // changes them meanwhile, and `descr` and the lengths live as long as the array has them.
    unsafe {
        let array = &*object.as_ptr().cast::<Fields>();
        let dimensions = usize::try_from(array.nd).ok().filter(|axes| *axes <= AXES)?;
        if array.flags & (C_CONTIGUOUS | WARN_ON_WRITE) != C_CONTIGUOUS {
            return None;
        }
        let mut shape = [0; AXES];
        for (axis, length) in shape[..dimensions].iter_mut().enumerate() {
            *length = usize::try_from(*array.dimensions.add(axis)).ok()?;
        }
        let dtype = dtype_of(&*array.descr)?;
        Some(Facts { start: array.data.cast(), dtype, dimensions, shape, writable: array.flags & WRITEABLE != 0 })
    }
}

/// Whether the type of `object` is `numpy.ndarray`: learned once NumPy is there, which nobody loads for this.
fn is_ndarray(object: &Bound<'_, PyAny>) -> bool {
    static NDARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let class = object.get_type();
    match NDARRAY.get(py) {
        Some(known) => class.is(known),
        // Any class may bear the name; only NumPy's own is the one that the module has.
        None if class.name().is_ok_and(|name| name == "ndarray") => {
            let Ok(loaded) = py.import("sys").and_then(|sys| sys.getattr("modules")?.get_item("numpy")?.getattr("ndarray")) else {
                return false;
            };
            class.is(NDARRAY.get_or_init(py, || loaded.unbind()))
        }
        None => false,
    }
}

/// By the numbers of `NPY_TYPES`, which differ from one another where C's types have the same size.
fn dtype_of(description: &Description) -> Option<DType> {
    let native = if cfg!(target_endian = "little") { b'<' } else { b'>' };
    if ![b'=', b'|', native].contains(&description.byte_order) {
        return None;
    }
    Some(match description.type_num {
        1 => DType::I8,
        2 => DType::U8,
        3 => DType::I16,
        5 => DType::I32,
        7 if size_of::<std::ffi::c_long>() == 8 => DType::I64,
        7 => DType::I32,
        9 => DType::I64,
        11 => DType::F32,
        12 => DType::F64,
        23 => DType::F16,
        _ => return None,
    })
}
