//! The side that listens: many clients, by id and by tag.
//!
//! Clients that have proven the token wait in the lobby until [`Server::clients`] asks for them, so a server knows exactly
//! those that it asked for. A single thread, the porter, keeps the door; all else happens in the caller's thread, in one
//! loop over however many clients there are.

mod hall;
mod peer;
mod porter;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use syncline_transport::{Address, Deadline, Door, DoorConfig, DoorError};
use syncline_wire::Value;

use crate::connection::{Fault, Inflow, NetStats, Taken, deliver, encode};
use crate::place::stays_here;
use crate::{Error, Options, Place, Whom};
use hall::{Hall, Seat};
pub use peer::Peer;

/// In which order [`Server::clients_with`] goes through the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Ascending by id; those of one id in the order they came.
    #[default]
    Ascending,
    /// The other way round.
    Descending,
}

/// Listens for [`Client`](crate::Client)s. May be used from many threads. Dropping it closes it.
///
/// Calls wait as long as [`Options::timeout`] says, those that end in `_by` as long as their deadline. A client that dies is
/// [`Error::PeerLost`] in the call that needs it, which names it; after that the server has forgotten it and goes on with the others.
pub struct Server {
    hall: Arc<Hall>,
    porter: Mutex<Option<JoinHandle<()>>>,
    place: Place,
    options: Options,
}

impl Server {
    /// Begins to listen at `place`; port 0 takes a free one, which [`place`](Server::place) tells.
    pub fn open(place: &Place, options: &Options) -> Result<Server, Error> {
        const OPERATION: &str = "server";
        let (mut unix, mut tcp) = (None, None);
        // Of a name's addresses the IPv4 one, which is what clients that were told 127.0.0.1 look for.
        let address = place.addresses(OPERATION)?.into_iter().min_by_key(|address| matches!(address, Address::Tcp(SocketAddr::V6(_))));
        let stays = address.as_ref().is_none_or(stays_here);
        match address {
            Some(Address::Unix(name)) => unix = Some(name),
            Some(Address::Tcp(address)) => tcp = Some(address),
            None => {}
        }
        let config = DoorConfig {
            key: options.key(OPERATION)?,
            identity: [0; 16], // clients trust the token, whoever holds it
            unix,
            tcp: tcp.into_iter().collect(),
            encrypt_tcp: options.encrypt.unwrap_or(!stays),
        };
        let door = Door::open(config).map_err(|error| match error {
            DoorError::Listen { source, .. } => {
                Error::System { operation: OPERATION, detail: format!("cannot listen at {place}: {source}") }
            }
            other => Error::System { operation: OPERATION, detail: other.to_string() },
        })?;
        let place = door.tcp_addresses().first().map_or_else(|| place.clone(), |address: &SocketAddr| Place::from(*address));
        let hall = Arc::new(Hall::new(door.waker()));
        let porter = porter::start(door, Arc::clone(&hall))
            .map_err(|error| Error::System { operation: OPERATION, detail: format!("no thread for the door: {error}") })?;
        Ok(Server { hall, porter: Mutex::new(Some(porter)), place, options: options.clone() })
    }

    /// Where it listens, with the real port.
    pub fn place(&self) -> Place {
        self.place.clone()
    }

    /// The port it listens at; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        if let Place::Tcp { port, .. } = self.place { port } else { 0 }
    }

    /// How many clients it has, which are those that [`clients`](Server::clients) let in and that have not gone.
    pub fn len(&self) -> usize {
        self.hall.seats().len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until `n` clients in total are connected, then calls `f` for every one, ascending by id, and returns how many
    /// there are. Those that came first are let in first; more than `n` stay in the lobby.
    ///
    /// The first error of `f` ends it.
    pub fn clients<E: From<Error>>(&self, n: usize, f: impl FnMut(&Peer) -> Result<(), E>) -> Result<usize, E> {
        self.clients_by(n, self.patience(), f)
    }

    /// [`clients`](Server::clients) with a deadline of the caller's for the wait.
    pub fn clients_by<E: From<Error>>(&self, n: usize, by: Deadline, f: impl FnMut(&Peer) -> Result<(), E>) -> Result<usize, E> {
        self.usable("clients")?;
        self.hall.admit(n, by)?;
        self.clients_with(None, Order::Ascending, f)
    }

    /// Calls `f` for every client that is connected and has this tag (`None`: all), without waiting for more.
    pub fn clients_with<E: From<Error>>(
        &self,
        tag: Option<&str>,
        order: Order,
        mut f: impl FnMut(&Peer) -> Result<(), E>,
    ) -> Result<usize, E> {
        self.usable("clients")?;
        let mut seats = self.hall.seats_with(tag);
        if order == Order::Descending {
            seats.reverse();
        }
        let count = seats.len();
        for seat in seats {
            let peer = Peer::new(Arc::clone(&self.hall), seat, self.options.timeout);
            let outcome = f(&peer);
            peer.expire();
            outcome?;
        }
        Ok(count)
    }

    /// Sends a message to every client with this tag (`None`: all) and returns how many there are.
    ///
    /// All of them are served at once: one that does not read delays only itself.
    pub fn broadcast(&self, value: &Value<'_>, tag: Option<&str>) -> Result<usize, Error> {
        self.broadcast_by(value, tag, self.patience())
    }

    /// [`broadcast`](Server::broadcast) with a deadline of the caller's. When it passes, the error names the clients that have
    /// not taken the message; all others have it. What had begun is finished behind the scenes as they read.
    pub fn broadcast_by(&self, value: &Value<'_>, tag: Option<&str>, by: Deadline) -> Result<usize, Error> {
        const OPERATION: &str = "broadcast";
        self.usable(OPERATION)?;
        let encoded = encode(OPERATION, value)?;
        let seats = self.hall.seats_with(tag);
        let pipes: Vec<_> = seats.iter().map(|seat| &seat.pipe).collect();
        let outcomes = deliver(&pipes, &encoded, by);
        self.hall.look_after_debts();
        let (mut lost, mut late, mut other) = (Vec::new(), Vec::new(), None);
        for (seat, outcome) in seats.iter().zip(outcomes) {
            match outcome {
                Ok(()) => {}
                Err(Fault::Late { .. }) => late.push(seat.whom()),
                Err(fault) if fault.ends_it() => {
                    self.hall.forget(seat);
                    lost.push(fault.error(OPERATION, seat.whom(), by));
                }
                Err(fault) => other = Some(fault.error(OPERATION, seat.whom(), by)),
            }
        }
        let all = seats.len();
        if let Some(error) = other {
            return Err(error);
        }
        let more = lost.len().saturating_sub(1);
        if let Some(first) = lost.into_iter().next() {
            return Err(with_others(first, more, late.len()));
        }
        if late.is_empty() {
            return Ok(all);
        }
        Err(Error::Timeout {
            operation: OPERATION,
            waited_for: format!("{} of {all} clients to take a message: {}", late.len(), list(&late)),
            whom: late.into_iter().next().map(Box::new),
            waited: by.waited(),
            hint: "the others have it; are these busy, stopped, or waiting for this side?",
        })
    }

    /// The next message of any client with this tag (`None`: all), and whose it is. Clients take turns.
    ///
    /// A client that leaves in good order is forgotten without a word; when no client is left, that is [`Error::Closed`].
    pub fn recv_any(&self, tag: Option<&str>) -> Result<(Value<'static>, Peer), Error> {
        self.recv_any_by(tag, self.patience())
    }

    /// [`recv_any`](Server::recv_any) with a deadline of the caller's.
    pub fn recv_any_by(&self, tag: Option<&str>, by: Deadline) -> Result<(Value<'static>, Peer), Error> {
        const OPERATION: &str = "recv_any";
        let meter = &self.hall.meter;
        meter.rx.call(|| {
            loop {
                self.usable(OPERATION)?;
                let seats = self.hall.seats_in_turn(tag);
                if seats.is_empty() {
                    let tagged = tag.map_or(String::new(), |tag| format!(" with tag {tag:?}"));
                    let what = format!("no client{tagged} is connected\nhint: clients(n, f) lets them in");
                    return Err(Error::Closed { operation: OPERATION, what });
                }
                // Those that another thread is receiving from are its own for now.
                let mut open: Vec<(&Arc<Seat>, Taken<'_, Inflow>)> =
                    seats.iter().filter_map(|seat| Some((seat, seat.pipe.inflow.try_take()?))).collect();
                // Without a fresh look, whoever was heard last would be heard again and again.
                meter.rx.system(|| await_any(&mut open, Duration::ZERO));
                let mut gone = false;
                for (seat, inflow) in open.iter_mut().filter(|(_, inflow)| !inflow.drained) {
                    match meter.rx.system(|| inflow.next_if_here()) {
                        Ok(None) => {}
                        Ok(Some((value, bytes))) => {
                            meter.rx.message(bytes, 2);
                            self.hall.served(seat);
                            return Ok((value, Peer::new(Arc::clone(&self.hall), Arc::clone(seat), self.options.timeout)));
                        }
                        Err(Fault::Left | Fault::Closed) => {
                            self.hall.forget(seat);
                            gone = true;
                        }
                        Err(fault) => {
                            self.hall.forget(seat);
                            return Err(fault.error(OPERATION, seat.whom(), by));
                        }
                    }
                }
                if gone {
                    continue;
                }
                if by.interrupted() {
                    return Err(Error::Interrupted { operation: OPERATION, waited: by.waited() });
                }
                if by.expired() {
                    let whom: Vec<Whom> = seats.iter().map(|seat| seat.whom()).collect();
                    return Err(Error::Timeout {
                        operation: OPERATION,
                        waited_for: format!("a message of {}", list(&whom)),
                        whom: None,
                        waited: by.waited(),
                        hint: "are they busy, or waiting for this side? a longer timeout= waits longer",
                    });
                }
                meter.rx.system(|| await_any(&mut open, by.slice(POLITE)));
            }
        })
    }

    /// What went to and came from all clients so far.
    pub fn net_stats(&self) -> NetStats {
        self.hall.meter.read()
    }

    /// Closes all connections and stops listening; the clients hear that it was on purpose. A second time does nothing.
    pub fn close(&self) {
        if !self.hall.owner.is_this_process() {
            return; // the porter is the parent's
        }
        self.hall.close();
        let porter = self.porter.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(porter) = porter {
            let _ = porter.join(); // it panics nowhere, and there is nothing left to do if it did
        }
    }

    fn patience(&self) -> Deadline {
        Deadline::after(self.options.timeout)
    }

    fn usable(&self, operation: &'static str) -> Result<(), Error> {
        if !self.hall.owner.is_this_process() {
            return Err(Error::Forked { operation });
        }
        if self.hall.is_closed() {
            return Err(Error::Closed { operation, what: format!("the server at {} is closed", self.place) });
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("place", &self.place).field("clients", &self.len()).finish_non_exhaustive()
    }
}

/// How long other threads may be kept from receiving.
const POLITE: Duration = Duration::from_millis(50);

/// Sleeps until one of them has something, for a slice at most.
fn await_any(open: &mut [(&Arc<Seat>, Taken<'_, Inflow>)], slice: Duration) {
    let timeout = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
    let watched = |inflow: &Inflow| inflow.half.pollable().is_some();
    let mut descriptors: Vec<PollFd<'_>> =
        open.iter().filter_map(|(_, inflow)| Some(PollFd::from_borrowed_fd(inflow.half.pollable()?, PollFlags::IN))).collect();
    let _ = poll(&mut descriptors, Some(&timeout)); // a signal ends the slice early
    let woken: Vec<bool> = descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect();
    drop(descriptors);
    for ((_, inflow), woken) in open.iter_mut().filter(|(_, inflow)| watched(inflow)).zip(woken) {
        inflow.drained &= !woken;
    }
}

fn with_others(mut error: Error, more: usize, late: usize) -> Error {
    if let Error::PeerLost { others, .. } = &mut error {
        if more > 0 {
            others.push_str(&format!("; so are {more} more clients"));
        }
        if late > 0 {
            others.push_str(&format!("; {late} others have not taken the message in time"));
        }
    }
    error
}

/// The first few of them by name.
fn list(whom: &[Whom]) -> String {
    const SHOWN: usize = 8;
    let mut text = whom.iter().take(SHOWN).map(Whom::to_string).collect::<Vec<_>>().join(", ");
    if whom.len() > SHOWN {
        text.push_str(&format!(" and {} more", whom.len() - SHOWN));
    }
    text
}
