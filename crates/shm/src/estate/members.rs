//! Who belongs to a family, and who of them still lives.
//!
//! A member's slot is claimed by one exchange that writes its process id too, so there is never a claimed slot without
//! a process to ask the kernel about. Its number is made of the slot and of how often the slot was used: a word that
//! names a member names it for ever.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::layout::MOST_MEMBERS;
use crate::placed::{Placed, Shared};
use crate::sync::{AtomicU64, Ordering};

const SLOT_BITS: u32 = MOST_MEMBERS.trailing_zeros();
const LIVE: u64 = 1 << 63;
const USES: u64 = (1 << (32 - SLOT_BITS)) - 1;

/// One member's slot.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct MemberWords {
    /// `live (1) · uses of this slot (22) · process id (32)`
    word: AtomicU64,
    /// When its process began, in ticks since the machine did; 0 before it said so.
    began: AtomicU64,
    /// Which space of process ids it lives in.
    space: AtomicU64,
}

// SAFETY: `repr(C)`, atomics and padding only, no drop glue, zero is a slot nobody used.
unsafe impl Placed for MemberWords {}

fn uses_of(word: u64) -> u64 {
    (word >> 32) & USES
}

fn number(slot: usize, uses: u64) -> u32 {
    (uses as u32) << SLOT_BITS | slot as u32
}

/// The slot of a member.
pub(crate) fn slot_of(member: u32) -> usize {
    member as usize & (MOST_MEMBERS - 1)
}

/// All slots, and what this process knows of their processes.
pub(crate) struct Members {
    slots: Vec<Shared<MemberWords>>,
    space: u64,
    began: u64,
    watched: Mutex<HashMap<u32, Option<OwnedFd>>>,
}

impl Members {
    pub(crate) fn new(slots: Vec<Shared<MemberWords>>) -> Members {
        Members { slots, space: pid_space(), began: began(std::process::id()).unwrap_or(0), watched: Mutex::default() }
    }

    /// Takes a slot for this process; none when all are taken.
    pub(crate) fn join(&self) -> Option<u32> {
        let pid = std::process::id();
        for (slot, words) in self.slots.iter().enumerate() {
            let seen = words.word.load(Ordering::Relaxed);
            if seen & LIVE != 0 {
                continue;
            }
            let uses = match (uses_of(seen) + 1) & USES {
                0 => 1,
                uses => uses,
            };
            let mine = LIVE | uses << 32 | u64::from(pid);
            if words.word.compare_exchange(seen, mine, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                words.space.store(self.space, Ordering::Relaxed);
                words.began.store(self.began, Ordering::Release);
                return Some(number(slot, uses));
            }
        }
        None
    }

    /// Frees the slot of a member whose affairs are in order.
    pub(crate) fn free(&self, member: u32) {
        let words = &self.slots[slot_of(member)];
        let seen = words.word.load(Ordering::Relaxed);
        if seen & LIVE != 0 && number(slot_of(member), uses_of(seen)) == member {
            words.began.store(0, Ordering::Relaxed);
            let _ = words.word.compare_exchange(seen, seen & !LIVE & !0xffff_ffff, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.watched().remove(&member);
    }

    /// The process of a member; none when it is no member (any more).
    pub(crate) fn pid(&self, member: u32) -> Option<u32> {
        let word = self.slots[slot_of(member)].word.load(Ordering::Acquire);
        (word & LIVE != 0 && number(slot_of(member), uses_of(word)) == member).then_some(word as u32)
    }

    /// All who are members, living or dead.
    pub(crate) fn all(&self) -> Vec<u32> {
        let word = |slot: usize| self.slots[slot].word.load(Ordering::Acquire);
        (0..self.slots.len()).filter(|slot| word(*slot) & LIVE != 0).map(|slot| number(slot, uses_of(word(slot)))).collect()
    }

    /// Whether a member's process has ended. A word that names nobody names somebody dead.
    pub(crate) fn is_dead(&self, member: u32) -> bool {
        let Some(pid) = self.pid(member) else { return true };
        let words = &self.slots[slot_of(member)];
        if pid == std::process::id() {
            // Ourselves, or somebody long dead whose number we were given.
            let expected = words.began.load(Ordering::Acquire);
            return expected != 0 && self.began != 0 && expected != self.began;
        }
        let space = words.space.load(Ordering::Acquire);
        if space != self.space && space != 0 {
            return false; // Its number means nothing here; whoever shares its space tells.
        }
        let mut watched = self.watched();
        let life = watched.entry(member).or_insert_with(|| {
            let pidfd = pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
            // The number may have been given to another process since.
            let expected = words.began.load(Ordering::Acquire);
            (expected == 0 || began(pid) == Some(expected)).then_some(pidfd)
        });
        let Some(pidfd) = life else { return true };
        let mut asked = [PollFd::new(&*pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut asked, Some(&now)), Ok(1..))
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Option<OwnedFd>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a process began; field 22 of its `stat`, counted behind the name, which may contain anything.
fn began(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn pid_space() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap_or(0)
}
