//! Requests that wait for other workers, so that those behind them need not.
//!
//! A worker's threads share one link. A get that has to wait longer than a moment goes to a second thread, and the first reads on: what
//! another thread of that worker adds meanwhile may be what all others wait for. A get says after how many adds of its worker it comes,
//! and that was known when it was called, not when its turn came to ask; so of those that wait the one that needs the fewest adds goes first,
//! and if all that are being answered need more, it gets a thread of its own:
//! ```text
//!  asked: after 6 adds ──▶ thread 1 ··· waits for others ··················▶ answered
//!         after 8      ──▶ waits its turn, until 1 is free ···················▶
//!         after 5      ──▶ thread 2 ··· they have made 5 ──▶ answered: perhaps that is what their sixth waits for
//! ```
//! Questions for changes are different: what an answer told is not told again, so there is one at a time. A worker asks for changes again
//! when it has its answer or does not want it any more, so the last question calls off those before it.
//!
//! Cost: nothing for a get that need not wait, or not longer than it takes to look a few times; else one wake-up, while it waits anyway.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_cluster::Error;
use syncline_transport::{LinkError, Severer};

use super::answering::{Answering, Wanted, Wish};

/// How long a request is looked at before it is sent to the room: as long as a wait would keep its core.
const GLANCE: Duration = Duration::from_micros(150);

thread_local! {
    /// The room that this thread serves, and whether what it answers was called off.
    static SERVED: RefCell<Option<(Arc<Room>, Arc<AtomicBool>)>> = const { RefCell::new(None) };
}

/// The room of one link. Dropped, it is closed: what waits in it is nobody's business any more.
pub(crate) struct WaitingRoom {
    room: Arc<Room>,
    answering: Answering,
    /// Ends the link when an answer could not be finished.
    severer: Severer,
    has_thread: bool,
}

#[derive(Default)]
struct Room {
    state: Mutex<State>,
    came: Condvar,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// By the number of adds that they come after; equal ones as they came.
    waiting: VecDeque<Wanted>,
    /// What the threads are at.
    served: Vec<Served>,
    /// Threads that look for something to do, or are about to.
    idle: usize,
}

/// A request that a thread answers.
struct Served {
    number: u64,
    own_adds: u64,
    is_changes: bool,
    called_off: Arc<AtomicBool>,
}

impl WaitingRoom {
    pub(crate) fn new(answering: Answering, severer: Severer) -> WaitingRoom {
        WaitingRoom { room: Arc::default(), answering, severer, has_thread: false }
    }

    /// Answers a request, now or when those whom it waits for have come.
    pub(crate) fn receive(&mut self, wanted: Wanted) -> Result<(), LinkError> {
        let waits_its_turn = asks_for_changes(&wanted) && self.call_off_changes()?;
        if !waits_its_turn && self.is_soon_ready(&wanted) {
            return self.answering.answer(&wanted);
        }
        let mut state = self.room.state();
        if state.idle == 0 && state.served.iter().all(|served| served.own_adds > wanted.own_adds) {
            state.idle += 1; // the thread that begins now
            drop(state);
            let begun = self.begin_thread();
            state = self.room.state();
            if !begun {
                state.idle -= 1;
                if state.served.is_empty() {
                    drop(state);
                    return self.answering.answer(&wanted); // requests wait as they did before there was a room
                }
            }
        }
        let place = state.waiting.partition_point(|other| other.own_adds <= wanted.own_adds);
        state.waiting.insert(place, wanted);
        drop(state);
        self.room.came.notify_one();
        Ok(())
    }

    /// Calls earlier questions for changes off. Returns whether one is still being answered.
    fn call_off_changes(&self) -> Result<bool, LinkError> {
        let mut state = self.room.state();
        let (forsaken, waiting): (VecDeque<_>, VecDeque<_>) = state.waiting.drain(..).partition(asks_for_changes);
        state.waiting = waiting;
        let served = state.served.iter().filter(|served| served.is_changes);
        let is_served = served.inspect(|served| served.called_off.store(true, Release)).count() > 0; // pairs with `is_called_off`
        drop(state);
        for wanted in forsaken {
            let error = Error::Interrupted { operation: "get_changed".into(), waited: wanted.by.waited() };
            self.answering.refuse(wanted.number, &error)?;
        }
        Ok(is_served)
    }

    fn is_soon_ready(&self, wanted: &Wanted) -> bool {
        let since = Instant::now();
        loop {
            if self.answering.is_ready(wanted) {
                return true;
            }
            if since.elapsed() > GLANCE {
                return false;
            }
            std::thread::yield_now();
        }
    }

    fn begin_thread(&mut self) -> bool {
        let (room, answering, severer) = (Arc::clone(&self.room), self.answering.clone(), self.severer.clone());
        let name = format!("syncline-wait-{}", answering.service.worker);
        let thread = std::thread::Builder::new().name(name).spawn(move || room.serve(&answering, &severer));
        self.has_thread |= thread.is_ok();
        thread.is_ok()
    }
}

fn asks_for_changes(wanted: &Wanted) -> bool {
    matches!(wanted.wish, Wish::Changed { .. })
}

impl Drop for WaitingRoom {
    fn drop(&mut self) {
        self.room.closed.store(true, Release); // pairs with the Acquire in `is_closed`
        drop(self.room.state()); // who looked before this sleeps by now, and is woken
        self.room.came.notify_all();
        if self.has_thread {
            self.severer.sever(); // it may keep the sending half for a moment
        }
    }
}

impl State {
    /// Takes the next request that may be answered now.
    fn next(&mut self) -> Option<Wanted> {
        let changes_are_served = self.served.iter().any(|served| served.is_changes);
        let at = self.waiting.iter().position(|wanted| !(changes_are_served && asks_for_changes(wanted)))?;
        self.waiting.remove(at)
    }
}

impl Room {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // nobody panics while holding it
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    /// A thread's life: answers until the room is closed, or another thread has nothing to do either.
    fn serve(self: Arc<Self>, answering: &Answering, severer: &Severer) {
        let mut state = self.state();
        while !self.is_closed() {
            let Some(wanted) = state.next() else {
                if state.idle > 1 {
                    break;
                }
                state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (number, called_off) = (wanted.number, Arc::new(AtomicBool::new(false)));
            let is_changes = asks_for_changes(&wanted);
            state.served.push(Served { number, own_adds: wanted.own_adds, is_changes, called_off: Arc::clone(&called_off) });
            state.idle -= 1;
            drop(state);
            SERVED.set(Some((Arc::clone(&self), called_off)));
            let answered = answering.answer(&Wanted { by: wanted.by.with_interrupt(is_called_off), ..wanted });
            if let Err(error) = answered {
                let (places, worker) = (&answering.service.places, answering.service.worker);
                tracing::debug!("{}: worker {worker}: {error}", places.name);
                severer.sever(); // the thread that reads requests notices, and settles what the worker leaves
                return;
            }
            state = self.state();
            state.served.retain(|served| served.number != number);
            state.idle += 1;
            if state.waiting.len() > 1 {
                self.came.notify_one(); // one of them may have waited for this answer to be given
            }
        }
        state.idle -= 1;
    }
}

/// Asked in the waits of a room's thread: a link that has ended has nobody left to answer, and nor has a question that was asked again.
fn is_called_off() -> bool {
    SERVED.with_borrow(|served| served.as_ref().is_some_and(|(room, called_off)| room.is_closed() || called_off.load(Acquire)))
}
