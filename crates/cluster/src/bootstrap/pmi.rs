//! Meeting through the launcher's PMI-1 server: text lines on a descriptor that the process inherited (`PMI_FD`).
//!
//! ```text
//! rank 0                                        the others
//! cmd=init …            cmd=get_maxes  cmd=get_my_kvsname
//! cmd=put key=syncline-0 value=<hex>            ·
//! cmd=barrier_in ─────────────────────────────► cmd=barrier_in      all ranks, or nobody leaves
//! ·                                             cmd=get key=syncline-0
//! cmd=finalize                                  cmd=finalize
//! ```
//! What the exchange may not break is a program that uses MPI as well, for MPI talks over the same descriptor:
//! - Hydra answers a second `init`, so either may come first.
//! - After `finalize` it answers nothing any more: a later `MPI_Init` fails. Without `finalize`, the first rank to exit counts as crashed and
//!   Hydra kills its neighbours. So [`Pmi::close`] finalizes, unless an MPI library is loaded: then `MPI_Finalize` will.
//! - A program that loads MPI only after joining finds PMI finalized: it should load MPI first, or set `SYNCLINE_RENDEZVOUS`.
//! - One exchange for each process. Jobs of one host never come here (see [`super::hydra`]).
//!
//! Answers are input: lines are capped, every read has a deadline, and after a deadline has passed the connection is
//! spoiled, because the late answer would be taken for the next one.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

use super::{Invitation, InvitationError, pmi_mapping};
use syncline_shm::wait::Deadline;

/// Longer than any line of a server that keeps to its own `vallen_max` of 1024.
const LONGEST_LINE: usize = 8 << 10;

/// The longest sleep between two looks at the deadline.
const SLICE: Duration = Duration::from_millis(200);

/// Why an exchange through PMI failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PmiError {
    /// The inherited descriptor cannot be had.
    #[error("PMI_FD={fd} cannot be used{hint}")]
    Descriptor {
        /// Its number.
        fd: i32,
        /// What may be the reason.
        hint: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// The connection failed.
    #[error("PMI {command}: the connection to the launcher failed")]
    Io {
        /// What was asked.
        command: String,
        /// What the system answered.
        source: io::Error,
    },
    /// The launcher closed the connection.
    #[error("PMI {command}: the launcher closed the connection; PMI serves a process once, was it used and finalized before?")]
    Closed {
        /// What was asked.
        command: String,
    },
    /// The answer is not the expected one.
    #[error("PMI {command}: the launcher answered {answer:?}")]
    Refused {
        /// What was asked.
        command: String,
        /// What came back.
        answer: String,
    },
    /// The answer has no end.
    #[error("PMI {command}: an answer of more than {LONGEST_LINE} bytes")]
    TooLong {
        /// What was asked.
        command: String,
    },
    /// A key or value that PMI cannot carry.
    #[error("PMI cannot carry {what} of {length} bytes, only {limit}")]
    DoesNotFit {
        /// What does not fit.
        what: &'static str,
        /// How long it is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// No answer in time.
    #[error("PMI {command}: no answer within {waited:.1?}; a barrier waits for every rank, have all been started?")]
    Timeout {
        /// What was asked.
        command: String,
        /// How long this process waited.
        waited: Duration,
    },
    /// The user interrupted the wait.
    #[error("PMI {command}: interrupted")]
    Interrupted {
        /// What was asked.
        command: String,
    },
    /// An earlier question was given up, so answers no longer belong to their questions.
    #[error("PMI {command}: an earlier call was given up, the connection cannot be used any more")]
    Spoiled {
        /// What was asked.
        command: String,
    },
    /// What rank 0 put is damaged.
    #[error("what rank 0 published through PMI is {0}")]
    Invitation(#[from] InvitationError),
    /// Rank 0 put nothing.
    #[error("rank 0 published nothing through PMI: does it run the same program and the same version?")]
    NothingPublished,
}

/// A connection to the launcher's PMI-1 server.
#[derive(Debug)]
pub struct Pmi {
    socket: OwnedFd,
    received: Vec<u8>,
    kvsname: String,
    longest_value: usize,
    spoiled: bool,
}

impl Pmi {
    /// Speaks to the server behind the inherited descriptor `fd`, which stays open for others.
    pub fn open(fd: i32, deadline: Deadline) -> Result<Self, PmiError> {
        Self::over(inherited(fd)?, deadline)
    }

    /// Speaks to the server behind a socket.
    pub fn over(socket: OwnedFd, deadline: Deadline) -> Result<Self, PmiError> {
        let mut pmi = Pmi { socket, received: Vec::new(), kvsname: String::new(), longest_value: 0, spoiled: false };
        pmi.ask("init", "cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline)?;
        let maxes = pmi.ask("get_maxes", "cmd=get_maxes", "maxes", deadline)?;
        pmi.longest_value = field(&maxes, "vallen_max").and_then(|value| value.parse().ok()).unwrap_or(256);
        let named = pmi.ask("get_my_kvsname", "cmd=get_my_kvsname", "my_kvsname", deadline)?;
        match field(&named, "kvsname") {
            Some(name) => pmi.kvsname = name.to_owned(),
            None => return Err(PmiError::Refused { command: "get_my_kvsname".into(), answer: named }),
        }
        Ok(pmi)
    }

    /// The name of the job's key-value space, the same on every rank and on no other job.
    pub fn kvsname(&self) -> &str {
        &self.kvsname
    }

    /// Stores a value that every rank can get after the next barrier.
    pub fn put(&mut self, key: &str, value: &str, deadline: Deadline) -> Result<(), PmiError> {
        for (what, text, limit) in [("a key", key, 63), ("a value", value, self.longest_value.saturating_sub(1))] {
            if text.is_empty() || text.len() > limit || text.contains(|c: char| c.is_whitespace() || c == '=') {
                return Err(PmiError::DoesNotFit { what, length: text.len(), limit });
            }
        }
        let question = format!("cmd=put kvsname={} key={key} value={value}", self.kvsname);
        self.ask(&format!("put {key}"), &question, "put_result", deadline).map(drop)
    }

    /// A value that some rank stored before the last barrier.
    pub fn get(&mut self, key: &str, deadline: Deadline) -> Result<Option<String>, PmiError> {
        let command = format!("get {key}");
        let question = format!("cmd=get kvsname={} key={key}", self.kvsname);
        let answer = match self.ask(&command, &question, "get_result", deadline) {
            // Hydra: rc=-1 msg=key_x_not_found; Slurm: rc=-1 without a word.
            Err(PmiError::Refused { answer, .. }) if field(&answer, "cmd") == Some("get_result") => return Ok(None),
            other => other?,
        };
        match answer.split_once(" value=") {
            Some((_, value)) => Ok(Some(value.trim_end().to_owned())),
            None => Err(PmiError::Refused { command, answer }),
        }
    }

    /// Waits until every rank of the job has come here.
    pub fn barrier(&mut self, deadline: Deadline) -> Result<(), PmiError> {
        self.ask("barrier", "cmd=barrier_in", "barrier_out", deadline).map(drop)
    }

    /// The node of each rank as the launcher placed them; `None` when it does not say.
    pub fn process_mapping(&mut self, deadline: Deadline) -> Result<Option<Vec<u32>>, PmiError> {
        Ok(self.get("PMI_process_mapping", deadline)?.and_then(|text| pmi_mapping::node_of_each_rank(&text)))
    }

    /// The whole meeting: rank 0 passes its invitation, the others `None`; all leave with rank 0's. A barrier of all ranks.
    pub fn exchange(mut self, mine: Option<&Invitation>, deadline: Deadline) -> Result<Invitation, PmiError> {
        if let Some(invitation) = mine {
            self.publish(invitation, deadline)?;
        }
        self.barrier(deadline)?;
        let invitation = match mine {
            Some(invitation) => invitation.clone(),
            None => self.fetch(deadline)?,
        };
        self.close(deadline)?;
        Ok(invitation)
    }

    fn publish(&mut self, invitation: &Invitation, deadline: Deadline) -> Result<(), PmiError> {
        // Values may hold neither spaces nor line breaks and have a greatest length, so the text travels as hex in pieces.
        let text = invitation.to_text();
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let piece = self.longest_value.saturating_sub(1).max(2) & !1;
        let pieces = hex.len().div_ceil(piece);
        self.put("syncline-pieces", &pieces.to_string(), deadline)?;
        for number in 0..pieces {
            let end = hex.len().min((number + 1) * piece);
            self.put(&format!("syncline-{number}"), &hex[number * piece..end], deadline)?;
        }
        Ok(())
    }

    fn fetch(&mut self, deadline: Deadline) -> Result<Invitation, PmiError> {
        let pieces = self.get("syncline-pieces", deadline)?.ok_or(PmiError::NothingPublished)?;
        let damaged = |problem| PmiError::Invitation(InvitationError { problem, line: 1 });
        let pieces: usize = pieces.parse().map_err(|_| damaged("no number of pieces"))?;
        let mut hex = String::new();
        for number in 0..pieces {
            hex += &self.get(&format!("syncline-{number}"), deadline)?.ok_or(damaged("a piece is missing"))?;
            if hex.len() > 2 * Invitation::LONGEST {
                return Err(damaged("too long"));
            }
        }
        let bytes: Option<Vec<u8>> =
            hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).ok_or(damaged("not hex"))?;
        Ok(Invitation::from_text(&text)?)
    }

    /// Ends the conversation so that this process may exit without being taken for a crash.
    ///
    /// When an MPI library is loaded the conversation stays open: it is that library's to end.
    pub fn close(mut self, deadline: Deadline) -> Result<(), PmiError> {
        if mpi_is_loaded() {
            return Ok(());
        }
        self.ask("finalize", "cmd=finalize", "finalize_ack", deadline).map(drop)
    }

    /// One question, one answer. `command` names it in errors; values may be secret.
    fn ask(&mut self, command: &str, question: &str, expected: &str, deadline: Deadline) -> Result<String, PmiError> {
        if self.spoiled {
            return Err(PmiError::Spoiled { command: command.to_owned() });
        }
        // Whatever goes wrong between question and answer leaves us not knowing whose answer comes next.
        self.spoiled = true;
        self.send(command, format!("{question}\n").as_bytes(), deadline)?;
        let answer = self.receive_line(command, deadline)?;
        self.spoiled = false;
        let good = field(&answer, "cmd") == Some(expected) && field(&answer, "rc").is_none_or(|code| code == "0");
        if good { Ok(answer) } else { Err(PmiError::Refused { command: command.to_owned(), answer }) }
    }

    fn send(&self, command: &str, mut bytes: &[u8], deadline: Deadline) -> Result<(), PmiError> {
        // The descriptor is shared with MPI, so its flags stay as they are and each call says that it will not wait.
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let began = Instant::now();
        while !bytes.is_empty() {
            match rustix::net::send(&self.socket, bytes, flags) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(rustix::io::Errno::AGAIN) => self.ready(PollFlags::OUT, command, began, deadline)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    return Err(PmiError::Closed { command: command.to_owned() });
                }
                Err(error) => return Err(PmiError::Io { command: command.to_owned(), source: error.into() }),
            }
        }
        Ok(())
    }

    fn receive_line(&mut self, command: &str, deadline: Deadline) -> Result<String, PmiError> {
        let began = Instant::now();
        let mut chunk = [0u8; 1024];
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.received.len() > LONGEST_LINE {
                return Err(PmiError::TooLong { command: command.to_owned() });
            }
            match rustix::net::recv(&self.socket, &mut chunk[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET) => {
                    return Err(PmiError::Closed { command: command.to_owned() });
                }
                Ok((_, length)) => self.received.extend_from_slice(&chunk[..length]),
                Err(rustix::io::Errno::AGAIN) => self.ready(PollFlags::IN, command, began, deadline)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(PmiError::Io { command: command.to_owned(), source: error.into() }),
            }
        }
    }

    /// Sleeps until the socket may be ready, or gives up.
    fn ready(&self, what: PollFlags, command: &str, began: Instant, deadline: Deadline) -> Result<(), PmiError> {
        if deadline.interrupted() {
            return Err(PmiError::Interrupted { command: command.to_owned() });
        }
        if deadline.expired() {
            return Err(PmiError::Timeout { command: command.to_owned(), waited: began.elapsed() });
        }
        let slice = deadline.slice(SLICE);
        let timeout = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: i64::from(slice.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), what)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(PmiError::Io { command: command.to_owned(), source: error.into() }),
        }
    }
}

/// The word after `name=` in an answer.
fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// A descriptor of our own for the inherited number: the kernel copies it by number, so a wrong number is an error and not
/// somebody else's file.
fn inherited(fd: i32) -> Result<OwnedFd, PmiError> {
    let copy = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .and_then(|own| rustix::process::pidfd_getfd(&own, fd, PidfdGetfdFlags::empty()));
    copy.map_err(|error| PmiError::Descriptor {
        fd,
        hint: match error {
            rustix::io::Errno::BADF => ": it was closed on the way here (by a wrapper that closes descriptors?); set SYNCLINE_RENDEZVOUS",
            rustix::io::Errno::PERM | rustix::io::Errno::NOSYS => {
                ": pidfd_getfd is not allowed here (a container's system call filter?); set SYNCLINE_RENDEZVOUS"
            }
            _ => "",
        },
        source: error.into(),
    })
}

/// Whether an MPI library is mapped into this process.
fn mpi_is_loaded() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(|line| line.rsplit_once('/')).any(|(_, file)| file.starts_with("libmpi"))
}

#[cfg(test)]
#[path = "pmi_tests.rs"]
mod tests;
