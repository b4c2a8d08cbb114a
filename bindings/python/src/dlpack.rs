//! Arrays of other frameworks, as the DLPack protocol describes them: a pointer, a shape, and whom to thank.
//!
//! NumPy reads DLPack too, but knows no bfloat16, which is what such tensors are often made of.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use pyo3::{ffi, intern};
use syncline::DType;

/// A tensor somebody exported; given back when this is dropped.
pub(crate) struct Exported {
    held: Held,
    pub(crate) writable: bool,
}

/// Which of the protocol's two records was handed over.
enum Held {
    Plain(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

// SAFETY: the protocol allows both records to be read and given back from any thread; nothing here writes to them.
unsafe impl Send for Exported {}
// SAFETY: as above: a shared reference only reads.
unsafe impl Sync for Exported {}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

const READ_ONLY: u64 = 1;
const CPU: i32 = 1;
const PINNED_CPU: i32 = 3; // kDLCUDAHost
const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

impl Exported {
    /// What `object.__dlpack__()` hands out.
    pub(crate) fn by(object: &Bound<'_, PyAny>) -> PyResult<Exported> {
        let capsule = capsule_of(object)?;
        let capsule = capsule.cast::<PyCapsule>().map_err(PyErr::from)?;
        let raw = capsule.as_ptr();
        // SAFETY: `raw` is a capsule (just cast); the name decides which record it points to, and renaming it, as the
        // protocol asks, leaves the record and the duty to delete it to us.
        let exported = unsafe {
            if ffi::PyCapsule_IsValid(raw, VERSIONED.as_ptr()) == 1 {
                let record = ffi::PyCapsule_GetPointer(raw, VERSIONED.as_ptr()).cast::<ManagedVersioned>();
                ffi::PyCapsule_SetName(raw, VERSIONED_USED.as_ptr());
                NonNull::new(record)
                    .map(|record| Exported { writable: record.as_ref().flags & READ_ONLY == 0, held: Held::Versioned(record) })
            } else if ffi::PyCapsule_IsValid(raw, PLAIN.as_ptr()) == 1 {
                let record = ffi::PyCapsule_GetPointer(raw, PLAIN.as_ptr()).cast::<Managed>();
                ffi::PyCapsule_SetName(raw, PLAIN_USED.as_ptr());
                NonNull::new(record).map(|record| Exported { writable: true, held: Held::Plain(record) })
            } else {
                None
            }
        };
        let exported = exported.ok_or_else(|| PyBufferError::new_err("__dlpack__ did not return a fresh DLPack capsule"))?;
        exported.check()?;
        Ok(exported)
    }

    fn tensor(&self) -> &Tensor {
        // SAFETY: the record lives until its deleter is called, which only `drop` does.
        unsafe {
            match &self.held {
                Held::Plain(record) => &record.as_ref().tensor,
                Held::Versioned(record) => &record.as_ref().tensor,
            }
        }
    }

    fn check(&self) -> PyResult<()> {
        if let Held::Versioned(record) = &self.held {
            // SAFETY: as in `tensor`.
            let major = unsafe { record.as_ref().major };
            if major != 1 {
                return Err(PyBufferError::new_err(format!("DLPack {major} is not known here, only version 1")));
            }
        }
        let tensor = self.tensor();
        if tensor.device_type != CPU && tensor.device_type != PINNED_CPU {
            return Err(PyBufferError::new_err("the array is not in this computer's main memory\nhint: copy it to the CPU first"));
        }
        if tensor.lanes != 1 || tensor.ndim < 0 || !tensor.bits.is_multiple_of(8) {
            return Err(PyBufferError::new_err("the array's elements are no plain numbers"));
        }
        Ok(())
    }

    /// Its first element.
    pub(crate) fn start(&self) -> *mut u8 {
        let tensor = self.tensor();
        tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize)
    }

    /// Bytes of one element.
    pub(crate) fn item_size(&self) -> usize {
        usize::from(self.tensor().bits) / 8
    }

    /// Elements along each axis.
    pub(crate) fn shape(&self) -> Vec<isize> {
        self.numbers(self.tensor().shape).unwrap_or_default()
    }

    /// Bytes from one element to the next along each axis.
    pub(crate) fn strides(&self) -> Vec<isize> {
        let item = self.item_size() as isize;
        match self.numbers(self.tensor().strides) {
            Some(strides) => strides.into_iter().map(|stride| stride * item).collect(),
            None => contiguous_strides(&self.shape(), item),
        }
    }

    fn numbers(&self, start: *const i64) -> Option<Vec<isize>> {
        let count = self.tensor().ndim as usize;
        // SAFETY: the protocol: `shape` and `strides` hold `ndim` numbers each, or are null.
        (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start, count) }.iter().map(|number| *number as isize).collect())
    }

    /// Ours for its elements, if we have one.
    pub(crate) fn dtype(&self) -> Option<DType> {
        let tensor = self.tensor();
        Some(match (tensor.code, tensor.bits) {
            (0, 8) => DType::I8,
            (0, 16) => DType::I16,
            (0, 32) => DType::I32,
            (0, 64) => DType::I64,
            (1, 8) => DType::U8,
            (2, 16) => DType::F16,
            (2, 32) => DType::F32,
            (2, 64) => DType::F64,
            (4, 16) => DType::BF16,
            _ => return None,
        })
    }

    /// How Python's `struct` module spells its elements; bfloat16, which it does not know, as the bits.
    pub(crate) fn format(&self) -> PyResult<&'static CStr> {
        let tensor = self.tensor();
        Ok(match (tensor.code, tensor.bits) {
            (0, 8) => c"b",
            (0, 16) => c"h",
            (0, 32) => c"i",
            (0, 64) => c"q",
            (1, 8) => c"B",
            (1, 16) | (4, 16) => c"H",
            (1, 32) => c"I",
            (1, 64) => c"Q",
            (2, 16) => c"e",
            (2, 32) => c"f",
            (2, 64) => c"d",
            (5, 64) => c"Zf",
            (5, 128) => c"Zd",
            (6, 8) => c"?",
            (code, bits) => {
                return Err(PyBufferError::new_err(format!("DLPack elements of code {code} with {bits} bits are not known here")));
            }
        })
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: the record is ours since the capsule was renamed, and this is the only place that gives it back.
        unsafe {
            match self.held {
                Held::Plain(record) => {
                    if let Some(deleter) = record.as_ref().deleter {
                        deleter(record.as_ptr());
                    }
                }
                Held::Versioned(record) => {
                    if let Some(deleter) = record.as_ref().deleter {
                        deleter(record.as_ptr());
                    }
                }
            }
        }
    }
}

/// Strides in bytes of C order.
pub(crate) fn contiguous_strides(shape: &[isize], item: isize) -> Vec<isize> {
    let mut strides = vec![item; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}

/// The newer record first, since only that one says whether the array may be written to.
fn capsule_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let export = object.getattr(intern!(py, "__dlpack__"))?;
    let newest = PyDict::new(py);
    newest.set_item(intern!(py, "max_version"), (1, 0))?;
    match export.call((), Some(&newest)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => export.call0(), // made before there were versions
        answer => answer,
    }
}
