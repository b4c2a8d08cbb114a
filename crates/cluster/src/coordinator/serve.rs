//! Runs a coordinator: a door thread lets members in, a reader per member turns frames into events, and one thread
//! owns the [`State`] and carries out what it decides.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use syncline_shm::wait::Deadline;
use syncline_transport::{
    Address, Connection, Door, DoorConfig, DoorEvent, DoorWaker, JobKey, LinkError, RecvHalf, SendHalf, Severer, TransportKind,
};
use syncline_wire::message::{Blame, Control, DownCause, Hello, Purpose};

use super::events::{Action, ConnectionId, Event, Spec};
use super::state::State;
use crate::Error;
use crate::bootstrap::file::Published;
use crate::control::{ControlError, receive_control, send_control};

/// The rank a coordinator signs its frames with: nobody's.
pub(crate) const COORDINATOR: u32 = u32::MAX;

/// How long a member may take to accept a small control message before it counts as stuck.
const SEND_PATIENCE: Duration = Duration::from_secs(2);

/// Where a coordinator can be reached.
#[derive(Debug, Clone, Default)]
pub struct Listen {
    /// An abstract Unix name; a random one is taken when none is given.
    pub unix: Option<String>,
    /// TCP addresses to bind; none for a job on one host.
    pub tcp: Vec<SocketAddr>,
    /// Whether traffic between hosts is encrypted.
    pub encrypt: bool,
}

/// A running coordinator. Dropping it closes its door and all control links.
#[derive(Debug)]
pub struct Coordinator {
    unix_name: String,
    tcp: Vec<SocketAddr>,
    events: mpsc::Sender<Input>,
    finished: mpsc::Receiver<()>,
    door: DoorWaker,
    closed: Arc<AtomicBool>,
    /// The state's culprit, or `COORDINATOR` for nobody.
    culprit: Arc<AtomicU32>,
    goes_on: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What reaches the thread that owns the state.
enum Input {
    Connected {
        connection: ConnectionId,
        sender: Box<dyn SendHalf>,
        severer: Severer,
    },
    Event(Event),
    /// The rendezvous file, to be removed before anybody is told that all have come.
    Invited(Published),
    Stop,
}

impl Coordinator {
    /// Opens the door and starts to collect the members of `spec`.
    pub fn host(spec: Spec, key: JobKey, listen: Listen) -> Result<Coordinator, Error> {
        let unix = listen.unix.unwrap_or_else(|| format!("syncline-{}", hex(&spec.job)));
        let config = DoorConfig { key, identity: spec.job, unix: Some(unix), tcp: listen.tcp.clone(), encrypt_tcp: listen.encrypt };
        let door = Door::open(config).map_err(|error| Error::system("start: opening the coordinator's door", error))?;
        let unix_name = door.unix_name().unwrap_or_default().to_owned();
        let tcp = door.tcp_addresses();
        let waker = door.waker();
        let (events, inbox) = mpsc::channel();
        let (finish, finished) = mpsc::channel();
        let epoch = spec.epoch;
        let to_state = events.clone();
        let closed = Arc::new(AtomicBool::new(false));
        let door_closed = Arc::clone(&closed);
        let culprit = Arc::new(AtomicU32::new(COORDINATOR));
        let goes_on = Arc::new(AtomicBool::new(false));
        let known = (Arc::clone(&culprit), Arc::clone(&goes_on));
        let threads = vec![
            spawn("syncline-door", move || welcome_visitors(door, epoch, &to_state, &door_closed))?,
            spawn("syncline-coord", move || carry_out(State::new(spec), &inbox, &finish, &known.0, &known.1))?,
        ];
        Ok(Coordinator { unix_name, tcp, events, finished, door: waker, closed, culprit, goes_on, threads })
    }

    /// Where members of the same host reach it.
    pub fn unix_address(&self) -> Address {
        Address::Unix(self.unix_name.clone())
    }

    /// Where members of other hosts reach it; wildcard addresses as they were bound.
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.tcp
    }

    /// Takes the rendezvous file in keeping: whoever hears that all have come, or that the job will not start, finds it gone and may
    /// meet again under the same name.
    pub(crate) fn invited_by(&self, published: Published) {
        let _ = self.events.send(Input::Invited(published));
    }

    /// Reports that the launcher saw the process of `rank` end.
    pub fn process_ended(&self, rank: u32, cause: DownCause) {
        let _ = self.events.send(Input::Event(Event::ProcessEnded { rank, cause }));
    }

    /// Tells the others that the member which hosts this coordinator fails; returns before they have heard it, but
    /// dropping the coordinator waits for that.
    pub fn member_aborted(&self, rank: u32, blame: Option<Blame>, reason: String) {
        let _ = self.events.send(Input::Event(Event::HostAborted { rank, blame, reason }));
    }

    /// The rank all trouble began with, as far as it is known.
    pub fn culprit(&self) -> Option<u32> {
        Some(self.culprit.load(Acquire)).filter(|rank| *rank != COORDINATOR)
    }

    /// Whether all that are left of the job go on when a worker dies, so that its launcher should leave them alone.
    pub fn goes_on(&self) -> bool {
        self.goes_on.load(Acquire)
    }

    /// Waits until everybody has left or died. True when so.
    pub fn wait_finished(&self, limit: Duration) -> bool {
        self.finished.recv_timeout(limit).is_ok()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.closed.store(true, Release);
        self.door.wake();
        let _ = self.events.send(Input::Stop);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn welcome_visitors(mut door: Door, epoch: u32, events: &mpsc::Sender<Input>, closed: &AtomicBool) {
    let mut next: ConnectionId = 0;
    while !closed.load(Acquire) {
        for event in door.step(Deadline::never()) {
            let worth_a_line = event.is_worth_a_line();
            match event {
                DoorEvent::Visitor { hello, connection, .. } => {
                    let purpose = Hello::decode(&hello).map(|hello| hello.purpose);
                    if let Ok(Purpose::Control) = purpose {
                        next += 1;
                        connect(next, connection, epoch, events);
                    } else {
                        tracing::warn!("refused {}: it did not come to join ({purpose:?})", connection.peer());
                    }
                }
                DoorEvent::Refused { from, why, count } if worth_a_line => tracing::warn!("refused {from}: {why} (number {count})"),
                _ => {}
            }
        }
    }
}

fn connect(connection: ConnectionId, visitor: Connection, epoch: u32, events: &mpsc::Sender<Input>) {
    let local = visitor.transport() == TransportKind::Unix;
    let link = visitor.into_stream_link(epoch, COORDINATOR);
    let severer = link.severer();
    let (sender, receiver) = link.split();
    if events.send(Input::Connected { connection, sender, severer }).is_err() {
        return;
    }
    let events = events.clone();
    let reader = spawn("syncline-member", move || listen_to(connection, local, receiver, &events));
    if let Err(error) = reader {
        tracing::warn!("cannot listen to a new member: {error}");
    }
}

fn listen_to(connection: ConnectionId, local: bool, mut receiver: Box<dyn RecvHalf>, events: &mpsc::Sender<Input>) {
    loop {
        let event = match receive_control(receiver.as_mut(), Deadline::never()) {
            Ok(message) => Event::Said { connection, local, message },
            Err(error) => Event::Closed { connection, detail: error.to_string() },
        };
        let last = matches!(event, Event::Closed { .. });
        if events.send(Input::Event(event)).is_err() || last {
            return;
        }
    }
}

fn carry_out(mut state: State, inbox: &mpsc::Receiver<Input>, finish: &mpsc::Sender<()>, culprit: &AtomicU32, goes_on: &AtomicBool) {
    let start = Instant::now();
    let mut members: HashMap<ConnectionId, (Box<dyn SendHalf>, Severer)> = HashMap::new();
    let mut published: Option<Published> = None;
    loop {
        let next = state.next_tick().map(|tick| tick.saturating_sub(start.elapsed()));
        let input = match next {
            Some(wait) => inbox.recv_timeout(wait),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let event = match input {
            Ok(Input::Connected { connection, sender, severer }) => {
                members.insert(connection, (sender, severer));
                continue;
            }
            Ok(Input::Invited(file)) => {
                published = Some(file);
                continue;
            }
            Ok(Input::Event(event)) => event,
            Err(RecvTimeoutError::Timeout) => Event::Tick,
            Ok(Input::Stop) | Err(RecvTimeoutError::Disconnected) => break,
        };
        let closed = match &event {
            Event::Closed { connection, .. } => Some(*connection),
            _ => None,
        };
        let actions = state.on(event, start.elapsed());
        culprit.store(state.culprit().unwrap_or(COORDINATOR), Release);
        goes_on.store(state.goes_on(), Release);
        if !state.is_gathering() {
            drop(published.take());
        }
        for action in actions {
            match action {
                Action::Send { connection, message } => tell(&mut members, connection, &message),
                Action::Close { connection } => {
                    if let Some((_, severer)) = members.remove(&connection) {
                        severer.sever(); // Its reader ends too.
                    }
                }
                Action::Finished => drop(finish.send(())),
            }
        }
        // Nobody listens to it any more; a member that spoke nonsense must not believe otherwise.
        if let Some((_, severer)) = closed.and_then(|connection| members.remove(&connection)) {
            severer.sever();
        }
    }
    for (_, severer) in members.values() {
        severer.sever();
    }
}

fn tell(members: &mut HashMap<ConnectionId, (Box<dyn SendHalf>, Severer)>, connection: ConnectionId, message: &Control) {
    let Some((sender, severer)) = members.get_mut(&connection) else { return };
    if let Err(error) = send_control(sender.as_mut(), message, Deadline::after(SEND_PATIENCE)) {
        tracing::debug!("a member does not take its messages: {error}");
        // Its reader will report the end of the link. One that has closed its end may have said goodbye before, and that
        // word must still be read; one that merely does not listen is cut off.
        if matches!(error, ControlError::Link(LinkError::Timeout { .. })) {
            severer.sever();
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new().name(name.into()).spawn(body).map_err(|error| Error::system(format!("start: a thread for {name}"), error))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
