//! The families that this process belongs to: its own, and those it was invited into.
//!
//! In a job, new objects belong to the family of the ranks of this host, so that all of them find a queue by its name. Elsewhere
//! the first object that is made makes a family, unless a handle from elsewhere came before: then new objects
//! belong to that family too, so that they can be sent through the channels that are there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use syncline::ipc::Family;

use crate::{errors, job};

/// The first is where new objects are made while no job is open.
static FAMILIES: Mutex<Memberships> = Mutex::new(Memberships { process: 0, families: Vec::new(), of_jobs: Vec::new() });

struct Memberships {
    /// Whose they are.
    process: u32,
    families: Vec<Family>,
    /// Those of jobs that this process is or was a rank of.
    of_jobs: Vec<Family>,
}

impl Memberships {
    fn with_id(&self, id: u64) -> Option<Family> {
        self.families.iter().chain(&self.of_jobs).find(|family| family.id() == id).cloned()
    }
}

fn memberships() -> MutexGuard<'static, Memberships> {
    let mut all = FAMILIES.lock().unwrap_or_else(PoisonError::into_inner);
    if all.process != std::process::id() {
        // A forked child belongs to no family of its parent's. Left as they are, not dropped: taking them down is the parent's business.
        std::mem::forget((std::mem::take(&mut all.families), std::mem::take(&mut all.of_jobs)));
        all.process = std::process::id();
    }
    all
}

/// Where new objects are made.
pub(super) fn home(py: Python<'_>) -> PyResult<Family> {
    if let Some(session) = job::open_session() {
        let family = session.family().map_err(|error| errors::exception(py, &error))?;
        let of_jobs = &mut memberships().of_jobs;
        if of_jobs.iter().all(|known| known.id() != family.id()) {
            of_jobs.push(family.clone());
        }
        return Ok(family);
    }
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
    memberships().with_id(id)
}

/// The family that `line` invites into; joined once.
pub(super) fn joined(py: Python<'_>, id: u64, line: &str) -> PyResult<Family> {
    let mut all = memberships();
    if let Some(family) = all.with_id(id) {
        return Ok(family);
    }
    let family = Family::accept(line).map_err(|error| errors::of_ipc(py, &error))?;
    all.families.push(family.clone());
    Ok(family)
}

/// What the family holds where new objects are made, after the affairs of its dead were settled; see `syncline.ipc.family_stats`.
#[pyfunction]
pub(crate) fn ipc_family_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let family = home(py)?;
    let (stats, members) = py.detach(|| {
        family.bury_the_dead();
        (family.stats(), family.members().len())
    });
    let counts = PyDict::new(py);
    counts.set_item("objects", stats.objects)?;
    counts.set_item("blocks", stats.blocks)?;
    counts.set_item("members", members)?;
    counts.set_item("deaths", stats.deaths)?;
    counts.set_item("memory", stats.memory)?;
    Ok(counts)
}
