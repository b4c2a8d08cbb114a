//! Bytes ⇄ types, and nothing else: what Syncline's processes say to each other, as plain values.
//!
//! ```text
//!  frame   =  header, 64 bytes  ·  meta (a message or a value's structure)  ·  payload (raw bytes)
//!             [`FrameHeader`]      [`message`], [`Value`]                      tensors, never re-encoded
//! ```
//! Everything here is pure: no socket, no thread, no clock. Whatever comes in was written by another
//! process, so every length is checked and capped before it is believed, nothing panics on any input,
//! and a decoder never allocates more than a small multiple of the bytes it was given.
//!
//! All numbers travel little-endian.

#![forbid(unsafe_code)]

pub mod codec;
mod error;
pub mod fingerprint;
pub mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod kind;
pub mod message;
pub mod value;

pub use error::WireError;
pub use fingerprint::{Fingerprint, FingerprintBuilder};
pub use frame::{Flags, FrameHeader, HEADER_LEN, Limits, MAGIC, VERSION};
pub use kind::Kind;
pub use value::{Data, EncodedValue, Handle, HandleKind, SharedBytes, TensorValue, Value};
