//! Key-value tables: an open space of 64-bit keys in hash maps of the server processes.
//!
//! A server's map is a [`Share`](crate::share::Share) whose ids are keys, so workers reach it as they reach rows that live
//! elsewhere ([`Spread`](crate::spread::Spread) with a hashed layout), and directly in the server's own process.

mod rounds;
mod share;
mod values;

pub(crate) use rounds::Rounds;
pub(crate) use share::{KeyShare, Pairs};
