//! Who is there: clients that wait in the lobby and clients that have a seat.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use syncline_transport::{Connection, Deadline, DoorWaker};

use crate::client::peer_address;
use crate::connection::{Meter, Owner, Pipe};
use crate::hello::Hello;
use crate::{Error, Whom};

/// One client, as its server knows it.
pub(super) struct Seat {
    pub(super) pipe: Pipe,
    /// Counts clients in the order they came.
    pub(super) number: u64,
    pub(super) address: String,
    /// The address with its port, or the process: what tells it from its neighbours in an error.
    exact: String,
    hello: Hello,
    manner: Mutex<Manner>,
    closed: AtomicBool,
}

/// What the server's user calls a client.
#[derive(Debug, Clone, Default)]
pub(super) struct Manner {
    pub(super) id: i64,
    pub(super) tag: Option<String>,
}

impl Seat {
    pub(super) fn manner(&self) -> MutexGuard<'_, Manner> {
        lock(&self.manner)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    pub(super) fn whom(&self) -> Whom {
        let Manner { id, tag } = self.manner().clone();
        let tagged = tag.map_or(String::new(), |tag| format!(" {tag:?}"));
        Whom { name: format!("client {id}{tagged} from {}", self.exact), host: Some(self.hello.host.clone()), pid: Some(self.hello.pid) }
    }
}

/// All clients of a server.
pub(super) struct Hall {
    lobby: Mutex<VecDeque<Arc<Seat>>>,
    came: Condvar,
    seats: Mutex<Vec<Arc<Seat>>>,
    /// Whose message was taken last: the next one of that number or higher is asked first.
    turn: AtomicU64,
    next_number: AtomicU64,
    /// The last caller that was sent away, for the error of whoever waits for it.
    refused: Mutex<Option<String>>,
    closed: AtomicBool,
    waker: DoorWaker,
    pub(super) meter: Arc<Meter>,
    pub(super) owner: Owner,
}

impl Hall {
    pub(super) fn new(waker: DoorWaker) -> Hall {
        Hall {
            lobby: Mutex::default(),
            came: Condvar::new(),
            seats: Mutex::default(),
            turn: AtomicU64::new(0),
            next_number: AtomicU64::new(0),
            refused: Mutex::default(),
            closed: AtomicBool::new(false),
            waker,
            meter: Arc::default(),
            owner: Owner::this_process(),
        }
    }

    /// Shows a visitor to the lobby.
    pub(super) fn enter(&self, connection: Connection, hello: Hello) {
        let (address, exact) = (peer_address(&connection), connection.peer().trim_start_matches("tcp://").to_owned());
        let seat = Seat {
            pipe: Pipe::new(connection, Arc::clone(&self.meter)),
            number: self.next_number.fetch_add(1, Relaxed),
            address,
            exact,
            hello,
            manner: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        let mut lobby = lock(&self.lobby);
        // `close` empties the lobby after it has said so: who comes later is sent home by dropping its seat.
        if !self.is_closed() {
            lobby.push_back(Arc::new(seat));
            self.came.notify_all();
        }
    }

    pub(super) fn refused(&self, who_and_why: String) {
        *lock(&self.refused) = Some(who_and_why);
    }

    /// Lets clients in until there are `n` in all.
    pub(super) fn admit(&self, n: usize, by: Deadline) -> Result<(), Error> {
        const OPERATION: &str = "clients";
        const LONGEST: Duration = Duration::from_secs(60);
        let mut lobby = lock(&self.lobby);
        loop {
            if self.is_closed() {
                return Err(Error::Closed { operation: OPERATION, what: "the server was closed meanwhile".into() });
            }
            while lock(&self.seats).len() < n {
                let Some(seat) = lobby.pop_front() else { break };
                if self.is_still_there(&seat) {
                    lock(&self.seats).push(seat);
                }
            }
            let there = lock(&self.seats).len();
            if there >= n {
                return Ok(());
            }
            if by.interrupted() {
                return Err(Error::Interrupted { operation: OPERATION, waited: by.waited() });
            }
            if by.expired() {
                let refused = lock(&self.refused).clone().map_or(String::new(), |last| format!("; the last caller was sent away: {last}"));
                return Err(Error::Timeout {
                    operation: OPERATION,
                    waited_for: format!("clients to connect: {there} of {n} are here{refused}"),
                    whom: None,
                    waited: by.waited(),
                    hint: "are they running, do they know this address and token?",
                });
            }
            lobby = self.came.wait_timeout(lobby, by.slice(LONGEST)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A client that went while it was in the lobby, and has left no message, is as if it never came.
    fn is_still_there(&self, seat: &Seat) -> bool {
        seat.pipe.inflow.try_take().is_none_or(|mut inflow| inflow.is_alive())
    }

    /// Everybody who has a seat.
    pub(super) fn seats(&self) -> Vec<Arc<Seat>> {
        lock(&self.seats).clone()
    }

    /// Those with this tag, ascending by id.
    pub(super) fn seats_with(&self, tag: Option<&str>) -> Vec<Arc<Seat>> {
        let mut seats = self.seats();
        seats.retain(|seat| tag.is_none() || seat.manner().tag.as_deref() == tag);
        seats.sort_by_cached_key(|seat| (seat.manner().id, seat.number));
        seats
    }

    /// Those with this tag, beginning with the one whose turn it is.
    pub(super) fn seats_in_turn(&self, tag: Option<&str>) -> Vec<Arc<Seat>> {
        let mut seats = self.seats();
        seats.retain(|seat| tag.is_none() || seat.manner().tag.as_deref() == tag);
        let turn = self.turn.load(Relaxed);
        let first = seats.iter().position(|seat| seat.number >= turn).unwrap_or(0); // they sit in the order they came
        seats.rotate_left(first);
        seats
    }

    pub(super) fn served(&self, seat: &Seat) {
        self.turn.store(seat.number + 1, Relaxed);
    }

    /// Takes a client's seat away.
    pub(super) fn forget(&self, seat: &Seat) {
        lock(&self.seats).retain(|other| other.number != seat.number);
        seat.closed.store(true, Release);
    }

    /// Forgets a client and tells it so.
    pub(super) fn dismiss(&self, seat: &Seat) {
        self.forget(seat);
        seat.pipe.close();
    }

    /// Clients that wait for the rest of a message.
    pub(super) fn debts(&self) -> Vec<Arc<Seat>> {
        lock(&self.seats).iter().filter(|seat| seat.pipe.owes()).cloned().collect()
    }

    /// Lets the porter know that there may be such clients.
    pub(super) fn look_after_debts(&self) {
        if !self.debts().is_empty() {
            self.waker.wake();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Release);
        self.waker.wake();
        let lobby = std::mem::take(&mut *lock(&self.lobby));
        let seats = self.seats();
        for seat in lobby.iter().chain(&seats) {
            self.dismiss(seat);
        }
        self.came.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every use is a few plain assignments: a panic elsewhere leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
