//! A value on its way through a queue: small ones are copied into it, large ones lie in a block that changes hands.
//!
//! ```text
//!   record   [ block, bytes of it ]  [ n, objects … ]  [ id ]  meta · payload          the first three where flags say so
//!   block    meta, filled up to 64 · payload
//! ```

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use syncline_shm::estate::{Block, Estate, Held};
use syncline_shm::queue::{MOST_INLINE, Parcel, Queue, QueueError, Record, WITH_BLOCK, WITH_OBJECTS};
use syncline_shm::wait::WaitError;
use syncline_wire::{EncodedValue, Limits, SharedBytes, Value};

use crate::{Deadline, Error, Family, Whom};

/// The body begins with the id of the question that this answers.
const WITH_ID: u8 = 4;

const ALIGNMENT: usize = syncline_wire::value::ALIGNMENT;

thread_local! {
    /// Buffers that each thread keeps: for metas of values that it writes, and for the record it reads.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static RECORD: RefCell<Record> = const { RefCell::new(Record::empty()) };
}

/// A value laid out for a queue. Until it is [`sent`](Outgoing::sent) it owns its block, and counts as naming its objects.
pub(crate) struct Outgoing<'v> {
    family: &'v Family,
    encoded: EncodedValue<'v>,
    prefix: Vec<u8>,
    flags: u8,
    block: Option<Block>,
    named: Vec<Arc<Held>>,
    sent: bool,
}

/// A value as bytes, if it can travel inside a family at all. The buffer is this thread's; who has time gives it back to `SCRATCH`.
fn encoded<'v>(value: &'v Value<'_>, operation: &'static str) -> Result<EncodedValue<'v>, Error> {
    let encoded = value.encode_local(SCRATCH.take(), &Limits::default()).map_err(|cause| Error::Unsendable { operation, cause })?;
    if 8 + 8 * encoded.handles() > MOST_INLINE / 2 {
        let most = (MOST_INLINE / 2 - 8) / 8;
        let detail = format!("a value with {} handles; at most {most} travel in one", encoded.handles());
        return Err(Error::Configuration { operation, detail });
    }
    Ok(encoded)
}

/// Shows a value as bytes to `look`, if it can travel inside a family at all.
pub(crate) fn with_encoded<T>(
    value: &Value<'_>,
    operation: &'static str,
    look: impl FnOnce(&EncodedValue<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    let encoded = encoded(value, operation)?;
    let looked = look(&encoded);
    SCRATCH.set(encoded.into_meta());
    looked
}

/// The one copy of a large value.
fn laid_into_block(family: &Family, encoded: &EncodedValue<'_>, operation: &'static str) -> Result<Block, Error> {
    let meta = encoded.meta();
    let start = meta.len().next_multiple_of(ALIGNMENT);
    let len = start + encoded.payload_len() as usize;
    let mut block = family.estate().block(len).map_err(|error| Error::System { operation, detail: error.to_string() })?;
    let bytes = block.bytes_mut();
    bytes[..meta.len()].copy_from_slice(meta);
    let mut at = start;
    for piece in encoded.payload() {
        bytes[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    Ok(block)
}

/// The same value in a block of its own: tensors are read where they lie there, all else is the value's own.
pub(crate) fn copied_into_block(family: &Family, encoded: &EncodedValue<'_>, operation: &'static str) -> Result<Value<'static>, Error> {
    let block = Arc::new(laid_into_block(family, encoded, operation)?);
    in_block(&block, encoded.meta().len(), operation)
}

/// The value in a block that begins with so many bytes of meta.
fn in_block(block: &Arc<Block>, meta_len: usize, operation: &'static str) -> Result<Value<'static>, Error> {
    let damaged = |detail: String| Error::Damaged { operation, detail };
    let bytes = SharedBytes::new(Arc::clone(block) as _);
    let start = meta_len.next_multiple_of(ALIGNMENT);
    let payload = bytes.slice(start..bytes.len()).filter(|_| meta_len <= bytes.len());
    let payload = payload.ok_or_else(|| damaged(format!("{meta_len} bytes of meta in a block of {}", bytes.len())))?;
    Value::decode_shared(&bytes[..meta_len], &payload, &Limits::default()).map_err(|error| damaged(error.to_string()))
}

impl<'v> Outgoing<'v> {
    pub(crate) fn new(family: &'v Family, value: &'v Value<'_>, id: Option<u64>, operation: &'static str) -> Result<Outgoing<'v>, Error> {
        let encoded = encoded(value, operation)?;
        let objects = 8 + 8 * encoded.handles();
        let whole = encoded.meta().len() as u64 + encoded.payload_len();
        let mut outgoing = Outgoing { family, encoded, prefix: Vec::new(), flags: 0, block: None, named: Vec::new(), sent: false };
        if whole as usize + objects + 24 > MOST_INLINE {
            outgoing.move_to_block(operation)?;
        }
        if outgoing.encoded.handles() > 0 {
            outgoing.name_objects(value, operation)?;
        }
        if let Some(id) = id {
            outgoing.flags |= WITH_ID;
            outgoing.prefix.extend_from_slice(&id.to_le_bytes());
        }
        Ok(outgoing)
    }

    /// The one copy of a large value.
    fn move_to_block(&mut self, operation: &'static str) -> Result<(), Error> {
        let block = laid_into_block(self.family, &self.encoded, operation)?;
        self.flags |= WITH_BLOCK;
        self.prefix.extend_from_slice(&block.id().to_le_bytes());
        self.prefix.extend_from_slice(&(block.as_ref().len() as u64).to_le_bytes());
        self.block = Some(block);
        Ok(())
    }

    /// Counts the objects as named before anybody can see the record.
    fn name_objects(&mut self, value: &Value<'_>, operation: &'static str) -> Result<(), Error> {
        let handles = value.handles();
        self.flags |= WITH_OBJECTS;
        self.prefix.extend_from_slice(&(handles.len() as u64).to_le_bytes());
        for handle in handles {
            if handle.family != self.family.id() {
                let detail = format!("a {} of another family cannot be sent through this one", handle.kind.name());
                return Err(Error::Configuration { operation, detail });
            }
            let held = self.family.estate().hold(handle.object).map_err(|error| Error::of_estate(operation, error))?;
            self.family.estate().count_named(handle.object, true);
            self.prefix.extend_from_slice(&handle.object.to_le_bytes());
            self.named.push(held);
        }
        Ok(())
    }

    /// Shows the record's pieces to `push`.
    #[inline]
    pub(crate) fn with_parcel<T>(&self, push: impl FnOnce(Parcel<'_>) -> T) -> T {
        let payload = self.encoded.payload();
        match (&self.block, payload.len()) {
            (Some(_), _) => push(self.parcel(&[&self.prefix])),
            (None, 0) => push(self.parcel(&[&self.prefix, self.encoded.meta()])),
            (None, 1) => push(self.parcel(&[&self.prefix, self.encoded.meta(), payload[0]])),
            (None, _) => push(self.parcel(&self.pieces())),
        }
    }

    /// The record's bytes, one after the other.
    pub(crate) fn pieces(&self) -> Vec<&[u8]> {
        let mut pieces: Vec<&[u8]> = vec![&self.prefix];
        if self.block.is_none() {
            pieces.push(self.encoded.meta());
            pieces.extend_from_slice(self.encoded.payload());
        }
        pieces
    }

    pub(crate) fn parcel<'p>(&self, pieces: &'p [&'p [u8]]) -> Parcel<'p> {
        Parcel { flags: self.flags, meta_words: (self.encoded.meta().len() / 8) as u32, pieces }
    }

    /// Bytes of the record.
    pub(crate) fn record_len(&self) -> usize {
        let inline = if self.block.is_some() { 0 } else { self.encoded.meta().len() + self.encoded.payload_len() as usize };
        self.prefix.len() + inline
    }

    /// The record is in the queue: the block and the names are the queue's.
    pub(crate) fn sent(&mut self) {
        self.sent = true;
        if let Some(block) = &self.block {
            block.leave();
        }
    }
}

impl Drop for Outgoing<'_> {
    fn drop(&mut self) {
        if !self.sent {
            for held in &self.named {
                self.family.estate().count_named(held.number(), false);
            }
        }
        let encoded = std::mem::take(&mut self.encoded);
        SCRATCH.set(encoded.into_meta());
    }
}

/// What came out of a queue.
pub(crate) struct Incoming {
    pub(crate) value: Value<'static>,
    /// The question's number, or this record's own.
    pub(crate) id: u64,
    pub(crate) block: Option<Arc<Block>>,
    pub(crate) objects: Vec<u64>,
}

/// Lends this thread's record; another one to whoever reads from inside of a read.
#[inline]
pub(crate) fn with_record<T>(take: impl FnOnce(&mut Record) -> T) -> T {
    RECORD.with(|kept| match kept.try_borrow_mut() {
        Ok(mut record) => {
            let result = take(&mut record);
            if record.bytes.capacity() > 2 * MOST_INLINE {
                record.bytes.shrink_to(MOST_INLINE);
            }
            result
        }
        Err(_) => take(&mut Record::default()),
    })
}

/// What a reader does before a record is its own: from then on the block is freed with this process.
pub(crate) fn claim(estate: &Estate, record: &Record) {
    if let Some((block, _)) = record.block() {
        estate.adopt(block);
    }
    if record.flags & WITH_OBJECTS != 0 {
        estate.claim_objects(record);
    }
}

/// Lends the value of a record that was taken, where it lies.
#[inline]
pub(crate) fn lend<T>(family: &Family, record: &Record, operation: &'static str, look: impl FnOnce(&Value<'_>) -> T) -> Result<T, Error> {
    match record.flags {
        0 => lent(record, operation).map(|value| look(&value)),
        WITH_BLOCK => lend_block(family, record, operation, look),
        _ => received(family, record, false, operation).map(|incoming| look(&incoming.value)),
    }
}

fn lend_block<T>(family: &Family, record: &Record, operation: &'static str, look: impl FnOnce(&Value<'_>) -> T) -> Result<T, Error> {
    let damaged = |detail: String| Error::Damaged { operation, detail };
    let (name, len) = record.block().unwrap_or_default();
    let block =
        family.estate().received(name, len).ok_or_else(|| damaged(format!("a record speaks of block {name:x} with {len} bytes")))?;
    let (bytes, meta_len): (&[u8], _) = (block.as_ref(), record.meta_words as usize * 8);
    let parts = bytes.get(..meta_len).zip(bytes.get(meta_len.next_multiple_of(ALIGNMENT)..));
    let (meta, payload) = parts.ok_or_else(|| damaged(format!("{meta_len} bytes of meta in a block of {len}")))?;
    let value = Value::decode_local(meta, payload, &Limits::default()).map_err(|error| damaged(error.to_string()))?;
    Ok(look(&value))
}

/// The value of a record that holds all of it, where it lies.
#[inline]
pub(crate) fn lent<'r>(record: &'r Record, operation: &'static str) -> Result<Value<'r>, Error> {
    let meta_len = record.meta_words as usize * 8;
    if meta_len == record.bytes.len()
        && let Some(value) = Value::decode_plain(&record.bytes)
    {
        return Ok(value);
    }
    let damaged = |detail: String| Error::Damaged { operation, detail };
    let parts = record.bytes.split_at_checked(meta_len);
    let (meta, payload) = parts.ok_or_else(|| damaged(format!("a record with {meta_len} bytes of meta is too short")))?;
    Value::decode_local(meta, payload, &Limits::default()).map_err(|error| damaged(error.to_string()))
}

/// Turns a record that was taken into a value. With `keep`, the record stays in its queue and goes on naming its objects.
pub(crate) fn received(family: &Family, record: &Record, keep: bool, operation: &'static str) -> Result<Incoming, Error> {
    let estate = family.estate();
    let mut body = record.body();
    let mut id = u64::from(record.number);
    if record.flags & WITH_ID != 0
        && let Some((first, rest)) = body.split_first_chunk::<8>()
    {
        (id, body) = (u64::from_le_bytes(*first), rest);
    }
    let meta_len = record.meta_words as usize * 8;
    let damaged = |detail: String| Error::Damaged { operation, detail };
    let (mut value, block) = match record.block() {
        Some((name, len)) => {
            let block = estate.received(name, len).ok_or_else(|| damaged(format!("a record speaks of block {name:x} with {len} bytes")))?;
            let block = Arc::new(block);
            (in_block(&block, meta_len, operation)?, Some(block))
        }
        None => {
            let (meta, payload) =
                body.split_at_checked(meta_len).ok_or_else(|| damaged(format!("{meta_len} bytes of meta in a record")))?;
            (Value::decode_local(meta, payload, &Limits::default()).map_err(|error| damaged(error.to_string()))?.into_owned(), None)
        }
    };
    let mut objects = Vec::new();
    if record.flags & WITH_OBJECTS != 0 {
        objects.extend(record.objects());
        let held: Vec<Arc<Held>> = objects.iter().filter_map(|object| estate.hold(*object).ok()).collect();
        estate.objects_arrived(&objects);
        value.visit_handles(&mut |handle| {
            let keeper = held.iter().find(|held| held.number() == handle.object && handle.family == family.id());
            handle.keeper = keeper.map(|held| Arc::clone(held) as _);
        });
        if !keep {
            objects.drain(..).for_each(|object| estate.count_named(object, false));
        }
    }
    Ok(Incoming { value, id, block, objects })
}

/// Tries again while a latch cannot be had and there is time: no latch is waited for without end at once.
#[inline]
pub(crate) fn persist<T>(by: Deadline, mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match attempt() {
            Err(Error::Timeout { .. }) if !by.expired() => {}
            ended => return ended,
        }
    }
}

/// How long a call that only tries waits for somebody who is in the middle of something; a latch gives it no less than 2 s.
pub(crate) const TRYING: Duration = Duration::ZERO;
/// The same where giving up costs something: an item stays in hand, a queue open.
pub(crate) const DECIDING: Duration = Duration::from_secs(20);

/// Does at once what waits for nothing but others' microseconds, and again with `patience` where somebody was in the way: the usual case
/// looks at no clock.
#[inline]
pub(crate) fn patiently<T>(patience: Duration, mut attempt: impl FnMut(Deadline) -> Result<T, Error>) -> Result<T, Error> {
    match attempt(Deadline::brief()) {
        Err(Error::Interrupted { .. }) => attempt(Deadline::after(patience)),
        ended => ended,
    }
}

impl Error {
    /// A call that waits for nothing but another's microseconds has failed.
    #[cold]
    pub(crate) fn of_latch(operation: &'static str, error: QueueError, family: &Family, queue: &Queue, waited: Duration) -> Error {
        let holder = queue.latch_holder().and_then(|member| family.estate().pid_of(member));
        let name = holder.map_or_else(|| "somebody else".to_owned(), |pid| format!("process {pid}"));
        let waited_for = format!("{name}, which is in the middle of a read or write here and does not go on");
        match Error::of_queue(operation, error, &waited_for, waited) {
            Error::Timeout { operation, waited_for, waited, .. } => Error::Timeout {
                operation,
                waited_for,
                whom: Some(Box::new(Whom { name: "a member of the family".to_owned(), host: None, pid: holder })),
                waited,
                hint: "it was stopped, by a debugger or a signal; let it go on (kill -CONT) or end it",
            },
            other => other,
        }
    }

    /// A write has failed, which waits for room and for a latch.
    #[cold]
    pub(crate) fn of_push(operation: &'static str, error: QueueError, family: &Family, queue: &Queue, by: Deadline) -> Error {
        match queue.capacity() {
            0 if queue.latch_holder().is_some() => Error::of_latch(operation, error, family, queue, by.waited()),
            _ => Error::of_queue(operation, error, "room for an item", by.waited()),
        }
    }

    pub(crate) fn of_queue(operation: &'static str, error: QueueError, waited_for: &str, waited: Duration) -> Error {
        match error {
            QueueError::Wait(WaitError::Timeout | WaitError::Gone) => Error::Timeout {
                operation,
                waited_for: waited_for.to_owned(),
                whom: None,
                waited,
                hint: "give a longer timeout, or look whether the other side still works on it",
            },
            QueueError::Wait(WaitError::Interrupted) => Error::Interrupted { operation, waited },
            QueueError::Corrupt(what) => Error::Damaged { operation, detail: what.to_string() },
            QueueError::Memory(error) => Error::System { operation, detail: error.to_string() },
            QueueError::LeaseOver => Error::LeaseOver { operation },
        }
    }
}
