//! A number that only grows.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts events or bytes, from any number of threads.
///
/// Relaxed throughout: a count says how often something happened, never that something else is visible.
/// ```
/// let sent = syncline_metrics::Counter::new();
/// sent.add(64);
/// sent.increment();
/// assert_eq!(sent.get(), 65);
/// ```
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Starts at zero.
    pub const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    /// Counts `amount` more; wraps around after 2⁶⁴.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Relaxed);
    }

    /// Counts `amount` more on behalf of the only thread that writes this counter: a plain load and store, where
    /// [`add`](Counter::add) locks the cache line. With two writers counts would get lost, nothing worse.
    #[inline]
    pub fn add_alone(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Counts one more.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_increment_of_any_thread_is_lost() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| counter.increment()));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }
}
