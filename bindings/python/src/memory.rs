//! Memory that a Python object lends for the time of a call: by pointer where its layout allows, never copied here.

use std::ffi::CStr;
use std::ptr::NonNull;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use syncline::DType;

use crate::dlpack::{Exported, contiguous_strides};
use crate::ndarray::{self, AXES};

/// C-contiguous memory of a Python object, which stays where it is while this lives.
pub(crate) struct Lent {
    start: NonNull<u8>,
    bytes: usize,
    item: usize,
    /// How many axes the object has.
    pub(crate) dimensions: usize,
    /// None when its elements are none of our dtypes.
    pub(crate) dtype: Option<DType>,
    /// Whether it may be written to.
    pub(crate) writable: bool,
    owner: Owner,
}

/// Kept, so that the memory stays.
enum Owner {
    Array { _object: Py<PyAny>, shape: [usize; AXES] },
    Buffer(PyUntypedBuffer),
    Dlpack(Exported),
}

// SAFETY: the memory is plain and stays where it is, and all owners may be given back on any thread.
unsafe impl Send for Lent {}
// SAFETY: through a shared reference the memory is only read.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Lent {
    /// What `object` lends through the buffer protocol or DLPack. None when it lends nothing or is not in C order.
    pub(crate) fn by(object: &Bound<'_, PyAny>) -> Option<Lent> {
        if let Some(facts) = ndarray::facts(object) {
            return Some(Lent::by_array(object, &facts));
        }
        // SAFETY: any object may be asked whether it has a buffer.
        if unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1 {
            // An object may refuse, as NumPy does for dtypes that the protocol cannot spell.
            return Lent::by_buffer(PyUntypedBuffer::get(object).ok()?);
        }
        if object.hasattr(intern!(object.py(), "__dlpack__")).unwrap_or(false) {
            return Lent::by_dlpack(Exported::by(object).ok()?);
        }
        None
    }

    fn by_array(object: &Bound<'_, PyAny>, facts: &ndarray::Facts) -> Lent {
        let item = facts.dtype.size();
        Lent {
            start: NonNull::new(facts.start).unwrap_or(NonNull::dangling()),
            bytes: facts.shape[..facts.dimensions].iter().product::<usize>() * item,
            item,
            dimensions: facts.dimensions,
            dtype: Some(facts.dtype),
            writable: facts.writable,
            owner: Owner::Array { _object: object.clone().unbind(), shape: facts.shape },
        }
    }

    fn by_buffer(buffer: PyUntypedBuffer) -> Option<Lent> {
        if !buffer.is_c_contiguous() {
            return None;
        }
        Some(Lent {
            start: NonNull::new(buffer.buf_ptr().cast()).unwrap_or(NonNull::dangling()),
            bytes: buffer.len_bytes(),
            item: buffer.item_size(),
            dimensions: buffer.dimensions(),
            dtype: dtype_of(buffer.format(), buffer.item_size()),
            writable: !buffer.readonly(),
            owner: Owner::Buffer(buffer),
        })
    }

    fn by_dlpack(tensor: Exported) -> Option<Lent> {
        let shape = tensor.shape();
        let item = tensor.item_size();
        // The stride of an axis with one element, or of an empty array, says nothing.
        let dense = contiguous_strides(&shape, item as isize);
        let ordered = shape.iter().zip(tensor.strides()).zip(dense).all(|((length, stride), dense)| *length <= 1 || stride == dense);
        let count = shape.iter().product::<isize>() as usize;
        if count > 0 && !ordered {
            return None;
        }
        Some(Lent {
            start: NonNull::new(tensor.start()).unwrap_or(NonNull::dangling()),
            bytes: count * item,
            item,
            dimensions: shape.len(),
            dtype: tensor.dtype(),
            writable: tensor.writable,
            owner: Owner::Dlpack(tensor),
        })
    }

    /// How many elements it has.
    pub(crate) fn count(&self) -> usize {
        self.bytes.checked_div(self.item).unwrap_or(0)
    }

    /// How many elements there are along each axis.
    pub(crate) fn shape(&self) -> Vec<usize> {
        match &self.owner {
            Owner::Array { shape, .. } => shape[..self.dimensions].to_vec(),
            Owner::Buffer(buffer) => buffer.shape().to_vec(),
            Owner::Dlpack(tensor) => tensor.shape().into_iter().map(|length| length as usize).collect(),
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the owner lends `bytes` contiguous bytes from `start` on until it is dropped. Another thread of the
        // program that writes to the same array meanwhile gets a mixture, as with any call that lets the interpreter go.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    /// Its bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.writable, "checked by whoever takes the array as an output");
        // SAFETY: as for `bytes`, and the owner said that it may be written to.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Its 64-bit numbers. None when they are something else, or lie where the processor would stumble.
    pub(crate) fn ids(&self) -> Option<&[i64]> {
        let start = self.start.cast::<i64>();
        (self.dtype == Some(DType::I64) && (start.is_aligned() || self.bytes == 0)).then(|| {
            if self.bytes == 0 {
                return &[][..];
            }
            // SAFETY: aligned, and `bytes` are whole 64-bit numbers; lent as in `bytes`.
            unsafe { std::slice::from_raw_parts(start.as_ptr(), self.bytes / size_of::<i64>()) }
        })
    }

    /// Whether both lie, in part or whole, in the same place.
    pub(crate) fn overlaps(&self, other: &Lent) -> bool {
        let (own, others) = (self.start.as_ptr() as usize, other.start.as_ptr() as usize);
        own < others + other.bytes && others < own + self.bytes
    }
}

/// The dtype that the buffer protocol spells `format`, in the byte order of this machine.
fn dtype_of(format: &CStr, item: usize) -> Option<DType> {
    let native = if cfg!(target_endian = "little") { b'<' } else { b'>' };
    let letter = match format.to_bytes() {
        [letter] => *letter,
        [order, letter] if [b'@', b'=', native].contains(order) || item == 1 => *letter,
        _ => return None,
    };
    Some(match (letter, item) {
        (b'f', 4) => DType::F32,
        (b'd', 8) => DType::F64,
        (b'e', 2) => DType::F16,
        (b'b', 1) => DType::I8,
        (b'h' | b'i' | b'l' | b'q' | b'n', 2) => DType::I16,
        (b'h' | b'i' | b'l' | b'q' | b'n', 4) => DType::I32,
        (b'h' | b'i' | b'l' | b'q' | b'n', 8) => DType::I64,
        (b'B', 1) => DType::U8,
        _ => return None,
    })
}
