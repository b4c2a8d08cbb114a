//! Items of a local channel, one after the other: numbers, short text and bytes as they are, anything else as a value beside them.
//!
//! ```text
//!   bytes    kind · length │ text, filled up to 8 │ kind │ number │ kind: whole │ …
//!   values                                                            └► the first value
//! ```

use std::borrow::Cow;
use std::collections::VecDeque;

use syncline_wire::Value;

const WORD: usize = 8;

/// Bytes of a text that a reader can take without memory of its own.
const SHORT: usize = 64;

/// A buffer with more bytes than this is given back when it is empty, as is a list of more values.
const KEPT_BYTES: usize = 1 << 20;
const KEPT_VALUES: usize = 4_096;

const NIL: u8 = 0;
const BOOL: u8 = 1;
const INT: u8 = 2;
const FLOAT: u8 = 3;
const STR: u8 = 4;
const BYTES: u8 = 5;
const OPAQUE: u8 = 6;
const WHOLE: u8 = 7;

/// A value without parts that lies in a batch as it is.
#[derive(Clone, Copy)]
pub(super) enum Plain<'v> {
    Number { kind: u8, bits: u64 },
    Text { kind: u8, text: &'v [u8] },
}

impl<'v> Plain<'v> {
    /// None for a value that has parts, or is long.
    #[inline(always)]
    pub(super) fn of(value: &'v Value<'_>) -> Option<Plain<'v>> {
        let short = |kind, text: &'v [u8]| (text.len() < syncline_wire::value::RAW_FROM).then_some(Plain::Text { kind, text });
        match value {
            Value::Bytes(bytes) => short(BYTES, bytes),
            Value::Str(text) => short(STR, text.as_bytes()),
            Value::Opaque(bytes) => short(OPAQUE, bytes),
            Value::Nil => Some(Plain::Number { kind: NIL, bits: 0 }),
            Value::Bool(truth) => Some(Plain::Number { kind: BOOL, bits: u64::from(*truth) }),
            Value::Int(number) => Some(Plain::Number { kind: INT, bits: *number as u64 }),
            Value::Float(number) => Some(Plain::Number { kind: FLOAT, bits: number.to_bits() }),
            Value::List(_) | Value::Map(_) | Value::Tensor(_) | Value::Handle(_) => None,
        }
    }
}

/// Where a reader gets short text, so that it needs no memory of its own.
#[repr(align(16))]
pub(super) struct Space([u8; SHORT]);

impl Space {
    #[inline(always)]
    pub(super) fn new() -> Space {
        Space([0; SHORT])
    }
}

/// Items in order. Emptied from the front, filled at the back.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    values: VecDeque<Value<'static>>,
    /// Where the next item begins.
    at: usize,
}

impl Batch {
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Forgets what was taken; the same memory is filled again.
    #[inline]
    pub(super) fn begin_anew(&mut self) {
        debug_assert!(self.is_empty() && self.values.is_empty());
        self.at = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        if self.values.capacity() > KEPT_VALUES {
            self.values = VecDeque::new();
        }
    }

    #[inline(always)]
    pub(super) fn push_plain(&mut self, plain: Plain<'_>) {
        match plain {
            Plain::Text { kind, text } => match <&[u8; SHORT]>::try_from(text) {
                Ok(text) => {
                    // A length that is known to the compiler takes a few instructions.
                    self.bytes.reserve(WORD + SHORT);
                    self.bytes.extend_from_slice(&head(kind, SHORT));
                    self.bytes.extend_from_slice(text);
                }
                Err(_) => self.push_text(kind, text),
            },
            Plain::Number { kind, bits } => {
                self.bytes.reserve(2 * WORD);
                self.bytes.extend_from_slice(&head(kind, WORD));
                self.bytes.extend_from_slice(&bits.to_le_bytes());
            }
        }
    }

    pub(super) fn push_whole(&mut self, value: Value<'static>) {
        self.bytes.extend_from_slice(&head(WHOLE, 0));
        self.values.push_back(value);
    }

    fn push_text(&mut self, kind: u8, text: &[u8]) {
        self.bytes.reserve(WORD + text.len() + WORD);
        self.bytes.extend_from_slice(&head(kind, text.len()));
        self.bytes.extend_from_slice(text);
        self.bytes.resize(self.bytes.len().next_multiple_of(WORD), 0);
    }

    /// Takes the first item out; short text lies in `space`.
    #[inline(always)]
    pub(super) fn pop<'s>(&mut self, space: &'s mut Space) -> Option<Value<'s>> {
        let (kind, len) = self.head_at(self.at)?;
        let start = self.at + WORD;
        self.at = start + len.next_multiple_of(WORD);
        if kind == WHOLE {
            return self.values.pop_front();
        }
        let text = self.bytes.get(start..start + len)?;
        if let Ok(text) = <&[u8; SHORT]>::try_from(text) {
            space.0 = *text;
            return Some(shown(kind, &space.0));
        }
        if len > SHORT {
            return Some(shown(kind, text).into_owned());
        }
        space.0[..len].copy_from_slice(text);
        Some(shown(kind, &space.0[..len]))
    }

    /// All items, as they would be taken.
    pub(super) fn values(&self) -> Vec<Cow<'_, Value<'_>>> {
        let (mut at, mut whole, mut all) = (self.at, self.values.iter(), Vec::new());
        while let Some((kind, len)) = self.head_at(at) {
            let start = at + WORD;
            at = start + len.next_multiple_of(WORD);
            all.push(match kind {
                WHOLE => Cow::Borrowed(whole.next().expect("a value for each that is told of")),
                _ => Cow::Owned(shown(kind, &self.bytes[start..start + len])),
            });
        }
        all
    }

    #[inline(always)]
    fn head_at(&self, at: usize) -> Option<(u8, usize)> {
        let head = u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk::<WORD>()?);
        Some((head as u8, (head >> 8) as usize))
    }
}

fn head(kind: u8, len: usize) -> [u8; WORD] {
    (u64::from(kind) | (len as u64) << 8).to_le_bytes()
}

#[inline(always)]
fn shown(kind: u8, text: &[u8]) -> Value<'_> {
    let bits = || text.first_chunk::<WORD>().map_or(0, |bits| u64::from_le_bytes(*bits));
    match kind {
        BYTES => Value::Bytes(Cow::Borrowed(text)),
        STR => Value::Str(Cow::Borrowed(std::str::from_utf8(text).unwrap_or_default())),
        OPAQUE => Value::Opaque(Cow::Borrowed(text)),
        INT => Value::Int(bits() as i64),
        FLOAT => Value::Float(f64::from_bits(bits())),
        BOOL => Value::Bool(bits() != 0),
        _ => Value::Nil,
    }
}
