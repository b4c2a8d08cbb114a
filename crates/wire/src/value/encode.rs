//! A value as bytes to send: its structure in one buffer of ours, its bulk as slices of the caller's memory.

use super::layout::*;
use super::{TensorValue, Value};
use crate::Limits;
use crate::error::{Result, WireError};

/// A value ready to be sent. The payload is a list of borrowed slices, to be written one after the other
/// with one vectored write.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EncodedValue<'v> {
    meta: Vec<u8>,
    payload: Vec<&'v [u8]>,
    payload_len: u64,
    handles: usize,
}

impl<'v> EncodedValue<'v> {
    /// The structure, to be sent as the frame's meta.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// The bulk, to be sent in this order as the frame's payload.
    pub fn payload(&self) -> &[&'v [u8]] {
        &self.payload
    }

    /// Bytes of the payload.
    pub fn payload_len(&self) -> u64 {
        self.payload_len
    }

    /// How many handles it carries.
    pub fn handles(&self) -> usize {
        self.handles
    }

    /// The payload in one piece, at the price of a copy.
    pub fn payload_to_vec(&self) -> Vec<u8> {
        self.payload.concat()
    }

    /// The meta by itself, once the payload is on its way.
    pub fn into_meta(self) -> Vec<u8> {
        self.meta
    }
}

/// The meta of a value without parts, in the pieces it consists of: what a writer needs that copies them itself.
#[derive(Clone, Copy, Debug)]
pub struct PlainMeta<'v> {
    words: [u8; 2 * WORD],
    words_len: usize,
    text: &'v [u8],
}

impl<'v> PlainMeta<'v> {
    /// The pieces, one after the other; some may be empty.
    #[inline]
    pub fn pieces(&self) -> [&[u8]; 3] {
        const ZEROS: &[u8] = &[0; WORD];
        [&self.words[..self.words_len], self.text, &ZEROS[..gap(self.text.len() as u64, WORD)]]
    }

    /// Bytes of all of them, a multiple of eight.
    #[inline]
    pub fn len(&self) -> usize {
        self.words_len + self.text.len().next_multiple_of(WORD)
    }

    /// Never: a value has at least one word.
    pub fn is_empty(&self) -> bool {
        false
    }

    fn new(first: [u8; WORD], second: Option<[u8; WORD]>, text: &'v [u8]) -> PlainMeta<'v> {
        let mut words = [0; 2 * WORD];
        words[..WORD].copy_from_slice(&first);
        if let Some(second) = second {
            words[WORD..].copy_from_slice(&second);
        }
        PlainMeta { words, words_len: if second.is_some() { 2 * WORD } else { WORD }, text }
    }
}

impl Value<'_> {
    /// What [`encode_local`](Value::encode_local) would write for a number, a short text or the like, which has no parts and no payload;
    /// none for anything else. Costs no memory.
    #[inline]
    pub fn plain_meta(&self) -> Option<PlainMeta<'_>> {
        let short = |tag: u8, text| Some(PlainMeta::new(word(tag, <[u8]>::len(text) as u64), None, text)).filter(|_| text.len() < RAW_FROM);
        match self {
            Value::Nil => Some(PlainMeta::new(word(NIL, 0), None, &[])),
            Value::Bool(truth) => Some(PlainMeta::new(word(BOOL, u64::from(*truth)), None, &[])),
            Value::Int(number) if is_narrow(*number) => Some(PlainMeta::new(word(INT, *number as u64 & ((1 << 56) - 1)), None, &[])),
            Value::Int(number) => Some(PlainMeta::new(word(WIDE_INT, 0), Some(number.to_le_bytes()), &[])),
            Value::Float(number) => Some(PlainMeta::new(word(FLOAT, 0), Some(number.to_bits().to_le_bytes()), &[])),
            Value::Str(text) => short(STR, text.as_bytes()),
            Value::Bytes(bytes) => short(BYTES, bytes),
            Value::Opaque(bytes) => short(OPAQUE, bytes),
            Value::List(_) | Value::Map(_) | Value::Tensor(_) | Value::Handle(_) => None,
        }
    }

    /// Lays the value out for sending; tensors and long strings are borrowed, not copied.
    ///
    /// Fails if it is nested deeper than [`MAX_DEPTH`], if a map has a nil key, or if meta or payload exceed `limits`.
    pub fn encode(&self, limits: &Limits) -> Result<EncodedValue<'_>> {
        self.encode_with(Vec::with_capacity(WORD), limits, false)
    }

    /// The same for a reader of the same family of processes, which may be sent opaque bytes and handles too.
    ///
    /// The meta is written into `scratch`, which is emptied first: whoever sends many values keeps one
    /// ([`EncodedValue::into_meta`] gives it back).
    pub fn encode_local(&self, scratch: Vec<u8>, limits: &Limits) -> Result<EncodedValue<'_>> {
        self.encode_with(scratch, limits, true)
    }

    fn encode_with(&self, mut meta: Vec<u8>, limits: &Limits, local: bool) -> Result<EncodedValue<'_>> {
        meta.clear();
        let mut encoder = Encoder { out: EncodedValue { meta, payload: Vec::new(), payload_len: 0, handles: 0 }, limits, local };
        encoder.value(self, 0)?;
        limits.check_meta_len(encoder.out.meta.len() as u64)?;
        limits.check_payload_len(encoder.out.payload_len)?;
        Ok(encoder.out)
    }
}

struct Encoder<'v, 'l> {
    out: EncodedValue<'v>,
    limits: &'l Limits,
    /// Whether the reader belongs to the same family of processes.
    local: bool,
}

impl<'v> Encoder<'v, '_> {
    fn value(&mut self, value: &'v Value<'_>, depth: usize) -> Result<()> {
        match value {
            Value::Nil => self.word(NIL, 0),
            Value::Bool(truth) => self.word(BOOL, u64::from(*truth)),
            Value::Int(number) if is_narrow(*number) => self.word(INT, *number as u64 & ((1 << 56) - 1)),
            Value::Int(number) => {
                self.word(WIDE_INT, 0);
                self.out.meta.extend_from_slice(&number.to_le_bytes());
            }
            Value::Float(number) => {
                self.word(FLOAT, 0);
                self.out.meta.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            Value::Str(text) => self.bytes(STR, RAW_STR, text.as_bytes()),
            Value::Bytes(bytes) => self.bytes(BYTES, RAW_BYTES, bytes),
            Value::List(items) => {
                self.open(LIST, items.len(), items.len(), depth)?;
                for item in items {
                    self.value(item, depth + 1)?;
                }
            }
            Value::Map(pairs) => {
                self.open(MAP, pairs.len(), pairs.len().saturating_mul(2), depth)?;
                for (key, value) in pairs {
                    if let Value::Nil = key {
                        return Err(WireError::Malformed { part: "value", at: self.out.meta.len() as u64, cause: "a map has a nil key" });
                    }
                    self.value(key, depth + 1)?;
                    self.value(value, depth + 1)?;
                }
            }
            Value::Tensor(tensor) => self.tensor(tensor),
            Value::Opaque(_) | Value::Handle(_) if !self.local => return Err(WireError::LocalOnly { what: value.type_name() }),
            Value::Opaque(bytes) => self.bytes(OPAQUE, RAW_OPAQUE, bytes),
            Value::Handle(handle) => {
                self.out.handles += 1;
                self.word(HANDLE, handle.kind as u64);
                self.out.meta.extend_from_slice(&handle.family.to_le_bytes());
                self.out.meta.extend_from_slice(&handle.object.to_le_bytes());
            }
        }
        Ok(())
    }

    fn word(&mut self, tag: u8, argument: u64) {
        self.out.meta.extend_from_slice(&word(tag, argument));
    }

    fn bytes(&mut self, inline: u8, raw: u8, bytes: &'v [u8]) {
        if bytes.len() < RAW_FROM {
            self.word(inline, bytes.len() as u64);
            self.out.meta.extend_from_slice(bytes);
            let end = self.out.meta.len() + gap(bytes.len() as u64, WORD);
            self.out.meta.resize(end, 0);
        } else {
            self.word(raw, bytes.len() as u64);
            self.bulk(bytes);
        }
    }

    /// Begins a list or map, and refuses one that is hopelessly large before walking it.
    fn open(&mut self, tag: u8, count: usize, words: usize, depth: usize) -> Result<()> {
        if depth == MAX_DEPTH {
            return Err(WireError::TooDeep { max: MAX_DEPTH });
        }
        self.limits.check_meta_len((words as u64).saturating_mul(WORD as u64))?;
        self.word(tag, count as u64);
        Ok(())
    }

    fn tensor(&mut self, tensor: &'v TensorValue<'_>) {
        let axes = tensor.shape().axes() as u64; // `TensorValue::new` has held it to MAX_AXES
        self.word(TENSOR, u64::from(tensor.dtype().code()) | axes << 8);
        for &extent in tensor.shape().dims() {
            self.out.meta.extend_from_slice(&(extent as u64).to_le_bytes());
        }
        self.bulk(tensor.data());
    }

    /// Adds an item to the payload, at an aligned offset. Nothing is nowhere.
    fn bulk(&mut self, bytes: &'v [u8]) {
        const ZEROS: &[u8] = &[0; ALIGNMENT];
        if bytes.is_empty() {
            return;
        }
        let gap = gap(self.out.payload_len, ALIGNMENT);
        if gap > 0 {
            self.out.payload.push(&ZEROS[..gap]);
        }
        self.out.payload.push(bytes);
        self.out.payload_len += (gap + bytes.len()) as u64;
    }
}
