//! Who belongs to a family, and who of them still lives.
//!
//! A member's slot is claimed by one exchange that writes its process id too, so there is never a claimed slot without
//! a process to ask the kernel about. Its number is made of the slot and of how often the slot was used: a word that
//! names a member names it for ever.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, test_kill_process};

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
    watched: Mutex<HashMap<u32, Life>>,
}

/// What this process knows for certain of another one.
enum Life {
    /// This descriptor tells of its end.
    Watched(OwnedFd),
    Over,
}

impl Members {
    pub(crate) fn new(slots: Vec<Shared<MemberWords>>) -> Members {
        let began = Stat::of(std::process::id()).map_or(0, |stat| stat.began);
        Members { slots, space: pid_space(), began, watched: Mutex::default() }
    }

    /// Takes a slot for this process; none when all are taken.
    pub(crate) fn join(&self) -> Option<u32> {
        self.seat(std::process::id(), self.began)
    }

    /// The same for any process.
    pub(super) fn seat(&self, pid: u32, began: u64) -> Option<u32> {
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
                words.began.store(began, Ordering::Release);
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

    /// All who are members, living or dead. Those who are none any more are not watched any longer: whoever buried them
    /// knows nothing of the descriptors that others have for them.
    pub(crate) fn all(&self) -> Vec<u32> {
        self.watched().retain(|member, _| self.pid(*member).is_some());
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
        let expected = words.began.load(Ordering::Acquire);
        let mut watched = self.watched();
        if let Some(life) = watched.get(&member) {
            return life.is_over();
        }
        let life = match Life::of(pid, expected) {
            Ok(life) => life,
            Err(doubt) => return doubt.is_over,
        };
        let over = life.is_over();
        watched.insert(member, life);
        over
    }

    fn watched(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Life>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernel could not tell for good (no descriptor left, a call that is forbidden here): ask again next time.
struct Doubt {
    /// The best answer for now. Only what is certain counts as an end: whoever is taken for dead loses its locks and its memory.
    is_over: bool,
}

impl Life {
    /// That of the process which had this number when it `began` (0 if that is not known).
    fn of(pid: u32, began: u64) -> Result<Life, Doubt> {
        let Some(id) = Pid::from_raw(pid as i32) else { return Ok(Life::Over) };
        // The number may have been given to another process since; while the descriptor is open it stays who it is.
        let opened = pidfd_open(id, PidfdFlags::empty());
        let stat = Stat::of(pid);
        match (opened, &stat) {
            (Err(Errno::SRCH), _) => Ok(Life::Over),
            (_, Ok(stat)) if began != 0 && stat.began != began => Ok(Life::Over),
            (Ok(pidfd), Ok(_)) => Ok(Life::Watched(pidfd)),
            (Ok(pidfd), Err(_)) => Err(Doubt { is_over: Life::Watched(pidfd).is_over() }),
            (Err(_), Ok(stat)) => Err(Doubt { is_over: stat.ended }),
            (Err(_), Err(_)) => Err(Doubt { is_over: test_kill_process(id) == Err(Errno::SRCH) }),
        }
    }

    fn is_over(&self) -> bool {
        let Life::Watched(pidfd) = self else { return true };
        let mut asked = [PollFd::new(pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut asked, Some(&now)), Ok(1..))
    }
}

/// What `/proc` tells of a process.
struct Stat {
    /// When it began, in ticks since the machine did.
    began: u64,
    /// Whether it has ended, and nobody has asked for its status yet.
    ended: bool,
}

impl Stat {
    fn of(pid: u32) -> std::io::Result<Stat> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // Counted behind the name, which may contain anything: the state, and the beginning as the 22nd field of all.
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
        let parsed = fields.and_then(|mut fields| {
            let state = fields.next()?;
            Some(Stat { began: fields.nth(18)?.parse().ok()?, ended: matches!(state, "Z" | "X") })
        });
        parsed.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    }
}

fn pid_space() -> u64 {
    let link = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().trim_start_matches("pid:[").trim_end_matches(']').parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_views() -> (Members, Members) {
        let slots: Vec<Shared<MemberWords>> = (0..4).map(|_| Shared::in_private_memory(MemberWords::default())).collect();
        (Members::new(slots.clone()), Members::new(slots))
    }

    #[test]
    fn who_was_buried_by_another_is_not_watched_any_longer() {
        let (one, other) = two_views();
        for _ in 0..3 {
            let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
            let member = one.seat(process.id(), Stat::of(process.id()).unwrap().began).unwrap();
            assert!(!one.is_dead(member) && !other.is_dead(member));
            process.kill().unwrap();
            let began = std::time::Instant::now();
            while !one.is_dead(member) {
                assert!(began.elapsed().as_secs() < 10, "its end is seen although its parent has not asked for its status");
            }
            process.wait().unwrap();
            assert!(other.is_dead(member));
            one.free(member);
            assert!(other.all().is_empty() && other.watched().is_empty(), "a descriptor is kept for nobody");
        }
    }

    #[test]
    fn a_number_that_was_given_to_another_process_is_no_life() {
        let (one, _) = two_views();
        let mut process = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let member = one.seat(process.id(), 1).unwrap();
        assert!(one.is_dead(member) && one.is_dead(member));
        process.kill().and_then(|()| process.wait()).unwrap();
    }
}
