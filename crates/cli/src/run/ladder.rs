//! How a job is brought down: politely first, then firmly, at times that are fixed when it begins.
//!
//! ```text
//! after a failure    ── grace ──▶ SIGTERM ── 2 s ──▶ SIGKILL
//! after a signal     signal passed on ── grace ──▶ SIGKILL
//! after another      SIGKILL
//! ```
//! Plain values: time comes in, signals come out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::process::Signal;

/// Between SIGTERM and SIGKILL.
pub(super) const LAST_MOMENT: Duration = Duration::from_secs(2);

/// The signals that are still to be sent, with their times.
#[derive(Debug, Default)]
pub(super) struct Ladder {
    steps: VecDeque<(Instant, Signal)>,
}

impl Ladder {
    pub(super) fn after_failure(now: Instant, grace: Duration) -> Ladder {
        let term = later(now, grace);
        Ladder { steps: [(term, Signal::TERM), (later(term, LAST_MOMENT), Signal::KILL)].into() }
    }

    pub(super) fn after_signal(now: Instant, passed_on: Signal, grace: Duration) -> Ladder {
        Ladder { steps: [(now, passed_on), (later(now, grace), Signal::KILL)].into() }
    }

    pub(super) fn at_once(now: Instant) -> Ladder {
        Ladder { steps: [(now, Signal::KILL)].into() }
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.steps.is_empty()
    }

    /// When the next signal is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.steps.front().map(|step| step.0)
    }

    /// Takes the next signal if its time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Signal> {
        self.next().filter(|moment| *moment <= now)?;
        self.steps.pop_front().map(|step| step.1)
    }
}

/// `now + time`, a year at most: `--grace 1e15` means "never" rather than an overflow.
fn later(now: Instant, time: Duration) -> Instant {
    now + time.min(Duration::from_secs(365 * 24 * 3600))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_followed_by_grace_then_term_then_kill() {
        let now = Instant::now();
        let grace = Duration::from_secs(5);
        let mut ladder = Ladder::after_failure(now, grace);
        assert_eq!(ladder.take_due(now), None);
        assert_eq!(ladder.next(), Some(now + grace));
        assert_eq!(ladder.take_due(now + grace), Some(Signal::TERM));
        assert_eq!(ladder.take_due(now + grace), None);
        assert_eq!(ladder.take_due(now + grace + LAST_MOMENT), Some(Signal::KILL));
        assert_eq!(ladder.next(), None);
    }

    #[test]
    fn a_signal_is_passed_on_at_once() {
        let now = Instant::now();
        let mut ladder = Ladder::after_signal(now, Signal::INT, Duration::MAX);
        assert_eq!(ladder.take_due(now), Some(Signal::INT));
        assert_eq!(ladder.take_due(now + Duration::from_secs(3600)), None);
        assert_eq!(Ladder::at_once(now).take_due(now), Some(Signal::KILL));
    }
}
