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
    pub(super) fn send_queued(&self, parts: &mut Parts, by: Deadline) {
        loop {
            let mut queue = self.queue();
            let Some(add) = queue.adds.pop_front() else { return };
            let hopeful = queue.failed.is_none();
            drop(queue);
            let is_rest = matches!(add.what, What::Rest { .. });
            let sent = match &add.what {
                What::Rest { part } => parts.add_rest(*part, &add.delta, by),
                What::Add { ids, options, code, priority } if hopeful => {
                    parts.set_priority(*priority);
                    let manner = Manner { code: *code, priority: *priority };
                    parts.add(ids.as_deref(), manner.load(&add.delta), options, by)
                }
                What::Add { .. } => Ok(()),
            };
            if !is_rest && (sent.is_err() || !hopeful) {
                self.issued.fetch_sub(1, AcqRel);
            }
            let mut queue = self.queue();
            if let Err(error) = sent {
                queue.failed = Some(error);
            }
            queue.bytes -= add.delta.len();
            if add.delta.capacity() > queue.spare.capacity() {
                queue.spare = add.delta;
            }
            drop(queue);
            self.changed.notify_all();
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
                self.send_queued(&mut parts, Deadline::after(self.reach.timeout()));
            }
        }
    }
}
