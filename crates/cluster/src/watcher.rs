//! Watches the processes of this host and writes down when one ends.
//!
//! The kernel tells the end of a process on its pidfd at once, whatever killed it and whoever inherited its sockets.
//! One sleeping thread polls them all. Regularly it also renews this rank's sign of life on the board, so that
//! a neighbour that waits in vain can tell a frozen process from a busy one, and between hosts it sends heartbeats.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use syncline_shm::board::State;
use syncline_shm::wait::Deadline;
use syncline_wire::message::Control;

use crate::control::send_control;
use crate::coordinator::{heartbeat_interval, silent_after};
use crate::fate::Fate;
use crate::seat::{Seat, monotonic_nanos};
use crate::{Error, roster};

/// How often a rank renews its sign of life: once a second, more often when others wait for less than eight.
pub(crate) fn beat(timeout: Duration) -> Duration {
    (timeout / 8).clamp(Duration::from_millis(20), Duration::from_secs(1))
}

/// Silence after which a neighbour counts as frozen: a few beats, since a loaded machine is late too.
pub(crate) fn frozen_after(timeout: Duration) -> Duration {
    beat(timeout) * 4
}

/// The means to stop the watcher.
pub(crate) struct WatcherHandle {
    wake: Arc<OwnedFd>,
}

impl WatcherHandle {
    pub(crate) fn stop(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

/// A neighbour and the descriptor on which the kernel tells its end.
struct Watched {
    rank: u32,
    pidfd: OwnedFd,
}

pub(crate) fn start(seat: Arc<Seat>) -> Result<(WatcherHandle, JoinHandle<()>), Error> {
    let wake =
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| Error::system("start: the watcher's wake-up", error))?;
    let wake = Arc::new(wake);
    let handle = WatcherHandle { wake: Arc::clone(&wake) };
    let neighbours = neighbours(&seat);
    let thread = thread::Builder::new()
        .name("syncline-watch".into())
        .spawn(move || watch(&seat, neighbours, &wake))
        .map_err(|error| Error::system("start: the watcher's thread", error))?;
    Ok((handle, thread))
}

/// Opens a pidfd for each neighbour whose process id means something here. One that is already gone is marked so.
fn neighbours(seat: &Seat) -> Vec<Watched> {
    let own_space = roster::pid_space();
    let host = &seat.topology.hosts()[seat.topology.host_of(seat.me)];
    let mut watched = Vec::new();
    for &rank in host.ranks.iter().filter(|rank| **rank != seat.me) {
        let member = seat.topology.member(rank);
        if member.pid_space != own_space || member.pid == std::process::id() {
            continue; // Another container, or a rank that is a thread of this process: its control link tells.
        }
        let Some(pid) = Pid::from_raw(member.pid as i32) else { continue };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => watched.push(Watched { rank, pidfd }),
            Err(rustix::io::Errno::SRCH) => bury(seat, rank),
            Err(error) => tracing::debug!("rank {rank} cannot be watched by pidfd ({error}); its control link tells"),
        }
    }
    watched
}

fn watch(seat: &Seat, mut watched: Vec<Watched>, wake: &OwnedFd) {
    let between_hosts = seat.control.as_ref().filter(|line| !line.local);
    let interval = if between_hosts.is_some() { beat(seat.timeout).min(heartbeat_interval(seat.timeout)) } else { beat(seat.timeout) };
    let mut count = 0;
    while !seat.leaving.load(Acquire) {
        if let Some(board) = seat.board() {
            board.slot(seat.my_slot()).beat(monotonic_nanos());
        }
        if let Some(line) = between_hosts {
            count += 1;
            let mut sender = line.sender.lock().expect("no panic while held");
            let _ = send_control(sender.as_mut(), &Control::Heartbeat { count }, Deadline::after(interval));
            drop(sender);
            listen_for_silence(seat, line);
        }
        let ended = wait(&watched, wake, interval);
        for index in ended.into_iter().rev() {
            let gone = watched.swap_remove(index);
            bury(seat, gone.rank);
        }
    }
}

/// Sleeps until a neighbour ends, the watcher is stopped or `interval` has passed; returns who ended, ascending.
fn wait(watched: &[Watched], wake: &OwnedFd, interval: Duration) -> Vec<usize> {
    let mut descriptors: Vec<PollFd<'_>> = watched.iter().map(|neighbour| PollFd::new(&neighbour.pidfd, PollFlags::IN)).collect();
    descriptors.push(PollFd::new(wake, PollFlags::IN));
    let limit = Timespec { tv_sec: interval.as_secs() as _, tv_nsec: interval.subsec_nanos() as _ };
    match poll(&mut descriptors, Some(&limit)) {
        Ok(_) => (0..watched.len()).filter(|index| !descriptors[*index].revents().is_empty()).collect(),
        Err(_) => Vec::new(), // A signal: the loop looks again.
    }
}

/// Writes down the end of `rank`, unless it had said goodbye, and follows its blame.
fn bury(seat: &Seat, rank: u32) {
    let slot = seat.board().map(|board| board.slot(seat.topology.local_rank(rank) as usize));
    if slot.is_some_and(|slot| slot.state() == State::Left) {
        seat.fates.mark_left(rank);
        seat.fates.mark_ended(rank);
    } else {
        let fate = match seat.blame_on_board(rank) {
            Some(blame) => Fate { silent: blame.silent, blames: Some(blame.rank), ..Fate::gone("ended") },
            None => Fate::gone("died (its process has ended)"),
        };
        seat.bury(rank, Fate { ended: true, ..fate });
    }
    seat.ring();
}

/// Between hosts a dead coordinator may close nothing: its silence tells.
fn listen_for_silence(seat: &Seat, line: &crate::seat::ControlLine) {
    let silence = line.last_heard.lock().expect("no panic while held").elapsed();
    if silence < silent_after(seat.timeout) {
        return;
    }
    crate::control_thread::coordinator_lost(seat, Fate::silent(format!("has been silent for {:.1} s", silence.as_secs_f64())));
    *line.last_heard.lock().expect("no panic while held") = Instant::now();
}
