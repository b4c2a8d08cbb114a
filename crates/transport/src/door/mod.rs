//! Where strangers become members: the listening sockets of a process.
//!
//! A door accepts, greets and authenticates visitors (`noise.rs` has the protocol), many at a time and without
//! ever waiting for one of them. What it hands over are connections whose other end holds the job's token. Whatever else
//! knocks is sent away having cost a descriptor and less than 4 KiB; at most [`WAITING_ROOM`] visitors may be undecided, for
//! at most [`PATIENCE`] each, and the oldest one that has proven nothing makes room for the next.
//!
//! A door has no thread. Its owner calls [`Door::step`], or watches the door's descriptor among others and steps when it is readable.

mod event;
mod listen;
pub(crate) mod visit;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, Shutdown, SocketFlags, acceptfrom_with, recv, recvmsg, send, shutdown,
    sockopt,
};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};

use crate::noise::{Identity, Keys, Refusal};
use crate::{Address, Connection, Deadline, JobKey, TransportKind, tcp};
pub use event::DoorEvent;
use event::Refused;
use listen::{Listener, bind_tcp, bind_unix};
use visit::{Host, Step, Visit};

/// How many visitors may be undecided at a time.
pub const WAITING_ROOM: usize = 128;
/// How long each may take.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// How long accepting pauses when the process is out of descriptors.
const BREATHER: Duration = Duration::from_millis(100);

/// What a door needs to know.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// The job's key.
    pub key: JobKey,
    /// Who opens this door; callers check it.
    pub identity: Identity,
    /// An abstract Unix name to listen at.
    pub unix: Option<String>,
    /// TCP addresses to listen at; port 0 takes a free one.
    pub tcp: Vec<SocketAddr>,
    /// Whether TCP traffic is sealed even for callers that do not ask for it.
    pub encrypt_tcp: bool,
}

/// Why a door could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}{}", if source.kind() == io::ErrorKind::AddrInUse { "; somebody else does" } else { "" })]
    Listen {
        /// Which.
        address: Address,
        /// What the operating system says.
        source: io::Error,
    },
    /// The operating system gives no epoll, timer or event descriptor.
    #[error("cannot watch the listening sockets")]
    Watch(#[from] io::Error),
}

/// Ends the current (or next) [`Door::step`] from another thread.
#[derive(Clone, Debug)]
pub struct DoorWaker(Arc<OwnedFd>);

impl DoorWaker {
    /// Ends it.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes()); // full means that it is awake already
    }
}

/// Listening sockets and the visitors in front of them.
pub struct Door {
    host: Host,
    encrypt_tcp: bool,
    epoll: OwnedFd,
    timer: OwnedFd,
    alarm: Option<Instant>,
    bell: Arc<OwnedFd>,
    listeners: Vec<Listener>,
    accepting_again: Option<Instant>,
    // Numbered in the order they came, so the first is the oldest.
    pending: BTreeMap<u64, Pending>,
    next_number: u64,
    refused: Refused,
}

struct Pending {
    fd: OwnedFd,
    transport: TransportKind,
    source: String,
    peer: String,
    until: Instant,
    visit: Visit,
}

/// What an event of the epoll descriptor is about; visitors are numbered behind these.
const TIMER: u64 = 0;
const BELL: u64 = 1;
const FIRST_LISTENER: u64 = 2;
const FIRST_VISITOR: u64 = 1 << 32;

impl Door {
    /// Begins to listen. Nobody is let in before [`step`](Door::step) is called.
    pub fn open(config: DoorConfig) -> Result<Door, DoorError> {
        let mut listeners = Vec::new();
        let failed = |address: Address| move |source| DoorError::Listen { address, source };
        if let Some(name) = &config.unix {
            listeners.push(bind_unix(name).map_err(failed(Address::Unix(name.clone())))?);
        }
        for address in &config.tcp {
            listeners.push(bind_tcp(*address).map_err(failed(Address::Tcp(*address)))?);
        }
        let watch = |errno: Errno| DoorError::Watch(errno.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(watch)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK).map_err(watch)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(watch)?;
        let door = Door {
            host: Host { key: config.key, identity: config.identity },
            encrypt_tcp: config.encrypt_tcp,
            epoll,
            timer,
            alarm: None,
            bell: Arc::new(bell),
            listeners,
            accepting_again: None,
            pending: BTreeMap::new(),
            next_number: FIRST_VISITOR,
            refused: Refused::default(),
        };
        let add = |fd: BorrowedFd<'_>, data| epoll::add(&door.epoll, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN);
        add(door.timer.as_fd(), TIMER).map_err(watch)?;
        add(door.bell.as_fd(), BELL).map_err(watch)?;
        for (index, listener) in door.listeners.iter().enumerate() {
            add(listener.fd.as_fd(), FIRST_LISTENER + index as u64).map_err(watch)?;
        }
        Ok(door)
    }

    /// The abstract Unix name it listens at.
    pub fn unix_name(&self) -> Option<&str> {
        self.listeners.iter().find_map(|listener| match &listener.address {
            Address::Unix(name) => Some(name.as_str()),
            Address::Tcp(_) => None,
        })
    }

    /// The TCP addresses it listens at, with their real ports.
    pub fn tcp_addresses(&self) -> Vec<SocketAddr> {
        let tcp = |listener: &Listener| match listener.address {
            Address::Tcp(address) => Some(address),
            Address::Unix(_) => None,
        };
        self.listeners.iter().filter_map(tcp).collect()
    }

    /// All of them.
    pub fn addresses(&self) -> Vec<Address> {
        self.listeners.iter().map(|listener| listener.address.clone()).collect()
    }

    /// Ends a [`step`](Door::step) from another thread.
    pub fn waker(&self) -> DoorWaker {
        DoorWaker(Arc::clone(&self.bell))
    }

    /// Visitors that have not finished their greeting.
    pub fn undecided(&self) -> usize {
        self.pending.len()
    }

    /// Serves visitors until something is to be told; returns nothing when the deadline, a wake-up or an interrupt comes first.
    pub fn step(&mut self, deadline: Deadline) -> Vec<DoorEvent> {
        const LONGEST: Duration = Duration::from_secs(3600);
        let mut events = Vec::new();
        loop {
            self.set_alarm();
            let slice = deadline.slice(LONGEST);
            let timeout = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
            let nothing = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(TIMER) };
            let mut ready = [nothing; 64];
            let count = epoll::wait(&self.epoll, &mut ready[..], Some(&timeout)).unwrap_or(0); // EINTR: the slice ends early
            let mut woken = false;
            for event in &ready[..count] {
                match { event.data }.u64() {
                    TIMER => self.quiet(&self.timer),
                    BELL => {
                        self.quiet(&self.bell);
                        woken = true;
                    }
                    visitor if visitor >= FIRST_VISITOR => self.serve(visitor, &mut events),
                    listener => self.accept((listener - FIRST_LISTENER) as usize, &mut events),
                }
            }
            self.expire(&mut events);
            if !events.is_empty() || woken || deadline.interrupted() || deadline.expired() {
                return events;
            }
        }
    }

    /// Takes what a timer or a bell has counted, so that it can fire again.
    fn quiet(&self, counter: &OwnedFd) {
        let _ = rustix::io::read(counter, &mut [0; 8]);
    }

    /// Takes in who waits at a listener, a few at a time so that those already inside are served too.
    fn accept(&mut self, index: usize, events: &mut Vec<DoorEvent>) {
        for _ in 0..32 {
            let listener = &self.listeners[index];
            let (fd, from) = match acceptfrom_with(&listener.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => {
                    // Out of descriptors, most likely. The listener stays readable, so look away for a moment.
                    self.look_away(errno, events);
                    return;
                }
            };
            let (transport, source, peer) = match listener.address {
                Address::Unix(_) => match sockopt::socket_peercred(&fd) {
                    Ok(who) => {
                        let pid = who.pid.as_raw_nonzero();
                        (TransportKind::Unix, format!("user {}", who.uid.as_raw()), format!("pid {pid} on this host"))
                    }
                    Err(_) => (TransportKind::Unix, "this host".to_owned(), "a process on this host".to_owned()),
                },
                Address::Tcp(_) => {
                    let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) else {
                        continue;
                    };
                    // A caller over IPv4 at a socket for both families looks like ::ffff:10.0.0.7.
                    let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                    if tcp::prepare(&fd).is_err() {
                        continue; // it is gone already
                    }
                    (TransportKind::Tcp, from.ip().to_string(), Address::Tcp(from).to_string())
                }
            };
            self.admit(
                Pending {
                    fd,
                    transport,
                    source,
                    peer,
                    until: Instant::now() + PATIENCE,
                    visit: Visit::new(transport == TransportKind::Tcp, self.encrypt_tcp),
                },
                events,
            );
        }
    }

    fn admit(&mut self, visitor: Pending, events: &mut Vec<DoorEvent>) {
        if self.pending.len() >= WAITING_ROOM {
            let unproven = self.pending.iter().find(|(_, other)| !other.visit.has_proven_token());
            let oldest = unproven.or_else(|| self.pending.first_key_value()).map(|(number, _)| *number);
            if let Some(number) = oldest {
                self.send_away(number, Refusal::Evicted, events);
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        let data = epoll::EventData::new_u64(number);
        if let Err(errno) = epoll::add(&self.epoll, &visitor.fd, data, epoll::EventFlags::IN) {
            events.push(self.refused.note(visitor.source, Refusal::Exhausted(errno)));
            return;
        }
        self.pending.insert(number, visitor);
        self.serve(number, events); // its greeting has often arrived with it
    }

    /// Reads what a visitor sent, as long as something is there.
    fn serve(&mut self, number: u64, events: &mut Vec<DoorEvent>) {
        let mut descriptor = None;
        loop {
            let Some(visitor) = self.pending.get_mut(&number) else {
                return;
            };
            let mut buffer = [0; 512];
            let room = visitor.visit.wants().min(buffer.len());
            let read = if visitor.visit.wants_descriptor() {
                receive_descriptor(&visitor.fd, &mut buffer[..room], &mut descriptor)
            } else {
                recv(&visitor.fd, &mut buffer[..room], RecvFlags::DONTWAIT).map(|(read, _)| read)
            };
            let read = match read {
                Ok(0) => return self.send_away(number, Refusal::Left, events),
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => return self.send_away(number, Refusal::Left, events),
            };
            if visitor.visit.wants_descriptor() && descriptor.is_none() {
                return self.send_away(number, Refusal::NoDescriptor, events);
            }
            match visitor.visit.take(&buffer[..read], &self.host) {
                Step::Wait => {}
                Step::Answer(answer) => {
                    // An empty socket buffer takes an answer whole; a visitor whose buffer is full is none of ours.
                    if tell(&visitor.fd, &answer) != Ok(answer.len()) {
                        return self.send_away(number, Refusal::Left, events);
                    }
                }
                Step::Refuse(why, answer) => {
                    if let Some(answer) = answer {
                        let _ = tell(&visitor.fd, &answer);
                        let _ = shutdown(&visitor.fd, Shutdown::Write);
                        // Unread bytes would turn the close into a reset, which can overtake the answer.
                        let _ = recv(&visitor.fd, &mut buffer[..], RecvFlags::DONTWAIT);
                    }
                    return self.send_away(number, why, events);
                }
                Step::Done { hello, keys } => {
                    return self.hand_over(number, hello, keys, descriptor, events);
                }
            }
        }
    }

    fn hand_over(&mut self, number: u64, hello: Vec<u8>, keys: Option<Keys>, descriptor: Option<OwnedFd>, events: &mut Vec<DoorEvent>) {
        let Some(visitor) = self.pending.remove(&number) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &visitor.fd);
        // The hello was the visitor's first sealed message; this side has sent none.
        let connection = Connection::new(visitor.fd, visitor.transport, visitor.peer, keys, 0, 1);
        events.push(DoorEvent::Visitor { hello, fd: descriptor, connection });
    }

    fn send_away(&mut self, number: u64, why: Refusal, events: &mut Vec<DoorEvent>) {
        let Some(visitor) = self.pending.remove(&number) else {
            return;
        };
        let _ = epoll::delete(&self.epoll, &visitor.fd);
        if why == Refusal::Left && visitor.visit.has_proven_token() {
            return; // a member that found a better way to us
        }
        events.push(self.refused.note(visitor.source, why));
    }

    fn expire(&mut self, events: &mut Vec<DoorEvent>) {
        let now = Instant::now();
        while let Some((number, oldest)) = self.pending.first_key_value() {
            if oldest.until > now {
                break;
            }
            self.send_away(*number, Refusal::TooSlow { allowed: PATIENCE }, events);
        }
        if self.accepting_again.is_some_and(|again| again <= now) {
            self.accepting_again = None;
            self.listen_for(epoll::EventFlags::IN);
        }
    }

    fn look_away(&mut self, errno: Errno, events: &mut Vec<DoorEvent>) {
        events.push(self.refused.note("everywhere".to_owned(), Refusal::Exhausted(errno)));
        self.accepting_again = Some(Instant::now() + BREATHER);
        self.listen_for(epoll::EventFlags::empty());
    }

    fn listen_for(&self, flags: epoll::EventFlags) {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(FIRST_LISTENER + index as u64);
            let _ = epoll::modify(&self.epoll, &listener.fd, data, flags);
        }
    }

    /// Makes the door's descriptor readable when the next visitor's time is over, for owners that watch it.
    fn set_alarm(&mut self) {
        let oldest = self.pending.first_key_value().map(|(_, visitor)| visitor.until);
        let alarm = oldest.into_iter().chain(self.accepting_again).min();
        if alarm == self.alarm {
            return;
        }
        self.alarm = alarm;
        let wait = alarm.map_or(Duration::ZERO, |alarm| {
            alarm.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1)) // zero would disarm it
        });
        let it_value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval, it_value });
    }
}

impl AsFd for Door {
    /// Readable when [`Door::step`] has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("addresses", &self.addresses()).field("undecided", &self.undecided()).finish_non_exhaustive()
    }
}

fn tell(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    send(fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// Reads a byte that should carry a descriptor; of several the first is kept and the kernel closes the rest.
fn receive_descriptor(socket: &OwnedFd, buffer: &mut [u8], descriptor: &mut Option<OwnedFd>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            let first = descriptors.into_iter().reduce(|first, _| first);
            *descriptor = descriptor.take().or(first);
        }
    }
    Ok(received.bytes)
}
