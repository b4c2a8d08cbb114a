//! A recursive lock between threads and processes, and a barrier.

use std::sync::Arc;

use syncline_shm::estate::{BarrierError, KIND_MUTEX, MOST_AT_BARRIER, SharedMutex};
use syncline_shm::queue::QueueError;
use syncline_shm::wait::WaitError;
use syncline_wire::{HandleKind, Value};

use crate::handle::{handle, held_by};
use crate::{Deadline, Error, Family, Whom, thread};

/// A mutex, as one handle to it. A thread that has it may lock it again; it is free when it was unlocked as often.
///
/// ```
/// use syncline_ipc::{Deadline, Family, Mutex};
///
/// let mutex = Mutex::new(&Family::alone()?)?;
/// let soon = Deadline::after(std::time::Duration::from_secs(5));
/// let held = mutex.lock(soon)?;
/// assert!(!held.recovered(), "nobody died with it");
/// let again = mutex.lock(soon)?;
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
#[derive(Clone)]
pub struct Mutex {
    family: Family,
    inner: Arc<SharedMutex>,
}

impl Mutex {
    /// A new one.
    pub fn new(family: &Family) -> Result<Mutex, Error> {
        const OPERATION: &str = "mutex";
        family.check(OPERATION)?;
        let inner = SharedMutex::make(family.estate(), thread::me()).map_err(|error| Error::of_estate(OPERATION, error))?;
        Ok(Mutex { family: family.clone(), inner: Arc::new(inner) })
    }

    /// The mutex that a handle leads to.
    pub fn open(family: &Family, handle: &Value<'_>) -> Result<Mutex, Error> {
        let held = held_by(family, handle, HandleKind::Mutex, KIND_MUTEX, "mutex")?;
        Ok(Mutex { family: family.clone(), inner: Arc::new(SharedMutex::over(held)) })
    }

    /// A handle, to be sent through other objects.
    pub fn handle(&self) -> Value<'static> {
        handle(&self.family, self.inner.held(), HandleKind::Mutex)
    }

    /// Locks it until the guard is dropped.
    pub fn lock(&self, by: Deadline) -> Result<MutexGuard, Error> {
        let recovered = self.acquire(by)?;
        Ok(MutexGuard { mutex: self.clone(), thread: thread::me(), recovered })
    }

    /// Locks it for this thread without a guard. True says that the last holder died with it: what it guards may be half changed.
    pub fn acquire(&self, by: Deadline) -> Result<bool, Error> {
        const OPERATION: &str = "mutex lock";
        self.family.check(OPERATION)?;
        self.inner.lock(thread::me(), by).map_err(|cause| {
            let holder = self.inner.holder_pid().map_or_else(|| "its holder".to_owned(), |pid| format!("process {pid}, which holds it"));
            Error::of_queue(OPERATION, QueueError::Wait(cause), &holder, by.waited())
        })
    }

    /// Unlocks it once.
    pub fn release(&self) -> Result<(), Error> {
        const OPERATION: &str = "mutex unlock";
        self.family.check(OPERATION)?;
        self.release_of(thread::me(), OPERATION)
    }

    fn release_of(&self, thread: u64, operation: &'static str) -> Result<(), Error> {
        match self.inner.unlock(thread) {
            true => Ok(()),
            false => Err(Error::Configuration { operation, detail: "this thread does not hold the mutex".to_owned() }),
        }
    }

    /// Waits until `count` threads, of whatever processes, have called it; then all pass, and it can be used again.
    pub fn barrier(&self, count: usize, by: Deadline) -> Result<(), Error> {
        const OPERATION: &str = "mutex barrier";
        self.family.check(OPERATION)?;
        let number = count as u64;
        if number == 0 || number > MOST_AT_BARRIER {
            return Err(Error::Configuration {
                operation: OPERATION,
                detail: format!("a barrier of {count}; 1 to {MOST_AT_BARRIER} can meet"),
            });
        }
        self.inner.barrier(number, by).map_err(|error| match error {
            BarrierError::Number { .. } => Error::Configuration { operation: OPERATION, detail: error.to_string() },
            BarrierError::Wait { cause: WaitError::Interrupted, .. } => Error::Interrupted { operation: OPERATION, waited: by.waited() },
            BarrierError::Memory(error) => Error::of_estate(OPERATION, error),
            BarrierError::Wait { arrived, of, lost, .. } => Error::Timeout {
                operation: OPERATION,
                waited_for: format!(
                    "{} more of {of} at the barrier{}",
                    of - arrived.min(of),
                    lost.map_or_else(String::new, |pid| format!("; process {pid} had come, and died"))
                ),
                whom: lost.map(|pid| Box::new(Whom { name: "one of those who had come".to_owned(), host: None, pid: Some(pid) })),
                waited: by.waited(),
                hint: "each of them must call barrier with the same number; one may have failed before it came here",
            },
        })
    }
}

impl std::fmt::Debug for Mutex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mutex({:x})", self.inner.held().number())
    }
}

/// Unlocks its mutex when it is dropped.
#[must_use = "the mutex is unlocked when this is dropped"]
pub struct MutexGuard {
    mutex: Mutex,
    thread: u64,
    recovered: bool,
}

impl MutexGuard {
    /// Whether the last holder died with the lock, so that what it guards may be half changed.
    pub fn recovered(&self) -> bool {
        self.recovered
    }
}

impl Drop for MutexGuard {
    fn drop(&mut self) {
        if self.mutex.family.estate().is_original() {
            let _ = self.mutex.release_of(self.thread, "mutex unlock");
        }
    }
}
