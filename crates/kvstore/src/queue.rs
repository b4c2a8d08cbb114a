//! Calls that go on in the background: per key in the order in which they were made, among keys the most urgent first.
//!
//! ```text
//! key a   push · pull · push     only the first of each key may run
//! key b   pull                   of those, the one with the largest priority goes next; equal ones as they came
//! ```
//! One call moves data at a time, so that an urgent one has the road to itself. A call that takes longer than [`PATIENCE`] probably waits for other workers
//! (a pull of a sync round does); it stops counting, and the next one goes beside it: otherwise two workers that wait for each other's keys would wait for ever.
//! Threads come when there is work and leave when there has been none for a while.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};

/// How long a running call keeps the others from starting.
const PATIENCE: Duration = Duration::from_millis(2);
/// How long a thread stays without work.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes that may wait; a single call may be larger.
const MOST_BYTES: usize = 256 << 20;
/// Waits look at interrupts this often.
const LOOK: Duration = Duration::from_millis(50);

/// The calls of one key that are queued or running: whoever works on the key directly waits for them.
#[derive(Debug, Default)]
pub(crate) struct Line {
    queued: AtomicU32,
}

/// The background of a store.
#[derive(Clone, Default)]
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By the address of the key's line, which its tasks keep alive.
    waiting: HashMap<usize, VecDeque<Task>>,
    ready: BinaryHeap<(i32, Reverse<u64>, usize)>,
    running: BTreeMap<u64, Instant>,
    made: u64,
    bytes: usize,
    threads: usize,
    idle: usize,
}

struct Task {
    number: u64,
    priority: i32,
    bytes: usize,
    line: Arc<Line>,
    work: Box<dyn FnOnce() + Send>,
}

impl Line {
    #[inline]
    fn is_busy(&self) -> bool {
        self.queued.load(Acquire) > 0 // pairs with the release when a task has ended
    }
}

impl Queue {
    /// Runs `work` when all earlier calls of `line` have ended and nothing more urgent is there. Waits while too much is queued already.
    pub(crate) fn submit(
        &self,
        line: &Arc<Line>,
        priority: i32,
        bytes: usize,
        by: Deadline,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error> {
        let mut state = self.state();
        while state.bytes > 0 && state.bytes + bytes > MOST_BYTES {
            state = self.wait(state, "a call in the background", by)?;
        }
        state.made += 1;
        state.bytes += bytes;
        line.queued.fetch_add(1, AcqRel);
        let (number, id) = (state.made, Arc::as_ptr(line) as usize);
        let tasks = state.waiting.entry(id).or_default();
        tasks.push_back(Task { number, priority, bytes, line: Arc::clone(line), work: Box::new(work) });
        // The count has this task in it; without others nothing of this key runs.
        if line.queued.load(Acquire) == 1 {
            state.ready.push((priority, Reverse(number), id));
        }
        let spawned = if state.idle == 0 { self.spawn(&mut state) } else { Ok(()) };
        drop(state);
        self.shared.changed.notify_all();
        spawned
    }

    /// Returns when no call of `line` is queued or running.
    #[inline]
    pub(crate) fn pass(&self, line: &Line, operation: &str, by: Deadline) -> Result<(), Error> {
        if line.is_busy() { self.wait_for(line, operation, by) } else { Ok(()) }
    }

    #[cold]
    fn wait_for(&self, line: &Line, operation: &str, by: Deadline) -> Result<(), Error> {
        let mut state = self.state();
        while line.is_busy() {
            state = self.wait(state, operation, by)?;
        }
        Ok(())
    }

    /// Returns when nothing is queued or running.
    pub(crate) fn flush(&self, operation: &str, by: Deadline) -> Result<(), Error> {
        let mut state = self.state();
        while !(state.waiting.is_empty() && state.running.is_empty()) {
            state = self.wait(state, operation, by)?;
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&'s self, state: MutexGuard<'s, State>, operation: &str, by: Deadline) -> Result<MutexGuard<'s, State>, Error> {
        if by.interrupted() {
            return Err(Error::Interrupted { operation: operation.into(), waited: by.waited() });
        }
        if by.expired() {
            return Err(Error::Timeout {
                operation: operation.into(),
                missing: Vec::new(),
                detail: ": earlier calls of this store have not ended yet".into(),
                waited: by.waited(),
                hint: "wait for their results; they name whom they wait for".into(),
            });
        }
        Ok(self.shared.changed.wait_timeout(state, by.slice(LOOK)).unwrap_or_else(PoisonError::into_inner).0)
    }

    fn spawn(&self, state: &mut State) -> Result<(), Error> {
        let queue = self.clone();
        let spawned = std::thread::Builder::new().name("syncline-kv".into()).spawn(move || queue.serve());
        match spawned {
            Ok(_) => {
                state.threads += 1;
                Ok(())
            }
            // Whoever is there works it off.
            Err(_) if state.threads > 0 => Ok(()),
            Err(error) => Err(Error::System { operation: "a call in the background".into(), detail: format!("no thread for it: {error}") }),
        }
    }

    /// A thread's life.
    fn serve(&self) {
        let mut state = self.state();
        let mut idle_since = Instant::now();
        loop {
            let free_at = state.running.values().map(|started| *started + PATIENCE).filter(|end| *end > Instant::now()).max();
            if free_at.is_none()
                && let Some((_, _, id)) = state.ready.pop()
            {
                let task = state.waiting.get_mut(&id).and_then(VecDeque::pop_front).expect("a ready key has a task");
                state.running.insert(task.number, Instant::now());
                if !state.ready.is_empty() && state.idle == 0 {
                    let _ = self.spawn(&mut state); // somebody must be there if this call waits for others
                }
                drop(state);
                // A panic of a user's function must not stop what waits behind it; its result says what happened.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(task.work));
                state = self.state();
                state.ended(id, task.number, task.bytes, &task.line);
                self.shared.changed.notify_all();
                idle_since = Instant::now();
                continue;
            }
            if state.ready.is_empty() && idle_since.elapsed() >= IDLE {
                state.threads -= 1;
                return;
            }
            let nap =
                if state.ready.is_empty() { IDLE } else { free_at.map_or(PATIENCE, |end| end.saturating_duration_since(Instant::now())) };
            state.idle += 1;
            state = self.shared.changed.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0;
            state.idle -= 1;
        }
    }
}

impl State {
    fn ended(&mut self, id: usize, number: u64, bytes: usize, line: &Line) {
        self.running.remove(&number);
        self.bytes -= bytes;
        line.queued.fetch_sub(1, AcqRel); // what the task wrote is seen by whoever passes
        match self.waiting.get(&id).and_then(VecDeque::front) {
            Some(next) => self.ready.push((next.priority, Reverse(next.number), id)),
            None => drop(self.waiting.remove(&id)),
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        write!(f, "Queue({} waiting, {} running)", state.waiting.len(), state.running.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    /// Blocks the queue until the gate opens, so that everything after it waits.
    fn gate(queue: &Queue) -> (Arc<Line>, std::sync::mpsc::Sender<()>) {
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let line = Arc::new(Line::default());
        let (begun, began) = std::sync::mpsc::channel();
        let work = move || {
            begun.send(()).expect("somebody listens");
            let _ = gate.recv();
        };
        queue.submit(&line, 0, 0, soon(), work).expect("a thread");
        began.recv().expect("it begins");
        (line, open)
    }

    #[test]
    fn the_calls_of_a_key_keep_their_order_whatever_their_priority() {
        let (queue, line, seen) = (Queue::default(), Arc::new(Line::default()), Arc::new(Mutex::new(Vec::new())));
        for number in 0..100 {
            let seen = Arc::clone(&seen);
            queue.submit(&line, number % 7, 1, soon(), move || seen.lock().expect("whole").push(number)).expect("queued");
        }
        queue.pass(&line, "test", soon()).expect("they end");
        assert_eq!(*seen.lock().expect("whole"), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn among_keys_the_largest_priority_goes_first_and_equal_ones_as_they_came() {
        let (queue, seen) = (Queue::default(), Arc::new(Mutex::new(Vec::new())));
        let mut state = queue.state();
        state.running.insert(u64::MAX, Instant::now() + Duration::from_secs(3600)); // the road is taken
        drop(state);
        for (number, priority) in [(0, -3), (1, 5), (2, 0), (3, 5), (4, -3)] {
            let (seen, line) = (Arc::clone(&seen), Arc::new(Line::default()));
            queue.submit(&line, priority, 1, soon(), move || seen.lock().expect("whole").push(number)).expect("queued");
        }
        queue.state().running.clear();
        queue.shared.changed.notify_all();
        queue.flush("test", soon()).expect("they end");
        assert_eq!(*seen.lock().expect("whole"), [1, 3, 2, 0, 4]);
    }

    #[test]
    fn a_call_that_waits_for_others_holds_up_only_its_own_key() {
        let queue = Queue::default();
        let (line, open) = gate(&queue);
        let other = Arc::new(Line::default());
        for _ in 0..10 {
            queue.submit(&other, 0, 1, soon(), || ()).expect("queued");
        }
        queue.pass(&other, "test", soon()).expect("they go beside it");
        let error = queue.pass(&line, "pull", Deadline::after(Duration::from_millis(1))).expect_err("the gate is closed");
        assert!(error.to_string().starts_with("pull: waited"), "{error}");
        drop(open);
        queue.pass(&line, "test", soon()).expect("the gate is open");
    }

    #[test]
    fn a_panic_stops_nothing_behind_it() {
        let (queue, line) = (Queue::default(), Arc::new(Line::default()));
        queue.submit(&line, 0, 1, soon(), || std::panic::resume_unwind(Box::new("a user's bug"))).expect("queued");
        queue.submit(&line, 0, 1, soon(), || ()).expect("queued");
        queue.flush("test", soon()).expect("they end");
    }
}
