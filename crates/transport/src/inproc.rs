//! Links between threads of one process: worlds in tests, a worker beside its own server.
//!
//! Each direction is a bounded queue of chunks. Cost: a payload is copied into chunks and out of them, up to
//! 256 KiB at a time and outside the lock; chunks are recycled, so a busy link allocates nothing.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use syncline_metrics::{Counter, LinkStats};

use crate::framing::{ByteInlet, Bytes, Outlet, Stamp, Stopped, link};
use crate::link::{Link, LinkInfo, TransportKind};
use crate::{Deadline, LinkError};

/// The most that one chunk carries.
const CHUNK: usize = 256 << 10;
/// Chunks that wait in a queue before its writer does.
const CHUNKS: usize = 16;

/// Two connected links in one process, of ranks 0 and 1 of `epoch`.
pub fn pair(epoch: u32) -> (Link, Link) {
    pair_of([(epoch, 0), (epoch, 1)])
}

/// Two connected links in one process, each with its epoch and rank.
pub fn pair_of([one, other]: [(u32, u32); 2]) -> (Link, Link) {
    let (there, back) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
    let end = |(epoch, rank), (_, peer): (u32, u32), out: &Arc<Queue>, into: &Arc<Queue>| {
        let info = LinkInfo {
            transport: TransportKind::Inproc,
            peer: format!("rank {peer} of this process"),
            encrypted: false,
        };
        let queues = [Arc::downgrade(out), Arc::downgrade(into)];
        let wake = move || {
            queues
                .iter()
                .filter_map(|queue| queue.upgrade())
                .for_each(|queue| queue.close())
        };
        let stats = Arc::new(LinkStats::new());
        let outlet = QueueOutlet {
            stats: Arc::clone(&stats),
            queue: Arc::clone(out),
            spare: Vec::new(),
        };
        let inlet = Bytes::new(QueueInlet {
            stats: Arc::clone(&stats),
            queue: Arc::clone(into),
            chunk: Vec::new(),
            taken: 0,
        });
        link(outlet, inlet, Stamp { epoch, rank }, info, stats, wake)
    };
    (
        end(one, other, &there, &back),
        end(other, one, &back, &there),
    )
}

/// One direction: what is on its way, and whether either end is gone.
#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    recycled: Vec<Vec<u8>>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) // no code panics while it holds the lock
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until `done` or closed.
    fn wait(
        &self,
        deadline: Deadline,
        sleeps: &Counter,
        done: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, LinkError> {
        const LONGEST: Duration = Duration::from_secs(3600);
        let mut state = self.lock();
        if done(&state) || state.closed {
            return Ok(state);
        }
        let since = Instant::now();
        sleeps.increment();
        loop {
            let slice = deadline.slice(LONGEST);
            state = match self.changed.wait_timeout(state, slice) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
            if done(&state) || state.closed {
                return Ok(state);
            }
            if deadline.interrupted() {
                return Err(LinkError::Interrupted);
            }
            if deadline.expired() {
                return Err(LinkError::Timeout {
                    waited: since.elapsed(),
                    half_written: false,
                });
            }
        }
    }
}

struct QueueOutlet {
    stats: Arc<LinkStats>,
    queue: Arc<Queue>,
    spare: Vec<u8>,
}

impl QueueOutlet {
    /// Puts the filled spare chunk into the queue and takes an empty one.
    fn push(&mut self, deadline: Deadline) -> Result<(), LinkError> {
        let mut state = self.queue.wait(deadline, &self.stats.send_parks, |state| {
            state.chunks.len() < CHUNKS
        })?;
        if state.closed {
            return Err(LinkError::PeerGone {
                detail: "it closed the link".to_owned(),
            });
        }
        let empty = state.recycled.pop().unwrap_or_default();
        state
            .chunks
            .push_back(std::mem::replace(&mut self.spare, empty));
        drop(state);
        self.queue.changed.notify_one();
        Ok(())
    }
}

impl Outlet for QueueOutlet {
    fn write_all(
        &mut self,
        header: &[u8],
        meta: &[u8],
        payload: &[&[u8]],
        deadline: Deadline,
    ) -> Result<(), Stopped> {
        self.spare.clear();
        let mut pushed = false;
        for mut part in [header, meta].into_iter().chain(payload.iter().copied()) {
            while !part.is_empty() {
                let (piece, rest) = part.split_at(part.len().min(CHUNK - self.spare.len()));
                self.spare.extend_from_slice(piece);
                part = rest;
                if self.spare.len() == CHUNK {
                    self.push(deadline).map_err(|error| Stopped {
                        error,
                        half_written: pushed,
                    })?;
                    pushed = true;
                }
            }
        }
        if !self.spare.is_empty() {
            self.push(deadline).map_err(|error| Stopped {
                error,
                half_written: pushed,
            })?;
        }
        Ok(())
    }

    fn abandon(&mut self) {
        self.queue.close();
    }
}

impl Drop for QueueOutlet {
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct QueueInlet {
    stats: Arc<LinkStats>,
    queue: Arc<Queue>,
    chunk: Vec<u8>,
    taken: usize,
}

impl ByteInlet for QueueInlet {
    fn read_some(&mut self, target: &mut [u8], deadline: Deadline) -> Result<usize, LinkError> {
        if self.taken == self.chunk.len() {
            let mut state = self.queue.wait(deadline, &self.stats.parks, |state| {
                !state.chunks.is_empty()
            })?;
            let Some(chunk) = state.chunks.pop_front() else {
                return Ok(0);
            };
            let mut empty = std::mem::replace(&mut self.chunk, chunk);
            self.taken = 0;
            if state.recycled.len() < CHUNKS {
                empty.clear();
                state.recycled.push(empty);
            }
            drop(state);
            self.queue.changed.notify_one();
        }
        let ready = &self.chunk[self.taken..];
        let taken = ready.len().min(target.len());
        target[..taken].copy_from_slice(&ready[..taken]);
        self.taken += taken;
        Ok(taken)
    }

    fn pollable(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for QueueInlet {
    fn drop(&mut self) {
        self.queue.close();
    }
}
