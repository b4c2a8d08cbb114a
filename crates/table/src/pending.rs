//! A get that is under way.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};

/// What a get in the background will bring. Clones wait for the same result.
#[derive(Debug, Clone)]
pub struct Pending {
    state: Arc<State>,
}

/// The other end of a [`Pending`]. Dropped without a word it says that nothing will come.
pub(crate) struct Promise(Arc<State>);

impl Promise {
    pub(crate) fn fulfil(self, result: Result<Vec<u8>, Error>) {
        self.say(result.map(Arc::new));
    }

    fn say(&self, result: Result<Arc<Vec<u8>>, Error>) {
        self.0.result.lock().expect("no panic while held").get_or_insert(result);
        self.0.arrived.notify_all();
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.say(Err(Error::System { operation: "get".into(), detail: "it ended before its result was there".into() }));
    }
}

#[derive(Debug, Default)]
struct State {
    result: Mutex<Option<Result<Arc<Vec<u8>>, Error>>>,
    arrived: Condvar,
}

impl Pending {
    /// A get that is under way, and the end that says how it went.
    pub(crate) fn new() -> (Pending, Promise) {
        let state = Arc::new(State::default());
        (Pending { state: Arc::clone(&state) }, Promise(state))
    }

    /// Whether [`wait`](Pending::wait) would return at once.
    pub fn done(&self) -> bool {
        self.state.result.lock().expect("no panic while held").is_some()
    }

    /// The bytes fetched. May be called again: the result stays. `by` can interrupt the wait; the get itself keeps the
    /// deadline it was begun with.
    pub fn wait(&self, timeout: Option<Duration>, by: Deadline) -> Result<Arc<Vec<u8>>, Error> {
        const LOOK: Duration = Duration::from_millis(50);
        let started = Instant::now();
        let by = timeout.map_or(by, |timeout| by.within(timeout));
        let mut result = self.state.result.lock().expect("no panic while held");
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation: "get".into(), waited: started.elapsed() });
            }
            if by.expired() {
                return Err(Error::Timeout {
                    operation: "get".into(),
                    missing: Vec::new(),
                    detail: ": the result of this get is not there yet".into(),
                    waited: started.elapsed(),
                    hint: "wait again, or longer".into(),
                });
            }
            result = self.state.arrived.wait_timeout(result, by.slice(LOOK)).expect("no panic while held").0;
        }
    }
}
