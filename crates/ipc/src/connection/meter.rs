//! What went through a client or a server: torch-ipc's netStats.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counts of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Traffic {
    /// Bytes of messages, headers included.
    pub num_bytes: u64,
    /// Pieces of memory that they were gathered from, or scattered to.
    pub num_regions: u64,
    /// Messages.
    pub num_calls: u64,
    /// Attempts to move bytes and waits until more could be moved, each of them about one system call.
    pub num_system_calls: u64,
    /// Seconds spent in calls that send, or receive.
    pub total_seconds: f64,
    /// Seconds of these that were spent in the system calls.
    pub system_seconds: f64,
}

impl Traffic {
    /// Megabytes (10⁶ bytes) per second of [`total_seconds`](Traffic::total_seconds); zero before the first message.
    pub fn mb_per_s(&self) -> f64 {
        if self.total_seconds > 0.0 { self.num_bytes as f64 / 1e6 / self.total_seconds } else { 0.0 }
    }
}

/// Both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NetStats {
    /// What was sent.
    pub tx: Traffic,
    /// What was received.
    pub rx: Traffic,
}

/// The counters behind it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) tx: Counts,
    pub(crate) rx: Counts,
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    bytes: AtomicU64,
    regions: AtomicU64,
    calls: AtomicU64,
    system_calls: AtomicU64,
    total: AtomicU64,
    system: AtomicU64,
}

impl Meter {
    pub(crate) fn read(&self) -> NetStats {
        NetStats { tx: self.tx.read(), rx: self.rx.read() }
    }
}

impl Counts {
    pub(crate) fn message(&self, bytes: u64, regions: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.regions.fetch_add(regions, Relaxed);
        self.calls.fetch_add(1, Relaxed);
    }

    /// Times a whole call.
    pub(crate) fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        timed(&self.total, call)
    }

    /// Times what a call asks of the system.
    pub(crate) fn system<T>(&self, call: impl FnOnce() -> T) -> T {
        self.system_calls.fetch_add(1, Relaxed);
        timed(&self.system, call)
    }

    fn read(&self) -> Traffic {
        let seconds = |nanoseconds: &AtomicU64| Duration::from_nanos(nanoseconds.load(Relaxed)).as_secs_f64();
        Traffic {
            num_bytes: self.bytes.load(Relaxed),
            num_regions: self.regions.load(Relaxed),
            num_calls: self.calls.load(Relaxed),
            num_system_calls: self.system_calls.load(Relaxed),
            total_seconds: seconds(&self.total),
            system_seconds: seconds(&self.system),
        }
    }
}

fn timed<T>(counter: &AtomicU64, call: impl FnOnce() -> T) -> T {
    let since = Instant::now();
    let result = call();
    counter.fetch_add(since.elapsed().as_nanos() as u64, Relaxed);
    result
}
