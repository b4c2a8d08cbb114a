//! Placeholder for the counters of a link until syncline-metrics has them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What went through a link.
#[derive(Debug, Default)]
pub struct LinkStats {
    frames_sent: AtomicU64,
    bytes_sent: AtomicU64,
    frames_received: AtomicU64,
    bytes_received: AtomicU64,
}

impl LinkStats {
    /// One frame out.
    pub fn sent(&self, bytes: u64) {
        self.frames_sent.fetch_add(1, Relaxed);
        self.bytes_sent.fetch_add(bytes, Relaxed);
    }

    /// One frame in.
    pub fn received(&self, bytes: u64) {
        self.frames_received.fetch_add(1, Relaxed);
        self.bytes_received.fetch_add(bytes, Relaxed);
    }

    /// Frames that were sent.
    pub fn frames_sent(&self) -> u64 {
        self.frames_sent.load(Relaxed)
    }

    /// Their bytes, headers included.
    pub fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Relaxed)
    }

    /// Frames that were received.
    pub fn frames_received(&self) -> u64 {
        self.frames_received.load(Relaxed)
    }

    /// Their bytes, headers included.
    pub fn bytes_received(&self) -> u64 {
        self.bytes_received.load(Relaxed)
    }
}
