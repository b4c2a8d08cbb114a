//! Work that goes on behind the caller's back: torch-ipc's `BackgroundTask` and `BackgroundTaskPool`.
//!
//! A pool has n threads and a list of tasks, numbered from 1. Results wait until they are taken, each once. When the pool is
//! dropped, tasks that nobody has begun are forgotten, and its threads end after the task they have in hand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use syncline_cluster::ErrorKind;
use syncline_transport::Deadline;

use crate::map::{Failure, guarded};

type Cause = Box<dyn std::error::Error + Send + Sync>;
type Task<T> = Box<dyn FnOnce() -> Result<T, Cause> + Send>;

/// Some threads that work off tasks.
///
/// ```
/// use syncline_ipc::{BackgroundTaskPool, Deadline};
///
/// let pool = BackgroundTaskPool::new(2)?;
/// let ids: Vec<u64> = (1..=5u64).map(|i| pool.add_task(move || Ok::<_, std::fmt::Error>(i * i))).collect::<Result<_, _>>()?;
/// assert_eq!(ids, [1, 2, 3, 4, 5]);
/// assert_eq!(pool.get_result(Some(3), Deadline::never())?, Some(9));
/// assert_eq!(pool.get_result(Some(3), Deadline::never())?, None); // taken
/// # Ok::<(), syncline_ipc::TaskError>(())
/// ```
pub struct BackgroundTaskPool<T> {
    desk: Arc<Desk<T>>,
}

impl<T: Send + 'static> BackgroundTaskPool<T> {
    /// A pool of `n` threads that stay until it is dropped.
    pub fn new(n: usize) -> Result<BackgroundTaskPool<T>, TaskError> {
        BackgroundTaskPool::with(n, false)
    }

    /// A pool of `n` threads that end as soon as every task that was added has ended: no task can be added afterwards.
    pub fn closing_on_last_task(n: usize) -> Result<BackgroundTaskPool<T>, TaskError> {
        BackgroundTaskPool::with(n, true)
    }

    fn with(n: usize, closes: bool) -> Result<BackgroundTaskPool<T>, TaskError> {
        let state =
            State { waiting: VecDeque::new(), results: BTreeMap::new(), added: 0, ended: 0, taken: 0, forgotten: 0, closed: false, closes };
        let desk = Arc::new(Desk { state: Mutex::new(state), changed: Condvar::new() });
        let pool = BackgroundTaskPool { desk }; // dropped on failure, it ends those that were started
        for number in 1..=n.max(1) {
            let desk = Arc::clone(&pool.desk);
            let started = std::thread::Builder::new().name(format!("background {number}")).spawn(move || desk.work());
            started.map_err(|source| TaskError::NotStarted { source })?;
        }
        Ok(pool)
    }

    /// Adds a task and returns its number: 1, 2, …
    pub fn add_task<E: Into<Cause>>(&self, task: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<u64, TaskError> {
        let mut state = self.desk.lock();
        if state.closed {
            return Err(TaskError::Closed);
        }
        state.added += 1;
        let id = state.added;
        state.waiting.push_back((id, Box::new(move || task().map_err(Into::into))));
        drop(state);
        self.desk.changed.notify_all();
        Ok(id)
    }
}

impl<T> BackgroundTaskPool<T> {
    /// Whether there is a task whose result nobody has taken.
    pub fn has_task(&self) -> bool {
        let state = self.desk.lock();
        state.taken < state.added
    }

    /// Whether this task has ended; without a number, whether all have.
    pub fn is_done(&self, id: Option<u64>) -> Result<bool, TaskError> {
        let state = self.desk.lock();
        match id {
            None => Ok(state.ended == state.added),
            Some(id) => state.known(id).map(|()| state.is_done(id)),
        }
    }

    /// Waits for a task and returns its result; without a number, for the first whose result was not taken.
    ///
    /// None when it was taken before, or when nothing is left. A task that failed is [`TaskError::Failed`], once.
    pub fn get_result(&self, id: Option<u64>, by: Deadline) -> Result<Option<T>, TaskError> {
        const LONGEST: Duration = Duration::from_secs(60);
        let mut state = self.desk.lock();
        let Some(id) = id.or_else(|| state.first_untaken()) else { return Ok(None) };
        state.known(id)?;
        while !state.is_done(id) {
            if state.closed && !state.closes {
                return Err(TaskError::Closed);
            }
            if by.expired() {
                return Err(TaskError::Timeout { id, waited: by.waited() });
            }
            state = self.desk.changed.wait_timeout(state, by.slice(LONGEST)).unwrap_or_else(PoisonError::into_inner).0;
            if !state.is_done(id) && by.interrupted() {
                return Err(TaskError::Interrupted { id, waited: by.waited() });
            }
        }
        match state.results.get_mut(&id).and_then(Option::take) {
            None => Ok(None),
            Some(made) => {
                state.taken += 1;
                state.forget_taken();
                made.map(Some).map_err(|failure| TaskError::Failed { id, cause: failure.cause, panicked: failure.panicked })
            }
        }
    }
}

impl<T> Drop for BackgroundTaskPool<T> {
    fn drop(&mut self) {
        let mut state = self.desk.lock();
        state.closed = true;
        let forgotten = std::mem::take(&mut state.waiting);
        drop(state);
        drop(forgotten); // outside of the lock: it is somebody else's code
        self.desk.changed.notify_all();
    }
}

impl<T> std::fmt::Debug for BackgroundTaskPool<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.desk.lock();
        f.debug_struct("BackgroundTaskPool").field("added", &state.added).field("ended", &state.ended).finish_non_exhaustive()
    }
}

/// A single task on a thread of its own.
///
/// ```
/// use syncline_ipc::{BackgroundTask, Deadline};
///
/// let task = BackgroundTask::start(|| Ok::<_, std::fmt::Error>(("done!", 42, true)))?;
/// assert_eq!(task.get_result(Deadline::never())?, Some(("done!", 42, true)));
/// # Ok::<(), syncline_ipc::TaskError>(())
/// ```
#[derive(Debug)]
pub struct BackgroundTask<T> {
    pool: BackgroundTaskPool<T>,
}

impl<T: Send + 'static> BackgroundTask<T> {
    /// Starts it.
    pub fn start<E: Into<Cause>>(task: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<BackgroundTask<T>, TaskError> {
        let pool = BackgroundTaskPool::closing_on_last_task(1)?;
        pool.add_task(task)?;
        Ok(BackgroundTask { pool })
    }

    /// Whether it has ended.
    pub fn is_done(&self) -> bool {
        self.pool.is_done(Some(1)).unwrap_or(true)
    }

    /// Waits for its result; none when that was taken before.
    pub fn get_result(&self, by: Deadline) -> Result<Option<T>, TaskError> {
        self.pool.get_result(Some(1), by)
    }
}

/// Why a task has no result, or cannot be added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The task returned an error or panicked.
    #[error("task {id}{}: {cause}", if *panicked { " panicked" } else { "" })]
    Failed {
        /// Which.
        id: u64,
        /// Its error, or the words of its panic.
        cause: Cause,
        /// Whether it was a panic.
        panicked: bool,
    },
    /// It did not end in time.
    #[error("get_result: waited {:.1} s for task {id}", waited.as_secs_f64())]
    Timeout {
        /// Which.
        id: u64,
        /// How long was waited.
        waited: Duration,
    },
    /// The user interrupted the wait.
    #[error("get_result: interrupted after {:.1} s of waiting for task {id}", waited.as_secs_f64())]
    Interrupted {
        /// Which.
        id: u64,
        /// How long was waited.
        waited: Duration,
    },
    /// No task has this number.
    #[error("task {id} was never added; the last one is {last}")]
    Unknown {
        /// The number.
        id: u64,
        /// The highest there is.
        last: u64,
    },
    /// The pool has ended.
    #[error("the pool has ended: it was to close with its last task")]
    Closed,
    /// The system gave no thread.
    #[error("background tasks: no thread could be started: {source}")]
    NotStarted {
        /// What it said.
        source: std::io::Error,
    },
}

impl TaskError {
    /// The stable family of this error; bindings map it to their exceptions.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TaskError::Timeout { .. } => ErrorKind::Timeout,
            TaskError::Interrupted { .. } => ErrorKind::Interrupted,
            TaskError::Unknown { .. } => ErrorKind::UnknownKey,
            TaskError::Closed => ErrorKind::Closed,
            TaskError::Failed { .. } | TaskError::NotStarted { .. } => ErrorKind::System,
        }
    }
}

/// What the threads of a pool and its owner share.
struct Desk<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<(u64, Task<T>)>,
    /// By number; an empty one was taken, before one with a lower number.
    results: BTreeMap<u64, Option<Result<T, Failure>>>,
    added: u64,
    ended: u64,
    taken: u64,
    /// All up to this number were taken.
    forgotten: u64,
    closed: bool,
    closes: bool,
}

impl<T> State<T> {
    fn known(&self, id: u64) -> Result<(), TaskError> {
        if (1..=self.added).contains(&id) { Ok(()) } else { Err(TaskError::Unknown { id, last: self.added }) }
    }

    fn is_done(&self, id: u64) -> bool {
        id <= self.forgotten || self.results.contains_key(&id)
    }

    fn first_untaken(&self) -> Option<u64> {
        let first = self.forgotten + 1; // whatever was taken further down is forgotten
        (first <= self.added).then_some(first)
    }

    fn forget_taken(&mut self) {
        while let Some(None) = self.results.get(&(self.forgotten + 1)) {
            self.forgotten += 1;
            self.results.remove(&self.forgotten);
        }
    }
}

impl<T> Desk<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // assignments only: nothing is left half done
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some((id, task)) = state.waiting.pop_front() {
                drop(state);
                let made = guarded(task);
                state = self.lock();
                state.ended += 1;
                state.closed |= state.closes && state.ended == state.added;
                state.results.insert(id, Some(made));
                self.changed.notify_all();
            } else if state.closed {
                return;
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}
