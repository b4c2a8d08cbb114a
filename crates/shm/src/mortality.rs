//! Numbered moments at which a test lets this process kill or stop itself, and the crowd that it pretends to be in.
//!
//! The promise that an add is wholly in or wholly out must hold for every instruction at which a process may die. A
//! test names a moment, the process ends there by SIGKILL, and the survivors look at what it left. Release builds have
//! no trace of it.

#[cfg(debug_assertions)]
mod imp {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
    static STOPS: AtomicBool = AtomicBool::new(false);
    static CROWDED: AtomicBool = AtomicBool::new(false);

    /// Lets this process behave as if others were always at what it is at, in a hurry: so that the moments of what it does then can be counted.
    pub fn pretend_a_crowd() {
        CROWDED.store(true, Ordering::Relaxed);
    }

    /// Whether it does.
    pub fn is_crowded() -> bool {
        CROWDED.load(Ordering::Relaxed)
    }

    /// Lets this process die at the `step`-th moment from now on.
    pub fn die_at(step: u64) {
        LEFT.store(step, Ordering::Relaxed);
    }

    /// Lets this process stop at the `step`-th moment from now on, as one does that lost its core: it lives, and does nothing until it is told to go on.
    pub fn stop_at(step: u64) {
        STOPS.store(true, Ordering::Relaxed);
        LEFT.store(step, Ordering::Relaxed);
    }

    /// How many moments are left of those [`die_at`] allowed.
    pub fn left() -> u64 {
        LEFT.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn moment() {
        if LEFT.load(Ordering::Relaxed) == u64::MAX {
            return;
        }
        if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
            let me = rustix::process::getpid();
            if STOPS.load(Ordering::Relaxed) {
                LEFT.store(u64::MAX, Ordering::Relaxed);
                let _ = rustix::process::kill_process(me, rustix::process::Signal::STOP);
                // Another thread may be the one that the signal stops first; this one does nothing more until it is stopped too.
                std::thread::sleep(std::time::Duration::from_millis(100));
                return;
            }
            let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
            // The signal is on its way; nothing may happen after this moment.
            loop {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(debug_assertions)]
pub(crate) use imp::moment;
#[cfg(debug_assertions)]
pub use imp::{die_at, is_crowded, left, pretend_a_crowd, stop_at};

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn moment() {}

/// Release builds know no pretence.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn is_crowded() -> bool {
    false
}
