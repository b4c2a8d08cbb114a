//! Draft copy of syncline_shm::wait::Deadline.
use std::time::{Duration, Instant};
const INTERRUPTIBLE_SLICE: Duration = Duration::from_millis(100);
/// How long a call may wait, and who may call it off.
///
/// ```
/// use std::time::Duration;
/// use syncline_transport::Deadline;
///
/// let soon = Deadline::after(Duration::from_secs(5));
/// assert!(!soon.expired());
/// assert!(soon.remaining().unwrap() <= Duration::from_secs(5));
/// assert_eq!(soon.slice(Duration::from_millis(200)), Duration::from_millis(200));
/// assert_eq!(Deadline::never().remaining(), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Option<Instant>,
    interrupt: Option<fn() -> bool>,
}

impl Deadline {
    /// Over when `wait` has passed; a span too long for the clock never ends.
    pub fn after(wait: Duration) -> Self {
        Deadline {
            at: Instant::now().checked_add(wait),
            interrupt: None,
        }
    }

    /// Over at `instant`.
    pub fn at(instant: Instant) -> Self {
        Deadline {
            at: Some(instant),
            interrupt: None,
        }
    }

    /// Never over. For tests, and for servers that wait for work; liveness is still watched.
    pub const fn never() -> Self {
        Deadline {
            at: None,
            interrupt: None,
        }
    }

    /// Asks `interrupted` in the slow part of each wait, at least every 100 ms; `true` gives up.
    pub fn with_interrupt(self, interrupted: fn() -> bool) -> Self {
        Deadline {
            interrupt: Some(interrupted),
            ..self
        }
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

    /// The moment it is over; `None` is never.
    pub fn instant(&self) -> Option<Instant> {
        self.at
    }

    /// What is left; zero when it is over, `None` when it never is.
    pub fn remaining(&self) -> Option<Duration> {
        self.at
            .map(|at| at.saturating_duration_since(Instant::now()))
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

