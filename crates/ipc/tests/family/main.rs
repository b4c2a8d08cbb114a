//! What a family of threads and processes shares: the promises of its objects, kept while members are killed.

mod channel;
mod child;
mod deposit;
mod fixes;
mod killed;
mod model;
mod mutex;
mod processes;
mod roles;
mod shared_table;
mod soak;
mod workqueue;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use syncline_ipc::{Deadline, Value};

/// Threads that say who they are, so that somebody can wait until all of them sleep.
#[derive(Default)]
pub(crate) struct Sleepers(Mutex<Vec<PathBuf>>);

impl Sleepers {
    /// The calling thread is about to wait for something.
    pub(crate) fn here(&self) {
        let me = std::fs::read_link("/proc/thread-self").unwrap();
        self.0.lock().unwrap().push(Path::new("/proc").join(me).join("stat"));
    }

    /// Waits until so many threads are here, and all of them sleep.
    pub(crate) fn all_sleep(&self, count: usize) {
        self.all_sleep_but(count, 0);
    }

    /// The same where `ended` of them have come to their end, or will.
    pub(crate) fn all_sleep_but(&self, count: usize, ended: usize) {
        let sleeps = |stat: &&PathBuf| std::fs::read_to_string(stat).is_ok_and(|stat| stat.rsplit_once(") ").unwrap().1.starts_with('S'));
        let asleep = || self.0.lock().unwrap().iter().filter(sleeps).count();
        while self.0.lock().unwrap().len() < count || asleep() < count - ended {
            std::thread::yield_now();
        }
    }
}

pub(crate) fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

pub(crate) fn int(number: i64) -> Value<'static> {
    Value::Int(number)
}

pub(crate) fn as_int(value: &Value<'_>) -> i64 {
    let Value::Int(number) = value else { panic!("{value:?} is no number") };
    *number
}
