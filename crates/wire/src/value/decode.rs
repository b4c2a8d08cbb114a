//! Bytes from outside as a value: every count is measured against what is there before it is believed.

use std::borrow::Cow;

use syncline_tensor::{DType, Shape};

use super::layout::*;
use super::{Handle, HandleKind, SharedBytes, TensorValue, Value};
use crate::Limits;
use crate::error::{Result, WireError};

impl<'a> Value<'a> {
    /// Reads a value from a frame's meta and payload, borrowing strings, bytes and tensors from them.
    ///
    /// Accepts exactly what [`encode`](Value::encode) writes: anything else, left-over bytes included, is an error.
    /// It never panics, and never holds more memory than [`MEMORY_PER_BYTE`](super::MEMORY_PER_BYTE) times what it was given.
    pub fn decode(meta: &'a [u8], payload: &'a [u8], limits: &Limits) -> Result<Value<'a>> {
        Self::decode_with(meta, payload, None, limits, false)
    }

    /// The same from a writer of the same family of processes, who may have sent opaque bytes and handles. Nothing of a
    /// handle is checked but its spelling.
    pub fn decode_local(meta: &'a [u8], payload: &'a [u8], limits: &Limits) -> Result<Value<'a>> {
        Self::decode_with(meta, payload, None, limits, true)
    }

    /// The same, holding tensors where they lie in `payload` and copying all else.
    pub fn decode_shared(meta: &[u8], payload: &SharedBytes, limits: &Limits) -> Result<Value<'static>> {
        Value::decode_with(meta, payload, Some(payload), limits, true).map(Value::into_owned)
    }

    /// What [`decode_local`](Value::decode_local) would read from the meta of a number, a short text or the like that stands alone; none for
    /// anything else, what is malformed included.
    #[inline]
    pub fn decode_plain(meta: &'a [u8]) -> Option<Value<'a>> {
        let (head, rest) = meta.split_first_chunk::<WORD>()?;
        let head = u64::from_le_bytes(*head);
        let (tag, argument) = (head as u8, head >> 8);
        let short = |rest: &'a [u8]| {
            let text = rest.get(..usize::try_from(argument).ok()?)?;
            let filling = &rest[text.len()..];
            let whole = text.len() < RAW_FROM && filling.len() == gap(argument, WORD) && filling.iter().all(|byte| *byte == 0);
            whole.then_some(text)
        };
        match tag {
            BYTES => short(rest).map(|bytes| Value::Bytes(Cow::Borrowed(bytes))),
            STR => std::str::from_utf8(short(rest)?).ok().map(|text| Value::Str(Cow::Borrowed(text))),
            INT if rest.is_empty() => Some(Value::Int(head as i64 >> 8)),
            NIL if rest.is_empty() && argument == 0 => Some(Value::Nil),
            BOOL if rest.is_empty() && argument <= 1 => Some(Value::Bool(argument == 1)),
            FLOAT if argument == 0 => Some(Value::Float(f64::from_bits(u64::from_le_bytes(rest.try_into().ok()?)))),
            _ => None,
        }
    }

    fn decode_with(meta: &'a [u8], payload: &'a [u8], held: Option<&'a SharedBytes>, limits: &Limits, local: bool) -> Result<Value<'a>> {
        limits.check_meta_len(meta.len() as u64)?;
        limits.check_payload_len(payload.len() as u64)?;
        let mut decoder = Decoder {
            meta: Reader { part: "value", bytes: meta, at: 0 },
            payload: Reader { part: "payload of the value", bytes: payload, at: 0 },
            held,
            local,
            owed: 0,
        };
        let value = decoder.value(0)?;
        decoder.meta.finish()?;
        decoder.payload.finish()?;
        Ok(value)
    }
}

/// The dtype and shape of a value that is a tensor and nothing else, from its meta alone; `None` if it is anything else.
///
/// The payload of such a value is exactly the tensor's numbers, so a receiver can read them to where they should be.
pub fn lone_tensor(meta: &[u8]) -> Result<Option<(DType, Shape)>> {
    let mut decoder = Decoder {
        meta: Reader { part: "value", bytes: meta, at: 0 },
        payload: Reader { part: "payload of the value", bytes: &[], at: 0 },
        held: None,
        local: false,
        owed: 0,
    };
    let head = u64::from_le_bytes(decoder.meta.array()?);
    if head as u8 != TENSOR {
        return Ok(None);
    }
    let announced = decoder.announced_tensor(0, head >> 8)?;
    decoder.meta.finish()?;
    Ok(Some(announced))
}

struct Decoder<'a> {
    meta: Reader<'a>,
    payload: Reader<'a>,
    /// The payload again, if tensors should hold it.
    held: Option<&'a SharedBytes>,
    /// Whether the writer belongs to the same family of processes.
    local: bool,
    /// Words that the lists around this place still have to receive. A list inside may promise only what
    /// they leave over: otherwise a hundred nested lists could each reserve memory for the same bytes.
    owed: usize,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, depth: usize) -> Result<Value<'a>> {
        let at = self.meta.at;
        let head = u64::from_le_bytes(self.meta.array()?);
        let (tag, argument) = (head as u8, head >> 8);
        let malformed = |cause| Err(WireError::Malformed { part: "value", at: at as u64, cause });
        let value = match tag {
            NIL if argument == 0 => Value::Nil,
            BOOL if argument <= 1 => Value::Bool(argument == 1),
            INT => Value::Int(head as i64 >> 8),
            WIDE_INT if argument == 0 => match i64::from_le_bytes(self.meta.array()?) {
                number if is_narrow(number) => return malformed("a short integer is spelled long"),
                number => Value::Int(number),
            },
            FLOAT if argument == 0 => Value::Float(f64::from_bits(u64::from_le_bytes(self.meta.array()?))),
            STR => Value::Str(text(at, self.inline(at, argument)?)?),
            BYTES => Value::Bytes(Cow::Borrowed(self.inline(at, argument)?)),
            RAW_STR => Value::Str(text(at, self.raw(at, argument)?)?),
            RAW_BYTES => Value::Bytes(Cow::Borrowed(self.raw(at, argument)?)),
            LIST => Value::List(self.list(argument, depth)?),
            MAP => Value::Map(self.map(argument, depth)?),
            TENSOR => Value::Tensor(Box::new(self.tensor(at, argument)?)),
            OPAQUE if self.local => Value::Opaque(Cow::Borrowed(self.inline(at, argument)?)),
            RAW_OPAQUE if self.local => Value::Opaque(Cow::Borrowed(self.raw(at, argument)?)),
            HANDLE if self.local => match u8::try_from(argument).ok().and_then(HandleKind::from_code) {
                Some(kind) => {
                    let (family, object) = (self.meta.array()?, self.meta.array()?);
                    let (family, object) = (u64::from_le_bytes(family), u64::from_le_bytes(object));
                    Value::Handle(Box::new(Handle { kind, family, object, keeper: None }))
                }
                None => return malformed("there is no such handle"),
            },
            OPAQUE | RAW_OPAQUE | HANDLE => return malformed("opaque bytes and handles stay inside a family of processes"),
            NIL | BOOL | WIDE_INT | FLOAT => {
                return malformed("a tag has an argument that it cannot have");
            }
            _ => return malformed("there is no such tag"),
        };
        Ok(value)
    }

    /// Bytes that stand in the meta, filled up with zeros to a word.
    fn inline(&mut self, at: usize, len: u64) -> Result<&'a [u8]> {
        if len >= RAW_FROM as u64 {
            return Err(misplaced(at));
        }
        let bytes = self.meta.take(len)?;
        self.meta.zeros(gap(len, WORD))?;
        Ok(bytes)
    }

    /// Bytes that stand in the payload although a shorter string would not.
    fn raw(&mut self, at: usize, len: u64) -> Result<&'a [u8]> {
        if len < RAW_FROM as u64 {
            return Err(misplaced(at));
        }
        self.bulk(len)
    }

    /// The next item of the payload.
    fn bulk(&mut self, len: u64) -> Result<&'a [u8]> {
        if len > 0 {
            self.payload.zeros(gap(self.payload.at as u64, ALIGNMENT))?;
        }
        self.payload.take(len)
    }

    fn list(&mut self, count: u64, depth: usize) -> Result<Vec<Value<'a>>> {
        let count = self.promise(count, 1, depth)?;
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(self.promised(depth)?);
        }
        Ok(items)
    }

    fn map(&mut self, count: u64, depth: usize) -> Result<Vec<(Value<'a>, Value<'a>)>> {
        let count = self.promise(count, 2, depth)?;
        let mut pairs = Vec::with_capacity(count);
        for _ in 0..count {
            let at = self.meta.at as u64;
            let key = self.promised(depth)?;
            if let Value::Nil = key {
                return Err(WireError::Malformed { part: "value", at, cause: "a map has a nil key" });
            }
            pairs.push((key, self.promised(depth)?));
        }
        Ok(pairs)
    }

    /// Checks that `count` entries of `words` words each can still be there, and sets those words aside.
    fn promise(&mut self, count: u64, words: u64, depth: usize) -> Result<usize> {
        if depth == MAX_DEPTH {
            return Err(WireError::TooDeep { max: MAX_DEPTH });
        }
        let free = (self.meta.remaining() / WORD).saturating_sub(self.owed);
        let wanted = count.saturating_mul(words); // a count has 56 bits, so this is exact
        if wanted > free as u64 {
            return Err(WireError::Truncated {
                part: "value",
                at: self.meta.at as u64,
                needed: wanted.saturating_mul(WORD as u64),
                available: (free * WORD) as u64,
            });
        }
        self.owed += wanted as usize;
        Ok(count as usize)
    }

    /// Reads one entry whose word was set aside by [`promise`](Self::promise).
    fn promised(&mut self, depth: usize) -> Result<Value<'a>> {
        self.owed -= 1;
        self.value(depth + 1)
    }

    fn tensor(&mut self, at: usize, argument: u64) -> Result<TensorValue<'a>> {
        let (dtype, shape) = self.announced_tensor(at, argument)?;
        let data = self.bulk(shape.byte_len(dtype) as u64)?;
        let start = self.payload.at - data.len();
        match self.held.and_then(|held| held.slice(start..self.payload.at)) {
            Some(held) => TensorValue::new(dtype, shape, held),
            None => TensorValue::new(dtype, shape, data),
        }
    }

    fn announced_tensor(&mut self, at: usize, argument: u64) -> Result<(DType, Shape)> {
        let malformed = |cause| WireError::Malformed { part: "value", at: at as u64, cause };
        let dtype = DType::from_code(argument as u8).map_err(|_| malformed("there is no such dtype"))?;
        let axes = argument >> 8;
        if axes > MAX_AXES as u64 {
            return Err(malformed("a tensor has too many axes"));
        }
        let mut dims = [0; MAX_AXES];
        let dims = &mut dims[..axes as usize];
        for extent in dims.iter_mut() {
            *extent = usize::try_from(u64::from_le_bytes(self.meta.array()?)).map_err(|_| malformed("a tensor is larger than memory"))?;
        }
        let shape = Shape::new(dims).map_err(|_| malformed("a tensor is larger than memory"))?;
        Ok((dtype, shape))
    }
}

fn text(at: usize, bytes: &[u8]) -> Result<Cow<'_, str>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(Cow::Borrowed(text)),
        Err(_) => Err(WireError::Malformed { part: "value", at: at as u64, cause: "a string is not UTF-8" }),
    }
}

fn misplaced(at: usize) -> WireError {
    let cause = "short strings and bytes stand in the meta, long ones in the payload";
    WireError::Malformed { part: "value", at: at as u64, cause }
}

/// Bytes from outside and how far they have been read.
struct Reader<'a> {
    part: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        if len > self.remaining() as u64 {
            return Err(self.truncated(len));
        }
        let start = self.at;
        self.at += len as usize;
        Ok(&self.bytes[start..self.at])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(array) => {
                self.at += N;
                Ok(*array)
            }
            None => Err(self.truncated(N as u64)),
        }
    }

    fn truncated(&self, needed: u64) -> WireError {
        WireError::Truncated { part: self.part, at: self.at as u64, needed, available: self.remaining() as u64 }
    }

    fn zeros(&mut self, count: usize) -> Result<()> {
        let at = self.at as u64;
        if self.take(count as u64)?.iter().any(|&byte| byte != 0) {
            return Err(WireError::Malformed { part: self.part, at, cause: "a gap is not filled with zeros" });
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        match self.remaining() as u64 {
            0 => Ok(()),
            extra => Err(WireError::Trailing { part: self.part, at: self.at as u64, extra }),
        }
    }
}
