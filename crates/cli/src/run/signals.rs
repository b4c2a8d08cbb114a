//! What the outside tells the launcher, as descriptors that the supervising loop can poll beside everything else.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::process::Signal;

/// Signals that end the job.
const ENDINGS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// Signals that are for the ranks: batch systems announce the end of an allocation with them ("write a checkpoint").
const MESSAGES: [Signal; 2] = [Signal::USR1, Signal::USR2];

/// One socket for each signal; a byte arrives in it for each time the signal does.
pub(super) struct Signals {
    sockets: Vec<(Signal, UnixStream)>,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    End(Signal),
    PassOn(Signal),
}

impl Signals {
    pub(super) fn listen() -> io::Result<Signals> {
        let mut sockets = Vec::new();
        for signal in ENDINGS.into_iter().chain(MESSAGES) {
            if signal == Signal::HUP && is_ignored(signal) {
                continue; // Under nohup the end of the terminal is not the end of the job.
            }
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal.as_raw(), write)?;
            sockets.push((signal, read));
        }
        Ok(Signals { sockets })
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(_, socket)| socket.as_fd())
    }

    /// All signals that arrived since the last call, those that end the job last.
    pub(super) fn take(&mut self) -> Vec<Request> {
        let mut requests = Vec::new();
        for (signal, socket) in &mut self.sockets {
            let mut bytes = [0; 16];
            let times = socket.read(&mut bytes).unwrap_or(0);
            let request = if ENDINGS.contains(signal) { Request::End(*signal) } else { Request::PassOn(*signal) };
            requests.extend(std::iter::repeat_n(request, times));
        }
        requests.sort_by_key(|request| matches!(request, Request::End(_)));
        requests
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}
