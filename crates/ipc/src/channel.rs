//! Many writers, many readers, first in first out, between threads and processes alike.

use std::sync::Arc;

use syncline_shm::estate::{Held, KIND_CHANNEL};
use syncline_shm::queue::{Parcel, Pushed, Queue, QueueError, Record, WITH_OBJECTS};
use syncline_shm::wait::WaitError;
use syncline_wire::{Handle, HandleKind, Value};

use crate::item::{self, Item, Taken};
use crate::passing::{self, DECIDING, Outgoing, TRYING};
use crate::{Deadline, Error, Family, thread};

/// How far a channel has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It can be written.
    Open = 0,
    /// It was closed; what is in it can still be read.
    Closed = 1,
    /// It was closed, and nothing is left.
    Drained = 2,
}

/// What a read brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// `Open` or `Closed` with an item; without one: `Drained`, or `Open` when there was nothing to read just now.
    pub status: Status,
    /// The item; a nil that somebody wrote is `Some(Value::Nil)`.
    pub item: Option<Value<'static>>,
}

/// How a channel is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelOptions {
    /// The most items in it: who writes more waits. None is any number.
    pub capacity: Option<usize>,
    /// Items come back when their reader dies before it is done with them ([`Channel::lease`]).
    pub leases: bool,
}

/// A channel, as one handle to it. Clones and handles lead to the same one; it ends with the last of them.
///
/// ```
/// use syncline_ipc::{Channel, Deadline, Family, Status, Value};
///
/// let family = Family::alone()?;
/// let channel = Channel::new(&family)?;
/// let soon = Deadline::after(std::time::Duration::from_secs(5));
/// assert_eq!(channel.write_all(&[Value::Int(1), Value::Nil], soon)?, Status::Open);
/// channel.close()?;
/// assert_eq!(channel.write(&Value::Int(2), soon)?, Status::Closed);
/// let first = channel.read(soon)?;
/// assert_eq!((first.status, first.item), (Status::Closed, Some(Value::Int(1))));
/// assert_eq!(channel.read(soon)?.item, Some(Value::Nil));
/// assert_eq!(channel.read(soon)?.status, Status::Drained);
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
#[derive(Clone)]
pub struct Channel {
    family: Family,
    held: Arc<Held>,
    queue: Arc<Queue>,
}

impl Channel {
    /// A channel for any number of items.
    pub fn new(family: &Family) -> Result<Channel, Error> {
        Self::with(family, ChannelOptions::default())
    }

    /// A channel as `options` say.
    pub fn with(family: &Family, options: ChannelOptions) -> Result<Channel, Error> {
        const OPERATION: &str = "channel";
        family.check(OPERATION)?;
        if options.capacity == Some(0) {
            return Err(Error::Configuration { operation: OPERATION, detail: "a channel with room for no item".to_owned() });
        }
        let held = family.estate().make_channel(options.capacity.unwrap_or(0), options.leases, thread::me());
        Ok(Self::over(family, held.map_err(|error| Error::of_estate(OPERATION, error))?))
    }

    /// The channel that a handle leads to.
    pub fn open(family: &Family, handle: &Value<'_>) -> Result<Channel, Error> {
        let held = held_by(family, handle, HandleKind::Channel, KIND_CHANNEL, "channel")?;
        Ok(Self::over(family, held))
    }

    fn over(family: &Family, held: Arc<Held>) -> Channel {
        Channel { family: family.clone(), queue: Arc::new(held.queue(0, 1)), held }
    }

    /// A handle, to be sent through other objects.
    pub fn handle(&self) -> Value<'static> {
        handle(&self.family, &self.held, HandleKind::Channel)
    }

    /// Writes an item; waits for room if the channel has a capacity. `Open` says that it was written.
    #[inline]
    pub fn write(&self, value: &Value<'_>, by: Deadline) -> Result<Status, Error> {
        const OPERATION: &str = "channel write";
        self.family.check(OPERATION)?;
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
            return match pushed.map_err(|error| Error::of_push(OPERATION, error, &self.family, &self.queue, by))? {
                Pushed::Some(_) => Ok(Status::Open),
                Pushed::Closed => Ok(self.status_of_closed()),
            };
        }
        let mut outgoing = Outgoing::new(&self.family, value, None, OPERATION)?;
        let pushed = outgoing.with_parcel(push);
        match pushed.map_err(|error| Error::of_push(OPERATION, error, &self.family, &self.queue, by))? {
            Pushed::Some(_) => {
                outgoing.sent();
                Ok(Status::Open)
            }
            Pushed::Closed => Ok(self.status_of_closed()),
        }
    }

    /// Writes an item if there is room for it: `None` when there is none. Never waits but for another writer's microseconds.
    pub fn try_write(&self, value: &Value<'_>) -> Result<Option<Status>, Error> {
        passing::patiently(TRYING, |by| self.try_write_by(value, by))
    }

    /// The same; `by` says how long those microseconds may last where the other writer does not go on ([`Deadline::brief`]).
    pub fn try_write_by(&self, value: &Value<'_>, by: Deadline) -> Result<Option<Status>, Error> {
        const OPERATION: &str = "channel write";
        self.family.check(OPERATION)?;
        let hand = self.family.estate().hand_by(by);
        let push = |parcel: Parcel<'_>| {
            let pushed = self.queue.push(&[parcel], hand);
            pushed.map_err(|error| Error::of_latch(OPERATION, error, &self.family, &self.queue, by.waited()))
        };
        let pushed = match value.plain_meta() {
            Some(plain) => push(Parcel { flags: 0, meta_words: (plain.len() / 8) as u32, pieces: &plain.pieces() })?,
            None => {
                let mut outgoing = Outgoing::new(&self.family, value, None, OPERATION)?;
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

    /// Writes each value as an item of its own, together: as many readers are woken. Waits for room if there is a capacity.
    ///
    /// `Closed` and `Drained` say that nothing was written. Where somebody closes the channel while this waits for room, [`Error::Closed`]
    /// says how many were.
    pub fn write_all(&self, values: &[Value<'_>], by: Deadline) -> Result<Status, Error> {
        const OPERATION: &str = "channel write";
        self.family.check(OPERATION)?;
        match push_values(&self.family, &self.queue, values, by, OPERATION)? {
            Pushed::Some(written) if written < values.len() => {
                let what = format!("the channel was closed when {written} of {} items were written", values.len());
                Err(Error::Closed { operation: OPERATION, what })
            }
            Pushed::Some(_) => Ok(Status::Open),
            Pushed::Closed => Ok(self.status_of_closed()),
        }
    }

    /// Takes the oldest item; waits for one while the channel is open.
    #[inline]
    pub fn read(&self, by: Deadline) -> Result<Read, Error> {
        loop {
            let (status, item) = passing::persist(by, || self.try_read_by(by, |value| value.into_owned()))?;
            if item.is_some() || status == Status::Drained {
                return Ok(Read { status, item });
            }
            self.wait("channel read", by)?;
        }
    }

    /// Takes the oldest item if there is one.
    #[inline]
    pub fn try_read(&self) -> Result<Read, Error> {
        let (status, item) = self.try_read_with(|value| value.into_owned())?;
        Ok(Read { status, item })
    }

    /// Takes the oldest item if there is one and gives it to `look`: text and bytes of small items where they lie, which saves
    /// whoever makes something else of them a copy. Tensors of large ones are shared and may be kept ([`TensorValue::shared`](crate::TensorValue::shared)).
    #[inline]
    pub fn try_read_with<T>(&self, look: impl FnOnce(Value<'_>) -> T) -> Result<(Status, Option<T>), Error> {
        let mut look = Some(look);
        passing::patiently(TRYING, |by| self.try_read_by(by, |value| look.take().expect("one item is looked at")(value)))
    }

    /// The same; `by` says how long another reader's microseconds may last where it does not go on ([`Deadline::brief`]).
    #[inline]
    pub fn try_read_by<T>(&self, by: Deadline, look: impl FnOnce(Value<'_>) -> T) -> Result<(Status, Option<T>), Error> {
        const OPERATION: &str = "channel read";
        if self.queue.is_leased() {
            return Ok(match self.lease_by(by)? {
                Taken::Item(item) => (self.status_with_item(), Some(look(item.into_value()?))),
                Taken::Nothing => (Status::Open, None),
                Taken::Over => (Status::Drained, None),
            });
        }
        self.family.check(OPERATION)?;
        let estate = self.family.estate();
        // Before the look at the items: who closes after it has written is believed.
        let closed = self.queue.is_closed();
        let read = passing::with_record(|record| {
            let popped = self.queue.pop(record, &|record| passing::claim(estate, record), estate.hand_by(by));
            match popped.map_err(|error| Error::of_latch(OPERATION, error, &self.family, &self.queue, by.waited()))? {
                true if record.flags == 0 => passing::lent(record, OPERATION).map(|value| Some(look(value))),
                true => passing::received(&self.family, record, false, OPERATION).map(|incoming| Some(look(incoming.value))),
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

    /// Takes the oldest item and lends it to `look`, without a copy of its own for text and bytes; waits for one while the
    /// channel is open. `None` when it is drained.
    #[inline]
    pub fn read_with<T>(&self, by: Deadline, look: impl FnOnce(&Value<'_>) -> T) -> Result<Option<T>, Error> {
        const OPERATION: &str = "channel read";
        self.family.check(OPERATION)?;
        if self.queue.is_leased() {
            return Ok(self.read(by)?.item.map(|value| look(&value)));
        }
        let estate = self.family.estate();
        let mut look = Some(look);
        loop {
            // Before the look at the items: who closes after it has written is believed.
            let closed = self.queue.is_closed();
            let popped = passing::with_record(|record| {
                let popped = passing::persist(by, || {
                    let popped = self.queue.pop(record, &|record| passing::claim(estate, record), estate.hand_by(by));
                    popped.map_err(|error| Error::of_latch(OPERATION, error, &self.family, &self.queue, by.waited()))
                });
                match popped? {
                    true => passing::lend(&self.family, record, OPERATION, look.take().expect("one item is lent")).map(Some),
                    false => Ok(None),
                }
            })?;
            match popped {
                Some(seen) => return Ok(Some(seen)),
                None if closed => return Ok(None),
                None => self.wait(OPERATION, by)?,
            }
        }
    }

    /// Takes what is there, at most `most` items but at least one, for which it waits; none only when the channel is drained.
    pub fn read_many(&self, most: usize, by: Deadline) -> Result<(Status, Vec<Value<'static>>), Error> {
        const OPERATION: &str = "channel read";
        self.family.check(OPERATION)?;
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
                    match passing::received(&self.family, record, false, OPERATION) {
                        Ok(incoming) => items.push(incoming.value),
                        Err(error) => failed = Some(error),
                    }
                };
                let claim = |record: &Record| passing::claim(estate, record);
                passing::with_record(|record| {
                    passing::persist(by, || {
                        let popped = self.queue.pop_many(most.max(1), record, &claim, each, estate.hand_by(by));
                        popped.map_err(|error| Error::of_latch(OPERATION, error, &self.family, &self.queue, by.waited()))
                    })
                })?;
                for (index, record) in naming {
                    items[index] = passing::received(&self.family, &record, false, OPERATION)?.value;
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
            self.wait(OPERATION, by)?;
        }
    }

    /// Takes the oldest item on a lease; waits for one while the channel is open. The channel was made with leases.
    pub fn lease(&self, by: Deadline) -> Result<Taken, Error> {
        loop {
            match passing::persist(by, || self.lease_by(by))? {
                Taken::Nothing => self.wait("channel lease", by)?,
                taken => return Ok(taken),
            }
        }
    }

    /// Takes the oldest item on a lease if there is one.
    pub fn try_lease(&self) -> Result<Taken, Error> {
        passing::patiently(TRYING, |by| self.lease_by(by))
    }

    fn lease_by(&self, by: Deadline) -> Result<Taken, Error> {
        const OPERATION: &str = "channel lease";
        self.family.check(OPERATION)?;
        if !self.queue.is_leased() {
            return Err(Error::Configuration { operation: OPERATION, detail: "the channel was made without leases".to_owned() });
        }
        Item::take(&self.family, &self.held, &self.queue, None, by, OPERATION)
    }

    /// Waits until there may be an item, or the channel is closed; somebody else may take it before the caller does.
    pub fn wait_for_item(&self, by: Deadline) -> Result<(), Error> {
        const OPERATION: &str = "channel read";
        self.family.check(OPERATION)?;
        self.wait(OPERATION, by)
    }

    /// Whether a read might bring something other than nothing.
    pub(crate) fn may_read(&self) -> bool {
        item::may_take(&self.family, &self.held, &self.queue)
    }

    fn wait(&self, operation: &'static str, by: Deadline) -> Result<(), Error> {
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

    /// Every item until the channel is drained; `by` holds for all of them together.
    pub fn iter(&self, by: Deadline) -> impl Iterator<Item = Result<Value<'static>, Error>> + '_ {
        std::iter::from_fn(move || match self.read(by) {
            Ok(Read { item: Some(value), .. }) => Some(Ok(value)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Forbids further writing and wakes everybody who waits. Doing it again changes nothing.
    pub fn close(&self) -> Result<(), Error> {
        const OPERATION: &str = "channel close";
        self.family.check(OPERATION)?;
        passing::patiently(DECIDING, |by| {
            let closed = self.queue.close(self.family.estate().hand_by(by));
            closed.map(drop).map_err(|error| Error::of_latch(OPERATION, error, &self.family, &self.queue, by.waited()))
        })
    }

    /// Whether it was closed.
    pub fn closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Whether it was closed and nothing is left in it.
    pub fn drained(&self) -> bool {
        self.queue.is_closed() && self.queue.unfinished() == 0
    }

    /// Items that nobody has taken.
    pub fn num_items(&self) -> usize {
        self.queue.len()
    }

    /// The most items in it, if there is a limit.
    pub fn capacity(&self) -> Option<usize> {
        Some(self.queue.capacity()).filter(|capacity| *capacity > 0)
    }

    /// The family it belongs to.
    pub fn family(&self) -> &Family {
        &self.family
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    fn status_with_item(&self) -> Status {
        if self.queue.is_closed() { Status::Closed } else { Status::Open }
    }

    fn status_of_closed(&self) -> Status {
        if self.drained() { Status::Drained } else { Status::Closed }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({:x}, {} items)", self.held.number(), self.num_items())
    }
}

/// Writes values as items of a queue.
pub(crate) fn push_values(
    family: &Family,
    queue: &Queue,
    values: &[Value<'_>],
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
        Err(error) => return Err(Error::of_push(operation, error, family, queue, by)),
    };
    outgoing.iter_mut().take(written).for_each(Outgoing::sent);
    if written < values.len() && !queue.is_closed() {
        let waited_for = format!("room for items ({written} of {} are written)", values.len());
        return Err(Error::of_queue(operation, QueueError::Wait(WaitError::Timeout), &waited_for, by.waited()));
    }
    Ok(Pushed::Some(written))
}

/// A value that leads to an object and keeps it alive.
pub(crate) fn handle(family: &Family, held: &Arc<Held>, kind: HandleKind) -> Value<'static> {
    Value::Handle(Box::new(Handle { kind, family: family.id(), object: held.number(), keeper: Some(Arc::clone(held) as _) }))
}

/// The object that a handle of a kind leads to.
pub(crate) fn held_by(
    family: &Family,
    handle: &Value<'_>,
    wanted: HandleKind,
    kind: u8,
    operation: &'static str,
) -> Result<Arc<Held>, Error> {
    family.check(operation)?;
    let wrong = |detail: String| Error::Configuration { operation, detail };
    let Value::Handle(handle) = handle else {
        return Err(wrong(format!("a {} is no handle of a {}", handle.type_name(), wanted.name())));
    };
    if handle.kind != wanted {
        return Err(wrong(format!("the handle leads to a {}, not to a {}", handle.kind.name(), wanted.name())));
    }
    if handle.family != family.id() {
        return Err(wrong(format!("the {} belongs to another family", wanted.name())));
    }
    let held = family.estate().hold(handle.object).map_err(|error| Error::of_estate(operation, error))?;
    if held.kind() != kind {
        return Err(wrong(format!("the handle leads to something that is no {}", wanted.name())));
    }
    Ok(held)
}
