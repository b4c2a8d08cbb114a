//! Makes links between members on demand, one per pair and lane.
//!
//! A *lane* is a purpose: the barrier's traffic never waits behind a table's. The higher rank dials, the lower one
//! waits for the call, so that both may ask for the link at the same time and get the same one. Inside a host the
//! dialer makes the shared memory and passes its descriptor with the first word; between hosts all addresses of the
//! other are tried at once and the first that answers as the right member wins.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit, setrlimit};
use syncline_shm::duplex::Duplex;
use syncline_shm::wait::Deadline;
use syncline_transport::{Address, Connection, DialConfig, DialError, JobKey, Link, Severer, dial_any_until};
use syncline_wire::Fingerprint;
use syncline_wire::message::{Hello, MemberInfo, Purpose};

use crate::settings::TransportChoice;

/// A purpose that has links of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(pub u32);

impl Lane {
    /// Measurements.
    pub const BENCH: Lane = Lane(2);
    /// The first lane that is free for others.
    pub const FIRST_FREE: Lane = Lane(16);
    /// From here on lanes are named by what they carry.
    const NAMED: u32 = 1 << 31;

    /// The lane of one operation of one group, which its members derive alike.
    pub fn of(operation: Fingerprint) -> Lane {
        let name = operation.0;
        Lane(Lane::NAMED | u32::from_le_bytes([name[0], name[1], name[2], name[3]]))
    }
}

/// Calls that nobody here has asked for yet. A member makes a few per neighbour; more is a mistake or mischief.
const MOST_UNANSWERED: usize = 65_536;

/// From so many links on, the usual limit of 1024 descriptors may be reached.
const MANY: usize = 256;

/// Tables have links of their own, and there may be hundreds of tables: what the administrator allows is asked for.
fn allow_more_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!("the limit of descriptors stays as it is: {error}");
        }
    }
}

/// Why a link could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("no call came within {0:?}")]
    NoCall(Duration),
    #[error("interrupted")]
    Interrupted,
    #[error("the other member is gone")]
    Gone,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("{0}")]
    Other(String),
}

/// The links of one process, made and awaited.
pub(crate) struct Switchboard {
    key: JobKey,
    epoch: u32,
    me: u32,
    world: u32,
    instance: [u8; 16],
    choice: TransportChoice,
    encrypt: bool,
    calls: Mutex<HashMap<(u32, Lane), Link>>,
    news: Condvar,
    severers: Mutex<Vec<(u32, Severer)>>,
}

impl Switchboard {
    pub(crate) fn new(key: JobKey, epoch: u32, me: u32, world: u32, instance: [u8; 16], choice: TransportChoice, encrypt: bool) -> Self {
        Switchboard {
            key,
            epoch,
            me,
            world,
            instance,
            choice,
            encrypt,
            calls: Mutex::default(),
            news: Condvar::new(),
            severers: Mutex::default(),
        }
    }

    /// The one link between this process and `peer` on `lane`; both must ask for it. `gone` is asked while waiting.
    pub(crate) fn link(
        &self,
        peer: &MemberInfo,
        local: bool,
        lane: Lane,
        deadline: Deadline,
        gone: &dyn Fn() -> bool,
    ) -> Result<Link, CallError> {
        let link = if self.me > peer.rank {
            self.call(peer, local, lane, deadline, gone)?
        } else {
            self.await_call(peer.rank, lane, deadline, gone)?
        };
        let mut severers = self.severers.lock().expect("no panic while held");
        severers.retain(|(_, severer)| !severer.is_last());
        severers.push((peer.rank, link.severer()));
        if severers.len() == MANY {
            allow_more_descriptors();
        }
        Ok(link)
    }

    /// Takes in a call that came through the door.
    pub(crate) fn called(&self, hello: &Hello, lane: u32, fd: Option<OwnedFd>, connection: Connection) -> Result<(), String> {
        let Some(rank) = hello.rank.filter(|rank| *rank < self.world && *rank != self.me) else {
            return Err(format!("it says it is {:?} of {}, and that is nobody", hello.rank, self.world));
        };
        if hello.epoch != self.epoch {
            return Err(format!("rank {rank} calls from start number {} of the job, this is number {}", hello.epoch, self.epoch));
        }
        let link = match fd {
            Some(fd) => {
                let duplex = Duplex::open(fd).map_err(|error| format!("rank {rank} passed shared memory that cannot be used: {error}"))?;
                connection.into_shm_link(duplex, self.epoch, self.me)
            }
            None => connection.into_stream_link(self.epoch, self.me),
        };
        let mut calls = self.calls.lock().expect("no panic while held");
        if calls.len() >= MOST_UNANSWERED && !calls.contains_key(&(rank, Lane(lane))) {
            return Err(format!("{MOST_UNANSWERED} calls wait unanswered already"));
        }
        calls.insert((rank, Lane(lane)), link);
        self.news.notify_all();
        Ok(())
    }

    /// Ends all links with `rank`: every wait on one of them returns.
    pub(crate) fn sever(&self, rank: u32) {
        let severers = self.severers.lock().expect("no panic while held");
        severers.iter().filter(|(peer, _)| *peer == rank).for_each(|(_, severer)| severer.sever());
        drop(severers);
        self.news.notify_all();
    }

    /// A push of the host's board to `peer`.
    pub(crate) fn pass_board(
        &self,
        peer: &MemberInfo,
        fd: BorrowedFd<'_>,
        deadline: Deadline,
        gone: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        let address = [Address::Unix(peer.unix_name.clone())];
        self.dial(peer, &address, Purpose::Board, Some(fd), deadline, gone).map(drop)
    }

    fn call(&self, peer: &MemberInfo, local: bool, lane: Lane, deadline: Deadline, gone: &dyn Fn() -> bool) -> Result<Link, CallError> {
        let unix = [Address::Unix(peer.unix_name.clone())];
        let tcp: Vec<Address> = peer.addresses.iter().copied().map(Address::Tcp).collect();
        let purpose = Purpose::Lane(lane.0);
        match self.choice {
            TransportChoice::Auto | TransportChoice::Shm if local => {
                let (duplex, fd) = Duplex::create()
                    .map_err(|error| CallError::Other(format!("shared memory for the link with rank {}: {error}", peer.rank)))?;
                let connection = self.dial(peer, &unix, purpose, Some(fd.as_fd()), deadline, gone)?;
                Ok(connection.into_shm_link(duplex, self.epoch, self.me))
            }
            TransportChoice::Unix if local => {
                Ok(self.dial(peer, &unix, purpose, None, deadline, gone)?.into_stream_link(self.epoch, self.me))
            }
            TransportChoice::Shm | TransportChoice::Unix => Err(CallError::Other(format!(
                "SYNCLINE_TRANSPORT={} cannot reach rank {} on another host ({}); use auto or tcp",
                self.choice, peer.rank, peer.host_name
            ))),
            TransportChoice::Auto | TransportChoice::Tcp => {
                Ok(self.dial(peer, &tcp, purpose, None, deadline, gone)?.into_stream_link(self.epoch, self.me))
            }
        }
    }

    fn dial(
        &self,
        peer: &MemberInfo,
        to: &[Address],
        purpose: Purpose,
        fd: Option<BorrowedFd<'_>>,
        deadline: Deadline,
        gone: &dyn Fn() -> bool,
    ) -> Result<Connection, CallError> {
        let hello = Hello { purpose, rank: Some(self.me), epoch: self.epoch, instance: self.instance };
        let hello = hello.encode().map_err(|error| CallError::Other(error.to_string()))?;
        let config = DialConfig { key: self.key.clone(), expect_identity: Some(peer.instance), encrypt: self.encrypt };
        // The other door may be crowded for a moment, so a failed attempt is repeated; but not at a dead member's door.
        const ATTEMPT: Duration = Duration::from_millis(250);
        loop {
            match dial_any_until(to, &config, &hello, fd, deadline.within(ATTEMPT)) {
                Ok(connection) => return Ok(connection),
                Err(DialError::Interrupted) => return Err(CallError::Interrupted),
                Err(_) if gone() => return Err(CallError::Gone),
                Err(error) if deadline.expired() || error.is_about_the_token() => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    fn await_call(&self, from: u32, lane: Lane, deadline: Deadline, gone: &dyn Fn() -> bool) -> Result<Link, CallError> {
        const LOOK: Duration = Duration::from_millis(100);
        let start = Instant::now();
        let mut calls = self.calls.lock().expect("no panic while held");
        loop {
            if let Some(link) = calls.remove(&(from, lane)) {
                return Ok(link);
            }
            if gone() {
                return Err(CallError::Gone);
            }
            if deadline.expired() {
                return Err(CallError::NoCall(start.elapsed()));
            }
            if deadline.interrupted() {
                return Err(CallError::Interrupted);
            }
            calls = self.news.wait_timeout(calls, deadline.slice(LOOK)).expect("no panic while held").0;
        }
    }
}
