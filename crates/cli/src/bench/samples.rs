//! Durations of one measurement and what they say.

use std::time::Duration;

/// Times of single operations.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    nanos: Vec<u64>,
    sorted: bool,
}

impl Samples {
    /// Room for `count` operations, touched ahead so that growing does not disturb them.
    pub(crate) fn with_room(count: usize) -> Self {
        let mut nanos = vec![1; count]; // Zeros would be pages that the kernel hands out only when they are written.
        nanos.clear();
        Samples { nanos, sorted: false }
    }

    /// Notes one operation.
    pub(crate) fn push(&mut self, time: Duration) {
        self.nanos.push(time.as_nanos() as u64);
        self.sorted = false;
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.nanos.len()
    }

    /// The time that a fraction `q` of the operations did not exceed, in seconds; zero without operations.
    pub(crate) fn quantile(&mut self, q: f64) -> f64 {
        if self.nanos.is_empty() {
            return 0.0;
        }
        if !self.sorted {
            self.nanos.sort_unstable();
            self.sorted = true;
        }
        let index = (q * (self.nanos.len() - 1) as f64 + 0.5) as usize;
        self.nanos[index] as f64 * 1e-9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let mut samples = Samples::with_room(4);
        for micros in [30, 10, 20, 40, 50] {
            samples.push(Duration::from_micros(micros));
        }
        assert_eq!((samples.quantile(0.0), samples.quantile(0.5), samples.quantile(1.0)), (10e-6, 30e-6, 50e-6));
        assert_eq!(Samples::default().quantile(0.5), 0.0);
    }
}
