//! How long a meeting may take. The same questions as the `Deadline` of shared memory, asked between short sleeps.

use std::time::{Duration, Instant};

/// A moment after which a wait gives up, and who may call it off before.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Option<Instant>,
    interrupt: Option<fn() -> bool>,
}

impl Deadline {
    /// Over when `wait` has passed.
    pub fn after(wait: Duration) -> Self {
        Deadline { at: Instant::now().checked_add(wait), interrupt: None }
    }
    /// Asks `interrupted` at least every 100 ms; `true` gives up.
    pub fn with_interrupt(self, interrupted: fn() -> bool) -> Self {
        Deadline { interrupt: Some(interrupted), ..self }
    }
    /// What is left.
    pub fn remaining(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
    /// Whether the time is up.
    pub fn expired(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
    }
    /// Asks the interrupt function.
    pub fn interrupted(&self) -> bool {
        self.interrupt.is_some_and(|asked| asked())
    }
    /// How long one sleep may last.
    pub fn slice(&self, max: Duration) -> Duration {
        let max = if self.interrupt.is_some() { max.min(Duration::from_millis(100)) } else { max };
        self.remaining().map_or(max, |left| left.min(max))
    }
}
