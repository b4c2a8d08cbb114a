//! Memory that lives outside of Python, shown to it through the buffer protocol: `numpy.asarray(view)` copies nothing.

use std::ffi::{CStr, c_int};
use std::ptr::null_mut;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use syncline::ipc::SharedBytes;
use syncline::{DType, SharedArray};
use syncline_tensor::Tensor;

use crate::dlpack::{Exported, contiguous_strides};

/// A block of numbers that something else owns.
#[pyclass(frozen, module = "syncline._native")]
pub(crate) struct View {
    start: *mut u8,
    bytes: usize,
    item: usize,
    format: &'static CStr,
    shape: Vec<isize>,
    strides: Vec<isize>,
    writable: bool,
    dtype: Option<DType>,
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: the pointer is only handed on to consumers of the buffer protocol; the owner may move between threads.
unsafe impl Send for View {}
// SAFETY: as above: through a shared reference nothing is written here.
unsafe impl Sync for View {}

#[pymethods]
impl View {
    /// The memory of an object that speaks DLPack.
    #[new]
    fn of_dlpack(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let tensor = Exported::by(object)?;
        let shape = tensor.shape();
        let item = tensor.item_size();
        Ok(View {
            start: tensor.start(),
            bytes: shape.iter().product::<isize>() as usize * item,
            item,
            format: tensor.format()?,
            strides: tensor.strides(),
            shape,
            writable: tensor.writable,
            dtype: tensor.dtype(),
            _owner: Box::new(tensor),
        })
    }

    /// The name of its dtype, or None when Syncline has no such dtype.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.dtype.map(DType::name)
    }

    /// # Safety
    /// Python calls this with a `view` that it may fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE && !this.writable {
            return Err(PyBufferError::new_err("the array is read-only"));
        }
        let strided = flags & ffi::PyBUF_STRIDES == ffi::PyBUF_STRIDES;
        if !strided && this.strides != contiguous_strides(&this.shape, this.item as isize) {
            return Err(PyBufferError::new_err("the array is not contiguous"));
        }
        // SAFETY: `view` is Python's to lend (see above). The vectors and the memory live as long as `slf`, of which
        // the consumer holds a reference until it releases the buffer; consumers do not write to shape and strides.
        unsafe {
            (*view).buf = this.start.cast();
            (*view).len = this.bytes as isize;
            (*view).itemsize = this.item as isize;
            (*view).readonly = c_int::from(!this.writable);
            (*view).ndim = this.shape.len() as c_int;
            (*view).format = if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT { this.format.as_ptr().cast_mut() } else { null_mut() };
            (*view).shape = if flags & ffi::PyBUF_ND == ffi::PyBUF_ND { this.shape.as_ptr().cast_mut() } else { null_mut() };
            (*view).strides = if strided { this.strides.as_ptr().cast_mut() } else { null_mut() };
            (*view).suboffsets = null_mut();
            (*view).internal = null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}

impl View {
    /// Bytes that arrived in shared memory, where they lie. `own` says that nobody else sees them: then they may be written to.
    pub(crate) fn of_shared_bytes(bytes: SharedBytes, dtype: DType, shape: &[usize], own: bool) -> View {
        let shape: Vec<isize> = shape.iter().map(|length| *length as isize).collect();
        View {
            // Written to through Python only, and only where the block is this reader's alone; nobody here reads it afterwards.
            start: bytes.as_ptr().cast_mut(),
            bytes: bytes.len(),
            item: dtype.size(),
            format: format_of(dtype),
            strides: contiguous_strides(&shape, dtype.size() as isize),
            shape,
            writable: own,
            dtype: Some(dtype),
            _owner: Box::new(bytes), // keeps the block
        }
    }

    /// All bytes of an array in shared memory, writable.
    pub(crate) fn of_shared(mut array: SharedArray) -> View {
        View {
            start: array.as_mut_ptr(),
            bytes: array.len(),
            item: 1,
            format: format_of(DType::U8),
            strides: vec![1],
            shape: vec![array.len() as isize],
            writable: true,
            dtype: Some(DType::U8),
            _owner: Box::new(array), // moves the handle, not the memory
        }
    }

    /// `bytes` of `dtype` in this shape, writable.
    pub(crate) fn of_bytes(mut bytes: Vec<u8>, dtype: DType, shape: &[usize]) -> View {
        let (start, length) = (bytes.as_mut_ptr(), bytes.len());
        View::of_memory(start, length, dtype, shape, Box::new(bytes)) // moves the vector, not its bytes
    }

    /// A tensor, writable.
    pub(crate) fn of_tensor(mut tensor: Tensor) -> View {
        let (start, length) = (tensor.bytes_mut().as_mut_ptr(), tensor.bytes().len());
        let (dtype, shape) = (tensor.dtype(), tensor.shape().dims().to_vec());
        View::of_memory(start, length, dtype, &shape, Box::new(tensor)) // moves the handle, not the memory
    }

    /// Ids, writable.
    pub(crate) fn of_ids(mut ids: Vec<i64>) -> View {
        let (start, count) = (ids.as_mut_ptr().cast(), ids.len());
        View::of_memory(start, count * size_of::<i64>(), DType::I64, &[count], Box::new(ids)) // as above
    }

    /// Memory that stays where it is while `owner` lives.
    fn of_memory(start: *mut u8, bytes: usize, dtype: DType, shape: &[usize], owner: Box<dyn Send + Sync>) -> View {
        let shape: Vec<isize> = shape.iter().map(|length| *length as isize).collect();
        View {
            start,
            bytes,
            item: dtype.size(),
            format: format_of(dtype),
            strides: contiguous_strides(&shape, dtype.size() as isize),
            shape,
            writable: true,
            dtype: Some(dtype),
            _owner: owner,
        }
    }
}

/// How Python's `struct` module spells `dtype`; bfloat16, which it does not know, as its bits.
fn format_of(dtype: DType) -> &'static CStr {
    match dtype {
        DType::F32 => c"f",
        DType::F64 => c"d",
        DType::F16 => c"e",
        DType::BF16 => c"H",
        DType::I8 => c"b",
        DType::I16 => c"h",
        DType::I32 => c"i",
        DType::I64 => c"q",
        DType::U8 => c"B",
    }
}
