//! The processes that share objects, and how one gets among them.

use std::ffi::c_char;

use syncline::ipc::Family;

use crate::border::guarded;
use crate::failure::syncline_status;
use crate::handles::Handles;
use crate::memory;

/// This process's membership in a family: processes of one host that share channels, workqueues, mutexes and tables.
pub struct syncline_family {
    _private: [u8; 0],
}

pub(super) static FAMILIES: Handles<syncline_family, Family> = Handles::new("family", 10);

/// A family of which this process is the first member. Nothing of it has a name in a file system: it ends with its last process.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_family_create(out: *mut *mut syncline_family) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { FAMILIES.give(out, || Ok(Family::alone()?)) })
}

/// Copies a line into `out` with which another process of this user joins, by argument, environment or pipe, while this one lives.
///
/// # Safety
/// `out` has room for `room` bytes; 128 are enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_family_invitation(family: *mut syncline_family, out: *mut c_char, room: usize) -> syncline_status {
    guarded(|| {
        let line = FAMILIES.get(family)?.invitation()?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_text(out, room, &line) }
    })
}

/// Joins the family that a line of syncline_family_invitation invites into.
///
/// # Safety
/// `invitation` is a text; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_family_accept(invitation: *const c_char, out: *mut *mut syncline_family) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let line = unsafe { memory::needed_text(invitation, "invitation") }?;
        // SAFETY: the caller's promise.
        unsafe { FAMILIES.give(out, || Ok(Family::accept(line)?)) }
    })
}

/// What a family holds.
#[repr(C)]
pub struct syncline_family_facts {
    /// Processes that are alive.
    members: usize,
    /// Channels, workqueues, mutexes and tables.
    objects: usize,
    /// Pieces of memory that large items lie in.
    blocks: usize,
    /// Bytes of memory.
    memory: u64,
    /// Members that died without leaving.
    deaths: u64,
}

/// What the family holds now.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_family_look(family: *mut syncline_family, out: *mut syncline_family_facts) -> syncline_status {
    guarded(|| {
        let family = FAMILIES.get(family)?;
        let stats = family.stats();
        let members = family.members().iter().filter(|member| member.alive).count();
        let facts =
            syncline_family_facts { members, objects: stats.objects, blocks: stats.blocks, memory: stats.memory, deaths: stats.deaths };
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", facts) }
    })
}

/// Frees the handle. The membership ends with the last object of the family that this process holds.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_family_free(family: *mut syncline_family) -> syncline_status {
    guarded(|| FAMILIES.take(family).map(drop))
}
