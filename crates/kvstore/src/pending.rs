//! Results of calls that go on in the background.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

/// What calls in the background will bring: one part each, in the order of the keys. Clones wait for the same results.
#[derive(Debug)]
pub struct Pending<T> {
    state: Arc<State<T>>,
}

/// The result of one key, once it is there.
type Part<T> = Option<Result<Arc<T>, Error>>;

#[derive(Debug)]
struct State<T> {
    parts: Mutex<Vec<Part<T>>>,
    arrived: Condvar,
    operation: &'static str,
}

impl<T> Clone for Pending<T> {
    fn clone(&self) -> Pending<T> {
        Pending { state: Arc::clone(&self.state) }
    }
}

impl<T> Pending<T> {
    pub(crate) fn new(operation: &'static str, parts: usize) -> Pending<T> {
        let parts = Mutex::new((0..parts).map(|_| None).collect());
        Pending { state: Arc::new(State { parts, arrived: Condvar::new(), operation }) }
    }

    /// The hand that delivers a part; dropped without one, it delivers an error.
    pub(crate) fn promise(&self, part: usize) -> Promise<T> {
        Promise { pending: self.clone(), part, kept: false }
    }

    fn deliver(&self, part: usize, result: Result<T, Error>) {
        self.state.parts.lock().unwrap_or_else(PoisonError::into_inner)[part] = Some(result.map(Arc::new));
        self.state.arrived.notify_all();
    }

    /// Whether [`wait`](Self::wait) would return at once.
    pub fn done(&self) -> bool {
        self.state.parts.lock().unwrap_or_else(PoisonError::into_inner).iter().all(Option::is_some)
    }

    /// The results, or the first error. May be called again: they stay. `timeout` and `by` bound this wait only; the calls keep their own deadlines.
    ///
    /// # Errors
    /// That of a call, or `Timeout` when the results are not there so soon.
    pub fn wait(&self, timeout: Option<Duration>, by: Deadline) -> Result<Vec<Arc<T>>, Error> {
        const LOOK: Duration = Duration::from_millis(50);
        let by = timeout.map_or(by, |timeout| by.within(timeout));
        let operation = || self.state.operation.to_owned();
        let mut parts = self.state.parts.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if parts.iter().all(Option::is_some) {
                return parts.iter().flatten().cloned().collect();
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation: operation(), waited: by.waited() });
            }
            if by.expired() {
                return Err(Error::Timeout {
                    operation: operation(),
                    missing: Vec::new(),
                    detail: ": the result is not there yet".into(),
                    waited: by.waited(),
                    hint: "wait again, or longer".into(),
                });
            }
            parts = self.state.arrived.wait_timeout(parts, by.slice(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Delivers one part.
#[derive(Debug)]
pub(crate) struct Promise<T> {
    pending: Pending<T>,
    part: usize,
    kept: bool,
}

impl<T> Promise<T> {
    pub(crate) fn keep(mut self, result: Result<T, Error>) {
        self.kept = true;
        self.pending.deliver(self.part, result);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if !self.kept {
            let operation = self.pending.state.operation.to_owned();
            self.pending.deliver(self.part, Err(Error::System { operation, detail: "its function panicked".into() }));
        }
    }
}
