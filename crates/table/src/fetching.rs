//! Gets of one table that run in the background.
//!
//! Any number may be under way, on few threads: those of a table wait in a line, and a thread that has done one takes the next.
//! Where a get may have to wait for other workers the line has one thread, so that its gets come in the order in which they were
//! begun; an earlier one never waits for a later one of the same table, so the line moves. Each table has its own line: a get that
//! waits for somebody's add must not hold up the get of another table, for which that somebody may be waiting itself.
//! Asynchronous tables wait for nobody and have a few threads. A thread with nothing to do stays for a moment, then ends.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use crate::pending::{Pending, Promise};

/// Threads of an asynchronous table: enough for several answers to be on their way over a network at once.
const THREADS: usize = 4;
/// How long a thread waits for the next get.
const REST: Duration = Duration::from_secs(1);

/// The line of one table.
pub(crate) struct Fetching {
    line: Mutex<Line>,
    changed: Condvar,
    threads: usize,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Get>,
    /// Gets that wait or run.
    under_way: usize,
    threads: usize,
    resting: usize,
}

struct Get {
    work: Box<dyn FnOnce() -> Result<Vec<u8>, Error> + Send>,
    promise: Promise,
}

impl Fetching {
    /// The line of a table whose gets come one after the other, or a few at a time.
    pub(crate) fn new(one_by_one: bool) -> Arc<Fetching> {
        let threads = if one_by_one { 1 } else { THREADS };
        Arc::new(Fetching { line: Mutex::default(), changed: Condvar::new(), threads })
    }

    /// Runs `work` when its turn has come.
    pub(crate) fn begin(self: &Arc<Self>, work: impl FnOnce() -> Result<Vec<u8>, Error> + Send + 'static) -> Result<Pending, Error> {
        let (pending, promise) = Pending::new();
        let mut line = self.line();
        if line.resting <= line.waiting.len() && line.threads < self.threads {
            let fetching = Arc::clone(self);
            match std::thread::Builder::new().name("syncline-get".into()).spawn(move || fetching.serve()) {
                Ok(_) => line.threads += 1,
                Err(error) if line.threads == 0 => {
                    return Err(Error::System { operation: "get".into(), detail: format!("no thread for it: {error}") });
                }
                Err(_) => {} // those that are there do it
            }
        }
        line.waiting.push_back(Get { work: Box::new(work), promise });
        line.under_way += 1;
        drop(line);
        self.changed.notify_all();
        Ok(pending)
    }

    /// Waits until nothing is under way.
    pub(crate) fn wait_until_done(&self, by: Deadline, operation: &dyn Fn() -> String) -> Result<(), Error> {
        let mut line = self.line();
        while line.under_way > 0 {
            if by.interrupted() {
                return Err(Error::Interrupted { operation: operation(), waited: by.waited() });
            }
            if by.expired() {
                return Err(Error::Timeout {
                    operation: operation(),
                    missing: Vec::new(),
                    detail: ": that get waits for others".into(),
                    waited: by.waited(),
                    hint: "wait for the get's result; it names whom it waits for".into(),
                });
            }
            let slice = by.slice(Duration::from_millis(50));
            line = self.changed.wait_timeout(line, slice).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn serve(&self) {
        let mut line = self.line();
        loop {
            if let Some(Get { work, promise }) = line.waiting.pop_front() {
                drop(line);
                // A panic is that of one get: its promise tells, and those behind it get their turn.
                let result = catch_unwind(AssertUnwindSafe(work));
                // An add that waits for this get may go on before whoever waits for its result hears of it.
                line = self.line();
                line.under_way -= 1;
                if line.under_way == 0 {
                    self.changed.notify_all();
                }
                drop(line);
                if let Ok(result) = result {
                    promise.fulfil(result);
                }
                line = self.line();
                continue;
            }
            line.resting += 1;
            let (woken, rest) = self.changed.wait_timeout(line, REST).unwrap_or_else(PoisonError::into_inner);
            line = woken;
            line.resting -= 1;
            if rest.timed_out() && line.waiting.is_empty() {
                line.threads -= 1;
                return;
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    #[test]
    fn many_gets_share_few_threads_and_one_by_one_means_in_order() {
        for (one_by_one, most) in [(true, 1), (false, THREADS)] {
            let fetching = Fetching::new(one_by_one);
            let (tell, told) = mpsc::channel();
            let gets: Vec<Pending> = (0..1000_u32)
                .map(|number| {
                    let tell = tell.clone();
                    let work = move || {
                        tell.send((number, std::thread::current().id())).expect("somebody listens");
                        Ok(number.to_le_bytes().to_vec())
                    };
                    fetching.begin(work).expect("a thread")
                })
                .collect();
            for (number, get) in gets.iter().enumerate() {
                assert_eq!(**get.wait(None, soon()).expect("it runs"), (number as u32).to_le_bytes());
            }
            fetching.wait_until_done(soon(), &String::new).expect("all are done");
            drop(tell);
            let (order, mut threads): (Vec<u32>, Vec<_>) = told.iter().take(1000).unzip();
            assert!(!one_by_one || order.is_sorted());
            threads.sort_by_key(|id| format!("{id:?}"));
            threads.dedup();
            assert!(threads.len() <= most, "{} threads", threads.len());
        }
    }

    #[test]
    fn a_get_that_panics_says_so_and_the_next_has_its_turn() {
        let fetching = Fetching::new(true);
        let bad = fetching.begin(|| panic!("on purpose")).expect("a thread");
        let good = fetching.begin(|| Ok(vec![7])).expect("a thread");
        assert_eq!(**good.wait(None, soon()).expect("it runs"), [7]);
        assert!(bad.wait(None, soon()).unwrap_err().to_string().contains("ended before"));
    }

    #[test]
    fn a_wait_for_the_line_has_an_end() {
        let fetching = Fetching::new(true);
        let (go, wait) = mpsc::channel::<()>();
        let get = fetching.begin(move || Ok(wait.recv().map(|()| Vec::new()).unwrap_or_default())).expect("a thread");
        let started = Instant::now();
        let error = fetching.wait_until_done(Deadline::after(Duration::from_millis(20)), &|| "an add".into()).unwrap_err();
        assert!(error.to_string().contains("an add") && started.elapsed() < Duration::from_secs(10), "{error}");
        go.send(()).expect("it waits");
        get.wait(None, soon()).expect("it ends");
    }
}
