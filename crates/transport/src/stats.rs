//! Placeholder for the counters of a link until syncline-metrics has them.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// Counters.
#[derive(Debug, Default)]
pub struct LinkStats {
    a: [AtomicU64; 4],
}
impl LinkStats {
    /// One frame out.
    pub fn sent(&self, bytes: u64) {
        self.a[0].fetch_add(1, Relaxed);
        self.a[1].fetch_add(bytes, Relaxed);
    }
    /// One frame in.
    pub fn received(&self, bytes: u64) {
        self.a[2].fetch_add(1, Relaxed);
        self.a[3].fetch_add(bytes, Relaxed);
    }
}
