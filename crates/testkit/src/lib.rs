//! What tests of Syncline share, and nothing a user ever runs.
//!
//! - [`sim`]: a network in one thread on virtual time, with a seed: it delays, cuts, reorders and crashes.
//! - [`ranks`]: ranks as threads of one process, and as real processes that may be killed.
//! - [`golden`]: texts that are compared byte for byte and rewritten on request.
#![forbid(unsafe_code)]

pub mod golden;
pub mod ranks;
pub mod sim;
