//! What the threads of this process pass to each other and share: torch-ipc's map, queues, channels, tables.
//!
//! ```text
//!   Lua state ── pack ──▶ Parcel { Value, references } ──▶ queue of the family ──▶ unpack ── Lua state of another thread
//!                                        └──▶ Shelf: objects, tensors ──────────────┘
//! ```
//! Every thread has a Lua state of its own (`state.rs`). Plain data goes through the queues of `crates/ipc` as bytes; functions go as byte
//! code. Objects and tensors are not copied: each container has a shelf where they wait for whoever takes the bytes that name them, and
//! what nobody takes goes with the container. The family has this process as its only member, so nothing that is executed comes from
//! elsewhere.

pub(crate) mod background;
pub(crate) mod channel;
mod functions;
pub(crate) mod map;
pub(crate) mod marshal;
pub(crate) mod mutex;
mod parcel;
mod shelf;
mod state;
pub(crate) mod table;
pub(crate) mod workqueue;

use std::sync::{Mutex, PoisonError};

use syncline::ipc::Family;

use crate::reply::Failure;
pub(crate) use parcel::adopt;

/// The family of this process, and which process that is.
static FAMILY: Mutex<Option<(u32, Family)>> = Mutex::new(None);

/// The family in which all objects of this process are.
fn family() -> Result<Family, Failure> {
    let mut known = FAMILY.lock().unwrap_or_else(PoisonError::into_inner);
    let me = std::process::id();
    match &*known {
        Some((process, family)) if *process == me => return Ok(family.clone()),
        // A forked child belongs to no family of its parent's, and taking that one down is the parent's business.
        _ => std::mem::forget(known.take()),
    }
    let family = Family::alone()?;
    *known = Some((me, family.clone()));
    Ok(family)
}
