//! The words that a value's structure is made of, shared by the side that writes them and the side that reads them.
//!
//! | tag | argument (7 bytes) | then, in the meta | in the payload |
//! |---|---|---|---|
//! | 1 nil | 0 | | |
//! | 2 bool | 0 or 1 | | |
//! | 3 int | the number, if 56 bits hold it | | |
//! | 4 wide int | 0 | 8 bytes | |
//! | 5 float | 0 | 8 bytes, IEEE 754 | |
//! | 6 str | bytes, < 1024 | UTF-8, zero-filled to a word | |
//! | 7 bytes | bytes, < 1024 | bytes, zero-filled to a word | |
//! | 8 raw str | bytes, ≥ 1024 | | UTF-8 |
//! | 9 raw bytes | bytes, ≥ 1024 | | bytes |
//! | 10 list | items | each item | |
//! | 11 map | pairs | key, value, key, … | |
//! | 12 tensor | dtype code + 256 · axes | 8 bytes per extent | numbers in C order |
//! | 13 opaque | bytes, < 1024 | bytes, zero-filled to a word | |
//! | 14 raw opaque | bytes, ≥ 1024 | | bytes |
//! | 15 handle | kind | family, object: 8 bytes each | |
//!
//! Tags from 13 on are spoken inside a family of processes only. No tag is 0, so that zeroed memory is no value.

/// Lists and maps may be nested this deep.
pub const MAX_DEPTH: usize = 128;
/// A tensor may have this many axes, as NumPy's.
pub const MAX_AXES: usize = 64;
/// Strings and bytes of this length and more travel in the payload.
pub const RAW_FROM: usize = 1024;
/// Each item of the payload begins at a multiple of this, so that a receiver whose buffer is aligned can compute in place.
pub const ALIGNMENT: usize = 64;

pub(super) const WORD: usize = 8;

pub(super) const NIL: u8 = 1;
pub(super) const BOOL: u8 = 2;
pub(super) const INT: u8 = 3;
pub(super) const WIDE_INT: u8 = 4;
pub(super) const FLOAT: u8 = 5;
pub(super) const STR: u8 = 6;
pub(super) const BYTES: u8 = 7;
pub(super) const RAW_STR: u8 = 8;
pub(super) const RAW_BYTES: u8 = 9;
pub(super) const LIST: u8 = 10;
pub(super) const MAP: u8 = 11;
pub(super) const TENSOR: u8 = 12;
pub(super) const OPAQUE: u8 = 13;
pub(super) const RAW_OPAQUE: u8 = 14;
pub(super) const HANDLE: u8 = 15;

/// A word from a tag and an argument of 56 bits.
pub(super) fn word(tag: u8, argument: u64) -> [u8; WORD] {
    debug_assert!(argument < 1 << 56);
    (argument << 8 | u64::from(tag)).to_le_bytes()
}

/// Whether an integer fits into the argument of its word.
pub(super) fn is_narrow(number: i64) -> bool {
    number << 8 >> 8 == number
}

/// How many zeros bring `len` to a multiple of `unit`, a power of two.
pub(super) fn gap(len: u64, unit: usize) -> usize {
    (len.wrapping_neg() & (unit as u64 - 1)) as usize
}
