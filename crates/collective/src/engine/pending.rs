//! Operations that run while their caller does something else: the handle, and the thread they run on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};

/// How long a wait lasts before it asks whether the user wants to give up.
const SLICE: Duration = Duration::from_millis(100);

/// An operation under way, which owns its array meanwhile.
#[must_use = "the array comes back from `wait`"]
pub struct Pending<B> {
    slot: Arc<Slot<B>>,
}

struct Slot<B> {
    outcome: Mutex<Outcome<B>>,
    there: Condvar,
}

enum Outcome<B> {
    Running,
    There(Result<(B, u32), Error>),
    Taken,
}

impl<B> Slot<B> {
    fn outcome(&self) -> MutexGuard<'_, Outcome<B>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Pending<B> {
    /// A handle, and the promise of a result for it.
    pub(crate) fn new() -> (Pending<B>, Promise<B>) {
        let slot = Arc::new(Slot { outcome: Mutex::new(Outcome::Running), there: Condvar::new() });
        (Pending { slot: Arc::clone(&slot) }, Promise { slot })
    }

    /// One that was over when it began: what there is to wait for where nobody else takes part.
    pub fn over(result: B, contributors: u32) -> Pending<B> {
        let outcome = Mutex::new(Outcome::There(Ok((result, contributors))));
        Pending { slot: Arc::new(Slot { outcome, there: Condvar::new() }) }
    }

    /// Whether `wait` would return at once.
    pub fn done(&self) -> bool {
        !matches!(*self.slot.outcome(), Outcome::Running)
    }

    /// Waits for the result and returns the array with the number of contributors, once.
    ///
    /// A wait that ends by its deadline or an interrupt leaves the operation under way: wait again.
    pub fn wait(&self, by: Deadline) -> Result<(B, u32), Error> {
        let started = Instant::now();
        let mut outcome = self.slot.outcome();
        while matches!(*outcome, Outcome::Running) {
            if by.interrupted() {
                return Err(Error::Interrupted { operation: "wait".into(), waited: started.elapsed() });
            }
            if by.expired() {
                let hint = "the operation is still under way; wait again".into();
                return Err(Error::Timeout {
                    operation: "wait".into(),
                    missing: vec![],
                    detail: " for an operation that was started before".into(),
                    waited: started.elapsed(),
                    hint,
                });
            }
            outcome = self.slot.there.wait_timeout(outcome, by.slice(SLICE)).unwrap_or_else(PoisonError::into_inner).0;
        }
        match std::mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::There(result) => result,
            _ => Err(Error::Closed { operation: "wait: the result was taken already".into() }),
        }
    }
}

impl<B> std::fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pending({})", if self.done() { "done" } else { "under way" })
    }
}

/// The other end of a [`Pending`]. Dropped without a result, it leaves an error.
pub(crate) struct Promise<B> {
    slot: Arc<Slot<B>>,
}

impl<B> Promise<B> {
    pub(crate) fn fulfil(self, result: Result<(B, u32), Error>) {
        *self.slot.outcome() = Outcome::There(result);
    }
}

impl<B> Drop for Promise<B> {
    fn drop(&mut self) {
        let mut outcome = self.slot.outcome();
        if matches!(*outcome, Outcome::Running) {
            let detail = "the operation was dropped before it ended".into();
            *outcome = Outcome::There(Err(Error::System { operation: "wait".into(), detail }));
        }
        self.slot.there.notify_all();
    }
}

/// The thread on which operations run that nobody waits for: none until the first of them, one from then on.
#[derive(Default)]
pub(super) struct Background {
    tasks: Mutex<Option<Sender<Task>>>,
}

pub(super) type Task = Box<dyn FnOnce() + Send>;

impl Background {
    /// The way to the thread, which is started if need be.
    ///
    /// It runs tasks one after the other and ends with the last handle on the collectives, which the tasks hold too.
    pub(super) fn tasks(&self) -> Result<Sender<Task>, Error> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = &*tasks {
            return Ok(tasks.clone());
        }
        let (sender, receiver) = channel::<Task>();
        let body = move || {
            for task in receiver {
                // A panic is that of one task: its promise tells, and those behind it get their turn.
                let _ = catch_unwind(AssertUnwindSafe(task));
            }
        };
        let thread = std::thread::Builder::new().name("syncline-async".into()).spawn(body);
        thread.map_err(|error| Error::System { operation: "a thread for operations under way".into(), detail: error.to_string() })?;
        Ok(tasks.insert(sender).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    #[test]
    fn a_result_is_there_once() {
        let (pending, promise) = Pending::new();
        assert!(!pending.done() && pending.wait(Deadline::after(Duration::ZERO)).is_err());
        promise.fulfil(Ok((vec![1_u8], 2)));
        assert!(pending.done());
        assert_eq!(pending.wait(soon()).expect("it is there"), (vec![1], 2));
        assert!(pending.wait(soon()).is_err());
    }

    #[test]
    fn tasks_run_in_order_and_one_that_is_dropped_says_so() {
        let background = Background::default();
        let (pending, promise) = Pending::<Vec<u8>>::new();
        let (other, dropped) = Pending::<Vec<u8>>::new();
        let order = Arc::new(Mutex::new(Vec::new()));
        let (first, second) = (Arc::clone(&order), Arc::clone(&order));
        let tasks = background.tasks().expect("a thread");
        tasks.send(Box::new(move || first.lock().unwrap().push(1))).expect("it lives");
        tasks.send(Box::new(|| panic!("on purpose"))).expect("it lives");
        let last = move || {
            second.lock().unwrap().push(2);
            drop(dropped);
            promise.fulfil(Ok((vec![], 0)));
        };
        background.tasks().expect("the same thread").send(Box::new(last)).expect("it lives");
        pending.wait(soon()).expect("it comes");
        assert_eq!(*order.lock().unwrap(), [1, 2]);
        assert!(other.wait(soon()).is_err());
    }
}
