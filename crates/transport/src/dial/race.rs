//! All addresses of one call, tried at the same time.
//!
//! ```text
//!   Resting ──▶ Connecting ──▶ Asking (greeting sent) ──▶ the right identity answers ──▶ hello ──▶ Connection
//!      ▲             │             │                                                 the others are dropped
//!      └── retry ────┴─────────────┴──▶ Lost (another protocol, version, token or member: trying again will not help)
//! ```

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, getpeername, getsockname, ipproto, recv, send, sendmsg,
    socket_with, sockopt,
};

use super::{DialConfig, DialError, DialFailure, Tried};
use crate::door::visit::DESCRIPTOR_FOLLOWS;
use crate::noise::{ANSWER, Answered, Caller, GREETING, MAX_HELLO, PREAMBLE, TAG};
use crate::stream::Wait;
use crate::{Address, Connection, Deadline, LinkError, TransportKind, tcp};

/// The first and the longest pause between two attempts at one address.
const SHORTEST_REST: Duration = Duration::from_millis(2);
const LONGEST_REST: Duration = Duration::from_millis(100);

/// All addresses of one call.
pub(super) struct Race<'a> {
    config: &'a DialConfig,
    hello: &'a [u8],
    fd: Option<BorrowedFd<'a>>,
    retry: bool,
    runners: Vec<Runner<'a>>,
}

/// One address in the race.
struct Runner<'a> {
    address: &'a Address,
    state: Running,
    attempts: u32,
    rest: Duration,
    failure: DialFailure,
}

enum Running {
    Resting { until: Instant },
    Connecting { fd: OwnedFd },
    Asking(Box<Asking>),
    Lost,
}

/// A greeting was sent, and so much of the answer has arrived.
struct Asking {
    fd: OwnedFd,
    caller: Caller,
    answer: [u8; ANSWER],
    got: usize,
}

impl<'a> Race<'a> {
    pub(super) fn new(
        addresses: &'a [Address],
        config: &'a DialConfig,
        hello: &'a [u8],
        fd: Option<BorrowedFd<'a>>,
        retry: bool,
    ) -> Result<Race<'a>, DialError> {
        if hello.len() > MAX_HELLO {
            return Err(DialError::HelloTooLong { len: hello.len() });
        }
        let now = Instant::now();
        let runner = |address: &'a Address| {
            let unsuitable = fd.is_some() && matches!(address, Address::Tcp(_));
            let state = if unsuitable {
                Running::Lost
            } else {
                Running::Resting { until: now }
            };
            let failure = if unsuitable {
                DialFailure::NoDescriptors
            } else {
                DialFailure::Silent
            };
            Runner {
                address,
                state,
                attempts: 0,
                rest: SHORTEST_REST,
                failure,
            }
        };
        Ok(Race {
            config,
            hello,
            fd,
            retry,
            runners: addresses.iter().map(runner).collect(),
        })
    }

    pub(super) fn run(mut self, deadline: Deadline) -> Result<Connection, DialError> {
        let began = Instant::now();
        loop {
            for index in 0..self.runners.len() {
                if let Some(connection) = self.advance(index, deadline)? {
                    return Ok(connection);
                }
            }
            if deadline.interrupted() {
                return Err(DialError::Interrupted);
            }
            if deadline.expired()
                || self
                    .runners
                    .iter()
                    .all(|runner| matches!(runner.state, Running::Lost))
            {
                return Err(self.unreached(began));
            }
            self.wait(deadline);
        }
    }

    /// Sleeps until a socket is ready, a rest is over, or the deadline's slice ends.
    fn wait(&self, deadline: Deadline) {
        const LONGEST: Duration = Duration::from_secs(3600);
        let now = Instant::now();
        let mut slice = deadline.slice(LONGEST);
        let mut watched = Vec::with_capacity(self.runners.len());
        for runner in &self.runners {
            match &runner.state {
                Running::Resting { until } => {
                    slice = slice.min(until.saturating_duration_since(now))
                }
                Running::Connecting { fd } => watched.push(PollFd::new(fd, PollFlags::OUT)),
                Running::Asking(asking) => watched.push(PollFd::new(&asking.fd, PollFlags::IN)),
                Running::Lost => {}
            }
        }
        let timeout = Timespec {
            tv_sec: slice.as_secs() as i64,
            tv_nsec: i64::from(slice.subsec_nanos()),
        };
        let _ = poll(&mut watched, Some(&timeout)); // whatever it says, every runner looks for itself
    }

    /// Takes a runner as far as it comes without waiting.
    fn advance(
        &mut self,
        index: usize,
        deadline: Deadline,
    ) -> Result<Option<Connection>, DialError> {
        let runner = &mut self.runners[index];
        let outcome = match std::mem::replace(&mut runner.state, Running::Lost) {
            Running::Lost => return Ok(None),
            Running::Resting { until } if until > Instant::now() => {
                runner.state = Running::Resting { until };
                return Ok(None);
            }
            Running::Resting { .. } => {
                runner.attempts += 1;
                runner.connect(self.config)
            }
            Running::Connecting { fd } => runner.connected(fd, self.config),
            Running::Asking(asking) => match asking.hear() {
                Ok(Heard::More(asking)) => Ok(Running::Asking(asking)),
                Ok(Heard::Answer(fd, answered)) => {
                    return self.finish(index, fd, *answered, deadline);
                }
                Err(failure) => Err(failure),
            },
        };
        match outcome {
            Ok(state) => runner.state = state,
            Err(failure) => runner.fail(failure, self.retry),
        }
        Ok(None)
    }

    /// Says hello to a door that answered, if it is the right one.
    fn finish(
        &mut self,
        index: usize,
        fd: OwnedFd,
        answered: Answered,
        deadline: Deadline,
    ) -> Result<Option<Connection>, DialError> {
        let runner = &mut self.runners[index];
        if self
            .config
            .expect_identity
            .is_some_and(|expected| expected != answered.identity)
        {
            runner.fail(
                DialFailure::OtherMember {
                    found: answered.identity,
                },
                self.retry,
            );
            return Ok(None);
        }
        match say_hello(&fd, &answered, self.hello, self.fd, deadline) {
            Ok(()) => {
                let transport = match runner.address {
                    Address::Unix(_) => TransportKind::Unix,
                    Address::Tcp(_) => TransportKind::Tcp,
                };
                let keys = answered.encrypt.then_some(answered.keys);
                // The hello was this side's first sealed message; the door has sent none.
                Ok(Some(Connection::new(
                    fd,
                    transport,
                    runner.address.to_string(),
                    keys,
                    1,
                    0,
                )))
            }
            Err(LinkError::Interrupted) => Err(DialError::Interrupted),
            Err(LinkError::Timeout { .. }) => {
                runner.fail(DialFailure::Unanswered, self.retry);
                Ok(None)
            }
            Err(_) => {
                runner.fail(DialFailure::HungUp, self.retry);
                Ok(None)
            }
        }
    }

    fn unreached(self, began: Instant) -> DialError {
        let tried = self.runners.into_iter().map(|runner| Tried {
            address: runner.address.clone(),
            failure: match runner.state {
                Running::Connecting { .. } => DialFailure::Silent,
                Running::Asking(_) => DialFailure::Unanswered,
                Running::Resting { .. } | Running::Lost => runner.failure,
            },
            attempts: runner.attempts,
        });
        DialError::Unreached {
            tried: tried.collect(),
            waited: began.elapsed(),
        }
    }
}

impl Runner<'_> {
    fn fail(&mut self, failure: DialFailure, retry: bool) {
        let again = retry && failure.may_pass();
        self.failure = failure;
        if again {
            self.state = Running::Resting {
                until: Instant::now() + self.rest,
            };
            self.rest = (self.rest * 2).min(LONGEST_REST);
        }
    }

    fn connect(&mut self, config: &DialConfig) -> Result<Running, DialFailure> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (fd, connected) = match self.address {
            Address::Unix(name) => {
                let address = SocketAddrUnix::new_abstract_name(name.as_bytes())
                    .map_err(|_| DialFailure::BadAddress)?;
                let fd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
                    .map_err(DialFailure::Os)?;
                let connected = connect(&fd, &address);
                (fd, connected)
            }
            Address::Tcp(address) => {
                let family = if address.is_ipv4() {
                    AddressFamily::INET
                } else {
                    AddressFamily::INET6
                };
                let fd = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
                    .map_err(DialFailure::Os)?;
                let connected = connect(&fd, address);
                (fd, connected)
            }
        };
        match connected {
            Ok(()) => self.ask(fd, config),
            Err(Errno::INPROGRESS | Errno::INTR) => Ok(Running::Connecting { fd }),
            // The listener's backlog is full: it is there, but busy.
            Err(Errno::AGAIN) => Ok(Running::Resting {
                until: Instant::now() + self.rest,
            }),
            Err(errno) => Err(DialFailure::from_errno(errno)),
        }
    }

    fn connected(&mut self, fd: OwnedFd, config: &DialConfig) -> Result<Running, DialFailure> {
        match sockopt::socket_error(&fd) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => return Err(DialFailure::from_errno(errno)),
        }
        match getpeername(&fd) {
            Ok(Some(_)) => self.ask(fd, config),
            _ => Ok(Running::Connecting { fd }),
        }
    }

    fn ask(&mut self, fd: OwnedFd, config: &DialConfig) -> Result<Running, DialFailure> {
        let tcp = matches!(self.address, Address::Tcp(_));
        if tcp {
            if is_own_mirror(&fd) {
                return Err(DialFailure::Refused);
            }
            tcp::prepare(&fd).map_err(|_| DialFailure::HungUp)?;
        }
        let (caller, greeting) = Caller::greet(&config.key, tcp && config.encrypt);
        match send(&fd, &greeting, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(GREETING) => Ok(Running::Asking(Box::new(Asking {
                fd,
                caller,
                answer: [0; ANSWER],
                got: 0,
            }))),
            Ok(_) => Err(DialFailure::HungUp),
            Err(errno) => Err(DialFailure::from_errno(errno)),
        }
    }
}

/// A port of the ephemeral range can connect to itself when nobody listens: TCP calls that a simultaneous open.
fn is_own_mirror(fd: &OwnedFd) -> bool {
    match (getsockname(fd), getpeername(fd)) {
        (Ok(own), Ok(Some(peer))) => own == peer,
        _ => false,
    }
}

enum Heard {
    More(Box<Asking>),
    Answer(OwnedFd, Box<Answered>),
}

impl Asking {
    /// Reads what has arrived of the answer, never more than it has.
    fn hear(mut self: Box<Self>) -> Result<Heard, DialFailure> {
        while self.got < ANSWER {
            match recv(&self.fd, &mut self.answer[self.got..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(DialFailure::HungUp),
                Ok((read, _)) => self.got += read,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(Heard::More(self)),
                Err(errno) => return Err(DialFailure::from_errno(errno)),
            }
            if let Some(status) = self.answer[..self.got].first_chunk::<PREAMBLE>() {
                Caller::status(status)?;
            }
        }
        let Asking {
            fd, caller, answer, ..
        } = *self;
        Ok(Heard::Answer(fd, Box::new(caller.hear(&answer)?)))
    }
}

fn say_hello(
    socket: &OwnedFd,
    answered: &Answered,
    hello: &[u8],
    fd: Option<BorrowedFd<'_>>,
    deadline: Deadline,
) -> Result<(), LinkError> {
    let mut plain = vec![if fd.is_some() { DESCRIPTOR_FOLLOWS } else { 0 }];
    plain.extend_from_slice(hello);
    let mut message = vec![0; 2 + plain.len() + TAG];
    let sealed = answered.keys.seal(0, &plain, &mut message[2..]);
    message[..2].copy_from_slice(&(sealed as u16).to_le_bytes());

    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let mut wait = Wait::until(deadline);
    let mut rest = &message[..];
    while !rest.is_empty() {
        match send(socket, rest, flags) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait.ready(socket, PollFlags::OUT)?,
            Err(errno) => return Err(LinkError::from_errno(errno)),
        }
    }
    let Some(fd) = fd else { return Ok(()) };
    let fds = [fd.as_fd()];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        match sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait.ready(socket, PollFlags::OUT)?,
            Err(errno) => return Err(LinkError::from_errno(errno)),
        }
    }
}
