//! A lock for a few hundred nanoseconds that outlives its holder.
//!
//! ```text
//!   0 ──take──► member ──let go──► 0
//!                  └─ dead? ──inherit──► heir
//! ```
//! The word names who holds it. What it guards is always whole: every change becomes visible by one store, so a holder
//! may die between any two instructions, and its heir finds either the old state or the new one. Who finds it taken
//! spins, then gives its core away, then naps; only a nap asks the kernel whether the holder still lives. Letting go
//! wakes nobody, so it costs one exchange, which is the fence that a ringer needs anyway (see `bell`).
//!
//! It is unfair on purpose: a holder that comes back at once finds the line in its own cache, and under contention
//! each side does many operations per transfer of the line.

use std::time::{Duration, Instant};

use crate::mortality::moment;
use crate::placed::Placed;
use crate::sync::{AtomicU32, Ordering, fence, spin_hint, yield_now};
use crate::wait::{Deadline, WaitError};

/// A lock word in shared memory.
#[repr(transparent)]
#[derive(Default)]
pub struct Latch(AtomicU32);

// SAFETY: one atomic, no drop glue, zero is a latch nobody holds.
unsafe impl Placed for Latch {}

/// How a latch was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was free.
    Free,
    /// This member died with it.
    Inherited(u32),
}

/// The longest pause between two looks at a taken latch, before the core is given away. Pauses double: while one waits, the holder
/// may well come back a few times, and does that much faster while nobody looks at its line.
const LONGEST_PAUSE: u32 = if cfg!(loom) { 0 } else { 64 };

/// How long the core is given away before the first nap.
const YIELDING: Duration = if cfg!(loom) { Duration::ZERO } else { Duration::from_micros(300) };

/// The least time that a holder gets: it may have lost its core, and its machine may be busy.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// The most that it gets, whatever the deadline: whoever holds a latch for so long was stopped, and an error that says so is better than
/// silence. Who has more time asks again.
const MOST_PATIENCE: Duration = Duration::from_secs(20);

impl Latch {
    /// Takes it for `me`, if nobody holds it.
    #[inline(always)]
    pub fn try_take(&self, me: u32) -> Result<(), u32> {
        // Acquire pairs with the Release of `let_go`: what the last holder changed is visible.
        self.0.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).map(drop)
    }

    /// Takes it for `me`, from a dead holder if need be. Waits until `by`, but for 2 s at least and 20 s at most.
    #[inline(always)]
    pub fn take(&self, me: u32, by: Deadline, is_dead: &dyn Fn(u32) -> bool) -> Result<Taken, WaitError> {
        let taken = match self.try_take(me) {
            Ok(()) => Ok(Taken::Free),
            Err(_) => self.take_slowly(me, by, is_dead),
        };
        moment();
        taken
    }

    #[cold]
    fn take_slowly(&self, me: u32, by: Deadline, is_dead: &dyn Fn(u32) -> bool) -> Result<Taken, WaitError> {
        let mut pause = 1;
        while pause <= LONGEST_PAUSE {
            (0..pause).for_each(|_| spin_hint());
            pause *= 2;
            // Only a look: the line stays with the holder while it works.
            if self.0.load(Ordering::Relaxed) == 0 && self.try_take(me).is_ok() {
                return Ok(Taken::Free);
            }
        }
        let since = Instant::now();
        let mut nap = Duration::from_micros(20);
        loop {
            match self.try_take(me) {
                Ok(()) => return Ok(Taken::Free),
                Err(holder) if since.elapsed() >= YIELDING => {
                    if is_dead(holder) && self.inherit(holder, me) {
                        return Ok(Taken::Inherited(holder));
                    }
                    if by.interrupted() {
                        return Err(WaitError::Interrupted);
                    }
                    let waited = since.elapsed();
                    if waited > MOST_PATIENCE || (waited > LEAST_PATIENCE && by.expired()) {
                        return Err(WaitError::Timeout);
                    }
                    self.rest(nap);
                    nap = (nap * 2).min(Duration::from_millis(2));
                }
                Err(_) => yield_now(),
            }
        }
    }

    #[cfg(not(loom))]
    fn rest(&self, nap: Duration) {
        std::thread::sleep(nap);
    }

    #[cfg(loom)]
    fn rest(&self, _nap: Duration) {
        yield_now();
    }

    /// Takes it over from a holder that is dead for certain. False when somebody else was quicker.
    pub fn inherit(&self, dead: u32, heir: u32) -> bool {
        self.0.compare_exchange(dead, heir, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Undoes [`inherit`](Latch::inherit) where something had to be settled and could not be: the next taker inherits it too.
    pub fn bequeath(&self, dead: u32) {
        self.0.store(dead, Ordering::Release);
    }

    /// Lets go, and keeps later loads behind that: what one does before looking for sleepers.
    #[inline(always)]
    pub fn let_go(&self) {
        // On this processor an exchange is a fence, and costs less than a store and a fence. The model of the language does
        // not promise it, so everywhere else (and under loom) the fence is written out.
        if cfg!(all(target_arch = "x86_64", not(loom))) {
            self.0.swap(0, Ordering::SeqCst);
        } else {
            self.0.store(0, Ordering::Release);
            fence(Ordering::SeqCst);
        }
    }

    /// Lets go where nobody can be asleep over what was done.
    #[inline(always)]
    pub fn let_go_quietly(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Who holds it; 0 for nobody.
    pub fn holder(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}
