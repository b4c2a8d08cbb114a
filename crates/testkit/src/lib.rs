//! What tests of Syncline share, and nothing a user ever runs.
//!
//! - [`sim`]: a network in one thread on virtual time, with a seed: it delays, cuts, reorders and crashes.
//! - [`ranks`]: ranks as threads of one process, and as real processes that may be killed.
//! - [`enclosure`]: namespaces for daemons and hosts, which end with the test that made them.
//! - [`slurm`]: the real Slurm in such a place.
//! - [`relay`]: a cable between two hosts in such a place, with delay, loss and cuts.
//! - [`golden`]: texts that are compared byte for byte and rewritten on request.
#![forbid(unsafe_code)]

pub mod enclosure;
pub mod golden;
pub mod ranks;
pub mod relay;
pub mod sim;
pub mod slurm;
