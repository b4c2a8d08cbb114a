//! The one door to atomics, so that loom can stand behind it.
//!
//! Every protocol of this crate is written against these names. A normal build gets the
//! processor's atomics and the kernel's futex; `--cfg loom` gets loom's atomics and a futex
//! made of a loom mutex, and then explores every interleaving.

#[cfg(not(loom))]
pub(crate) use imp::wait_any;
pub(crate) use imp::{AtomicBool, AtomicU32, AtomicU64, Futex, Ordering, fence, spin_hint, yield_now};

/// Stores with Release, and keeps later loads behind the store: what a ringer does before it
/// looks for sleepers (see `bell`). One exchange could do both; measured, it gains nothing.
#[inline(always)]
pub(crate) fn publish(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
    fence(Ordering::SeqCst);
}

#[cfg(not(loom))]
mod imp {
    use std::ops::Deref;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    use std::time::Duration;

    use rustix::thread::futex;

    /// A word the kernel can put threads of any process to sleep on: they sleep on its lower half.
    #[repr(transparent)]
    #[derive(Default)]
    pub(crate) struct Futex(AtomicU64);

    impl Futex {
        /// The half that the kernel looks at.
        fn lower(&self) -> &AtomicU32 {
            let half = usize::from(cfg!(target_endian = "big"));
            // SAFETY: both halves lie inside of the word, which lives as long as `self`. The reference is only handed to
            // the kernel, so no access of another size is made through it here.
            unsafe { AtomicU32::from_ptr(self.0.as_ptr().cast::<u32>().add(half)) }
        }

        /// Sleeps while the lower half is `expected`, at most `timeout`; may also wake for no reason.
        pub(crate) fn wait(&self, expected: u32, timeout: Duration) {
            let timeout = futex::Timespec {
                // A sleep this long is cut by the caller's slices anyway.
                tv_sec: timeout.as_secs().min(86_400) as i64,
                tv_nsec: timeout.subsec_nanos().into(),
            };
            // Flags are empty, not PRIVATE: the sleeper and the ringer are different processes.
            // Every error (changed word, time-out, signal) means the same: look again.
            let _ = futex::wait(self.lower(), futex::Flags::empty(), expected, Some(&timeout));
        }

        /// Wakes some of those who sleep on the word.
        pub(crate) fn wake(&self, most: u32) {
            let _ = futex::wake(self.lower(), futex::Flags::empty(), most.min(i32::MAX as u32));
        }

        /// Wakes everyone who sleeps on the word.
        pub(crate) fn wake_all(&self) {
            let _ = futex::wake(self.lower(), futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Sleeps while all words are as expected. The kernel takes up to 128 of them (since 5.16); where it cannot, and for those
    /// beyond, the sleep is short and the caller looks again.
    pub(crate) fn wait_any(words: &[(&Futex, u32)], timeout: Duration) {
        const SHORT: Duration = Duration::from_millis(1);
        let watched: Vec<futex::Wait> = words
            .iter()
            .take(128)
            .map(|(word, expected)| {
                let mut wait = futex::Wait::new();
                wait.val = u64::from(*expected);
                wait.uaddr = futex::WaitPtr::new(word.lower().as_ptr().cast());
                wait.flags = futex::WaitFlags::SIZE_U32;
                wait
            })
            .collect();
        let timeout = if words.len() > watched.len() { timeout.min(SHORT) } else { timeout };
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let nanos = now.tv_nsec as u64 + u64::from(timeout.subsec_nanos());
        let until = futex::Timespec {
            tv_sec: now.tv_sec + timeout.as_secs().min(86_400) as i64 + (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as _,
        };
        let slept = futex::waitv(&watched, futex::WaitvFlags::empty(), Some(&until), futex::ClockId::Monotonic);
        if slept == Err(rustix::io::Errno::NOSYS) || slept == Err(rustix::io::Errno::PERM) {
            std::thread::sleep(timeout.min(SHORT));
        }
    }

    impl Deref for Futex {
        type Target = AtomicU64;
        fn deref(&self) -> &AtomicU64 {
            &self.0
        }
    }

    #[inline(always)]
    pub(crate) fn spin_hint() {
        std::hint::spin_loop();
    }

    #[inline]
    pub(crate) fn yield_now() {
        rustix::thread::sched_yield();
    }
}

#[cfg(loom)]
mod imp {
    use std::ops::Deref;
    use std::time::Duration;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    /// The kernel's futex as a mutex and a condition: the check of the word and the falling
    /// asleep are one step for a waker, as they are under the kernel's bucket lock. There is no
    /// time-out: a wake-up that is lost is a deadlock, and loom reports it.
    #[derive(Default)]
    pub(crate) struct Futex {
        word: AtomicU64,
        bucket: Mutex<()>,
        asleep: Condvar,
    }

    impl Futex {
        pub(crate) fn wait(&self, expected: u32, _timeout: Duration) {
            let bucket = self.bucket.lock().unwrap();
            if self.word.load(Ordering::SeqCst) as u32 == expected {
                drop(self.asleep.wait(bucket).unwrap());
            }
        }

        pub(crate) fn wake(&self, most: u32) {
            let _bucket = self.bucket.lock().unwrap();
            (0..most).for_each(|_| self.asleep.notify_one());
        }

        pub(crate) fn wake_all(&self) {
            let _bucket = self.bucket.lock().unwrap();
            self.asleep.notify_all();
        }
    }

    impl Deref for Futex {
        type Target = AtomicU64;
        fn deref(&self) -> &AtomicU64 {
            &self.word
        }
    }

    pub(crate) fn spin_hint() {
        loom::thread::yield_now();
    }

    pub(crate) fn yield_now() {
        loom::thread::yield_now();
    }
}
