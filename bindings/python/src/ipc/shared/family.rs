//! The families that this process belongs to: its own, and those it was invited into.
//!
//! The first object that is made here makes a family, unless a handle from elsewhere came before: then new objects
//! belong to that family too, so that they can be sent through the channels that are there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use syncline::ipc::Family;

use crate::errors;

/// The first is where new objects are made.
static FAMILIES: Mutex<Memberships> = Mutex::new(Memberships { process: 0, families: Vec::new() });

struct Memberships {
    /// Whose they are.
    process: u32,
    families: Vec<Family>,
}

fn memberships() -> MutexGuard<'static, Memberships> {
    let mut all = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
    if all.process != std::process::id() {
        // A forked child belongs to no family of its parent's. Left as they are, not dropped: taking them down is the parent's business.
        std::mem::forget(std::mem::take(&mut all.families));
        all.process = std::process::id();
    }
    all
}

/// Where new objects are made.
pub(super) fn home(py: Python<'_>) -> PyResult<Family> {
    let families = &mut memberships().families;
    if let Some(family) = families.first() {
        return Ok(family.clone());
    }
    let family = Family::alone().map_err(|error| errors::of_ipc(py, &error))?;
    families.push(family.clone());
    Ok(family)
}

/// The family with this number, if this process belongs to it.
pub(super) fn known(id: u64) -> Option<Family> {
    memberships().families.iter().find(|family| family.id() == id).cloned()
}

/// The family that `line` invites into; joined once.
pub(super) fn joined(py: Python<'_>, id: u64, line: &str) -> PyResult<Family> {
    let families = &mut memberships().families;
    if let Some(family) = families.iter().find(|family| family.id() == id) {
        return Ok(family.clone());
    }
    let family = Family::accept(line).map_err(|error| errors::of_ipc(py, &error))?;
    families.push(family.clone());
    Ok(family)
}
