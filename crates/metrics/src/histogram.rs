//! How long things took: buckets that double in width, bumped without a lock.
//!
//! Bucket `i` holds durations above 2ⁱ⁻¹ and up to 2ⁱ nanoseconds, so a quantile is known within a factor of two,
//! and half of that after interpolation. 64 buckets reach from a nanosecond to centuries in half a kilobyte.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How many buckets there are; the last one holds all that is longer than its neighbour.
pub(crate) const BUCKETS: usize = 64;

/// Collects durations from any number of threads.
///
/// ```
/// use std::time::Duration;
///
/// let waits = syncline_metrics::Histogram::new();
/// for micros in 1..=100 {
///     waits.record(Duration::from_micros(micros));
/// }
/// let seen = waits.snapshot();
/// assert_eq!(seen.count(), 100);
/// assert!(seen.p50() > Duration::from_micros(32) && seen.p50() <= Duration::from_micros(64));
/// assert_eq!(seen.max(), Duration::from_micros(100));
/// ```
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
    max: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// Starts empty.
    pub const fn new() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            nanos: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Adds one duration.
    pub fn record(&self, took: Duration) {
        self.record_nanos(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds one duration that is already counted in nanoseconds.
    #[inline]
    pub fn record_nanos(&self, nanos: u64) {
        self.buckets[bucket_of(nanos)].fetch_add(1, Relaxed);
        self.nanos.fetch_add(nanos, Relaxed);
        // A new longest is rare, and a plain load is cheaper than a locked maximum.
        if nanos > self.max.load(Relaxed) {
            self.max.fetch_max(nanos, Relaxed);
        }
    }

    /// Starts a clock that records itself when it is dropped.
    pub fn start(&self) -> Timer<'_> {
        Timer {
            histogram: self,
            since: Instant::now(),
        }
    }

    /// Runs `body` and records how long it took, also when it panics.
    pub fn time<R>(&self, body: impl FnOnce() -> R) -> R {
        let _timer = self.start();
        body()
    }

    /// What was recorded so far. While others record, the parts may differ by the records under way.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: self.buckets.each_ref().map(|bucket| bucket.load(Relaxed)),
            nanos: self.nanos.load(Relaxed),
            max: self.max.load(Relaxed),
        }
    }
}

/// A running clock; made by [`Histogram::start`].
///
/// ```
/// let pulls = syncline_metrics::Histogram::new();
/// {
///     let _timer = pulls.start();
///     // the pull
/// }
/// assert_eq!(pulls.snapshot().count(), 1);
/// ```
#[derive(Debug)]
#[must_use = "a timer records when it is dropped"]
pub struct Timer<'a> {
    histogram: &'a Histogram,
    since: Instant,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.histogram.record(self.since.elapsed());
    }
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: [u64; BUCKETS],
    nanos: u64,
    max: u64,
}

impl HistogramSnapshot {
    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The longest, exactly.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// The average, exactly; zero when nothing was recorded.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanos.checked_div(self.count()).unwrap_or(0))
    }

    /// The median, estimated.
    pub fn p50(&self) -> Duration {
        self.quantile(0.5)
    }

    /// What 99 of 100 did not exceed, estimated.
    pub fn p99(&self) -> Duration {
        self.quantile(0.99)
    }

    /// What a share `q` (0 to 1) of the durations did not exceed; zero when nothing was recorded.
    ///
    /// It is in the same bucket as the true value, and never above the longest.
    pub fn quantile(&self, q: f64) -> Duration {
        let count = self.count();
        let rank = (q.clamp(0.0, 1.0) * count as f64).ceil().max(1.0);
        let mut below = 0.0;
        for (bucket, &held) in self.buckets.iter().enumerate() {
            let through = below + held as f64;
            if held > 0 && through >= rank {
                let (low, high) = (lower_bound(bucket), upper_bound(bucket).min(self.max));
                let share = (rank - below) / held as f64;
                return Duration::from_nanos(
                    low + ((high.saturating_sub(low)) as f64 * share) as u64,
                );
            }
            below = through;
        }
        Duration::ZERO
    }

    /// Pairs of a bucket's upper bound in nanoseconds and the durations in it.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .map(|(bucket, &held)| (upper_bound(bucket), held))
    }
}

fn bucket_of(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.saturating_sub(1).leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

/// The longest duration of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    if bucket == BUCKETS - 1 {
        u64::MAX
    } else {
        1 << bucket
    }
}

/// The longest duration of the bucket before.
fn lower_bound(bucket: usize) -> u64 {
    bucket.checked_sub(1).map_or(0, upper_bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_is_within_the_bounds_of_its_bucket() {
        let edges = (0..64).flat_map(|power| {
            let edge = 1u64 << power;
            [edge - 1, edge, edge + 1]
        });
        for nanos in edges.chain([u64::MAX - 1, u64::MAX]) {
            let bucket = bucket_of(nanos);
            assert!(nanos <= upper_bound(bucket), "{nanos}");
            assert!(nanos == 0 || nanos > lower_bound(bucket), "{nanos}");
        }
    }

    #[test]
    fn an_empty_histogram_has_no_durations() {
        let empty = Histogram::new().snapshot();
        assert_eq!(
            (empty.count(), empty.p50(), empty.mean(), empty.max()),
            Default::default()
        );
    }

    #[test]
    fn quantiles_are_in_the_bucket_of_the_true_value() {
        let histogram = Histogram::new();
        let mut durations: Vec<u64> = (0..1000u64).map(|i| i * i * 37 % 1_000_003 + 1).collect();
        durations
            .iter()
            .for_each(|nanos| histogram.record_nanos(*nanos));
        durations.sort_unstable();
        let seen = histogram.snapshot();
        for (q, rank) in [
            (0.0, 1),
            (0.25, 250),
            (0.5, 500),
            (0.9, 900),
            (0.99, 990),
            (1.0, 1000),
        ] {
            let (truth, estimate) = (durations[rank - 1], seen.quantile(q).as_nanos() as u64);
            assert_eq!(
                bucket_of(truth),
                bucket_of(estimate),
                "q {q}: {estimate} for {truth}"
            );
        }
        assert_eq!(seen.quantile(1.0).as_nanos(), u128::from(durations[999]));
        assert_eq!(
            seen.mean().as_nanos() as u64,
            durations.iter().sum::<u64>() / 1000
        );
    }

    #[test]
    fn equal_durations_have_every_quantile_between_their_bounds() {
        let histogram = Histogram::new();
        (0..10).for_each(|_| histogram.record_nanos(1000));
        let seen = histogram.snapshot();
        assert_eq!(seen.quantile(1.0), Duration::from_nanos(1000));
        assert!(seen.p50() > Duration::from_nanos(512) && seen.p50() <= Duration::from_nanos(1000));
    }

    #[test]
    fn timers_record_once_even_when_the_body_panics() {
        let histogram = Histogram::new();
        assert_eq!(histogram.time(|| 7), 7);
        let panicked =
            std::panic::catch_unwind(|| histogram.time(|| std::panic::resume_unwind(Box::new(()))));
        assert!(panicked.is_err());
        assert_eq!(histogram.snapshot().count(), 2);
    }

    #[test]
    fn threads_lose_nothing() {
        let histogram = Histogram::new();
        std::thread::scope(|scope| {
            for thread in 1..=4 {
                let histogram = &histogram;
                scope.spawn(move || (0..1000).for_each(|_| histogram.record_nanos(thread)));
            }
        });
        let seen = histogram.snapshot();
        assert_eq!(
            (seen.count(), seen.total().as_nanos(), seen.max().as_nanos()),
            (4000, 10_000, 4)
        );
    }
}
