//! Which thread calls: a number that no other thread of this process ever has.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static ME: u64 = NEXT.fetch_add(1, Relaxed);
}

/// The calling thread's number.
pub(crate) fn me() -> u64 {
    ME.with(|me| *me)
}
