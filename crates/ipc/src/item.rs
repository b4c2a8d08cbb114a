//! An item that was taken, and what becomes of it.

use std::sync::Arc;

use syncline_shm::estate::{Block, Held};
use syncline_shm::queue::{Hand, Pushed, Queue, QueueError};
use syncline_wire::Value;

use crate::passing::{self, DECIDING, Incoming, Outgoing};
use crate::{Deadline, Error, Family, thread};

/// What an attempt to take an item brought.
#[derive(Debug)]
pub enum Taken {
    /// An item. A nil that somebody wrote is an item too.
    Item(Item),
    /// There is none just now.
    Nothing,
    /// There is none, and none will come.
    Over,
}

impl Taken {
    /// The item, if there is one.
    pub fn item(self) -> Option<Item> {
        if let Taken::Item(item) = self { Some(item) } else { None }
    }
}

/// An item that was taken out of a channel or workqueue.
///
/// On a lease it is not gone yet: it is finished by [`done`](Item::done), by [`answer`](Item::answer), or when it is dropped. If its
/// process dies before that, or its thread drops it in a panic, the next reader gets it.
pub struct Item {
    value: Value<'static>,
    id: u64,
    attempts: u32,
    lease: Option<Lease>,
}

const ANSWER: &str = "workqueue answer";

struct Lease {
    family: Family,
    /// Keeps the object, and with it the queue's memory.
    held: Arc<Held>,
    queue: Arc<Queue>,
    answers: Option<Arc<Queue>>,
    cell: u32,
    block: Option<Arc<Block>>,
    objects: Vec<u64>,
}

impl Item {
    /// An item that is not on a lease.
    pub(crate) fn owned(incoming: Incoming) -> Item {
        Item { value: incoming.value, id: incoming.id, attempts: 0, lease: None }
    }

    /// Takes the oldest item of a leased queue.
    pub(crate) fn take(
        family: &Family,
        held: &Arc<Held>,
        queue: &Arc<Queue>,
        answers: Option<&Arc<Queue>>,
        by: Deadline,
        operation: &'static str,
    ) -> Result<Taken, Error> {
        let estate = family.estate();
        let hand = estate.hand_by(by);
        let failed = |error| Error::of_latch(operation, error, family, queue, by.waited());
        // Before the look at the items: who closes after it has written is believed.
        let closed = queue.is_closed();
        let leased = passing::with_record(|record| {
            let Some(leased) = queue.lease(record, &|record| passing::claim(estate, record), hand).map_err(failed)? else {
                return Ok(None);
            };
            match passing::received(family, record, true, operation) {
                Ok(incoming) => Ok(Some((leased, incoming))),
                Err(error) => {
                    let _ = queue.finish(leased.cell, hand); // Nobody else could read it either.
                    Err(error)
                }
            }
        })?;
        let Some((leased, incoming)) = leased else {
            // What another process or thread has taken may still come back.
            let over = closed && queue.is_empty() && !others_work(held, queue, hand).map_err(failed)?;
            return Ok(if over { Taken::Over } else { Taken::Nothing });
        };
        held.lease_begins(leased.cell, thread::me());
        let Incoming { value, id, block, objects } = incoming;
        let lease = Lease {
            family: family.clone(),
            held: Arc::clone(held),
            queue: Arc::clone(queue),
            answers: answers.cloned(),
            cell: leased.cell,
            block,
            objects,
        };
        Ok(Taken::Item(Item { value, id, attempts: leased.returns, lease: Some(lease) }))
    }

    /// Its value.
    pub fn value(&self) -> &Value<'static> {
        &self.value
    }

    /// Its number in the queue (modulo 2³²); of an answer that was given with [`answer`](Item::answer): the number of its question.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How often it was taken before and came back.
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether it comes back if this process dies now.
    pub fn is_leased(&self) -> bool {
        self.lease.is_some()
    }

    /// Finishes it.
    pub fn done(mut self) -> Result<(), Error> {
        self.lease.take().map_or(Ok(()), Lease::finish)
    }

    /// Finishes it, unless somebody who holds it up does so until `by`; what was called off leaves the item in hand, to be tried again.
    pub fn done_by(&mut self, by: Deadline) -> Result<(), Error> {
        self.decide_by(by, |lease, by| lease.finish_by(by))
    }

    /// Finishes it and returns its value.
    pub fn into_value(mut self) -> Result<Value<'static>, Error> {
        self.lease.take().map_or(Ok(()), Lease::finish)?;
        Ok(std::mem::take(&mut self.value))
    }

    /// Gives it to whoever reads next, ahead of all newer items.
    pub fn give_back(mut self) -> Result<(), Error> {
        let value = std::mem::take(&mut self.value);
        self.lease.take().map_or(Ok(()), |lease| lease.give_back(value))
    }

    /// The same, unless somebody who holds it up does so until `by`; what was called off leaves the item in hand, without its value.
    pub fn give_back_by(&mut self, by: Deadline) -> Result<(), Error> {
        self.value = Value::Nil;
        self.decide_by(by, |lease, by| lease.give_back_by(by))
    }

    /// Leaves it as it is: whoever buries this process gives it to the next reader. For those who can wait no longer.
    pub fn abandon(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.leave_block();
        }
    }

    fn decide_by(&mut self, by: Deadline, decide: impl Fn(&Lease, Deadline) -> Result<(), Error>) -> Result<(), Error> {
        let Some(lease) = self.lease.take() else { return Ok(()) };
        // The usual case waits for nothing but others' microseconds.
        let decided = match decide(&lease, Deadline::brief()) {
            Err(Error::Interrupted { .. }) => decide(&lease, by),
            ended => ended,
        };
        match &decided {
            Err(Error::Interrupted { .. } | Error::Timeout { .. }) => {
                lease.held.lease_begins(lease.cell, thread::me());
                self.lease = Some(lease);
            }
            Ok(()) => {}
            // The record is still there, this process's or somebody else's, and speaks of the block.
            Err(_) => lease.leave_block(),
        }
        decided
    }

    /// Writes the answer to this question and finishes it, as one step: if this process dies, either both have happened or
    /// neither, and in that case the question goes to another worker. So each question is answered exactly once. An answer that
    /// cannot be sent, or finds no room in time, gives the question back.
    pub fn answer(mut self, value: &Value<'_>, by: Deadline) -> Result<(), Error> {
        let Some(lease) = self.lease.take() else {
            return Err(Error::LeaseOver { operation: ANSWER });
        };
        let answered = lease.answer(self.id, value, by);
        if answered.is_err() {
            // It is not finished, and somebody else may fare better. If even that fails, another process has it already.
            let _ = lease.give_back(std::mem::take(&mut self.value));
        }
        answered
    }
}

/// Whether an attempt to take an item of the queue might bring something other than nothing.
pub(crate) fn may_take(family: &Family, held: &Held, queue: &Queue) -> bool {
    if queue.may_have_items() {
        return true;
    }
    // While somebody is in the way it is not known, and who waits looks again; words that make no sense are the attempt's to report.
    let nobody_works = || {
        let hand = family.estate().hand_by(Deadline::brief());
        matches!(others_work(held, queue, hand), Ok(false) | Err(QueueError::Corrupt(_)))
    };
    queue.is_closed() && (!queue.is_leased() || nobody_works())
}

/// Whether another process, or another thread of this one, works on an item that may come back.
fn others_work(held: &Held, queue: &Queue, hand: Hand<'_>) -> Result<bool, QueueError> {
    let me = thread::me();
    queue.others_work(&|cell| held.is_leased_to(cell, me), hand)
}

impl Lease {
    fn answer(&self, id: u64, value: &Value<'_>, by: Deadline) -> Result<(), Error> {
        let Some(answers) = &self.answers else {
            return Err(Error::Configuration { operation: ANSWER, detail: "only questions of a workqueue are answered".to_owned() });
        };
        let estate = self.family.estate();
        let mut outgoing = Outgoing::new(&self.family, value, Some(id), ANSWER)?;
        loop {
            let answered = passing::persist(by, || {
                let answered = outgoing.with_parcel(|parcel| answers.answer(self.cell, &parcel, estate.hand_by(by)));
                answered.map_err(|error| Error::of_latch(ANSWER, error, &self.family, answers, by.waited()))
            });
            match answered? {
                Pushed::Some(0) => {
                    let look = || {
                        estate.look_around();
                        true
                    };
                    let waited = answers.wait_for_room(outgoing.record_len(), estate.hand_by(by), &look);
                    waited.map_err(|error| Error::of_queue(ANSWER, error, "room for an answer", by.waited()))?;
                }
                Pushed::Some(_) => {
                    outgoing.sent();
                    self.held.lease_ends(self.cell);
                    self.was_finished();
                    return Ok(());
                }
                Pushed::Closed => {
                    return Err(Error::Closed { operation: ANSWER, what: "the workqueue takes no more answers".to_owned() });
                }
            }
        }
    }

    fn finish(self) -> Result<(), Error> {
        let finished = passing::patiently(DECIDING, |by| self.finish_by(by));
        if finished.is_err() {
            // The record is still there, this process's or somebody else's, and speaks of the block.
            self.leave_block();
        }
        finished
    }

    fn finish_by(&self, by: Deadline) -> Result<(), Error> {
        self.held.lease_ends(self.cell);
        self.tell("item done", by, |hand| self.queue.finish(self.cell, hand))?;
        self.was_finished();
        Ok(())
    }

    fn leave_block(&self) {
        if let Some(block) = &self.block {
            block.leave();
        }
    }

    /// The record is gone: its names with it, and whoever waits for the end of a closed queue may be told.
    fn was_finished(&self) {
        for object in &self.objects {
            self.family.estate().count_named(*object, false);
        }
        if self.queue.is_closed()
            && let Some(answers) = &self.answers
        {
            answers.wake_readers();
        }
    }

    fn give_back(self, value: Value<'static>) -> Result<(), Error> {
        drop(value);
        let given = passing::patiently(DECIDING, |by| self.give_back_by(by));
        if given.is_err() {
            self.leave_block();
        }
        given
    }

    fn give_back_by(&self, by: Deadline) -> Result<(), Error> {
        const OPERATION: &str = "item give back";
        let estate = self.family.estate();
        // A tensor that somebody still reads here must not change hands: the next reader gets a copy.
        let copy = match &self.block {
            Some(block) if Arc::strong_count(block) > 1 => {
                let bytes: &[u8] = (**block).as_ref();
                let mut copy =
                    estate.block(bytes.len()).map_err(|error| Error::System { operation: OPERATION, detail: error.to_string() })?;
                copy.bytes_mut().copy_from_slice(bytes);
                Some(copy)
            }
            _ => None,
        };
        self.held.lease_ends(self.cell);
        self.tell(OPERATION, by, |hand| self.queue.give_back(self.cell, copy.as_ref().map(Block::id), hand))?;
        match &copy {
            Some(copy) => copy.leave(),
            None => self.leave_block(),
        }
        Ok(())
    }

    /// Tells the queue what becomes of the item.
    fn tell(&self, operation: &'static str, by: Deadline, tell: impl Fn(Hand<'_>) -> Result<(), QueueError>) -> Result<(), Error> {
        let told = tell(self.family.estate().hand_by(by));
        told.map_err(|error| Error::of_latch(operation, error, &self.family, &self.queue, by.waited()))
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if !lease.family.estate().is_original() {
            return; // A forked child drops a copy of what is still its parent's.
        }
        // Nobody is left to tell if it fails; whoever buries this process gives the item back.
        let _ = if std::thread::panicking() { lease.give_back(std::mem::take(&mut self.value)) } else { lease.finish() };
    }
}

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Item({}, {:?})", self.id, self.value)
    }
}
