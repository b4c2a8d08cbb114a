//! Many writers, many readers, first in first out, between threads and processes alike.
//!
//! A channel begins in plain memory of its process and moves into the family's when a handle of it is asked for: see the README of this folder.

mod batch;
mod keep;
mod local;
mod moving;
mod shared;

use std::sync::Arc;

use syncline_shm::bell::Bell;
use syncline_shm::estate::KIND_CHANNEL;
use syncline_shm::queue::{Pushed, QueueError};
use syncline_shm::wait::WaitError;
use syncline_wire::{HandleKind, Value};

use crate::handle::{handle, held_by};
use crate::item::Taken;
use crate::passing::{self, DECIDING, TRYING};
use crate::{Deadline, Error, Family, thread};
use batch::{Batch, Plain, Space};
use local::{Local, Put, Took};
use shared::{Shared, cut_short};

pub(crate) use shared::push_values;

const READ: &str = "channel read";
const WRITE: &str = "channel write";

/// Whom a thread waits for that cannot have a lock.
const ANOTHER: &str = "another thread, which is in the middle of a read or write here and does not go on";

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
    shared: Shared,
    /// Where the items are until the channel moves; none where it never was.
    local: Option<Arc<Local>>,
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
        let shared = Shared::over(family, held.map_err(|error| Error::of_estate(OPERATION, error))?);
        // Leases are for items that outlive their reader, which none in this process's memory does.
        let local = (!options.leases).then(|| Arc::new(Local::new(options.capacity)));
        Ok(Channel { shared, local })
    }

    /// The channel that a handle leads to.
    pub fn open(family: &Family, handle: &Value<'_>) -> Result<Channel, Error> {
        let held = held_by(family, handle, HandleKind::Channel, KIND_CHANNEL, "channel")?;
        Ok(Channel { shared: Shared::over(family, held), local: None })
    }

    /// A handle, to be sent through other objects: from now on other processes may read and write. Fails, and changes nothing,
    /// where the family has no room for what is in the channel.
    pub fn handle(&self) -> Result<Value<'static>, Error> {
        self.move_to_family("channel handle")?;
        Ok(handle(&self.shared.family, &self.shared.held, HandleKind::Channel))
    }

    /// Its number, which no other object of the family has: for comparisons and for people. Only a [`handle`](Channel::handle) leads others here.
    pub fn number(&self) -> u64 {
        self.shared.held.number()
    }

    /// The queue of this process's threads, while the channel has not moved.
    #[inline]
    fn local(&self) -> Option<&Local> {
        self.local.as_deref().filter(|local| !local.has_moved())
    }

    /// Writes an item; waits for room if the channel has a capacity. `Open` says that it was written.
    #[inline]
    pub fn write(&self, value: &Value<'_>, by: Deadline) -> Result<Status, Error> {
        self.family().check(WRITE)?;
        if let Some(local) = self.local() {
            let put = match Plain::of(value) {
                Some(plain) => self.put(local, |batch| batch.push_plain(plain), by)?,
                None => self.put_whole(local, &mut Some(keep::kept(self.family(), value, WRITE)?), by)?,
            };
            if let Some(status) = put {
                return Ok(status);
            }
        }
        self.shared.write(value, by, WRITE)
    }

    /// The same for a value that the caller has no more use for: nil is left of it if it was written. Threads are given its tensors and
    /// bytes where they lie.
    pub fn write_moved(&self, value: &mut Value<'static>, by: Deadline) -> Result<Status, Error> {
        self.family().check(WRITE)?;
        if let Some(local) = self.local() {
            keep::given(self.family(), value, WRITE)?;
            let mut given = Some(std::mem::take(value));
            let put = self.put_whole(local, &mut given, by);
            // What was not written is the caller's again.
            if let Some(refused) = given {
                *value = refused;
            }
            if let Some(status) = put? {
                return Ok(status);
            }
        }
        let status = self.shared.write(value, by, WRITE)?;
        if status == Status::Open {
            *value = Value::Nil;
        }
        Ok(status)
    }

    /// Writes a value into the local queue, waiting for room; none if the channel has moved. What was not written stays in `value`.
    fn put_whole(&self, local: &Local, value: &mut Option<Value<'static>>, by: Deadline) -> Result<Option<Status>, Error> {
        self.put(local, |batch| batch.push_whole(value.take().expect("one value is written")), by)
    }

    /// The same for whatever `push` writes.
    #[inline(always)]
    fn put(&self, local: &Local, mut push: impl FnMut(&mut Batch), by: Deadline) -> Result<Option<Status>, Error> {
        loop {
            let put = || local.put(&mut push, by);
            match tried(WRITE, by, put)? {
                Put::Done => return Ok(Some(Status::Open)),
                Put::Closed => return Ok(Some(self.status_of_closed())),
                Put::Moved => return Ok(None),
                Put::Full => self.wait_for_room(local, by).map_err(|error| waited(WRITE, error, "room for an item", by))?,
            }
        }
    }

    fn wait_for_room(&self, local: &Local, by: Deadline) -> Result<(), WaitError> {
        local.wait_for_room(by, &|| {
            self.family().estate().look_around();
            true
        })
    }

    /// Writes an item if there is room for it: `None` when there is none. Never waits but for another writer's microseconds.
    pub fn try_write(&self, value: &Value<'_>) -> Result<Option<Status>, Error> {
        passing::patiently(TRYING, |by| self.try_write_by(value, by))
    }

    /// The same; `by` says how long those microseconds may last where the other writer does not go on ([`Deadline::brief`]).
    pub fn try_write_by(&self, value: &Value<'_>, by: Deadline) -> Result<Option<Status>, Error> {
        self.family().check(WRITE)?;
        if let Some(local) = self.local() {
            let put = match Plain::of(value) {
                Some(plain) => local.put(|batch| batch.push_plain(plain), by),
                None => {
                    let kept = keep::kept(self.family(), value, WRITE)?;
                    local.put(|batch| batch.push_whole(kept), by)
                }
            };
            match put.map_err(|error| waited(WRITE, error, ANOTHER, by))? {
                Put::Done => return Ok(Some(Status::Open)),
                Put::Full => return Ok(None),
                Put::Closed => return Ok(Some(self.status_of_closed())),
                Put::Moved => {}
            }
        }
        self.shared.try_write_by(value, by, WRITE)
    }

    /// Writes each value as an item of its own, together: as many readers are woken. Waits for room if there is a capacity.
    ///
    /// `Closed` and `Drained` say that nothing was written. Where somebody closes the channel while this waits for room, [`Error::Closed`]
    /// says how many were.
    pub fn write_all(&self, values: &[Value<'_>], by: Deadline) -> Result<Status, Error> {
        self.family().check(WRITE)?;
        let written = match self.local() {
            Some(local) => self.put_all(local, values, by)?,
            None => Written { count: 0, end: Put::Moved },
        };
        let (written, closed) = match written {
            Written { count, end: Put::Moved } => {
                let family = self.family();
                match push_values(family, &self.shared.queue, &values[count..], count, by, WRITE)? {
                    Pushed::Some(more) => (count + more, count + more < values.len()),
                    Pushed::Closed => (count, true),
                }
            }
            Written { count, end } => (count, end == Put::Closed),
        };
        match closed {
            false => Ok(Status::Open),
            true if written == 0 => Ok(self.status_of_closed()),
            true => {
                let what = format!("the channel was closed when {written} of {} items were written", values.len());
                Err(Error::Closed { operation: WRITE, what })
            }
        }
    }

    /// Writes values into the local queue until all are there, it is closed or has moved.
    fn put_all(&self, local: &Local, values: &[Value<'_>], by: Deadline) -> Result<Written, Error> {
        // All are laid out before the first is written: one that cannot be sent leaves no half of a call behind.
        let kept = values.iter().map(|value| match Plain::of(value) {
            Some(plain) => Ok(Err(plain)),
            None => keep::kept(self.family(), value, WRITE).map(Ok),
        });
        let mut items = kept.collect::<Result<Vec<_>, Error>>()?.into_iter();
        let mut push = |batch: &mut Batch| match items.next() {
            Some(Ok(whole)) => batch.push_whole(whole),
            Some(Err(plain)) => batch.push_plain(plain),
            None => {}
        };
        let mut count = 0;
        loop {
            let put = local.put_many(values.len() - count, &mut push, by);
            if matches!(put, Err(WaitError::Timeout)) && !by.expired() {
                continue; // A lock is not waited for without end; who has time asks again.
            }
            let waited = put.and_then(|(more, end)| {
                count += more;
                if end == Put::Full { self.wait_for_room(local, by).map(|()| end) } else { Ok(end) }
            });
            match waited {
                Ok(Put::Full) => {}
                Ok(end) => return Ok(Written { count, end }),
                Err(error) if count == 0 => return Err(self::waited(WRITE, error, "room for an item", by)),
                Err(_) => return Err(cut_short(count, values.len(), by, WRITE)),
            }
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
            self.wait(READ, by)?;
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
        self.family().check(READ)?;
        if let Some(local) = self.local() {
            // Before the look at the items: who closes after it has written is believed.
            let closed = local.is_closed();
            match local.take(&mut Space::new(), by).map_err(|error| waited(READ, error, ANOTHER, by))? {
                Took::Item(value) => return Ok((self.status_with_item(), Some(look(value)))),
                Took::Nothing => return Ok((if closed { Status::Drained } else { Status::Open }, None)),
                Took::Moved => {}
            }
        }
        self.shared.try_read_by(by, look, READ)
    }

    /// Takes the oldest item and lends it to `look`, without a copy of its own for text and bytes; waits for one while the
    /// channel is open. `None` when it is drained.
    #[inline]
    pub fn read_with<T>(&self, by: Deadline, look: impl FnOnce(&Value<'_>) -> T) -> Result<Option<T>, Error> {
        self.family().check(READ)?;
        while let Some(local) = self.local() {
            let closed = local.is_closed();
            let mut space = Space::new();
            match local.take(&mut space, by) {
                Ok(Took::Item(value)) => return Ok(Some(look(&value))),
                Ok(Took::Nothing) if closed => return Ok(None),
                Ok(Took::Nothing) => self.wait(READ, by)?,
                Ok(Took::Moved) => break,
                // A lock is not waited for without end; who has time asks again.
                Err(WaitError::Timeout) if !by.expired() => {}
                Err(error) => return Err(waited(READ, error, ANOTHER, by)),
            }
        }
        if self.shared.queue.is_leased() {
            return Ok(self.read(by)?.item.map(|value| look(&value)));
        }
        self.shared.read_with(by, look, READ)
    }

    /// Takes what is there, at most `most` items but at least one, for which it waits; none only when the channel is drained.
    pub fn read_many(&self, most: usize, by: Deadline) -> Result<(Status, Vec<Value<'static>>), Error> {
        self.family().check(READ)?;
        let mut items = Vec::new();
        while let Some(local) = self.local() {
            let closed = local.is_closed();
            let moved = tried(READ, by, || local.take_many(most.max(1), &mut items, by))?;
            if !items.is_empty() {
                return Ok((self.status_with_item(), items));
            }
            if closed && !moved {
                return Ok((Status::Drained, Vec::new()));
            }
            if !moved {
                self.wait(READ, by)?;
            }
        }
        self.shared.read_many(most, by, READ)
    }

    /// Takes the oldest item on a lease; waits for one while the channel is open. The channel was made with leases.
    pub fn lease(&self, by: Deadline) -> Result<Taken, Error> {
        loop {
            match passing::persist(by, || self.shared.lease_by(by))? {
                Taken::Nothing => self.wait("channel lease", by)?,
                taken => return Ok(taken),
            }
        }
    }

    /// Takes the oldest item on a lease if there is one.
    pub fn try_lease(&self) -> Result<Taken, Error> {
        passing::patiently(TRYING, |by| self.shared.lease_by(by))
    }

    /// Waits until there may be an item, or the channel is closed; somebody else may take it before the caller does.
    pub fn wait_for_item(&self, by: Deadline) -> Result<(), Error> {
        self.family().check(READ)?;
        self.wait(READ, by)
    }

    /// Whether a read might bring something other than nothing, for somebody who is about to sleep on the [`bell`](Channel::bell).
    pub(crate) fn may_read(&self) -> bool {
        self.local().map_or_else(|| self.shared.may_read(), Local::is_ready)
    }

    /// What readers listen to; when the channel moves, it rings.
    pub(crate) fn bell(&self) -> &Bell {
        self.local().map_or_else(|| self.shared.queue.bell(), Local::bell)
    }

    /// Waits until there may be an item, the channel is closed, or it moves: callers look again.
    fn wait(&self, operation: &'static str, by: Deadline) -> Result<(), Error> {
        let Some(local) = self.local() else { return self.shared.wait(operation, by) };
        let look = || {
            self.family().estate().look_around();
            true
        };
        local.wait_for_items(by, &look).map_err(|error| waited(operation, error, "an item in the channel", by))
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
        self.family().check(OPERATION)?;
        let moved = self.local().map_or(Ok(true), |local| {
            passing::patiently(DECIDING, |by| local.close(by).map_err(|error| waited(OPERATION, error, ANOTHER, by)))
        });
        if moved? { self.shared.close(OPERATION) } else { Ok(()) }
    }

    /// Whether it was closed.
    pub fn closed(&self) -> bool {
        self.local().map_or_else(|| self.shared.queue.is_closed(), Local::is_closed)
    }

    /// Whether it was closed and nothing is left in it.
    pub fn drained(&self) -> bool {
        self.local().map_or_else(|| self.shared.drained(), |local| local.is_closed() && local.len() == 0)
    }

    /// Items that nobody has taken.
    pub fn num_items(&self) -> usize {
        self.local().map_or_else(|| self.shared.queue.len(), Local::len)
    }

    /// The most items in it, if there is a limit.
    pub fn capacity(&self) -> Option<usize> {
        Some(self.shared.queue.capacity()).filter(|capacity| *capacity > 0)
    }

    /// The family it belongs to.
    pub fn family(&self) -> &Family {
        &self.shared.family
    }

    fn status_with_item(&self) -> Status {
        if self.closed() { Status::Closed } else { Status::Open }
    }

    fn status_of_closed(&self) -> Status {
        if self.drained() { Status::Drained } else { Status::Closed }
    }
}

/// Tries again while a lock cannot be had and there is time: none is waited for without end at once.
#[inline(always)]
fn tried<T>(operation: &'static str, by: Deadline, mut attempt: impl FnMut() -> Result<T, WaitError>) -> Result<T, Error> {
    passing::persist(by, || attempt().map_err(|error| waited(operation, error, ANOTHER, by)))
}

/// What became of a write of several items: how many went into the local queue, and what stood in the way of the next.
struct Written {
    count: usize,
    end: Put,
}

fn waited(operation: &'static str, error: WaitError, waited_for: &str, by: Deadline) -> Error {
    Error::of_queue(operation, QueueError::Wait(error), waited_for, by.waited())
}

/// Two are the same if they lead to one channel.
impl PartialEq for Channel {
    fn eq(&self, other: &Channel) -> bool {
        (self.number(), self.family().id()) == (other.number(), other.family().id())
    }
}

impl Eq for Channel {}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Channel({:x}, {} items)", self.number(), self.num_items())
    }
}
