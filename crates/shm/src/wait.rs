//! Waiting that never lasts for ever: spin, yield, then sleep in slices.
//!
//! ```text
//!   poll ── found ──────────────────────────────► Ok          costs the poll
//!    └─ spin a few hundred pauses, polling ─────► Ok          0.1 µs after the other side
//!        └─ yield the core, polling, ~100 µs ───► Ok          3 µs when both share a core
//!            └─ sleep on the bell, ≤ 200 ms ────► Ok          20–40 µs after the ring
//!                └─ peer gone? interrupted? deadline over? ─► Err, else sleep again
//! ```
//! The questions of the last line are asked only there, so a wait that is over quickly pays for
//! none of them. A peer that dies without a sound is noticed at the end of a slice.

use std::time::{Duration, Instant};

use crate::bell::Bell;
use crate::sync::{spin_hint, yield_now};

/// The longest sleep before the waiter asks again whether the other side still lives.
pub const SLICE: Duration = Duration::from_millis(200);

/// The same, when an interrupt (Ctrl-C in an interpreter) has to be noticed too.
pub const INTERRUPTIBLE_SLICE: Duration = Duration::from_millis(100);

/// The longest sleep of those who are not rung for every change that they wait for.
const WATCHFUL_SLICE: Duration = Duration::from_millis(10);

/// Looks at a shared word without a pause between them, before the patient ones.
const EAGER: u32 = 48;

/// How long a call may wait, and who may call it off.
///
/// ```
/// use std::time::Duration;
/// use syncline_shm::wait::Deadline;
///
/// let soon = Deadline::after(Duration::from_secs(5));
/// assert!(!soon.expired());
/// assert!(soon.remaining().unwrap() <= Duration::from_secs(5));
/// assert_eq!(soon.slice(Duration::from_millis(200)), Duration::from_millis(200));
/// assert_eq!(Deadline::never().remaining(), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    since: Option<Instant>,
    at: Option<Instant>,
    interrupt: Option<fn() -> bool>,
}

impl Deadline {
    /// Over when `wait` has passed; a span too long for the clock never ends.
    pub fn after(wait: Duration) -> Self {
        let now = Instant::now();
        Deadline { since: Some(now), at: now.checked_add(wait), interrupt: None }
    }

    /// Over at `instant`.
    pub fn at(instant: Instant) -> Self {
        Deadline { since: Some(Instant::now()), at: Some(instant), interrupt: None }
    }

    /// Never over. For tests, and for servers that wait for work; liveness is still watched.
    pub const fn never() -> Self {
        Deadline { since: None, at: None, interrupt: None }
    }

    /// For whoever keeps others waiting meanwhile (an interpreter's lock): looks a few times, and is called off where it would have to sleep.
    pub const fn brief() -> Self {
        Deadline { since: None, at: None, interrupt: Some(|| true) }
    }

    /// Asks `interrupted` in the slow part of each wait, at least every 100 ms; `true` gives up.
    pub fn with_interrupt(self, interrupted: fn() -> bool) -> Self {
        Deadline { interrupt: Some(interrupted), ..self }
    }

    /// The same deadline, but over after `wait` at the latest.
    pub fn within(self, wait: Duration) -> Self {
        let capped = Deadline::after(wait).at;
        Deadline {
            at: match (self.at, capped) {
                (Some(own), Some(cap)) => Some(own.min(cap)),
                (own, cap) => own.or(cap),
            },
            ..self
        }
    }

    /// The same deadline, over only `grace` later.
    pub fn extended(self, grace: Duration) -> Self {
        Deadline { at: self.at.and_then(|at| at.checked_add(grace)), ..self }
    }

    /// How long ago it was set; zero for one that never ends. Error texts say so.
    pub fn waited(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// The moment it is over; `None` is never.
    pub fn instant(&self) -> Option<Instant> {
        self.at
    }

    /// What is left; zero when it is over, `None` when it never is.
    pub fn remaining(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether the time is up.
    pub fn expired(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }

    /// Asks the interrupt function, if there is one.
    pub fn interrupted(&self) -> bool {
        self.interrupt.is_some_and(|asked| asked())
    }

    /// How long one sleep may last: `max`, less when the deadline is nearer or an interrupt
    /// has to be noticed.
    pub fn slice(&self, max: Duration) -> Duration {
        let max = match self.interrupt {
            Some(_) => max.min(INTERRUPTIBLE_SLICE),
            None => max,
        };
        self.remaining().map_or(max, |left| left.min(max))
    }
}

/// Why a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The deadline passed.
    #[error("the deadline passed")]
    Timeout,
    /// The interrupt function of the deadline said so.
    #[error("interrupted")]
    Interrupted,
    /// The other side is dead or has left.
    #[error("the other side is gone")]
    Gone,
}

/// How long a wait keeps its core before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    spins: u32,
    yielding: Duration,
    /// The longest pause between two looks; 1 for looks that begin without one.
    pause: u32,
}

impl Patience {
    /// For a host with `local_ranks` ranks on `cores` cores that this job may use.
    ///
    /// While each rank has a core, the answer is likely to come within a few hundred pauses.
    /// With fewer cores than ranks, the one we wait for may need ours: give it up at once.
    pub const fn new(local_ranks: usize, cores: usize) -> Self {
        if local_ranks <= cores {
            Patience { spins: 200, yielding: Duration::from_micros(100), pause: 1 }
        } else {
            Patience { spins: 4, yielding: Duration::from_micros(150), pause: 1 }
        }
    }

    /// For waits whose other side may be a thread of this very process, so that nobody knows who has a core: a few looks,
    /// then the core is given away.
    pub const fn unknown() -> Self {
        if cfg!(loom) {
            return Patience::none();
        }
        Patience { spins: 2 * EAGER, yielding: Duration::from_micros(100), pause: 1 }
    }

    /// For the ends of a stream: pauses that double up to half a microsecond, so that the other side, whose line a look takes
    /// away, gets a few items further between two looks.
    pub const fn streaming() -> Self {
        if cfg!(loom) {
            return Patience::none();
        }
        Patience { spins: 8, yielding: Duration::from_micros(100), pause: 16 }
    }

    /// Sleeps at once: for waits that are expected to be long, and for loom.
    pub const fn none() -> Self {
        Patience { spins: 0, yielding: Duration::ZERO, pause: 1 }
    }
}

/// Waits until `poll` finds something.
///
/// Whoever makes `poll` succeed must ring `bell` afterwards (`ring_if_waiting`). `still_there` is
/// asked between sleeps; when it says no, `poll` gets one last look, so that what a peer published
/// before it died is still found. A deadline that is already over still allows the quick looks.
#[inline]
pub fn wait_for<T>(
    mut poll: impl FnMut() -> Option<T>,
    bell: &Bell,
    patience: Patience,
    deadline: Deadline,
    still_there: &dyn Fn() -> bool,
) -> Result<T, WaitError> {
    if let Some(found) = poll() {
        return Ok(found);
    }
    wait_announced(poll, bell, patience, deadline, still_there, || (), || ())
}

/// As [`wait_for`] for something that may come true without a ring now and then: it is noticed 10 ms later at the latest.
pub fn wait_watchfully<T>(
    mut poll: impl FnMut() -> Option<T>,
    bell: &Bell,
    patience: Patience,
    deadline: Deadline,
    still_there: &dyn Fn() -> bool,
) -> Result<T, WaitError> {
    match look_for(&mut poll, patience) {
        Some(found) => Ok(found),
        None => sleep_until(&mut poll, bell, deadline, WATCHFUL_SLICE, still_there),
    }
}

/// As [`wait_for`], telling others before the first sleep (`announce`) and after the last one
/// (`renounce`) that this thread sleeps, for ringers that want to know more than the bell says.
pub(crate) fn wait_announced<T>(
    mut poll: impl FnMut() -> Option<T>,
    bell: &Bell,
    patience: Patience,
    deadline: Deadline,
    still_there: &dyn Fn() -> bool,
    announce: impl FnOnce(),
    renounce: impl FnOnce(),
) -> Result<T, WaitError> {
    if let Some(found) = look_for(&mut poll, patience) {
        return Ok(found);
    }
    announce();
    let result = sleep_until(&mut poll, bell, deadline, SLICE, still_there);
    renounce();
    result
}

/// The part of a wait that keeps its core: looks until `poll` finds something or the patience is over.
#[inline]
pub fn look_for<T>(mut poll: impl FnMut() -> Option<T>, patience: Patience) -> Option<T> {
    for spin in 0..patience.spins {
        if let Some(found) = poll() {
            return Some(found);
        }
        // A pause lasts up to 140 cycles on some processors: the first looks, which an answer under way
        // ends, go without.
        if patience.pause > 1 {
            (0..1_u32.checked_shl(spin).unwrap_or(u32::MAX).min(patience.pause)).for_each(|_| spin_hint());
        } else if spin >= EAGER {
            spin_hint();
        }
    }
    if !patience.yielding.is_zero() {
        let since = Instant::now();
        while since.elapsed() < patience.yielding {
            yield_now();
            if let Some(found) = poll() {
                return Some(found);
            }
        }
    }
    None
}

#[cold]
fn sleep_until<T>(
    poll: &mut impl FnMut() -> Option<T>,
    bell: &Bell,
    deadline: Deadline,
    longest: Duration,
    still_there: &dyn Fn() -> bool,
) -> Result<T, WaitError> {
    loop {
        // Anew each time: whoever rings takes the sleepers off the count.
        let waiter = bell.register();
        if let Some(found) = poll() {
            return Ok(found);
        }
        if !still_there() {
            return poll().ok_or(WaitError::Gone);
        }
        if deadline.interrupted() {
            return Err(WaitError::Interrupted);
        }
        let slice = deadline.slice(longest);
        if slice.is_zero() {
            return Err(WaitError::Timeout);
        }
        waiter.sleep(slice);
    }
}

/// Waits until `ready`, woken by any of the bells: the same as [`wait_for`] for somebody who listens to several.
#[cfg(not(loom))]
pub fn wait_on_any(ready: &dyn Fn() -> bool, bells: &[&Bell], deadline: Deadline, still_there: &dyn Fn() -> bool) -> Result<(), WaitError> {
    let since = Instant::now();
    while since.elapsed() < Duration::from_micros(100) {
        if ready() {
            return Ok(());
        }
        yield_now();
    }
    loop {
        let waiters: Vec<_> = bells.iter().map(|bell| bell.register()).collect();
        if ready() {
            return Ok(());
        }
        if !still_there() {
            return if ready() { Ok(()) } else { Err(WaitError::Gone) };
        }
        if deadline.interrupted() {
            return Err(WaitError::Interrupted);
        }
        let slice = deadline.slice(SLICE);
        if slice.is_zero() {
            return Err(WaitError::Timeout);
        }
        crate::bell::sleep_on_any(&waiters, slice);
    }
}
