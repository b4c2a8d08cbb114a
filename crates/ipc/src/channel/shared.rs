//! The calls on a channel that lies in the family's memory: values become records, and records values.

use std::sync::Arc;

use syncline_shm::estate::Held;
use syncline_shm::queue::{Parcel, Pushed, Queue, QueueError, Record, WITH_OBJECTS};
use syncline_shm::wait::WaitError;
use syncline_wire::Value;

use super::Status;
use crate::item::{self, Item, Taken};
use crate::passing::{self, DECIDING, Outgoing};
use crate::{Deadline, Error, Family};

/// A channel in shared memory.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) family: Family,
    pub(super) held: Arc<Held>,
    pub(super) queue: Arc<Queue>,
}

impl Shared {
    pub(super) fn over(family: &Family, held: Arc<Held>) -> Shared {
        Shared { family: family.clone(), queue: Arc::new(held.queue(0, 1)), held }
    }

    #[inline]
    pub(super) fn write(&self, value: &Value<'_>, by: Deadline, operation: &'static str) -> Result<Status, Error> {
        let estate = self.family.estate();
        let push = |parcel: Parcel<'_>| {
            let look = || {
                estate.look_around();
                true
            };
            self.queue.push_all(&[parcel], estate.hand_by(by), &look)
        };
        if let Some(plain) = value.plain_meta() {
            let pushed = push(Parcel { flags: 0, meta_words: (plain.len() / 8) as u32, pieces: &plain.pieces() });
            return match pushed.map_err(|error| Error::of_push(operation, error, &self.family, &self.queue, by))? {
                Pushed::Some(_) => Ok(Status::Open),
                Pushed::Closed => Ok(self.status_of_closed()),
            };
        }
        let mut outgoing = Outgoing::new(&self.family, value, None, operation)?;
        let pushed = outgoing.with_parcel(push);
        match pushed.map_err(|error| Error::of_push(operation, error, &self.family, &self.queue, by))? {
            Pushed::Some(_) => {
                outgoing.sent();
                Ok(Status::Open)
            }
            Pushed::Closed => Ok(self.status_of_closed()),
        }
    }

    pub(super) fn try_write_by(&self, value: &Value<'_>, by: Deadline, operation: &'static str) -> Result<Option<Status>, Error> {
        let hand = self.family.estate().hand_by(by);
        let push = |parcel: Parcel<'_>| {
            let pushed = self.queue.push(&[parcel], hand);
            pushed.map_err(|error| Error::of_latch(operation, error, &self.family, &self.queue, by.waited()))
        };
        let pushed = match value.plain_meta() {
            Some(plain) => push(Parcel { flags: 0, meta_words: (plain.len() / 8) as u32, pieces: &plain.pieces() })?,
            None => {
                let mut outgoing = Outgoing::new(&self.family, value, None, operation)?;
                let pushed = outgoing.with_parcel(push)?;
                if let Pushed::Some(1..) = pushed {
                    outgoing.sent();
                }
                pushed
            }
        };
        Ok(match pushed {
            Pushed::Some(0) => None,
            Pushed::Some(_) => Some(Status::Open),
            Pushed::Closed => Some(self.status_of_closed()),
        })
    }

    #[inline]
    pub(super) fn try_read_by<T>(
        &self,
        by: Deadline,
        look: impl FnOnce(Value<'_>) -> T,
        operation: &'static str,
    ) -> Result<(Status, Option<T>), Error> {
        if self.queue.is_leased() {
            return Ok(match self.lease_by(by)? {
                Taken::Item(item) => (self.status_with_item(), Some(look(item.into_value()?))),
                Taken::Nothing => (Status::Open, None),
                Taken::Over => (Status::Drained, None),
            });
        }
        let estate = self.family.estate();
        // Before the look at the items: who closes after it has written is believed.
        let closed = self.queue.is_closed();
        let read = passing::with_record(|record| {
            let popped = self.queue.pop(record, &|record| passing::claim(estate, record), estate.hand_by(by));
            match popped.map_err(|error| Error::of_latch(operation, error, &self.family, &self.queue, by.waited()))? {
                true if record.flags == 0 => passing::lent(record, operation).map(|value| Some(look(value))),
                true => passing::received(&self.family, record, false, operation).map(|incoming| Some(look(incoming.value))),
                false => Ok(None),
            }
        })?;
        let status = match (&read, closed) {
            (Some(_), _) => self.status_with_item(),
            (None, false) => Status::Open,
            (None, true) => Status::Drained,
        };
        Ok((status, read))
    }

    /// Lends the oldest item where it lies; waits for one while the channel is open.
    #[inline]
    pub(super) fn read_with<T>(
        &self,
        by: Deadline,
        look: impl FnOnce(&Value<'_>) -> T,
        operation: &'static str,
    ) -> Result<Option<T>, Error> {
        let estate = self.family.estate();
        let mut look = Some(look);
        loop {
            // Before the look at the items: who closes after it has written is believed.
            let closed = self.queue.is_closed();
            let popped = passing::with_record(|record| {
                let popped = passing::persist(by, || {
                    let popped = self.queue.pop(record, &|record| passing::claim(estate, record), estate.hand_by(by));
                    popped.map_err(|error| Error::of_latch(operation, error, &self.family, &self.queue, by.waited()))
                });
                match popped? {
                    true => passing::lend(&self.family, record, operation, look.take().expect("one item is lent")).map(Some),
                    false => Ok(None),
                }
            })?;
            match popped {
                Some(seen) => return Ok(Some(seen)),
                None if closed => return Ok(None),
                None => self.wait(operation, by)?,
            }
        }
    }

    pub(super) fn read_many(&self, most: usize, by: Deadline, operation: &'static str) -> Result<(Status, Vec<Value<'static>>), Error> {
        let estate = self.family.estate();
        let mut items = Vec::new();
        loop {
            let mut closed = self.queue.is_closed();
            let mut failed = None;
            if self.queue.is_leased() {
                while items.len() < most.max(1) {
                    match passing::persist(by, || self.lease_by(by))? {
                        Taken::Item(item) => items.push(item.into_value()?),
                        ended => {
                            closed = matches!(ended, Taken::Over); // Until then what others have taken may come back.
                            break;
                        }
                    }
                }
            } else {
                // Objects are held under the directory's latch, which nobody waits for while it has a queue's.
                let mut naming: Vec<(usize, Record)> = Vec::new();
                let each = &mut |record: &mut Record| {
                    if record.flags & WITH_OBJECTS != 0 {
                        naming.push((items.len(), std::mem::take(record)));
                        return items.push(Value::Nil);
                    }
                    match passing::received(&self.family, record, false, operation) {
                        Ok(incoming) => items.push(incoming.value),
                        Err(error) => failed = Some(error),
                    }
                };
                let claim = |record: &Record| passing::claim(estate, record);
                passing::with_record(|record| {
                    passing::persist(by, || {
                        let popped = self.queue.pop_many(most.max(1), record, &claim, each, estate.hand_by(by));
                        popped.map_err(|error| Error::of_latch(operation, error, &self.family, &self.queue, by.waited()))
                    })
                })?;
                for (index, record) in naming {
                    items[index] = passing::received(&self.family, &record, false, operation)?.value;
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            if !items.is_empty() {
                return Ok((self.status_with_item(), items));
            }
            if closed {
                return Ok((Status::Drained, items));
            }
            self.wait(operation, by)?;
        }
    }

    pub(super) fn lease_by(&self, by: Deadline) -> Result<Taken, Error> {
        const OPERATION: &str = "channel lease";
        self.family.check(OPERATION)?;
        if !self.queue.is_leased() {
            return Err(Error::Configuration { operation: OPERATION, detail: "the channel was made without leases".to_owned() });
        }
        Item::take(&self.family, &self.held, &self.queue, None, by, OPERATION)
    }

    /// Whether a read might bring something other than nothing.
    pub(super) fn may_read(&self) -> bool {
        item::may_take(&self.family, &self.held, &self.queue)
    }

    pub(super) fn wait(&self, operation: &'static str, by: Deadline) -> Result<(), Error> {
        let estate = self.family.estate();
        let look = || {
            estate.look_around();
            true
        };
        let waited = match self.queue.is_leased() {
            false => self.queue.wait_for_items(estate.hand_by(by), &look),
            true => self.queue.wait_until(&|| self.may_read(), estate.hand_by(by), &look),
        };
        waited.map_err(|error| Error::of_queue(operation, error, "an item in the channel", by.waited()))
    }

    pub(super) fn close(&self, operation: &'static str) -> Result<(), Error> {
        passing::patiently(DECIDING, |by| {
            let closed = self.queue.close(self.family.estate().hand_by(by));
            closed.map(drop).map_err(|error| Error::of_latch(operation, error, &self.family, &self.queue, by.waited()))
        })
    }

    pub(super) fn drained(&self) -> bool {
        self.queue.is_closed() && self.queue.unfinished() == 0
    }

    fn status_with_item(&self) -> Status {
        if self.queue.is_closed() { Status::Closed } else { Status::Open }
    }

    pub(super) fn status_of_closed(&self) -> Status {
        if self.drained() { Status::Drained } else { Status::Closed }
    }
}

/// Writes values as items of a queue, those of a call that has written `before` already.
pub(crate) fn push_values(
    family: &Family,
    queue: &Queue,
    values: &[Value<'_>],
    before: usize,
    by: Deadline,
    operation: &'static str,
) -> Result<Pushed, Error> {
    // All are laid out before the first is written: one that cannot be sent leaves no half of a call behind.
    let mut outgoing = values.iter().map(|value| Outgoing::new(family, value, None, operation)).collect::<Result<Vec<_>, _>>()?;
    let estate = family.estate();
    let look = || {
        estate.look_around();
        true
    };
    let pieces: Vec<Vec<&[u8]>> = outgoing.iter().map(Outgoing::pieces).collect();
    let parcels: Vec<Parcel<'_>> = outgoing.iter().zip(&pieces).map(|(one, pieces)| one.parcel(pieces)).collect();
    let pushed = queue.push_all(&parcels, estate.hand_by(by), &look);
    drop(parcels);
    drop(pieces);
    let written = match pushed {
        Ok(Pushed::Closed) => return Ok(Pushed::Closed),
        Ok(Pushed::Some(written)) => written,
        Err(error) if before == 0 => return Err(Error::of_push(operation, error, family, queue, by)),
        Err(_) => 0, // What was written before has to be told.
    };
    outgoing.iter_mut().take(written).for_each(Outgoing::sent);
    if written < values.len() && !queue.is_closed() {
        return Err(cut_short(before + written, before + values.len(), by, operation));
    }
    Ok(Pushed::Some(written))
}

/// The time was over when some of the items of one call were written.
pub(super) fn cut_short(written: usize, of: usize, by: Deadline, operation: &'static str) -> Error {
    let waited_for = format!("room for items ({written} of {of} are written)");
    Error::of_queue(operation, QueueError::Wait(WaitError::Timeout), &waited_for, by.waited())
}
