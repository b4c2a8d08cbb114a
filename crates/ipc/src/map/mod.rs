//! One function on n threads, results in order, every error kept: torch-ipc's `map` and `map_extended`.
//!
//! ```
//! use syncline_ipc::{Deadline, map};
//!
//! let squares = map(4, |id| Ok::<_, std::convert::Infallible>(id * id));
//! assert_eq!(squares.join(Deadline::never())?, [1, 4, 9, 16]);
//! # Ok::<(), syncline_ipc::MapError>(())
//! ```
//! Workers are numbered from 1. One that panics has failed like one that returns an error, and the others go on. A map that is dropped
//! leaves its threads to end by themselves: nobody waits for them, and nothing of them stays.

mod error;
mod worker;

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_transport::Deadline;

pub use error::{Failure, MapError};
pub(crate) use worker::guarded;
pub use worker::{Outcome, WorkerStats};

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Runs `f(1)`, …, `f(n)` on a thread each. Arguments for all are what the function captures; the number comes last.
pub fn map<T, E, F>(n: usize, f: F) -> Map<T>
where
    T: Send + 'static,
    E: Into<Cause>,
    F: Fn(usize) -> Result<T, E> + Send + Sync + 'static,
{
    map_extended(n, || Ok::<(), Cause>(()), move |(), id| f(id).map_err(Into::into))
}

/// As [`map`], but each thread first runs `init`, whose result `f` gets. Where `init` fails, `f` is not called.
pub fn map_extended<S, T, E, I, F>(n: usize, init: I, f: F) -> Map<T>
where
    T: Send + 'static,
    E: Into<Cause>,
    I: Fn() -> Result<S, E> + Send + Sync + 'static,
    F: Fn(&mut S, usize) -> Result<T, E> + Send + Sync + 'static,
{
    let hall = Arc::new(Hall { state: Mutex::new(State { places: (0..n).map(|_| Place::fresh()).collect() }), changed: Condvar::new() });
    let work = Arc::new((init, f));
    for id in 1..=n {
        let (hall, work) = (Arc::clone(&hall), Arc::clone(&work));
        let started = std::thread::Builder::new().name(format!("map {id}")).spawn({
            let hall = Arc::clone(&hall);
            move || {
                let begun = Instant::now();
                let made = worker::guarded(|| {
                    let (init, f) = &*work;
                    let mut state = init().map_err(Into::into)?;
                    f(&mut state, id).map_err(Into::into)
                });
                drop(work); // what the function captured is gone before anybody hears that it has ended
                hall.ended(id, made, begun.elapsed(), worker::cpu_time());
            }
        });
        if let Err(error) = started {
            hall.ended(id, Err(Failure { id, cause: error.into(), panicked: false }), Duration::ZERO, Duration::ZERO);
        }
    }
    Map { hall, begun: Instant::now() }
}

/// The workers of one call of [`map`].
pub struct Map<T> {
    hall: Arc<Hall<T>>,
    begun: Instant,
}

impl<T> Map<T> {
    /// Waits until all have ended and returns their results in order of number.
    ///
    /// If any has failed, [`MapError::Failed`] holds the failure of each; the results of the others are dropped. Failures that
    /// [`check_errors`](Map::check_errors) has reported do not count. A second call returns nothing. At the deadline, [`MapError::Timeout`]
    /// names those that still run, and `join` may be called again.
    pub fn join(&self, by: Deadline) -> Result<Vec<T>, MapError> {
        let mut state = self.hall.wait(by)?;
        let (mut results, mut failures) = (Vec::new(), Vec::new());
        for place in &mut state.places {
            match std::mem::replace(&mut place.made, Made::Taken) {
                Made::Result(result) => results.push(result),
                Made::Failure(failure) => failures.push(failure),
                Made::Nothing | Made::Taken => {}
            }
        }
        if failures.is_empty() { Ok(results) } else { Err(MapError::Failed { failures, workers: state.places.len() }) }
    }

    /// Reports those that have failed so far and takes them off the map, while others may still run.
    pub fn check_errors(&self) -> Result<(), MapError> {
        let mut state = self.hall.lock();
        let workers = state.places.len();
        let mut failures = Vec::new();
        for place in &mut state.places {
            if let Made::Failure(_) = place.made
                && let Made::Failure(failure) = std::mem::replace(&mut place.made, Made::Taken)
            {
                failures.push(failure);
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(MapError::Failed { failures, workers }) }
    }

    /// How many there are, and how many of them have ended: what a progress bar shows.
    pub fn progress(&self) -> (usize, usize) {
        let state = self.hall.lock();
        (state.places.iter().filter(|place| place.outcome != Outcome::Running).count(), state.places.len())
    }

    /// Waits until one more has ended than `ended`, or all have; returns how many.
    pub fn wait_for_more(&self, ended: usize, by: Deadline) -> Result<usize, MapError> {
        let state = self.hall.wait_until(by, |state| state.running() == 0 || state.places.len() - state.running() > ended)?;
        Ok(state.places.len() - state.running())
    }

    /// How each worker fared so far.
    pub fn statistics(&self) -> Vec<WorkerStats> {
        let state = self.hall.lock();
        let stats = state.places.iter().enumerate().map(|(index, place)| WorkerStats {
            id: index + 1,
            outcome: place.outcome,
            wall: if place.outcome == Outcome::Running { self.begun.elapsed() } else { place.wall },
            cpu: place.cpu,
        });
        stats.collect()
    }
}

impl<T> std::fmt::Debug for Map<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ended, workers) = self.progress();
        f.debug_struct("Map").field("workers", &workers).field("ended", &ended).finish()
    }
}

/// Where workers leave what they made.
struct Hall<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    places: Vec<Place<T>>,
}

struct Place<T> {
    outcome: Outcome,
    made: Made<T>,
    wall: Duration,
    cpu: Duration,
}

enum Made<T> {
    Nothing,
    Result(T),
    Failure(Failure),
    Taken,
}

impl<T> Place<T> {
    fn fresh() -> Place<T> {
        Place { outcome: Outcome::Running, made: Made::Nothing, wall: Duration::ZERO, cpu: Duration::ZERO }
    }
}

impl<T> State<T> {
    fn running(&self) -> usize {
        self.places.iter().filter(|place| place.outcome == Outcome::Running).count()
    }
}

impl<T> Hall<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // assignments only: nothing is left half done
    }

    fn ended(&self, id: usize, made: Result<T, Failure>, wall: Duration, cpu: Duration) {
        let (outcome, made) = match made {
            Ok(result) => (Outcome::Done, Made::Result(result)),
            Err(failure) => (Outcome::Failed, Made::Failure(Failure { id, ..failure })),
        };
        self.lock().places[id - 1] = Place { outcome, made, wall, cpu };
        self.changed.notify_all();
    }

    fn wait(&self, by: Deadline) -> Result<MutexGuard<'_, State<T>>, MapError> {
        self.wait_until(by, |state| state.running() == 0)
    }

    fn wait_until(&self, by: Deadline, over: impl Fn(&State<T>) -> bool) -> Result<MutexGuard<'_, State<T>>, MapError> {
        const LONGEST: Duration = Duration::from_secs(60);
        let mut state = self.lock();
        while !over(&state) {
            if by.expired() {
                let running = state.places.iter().enumerate().filter(|(_, place)| place.outcome == Outcome::Running);
                return Err(MapError::Timeout { running: running.map(|(index, _)| index + 1).collect(), waited: by.waited() });
            }
            state = self.changed.wait_timeout(state, by.slice(LONGEST)).unwrap_or_else(PoisonError::into_inner).0;
            if !over(&state) && by.interrupted() {
                return Err(MapError::Interrupted { waited: by.waited() });
            }
        }
        Ok(state)
    }
}
