//! Requests that wait for other workers, so that those behind them need not.
//!
//! A worker's threads share one link. A get that has to wait longer than a moment goes to a second thread, and the first reads on: what
//! another thread of that worker adds meanwhile may be what all others wait for. The room is first come, first served: of two
//! requests of one worker the earlier one never waits for more adds than the later one.
//!
//! Cost: nothing for a get that need not wait, or not longer than it takes to look a few times; else one wake-up, while it waits anyway.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use syncline_transport::{LinkError, Severer};

use super::answering::{Answering, Wanted};

/// How long a request is looked at before it is sent to the room: as long as a wait would keep its core.
const GLANCE: Duration = Duration::from_micros(150);

thread_local! {
    /// The room that this thread serves.
    static SERVED: RefCell<Option<Arc<Room>>> = const { RefCell::new(None) };
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
    waiting: Mutex<VecDeque<Wanted>>,
    came: Condvar,
    closed: AtomicBool,
}

impl WaitingRoom {
    pub(crate) fn new(answering: Answering, severer: Severer) -> WaitingRoom {
        WaitingRoom { room: Arc::default(), answering, severer, has_thread: false }
    }

    /// Answers a request, now or when those whom it waits for have come.
    pub(crate) fn receive(&mut self, wanted: Wanted) -> Result<(), LinkError> {
        if self.is_soon_ready(&wanted) || !self.has_somebody() {
            return self.answering.answer(&wanted);
        }
        self.room.waiting().push_back(wanted);
        self.room.came.notify_one();
        Ok(())
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

    /// Whether a thread serves the room. Without one, requests wait as they did before there was a room.
    fn has_somebody(&mut self) -> bool {
        if !self.has_thread {
            let (room, answering, severer) = (Arc::clone(&self.room), self.answering.clone(), self.severer.clone());
            let name = format!("syncline-wait-{}", answering.service.worker);
            let thread = std::thread::Builder::new().name(name).spawn(move || room.serve(&answering, &severer));
            self.has_thread = thread.is_ok();
        }
        self.has_thread
    }
}

impl Drop for WaitingRoom {
    fn drop(&mut self) {
        self.room.closed.store(true, Release); // pairs with the Acquire in `is_closed`
        drop(self.room.waiting()); // who looked before this sleeps by now, and is woken
        self.room.came.notify_all();
        if self.has_thread {
            self.severer.sever(); // it may keep the sending half for a moment
        }
    }
}

impl Room {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<Wanted>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner) // nobody panics while holding it
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    fn serve(self: Arc<Self>, answering: &Answering, severer: &Severer) {
        SERVED.set(Some(Arc::clone(&self)));
        let mut waiting = self.waiting();
        while !self.is_closed() {
            let Some(wanted) = waiting.pop_front() else {
                waiting = self.came.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(waiting);
            let wanted = Wanted { by: wanted.by.with_interrupt(this_room_is_closed), ..wanted };
            if let Err(error) = answering.answer(&wanted) {
                let (places, worker) = (&answering.service.places, answering.service.worker);
                tracing::debug!("{}: worker {worker}: {error}", places.name);
                severer.sever(); // the thread that reads requests notices, and settles what the worker leaves
                return;
            }
            waiting = self.waiting();
        }
    }
}

/// Asked in the waits of a room's thread: a link that has ended has nobody left to answer.
fn this_room_is_closed() -> bool {
    SERVED.with_borrow(|room| room.as_ref().is_some_and(|room| room.is_closed()))
}
