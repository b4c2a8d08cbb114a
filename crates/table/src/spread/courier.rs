//! Adds that nobody waits for: copied into a queue, and sent by a thread of the table unless somebody who comes next does it before.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::AcqRel;
use std::time::Duration;

use syncline_cluster::{Deadline, Error};

use super::adds::Rest;
use super::baton::NoTurn;
use super::client::{Manner, Table};
use super::parts::Parts;
use super::words::Code;
use crate::AddOptions;

/// What the queue holds besides one large delta.
const QUEUED: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Queue {
    pub(super) adds: VecDeque<QueuedAdd>,
    /// Bytes that wait or are being sent.
    pub(super) bytes: usize,
    /// A buffer to be used again: fresh pages are slow.
    spare: Vec<u8>,
    /// Why a queued add failed; the next call hears of it, and what was queued behind it is dropped.
    pub(super) failed: Option<Error>,
    pub(super) closing: bool,
}

pub(super) struct QueuedAdd {
    what: What,
    delta: Vec<u8>,
}

/// What the bytes in the queue are.
enum What {
    /// A delta.
    Add { ids: Option<Vec<i64>>, options: AddOptions, code: Option<Code>, priority: Option<i32> },
    /// The end of one that is under way to this part: nothing may overtake it.
    Rest { part: usize },
}

/// What became of something in the queue.
enum Sent {
    All,
    /// All of it, but its primary has not said whether it counts.
    Undecided(Error),
    /// So many bytes, before this happened.
    Part(usize, Error),
    /// Something before it failed.
    Dropped,
}

impl QueuedAdd {
    fn send(&self, parts: &mut Parts, by: Deadline, gives_up: bool) -> Sent {
        let (bytes, sent) = match &self.what {
            // A frame that is given up in the middle takes the link with it.
            What::Rest { part } if gives_up => (0, parts.add_rest(*part, &self.delta, by)),
            What::Rest { part } => parts.add_more(*part, &self.delta, by),
            What::Add { ids, options, code, priority } => {
                if let Err(error) = parts.make_good(by) {
                    return Sent::Part(0, error);
                }
                parts.set_priority(*priority);
                let manner = Manner { code: *code, priority: *priority };
                (0, parts.add(ids.as_deref(), manner.load(&self.delta), options, by))
            }
        };
        match sent {
            Ok(()) => Sent::All,
            Err(error) if parts.undecided.is_some() => Sent::Undecided(error),
            Err(error) => Sent::Part(bytes, error),
        }
    }
}

impl Table {
    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) // nobody panics while holding it
    }

    /// Copies an add into the queue when there is room.
    pub(super) fn enqueue(
        &self,
        delta: &[u8],
        ids: Option<&[i64]>,
        options: &AddOptions,
        manner: Manner,
        by: Deadline,
    ) -> Result<(), Error> {
        const NAP: Duration = Duration::from_millis(200);
        let mut queue = self.queue();
        if let Some(error) = queue.failed.take() {
            return Err(error);
        }
        while queue.bytes > 0 && queue.bytes + delta.len() > QUEUED {
            if by.interrupted() {
                return Err(self.no_turn("add", NoTurn::Interrupted, by));
            }
            if by.expired() {
                return Err(self.no_turn("add", NoTurn::Late, by));
            }
            queue = self.changed.wait_timeout(queue, by.slice(NAP)).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        queue.bytes += delta.len();
        let mut copy = std::mem::take(&mut queue.spare);
        drop(queue); // copying takes a while; this thread's next add cannot overtake it, and those of others have no order
        copy.clear();
        copy.extend_from_slice(delta);
        let what = What::Add { ids: ids.map(<[i64]>::to_vec), options: *options, code: manner.code, priority: manner.priority };
        self.queue().adds.push_back(QueuedAdd { what, delta: copy });
        self.issued.fetch_add(1, AcqRel);
        self.changed.notify_all();
        Ok(())
    }

    /// Copies what the network has not taken to the front of the queue.
    pub(super) fn keep_rest(&self, rest: Rest, delta: &[u8]) {
        let bytes = &delta[rest.bytes];
        if bytes.is_empty() {
            return;
        }
        let mut queue = self.queue();
        queue.bytes += bytes.len();
        let mut copy = std::mem::take(&mut queue.spare);
        drop(queue);
        copy.clear();
        copy.extend_from_slice(bytes);
        self.queue().adds.push_front(QueuedAdd { what: What::Rest { part: rest.part }, delta: copy });
        self.changed.notify_all();
    }

    /// Sends what is queued, in order.
    ///
    /// Its callers were told that it will be sent, so only the courier, whose deadline is made for it, `gives_up` for want of time. Who comes
    /// by on the way to something else and has to stop leaves the rest to the courier; the error is about that something else.
    pub(super) fn send_queued(&self, parts: &mut Parts, by: Deadline, gives_up: bool) -> Result<(), Error> {
        loop {
            let mut queue = self.queue();
            let Some(mut add) = queue.adds.pop_front() else { return Ok(()) };
            let hopeful = queue.failed.is_none();
            drop(queue);
            let is_rest = matches!(add.what, What::Rest { .. });
            let sent = if hopeful || is_rest { add.send(parts, by, gives_up) } else { Sent::Dropped };
            let mut queue = self.queue();
            let stopped = match sent {
                Sent::Part(bytes, error) if !gives_up && called_off(&error, by) => {
                    add.delta.drain(..bytes);
                    queue.bytes -= bytes;
                    queue.adds.push_front(add);
                    drop(queue);
                    self.changed.notify_all();
                    return Err(error);
                }
                Sent::Part(_, ref error) => {
                    queue.failed = Some(error.clone());
                    None
                }
                Sent::Undecided(ref error) => Some(error.clone()),
                Sent::All | Sent::Dropped => None,
            };
            if !is_rest && !matches!(sent, Sent::All) {
                self.issued.fetch_sub(1, AcqRel); // one that is undecided is counted when its primary has said so
            }
            queue.bytes -= add.delta.len();
            if add.delta.capacity() > queue.spare.capacity() {
                queue.spare = add.delta;
            }
            drop(queue);
            self.changed.notify_all();
            if let Some(error) = stopped {
                return Err(error);
            }
        }
    }

    /// The courier's life: sends what nobody else has sent yet.
    pub(super) fn deliver(&self) {
        loop {
            let mut queue = self.queue();
            while queue.adds.is_empty() && !queue.closing {
                queue = self.changed.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            if queue.adds.is_empty() {
                return;
            }
            drop(queue);
            if let Ok(mut parts) = self.parts.take(Deadline::never()) {
                // Of what went wrong the next call hears.
                let _ = self.send_queued(&mut parts, Deadline::after(self.reach.timeout()), true);
            }
        }
    }
}

/// Whether a call ended because its caller had no more time, rather than for what it met.
fn called_off(error: &Error, by: Deadline) -> bool {
    matches!(error, Error::Interrupted { .. }) || by.interrupted() || by.expired()
}
