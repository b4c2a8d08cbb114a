//! Dynamic values: what a Python object, a Lua table or a Perl hash becomes between two processes.
//!
//! A value travels in two parts. Its *structure* is the meta of a frame, its *bulk* (tensors, and strings and
//! bytes from [`RAW_FROM`] on) is the payload, so that large data is written straight from where it
//! lies and read straight from where it arrives:
//! ```text
//!  value      {"name": "conv1", "weight": tensor f32 (2, 3)}
//!  meta       map 2 │ str 4 │ name···· │ str 5 │ conv1··· │ str 6 │ weight·· │ tensor f32, 2 axes │ 2 │ 3
//!  payload    24 bytes of numbers          each bulk item begins at a multiple of 64
//! ```
//! The structure is made of 8-byte words: the tag in the lowest byte, a length, count or small number in
//! the other seven, then what the tag calls for, filled up with zeros. The `layout` module lists the tags.
//!
//! Two properties follow from the words and are tested as such:
//! - **Bounded memory.** Every value costs at least one word of meta, and lists promise their words in advance, so
//!   that a decoded value takes at most [`MEMORY_PER_BYTE`] times the bytes it came from, whatever they say.
//! - **One spelling.** A value has exactly one encoding, and any other spelling of it is refused.

mod data;
mod decode;
mod encode;
mod handle;
mod layout;

use std::borrow::Cow;

use syncline_tensor::{DType, Shape};

use crate::error::{Result, WireError};

pub use data::{Data, SharedBytes};
pub use decode::lone_tensor;
pub use encode::{EncodedValue, PlainMeta};
pub use handle::{Handle, HandleKind};
pub use layout::{ALIGNMENT, MAX_AXES, MAX_DEPTH, RAW_FROM};

/// A decoded value holds at most this many times the bytes of its meta and payload, besides what it borrows of them.
///
/// Lists of small things take 4 times their bytes; the most is taken by a lone tensor of a single byte, whose word of meta and
/// byte of payload become a `Value` and a box.
pub const MEMORY_PER_BYTE: usize = 12;

/// A value whose shape is known only at run time.
///
/// Strings, bytes and tensors are borrowed where they can be: from the caller's arrays when it is sent, from the
/// received buffers when it is read. [`into_owned`](Value::into_owned) cuts it loose.
/// ```
/// use syncline_wire::{Limits, Value};
///
/// let sent = Value::List(vec![Value::from("loss"), Value::from(0.25), Value::from(vec![0u8; 5000])]);
/// let encoded = sent.encode(&Limits::default())?;
/// assert_eq!(encoded.payload_len(), 5000); // borrowed: the bytes were not copied
///
/// let payload = encoded.payload_to_vec(); // stands for the network
/// let received = Value::decode(encoded.meta(), &payload, &Limits::default())?;
/// assert_eq!(received, sent);
/// # Ok::<(), syncline_wire::WireError>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Value<'a> {
    /// Nothing: `None`, `nil`, `undef`.
    #[default]
    Nil,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number; its bits are kept, those of a NaN too.
    Float(f64),
    /// Text.
    Str(Cow<'a, str>),
    /// Bytes without a meaning.
    Bytes(Cow<'a, [u8]>),
    /// Values in order.
    List(Vec<Value<'a>>),
    /// Pairs in the order they were inserted. A key may be anything but nil; that no key comes twice is the
    /// business of the language that built the map.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// Numbers of one dtype. In a box, so that a list of a million integers is not a million times a tensor's size.
    Tensor(Box<TensorValue<'a>>),
    /// Bytes that mean something only to the program that wrote them, a pickled object for example. They travel inside a
    /// family of processes ([`encode_local`](Value::encode_local)) and are refused wherever else they turn up.
    Opaque(Cow<'a, [u8]>),
    /// The handle of an object that a family of processes shares; like opaque bytes it never leaves that family.
    Handle(Box<Handle>),
}

impl<'a> Value<'a> {
    /// A tensor over `data`, which holds its numbers in C order, little-endian.
    pub fn tensor(dtype: DType, shape: Shape, data: impl Into<Data<'a>>) -> Result<Value<'a>> {
        Ok(Value::Tensor(Box::new(TensorValue::new(dtype, shape, data)?)))
    }

    /// The memory it holds, itself included and what it borrows left out.
    #[doc(hidden)] // for the tests of the bound on it
    pub fn memory(&self) -> usize {
        let owned = |bytes: &Cow<'_, [u8]>| {
            if let Cow::Owned(bytes) = bytes { bytes.capacity() } else { 0 }
        };
        let spare = |capacity: usize, len: usize, each: usize| (capacity - len) * each;
        let inside: usize = match self {
            Value::Nil | Value::Bool(_) | Value::Int(_) | Value::Float(_) => 0,
            Value::Str(Cow::Borrowed(_)) => 0,
            Value::Str(Cow::Owned(text)) => text.capacity(),
            Value::Bytes(bytes) | Value::Opaque(bytes) => owned(bytes),
            Value::Handle(_) => size_of::<Handle>(),
            Value::List(items) => {
                spare(items.capacity(), items.len(), size_of::<Value<'_>>()) + items.iter().map(Value::memory).sum::<usize>()
            }
            Value::Map(pairs) => {
                spare(pairs.capacity(), pairs.len(), 2 * size_of::<Value<'_>>())
                    + pairs.iter().map(|(key, value)| key.memory() + value.memory()).sum::<usize>()
            }
            Value::Tensor(tensor) => {
                let held = if let Data::Owned(bytes) = &tensor.data { bytes.capacity() } else { 0 };
                size_of::<TensorValue<'_>>() + size_of_val(tensor.shape.dims()) + held
            }
        };
        size_of::<Value<'_>>() + inside
    }

    /// The same value, holding all of its bytes itself.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Nil => Value::Nil,
            Value::Bool(truth) => Value::Bool(truth),
            Value::Int(number) => Value::Int(number),
            Value::Float(number) => Value::Float(number),
            Value::Str(text) => Value::Str(Cow::Owned(text.into_owned())),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::List(items) => Value::List(items.into_iter().map(Value::into_owned).collect()),
            Value::Map(pairs) => Value::Map(pairs.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()),
            Value::Tensor(tensor) => Value::Tensor(Box::new(tensor.into_owned())),
            Value::Opaque(bytes) => Value::Opaque(Cow::Owned(bytes.into_owned())),
            Value::Handle(handle) => Value::Handle(handle),
        }
    }

    /// Shows every handle in it to `each`.
    pub fn visit_handles(&mut self, each: &mut dyn FnMut(&mut Handle)) {
        match self {
            Value::Handle(handle) => each(handle),
            Value::List(items) => items.iter_mut().for_each(|item| item.visit_handles(each)),
            Value::Map(pairs) => pairs.iter_mut().for_each(|(key, value)| {
                key.visit_handles(each);
                value.visit_handles(each);
            }),
            _ => {}
        }
    }

    /// All handles in it.
    pub fn handles(&self) -> Vec<&Handle> {
        match self {
            Value::Handle(handle) => vec![handle],
            Value::List(items) => items.iter().flat_map(Value::handles).collect(),
            Value::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key.handles(), value.handles()].concat()).collect(),
            _ => Vec::new(),
        }
    }

    /// What it is, for errors: `"nil"`, `"list"`, …
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Nil => "nil",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Float(_) => "float",
            Value::Str(_) => "str",
            Value::Bytes(_) => "bytes",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Tensor(_) => "tensor",
            Value::Opaque(_) => "opaque object",
            Value::Handle(handle) => handle.kind.name(),
        }
    }
}

/// A tensor inside a value: its bytes are exactly as many as dtype and shape ask for.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorValue<'a> {
    dtype: DType,
    shape: Shape,
    data: Data<'a>,
}

impl<'a> TensorValue<'a> {
    /// A tensor over `data`; fails if there are too many or too few bytes, or more than [`MAX_AXES`] axes.
    pub fn new(dtype: DType, shape: Shape, data: impl Into<Data<'a>>) -> Result<TensorValue<'a>> {
        let data = data.into();
        if shape.axes() > MAX_AXES {
            return Err(WireError::TooLarge { part: "list of a tensor's axes", len: shape.axes() as u64, max: MAX_AXES as u64 });
        }
        if data.len() != shape.byte_len(dtype) {
            return Err(WireError::PartLength {
                part: "data of a tensor",
                announced: shape.byte_len(dtype) as u64,
                given: data.len() as u64,
            });
        }
        Ok(TensorValue { dtype, shape, data })
    }

    /// The type of its numbers.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its extents.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its numbers in C order, little-endian.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Its parts, for building the tensor of a language without another copy (of bytes that are not shared).
    pub fn into_parts(self) -> (DType, Shape, Cow<'a, [u8]>) {
        let data = match self.data {
            Data::Borrowed(bytes) => Cow::Borrowed(bytes),
            Data::Owned(bytes) => Cow::Owned(bytes),
            Data::Shared(bytes) => Cow::Owned(bytes.to_vec()),
        };
        (self.dtype, self.shape, data)
    }

    /// Its parts with the bytes as they are held: shared ones are not copied.
    pub fn into_data(self) -> (DType, Shape, Data<'a>) {
        (self.dtype, self.shape, self.data)
    }

    /// The bytes it holds together with others, if it does.
    pub fn shared(&self) -> Option<&SharedBytes> {
        if let Data::Shared(bytes) = &self.data { Some(bytes) } else { None }
    }

    /// The same tensor, holding its bytes itself.
    pub fn into_owned(self) -> TensorValue<'static> {
        TensorValue { dtype: self.dtype, shape: self.shape, data: self.data.into_owned() }
    }
}

impl From<bool> for Value<'_> {
    fn from(truth: bool) -> Self {
        Value::Bool(truth)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Value::Float(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Str(Cow::Borrowed(text))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Str(Cow::Owned(text))
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Value::Bytes(Cow::Borrowed(bytes))
    }
}

impl From<Vec<u8>> for Value<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(Cow::Owned(bytes))
    }
}

impl<'a> From<Vec<Value<'a>>> for Value<'a> {
    fn from(items: Vec<Value<'a>>) -> Self {
        Value::List(items)
    }
}

#[cfg(test)]
mod tests;
