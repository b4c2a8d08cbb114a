//! A table of keys and values that threads and processes read and change.

use std::sync::Arc;

use syncline_shm::estate::{Deposit, Entry, Held, KIND_TABLE, NewEntry, TableStore};
use syncline_shm::queue::QueueError;
use syncline_wire::{EncodedValue, HandleKind, Limits, Value};

use crate::deposit::{deposited, laid_out, objects_of};
use crate::handle::{handle, held_by};
use crate::{Error, Family, thread};

/// A value of at least this many bytes lies in a block of its own, of which the entry speaks: any size, and read without a copy.
const LARGE: u64 = 32 << 10;

/// The words of meta of an entry whose value lies elsewhere: in the deposit that is the only object it names.
const ELSEWHERE: u32 = u32::MAX;

/// An entry, and the objects that it names.
type WithObjects = (Entry, Vec<Arc<Held>>);

/// A shared table, as one handle to it. Values are copied in and, unless they are large, out; a table inside a table is a handle,
/// and its changes are seen through it. Each call is one step for all others; a change that depends on what was read needs a [`Mutex`](crate::Mutex).
///
/// ```
/// use syncline_ipc::{Family, SharedTable, Value};
///
/// let family = Family::alone()?;
/// let table = SharedTable::new(&family)?;
/// let inner = SharedTable::new(&family)?;
/// table.set(&Value::from("inner"), &inner.handle())?;
/// inner.set(&Value::Int(1), &Value::from("one"))?;
/// let found = SharedTable::open(&family, &table.get(&Value::from("inner"))?.expect("it was set"))?;
/// assert_eq!(found.pairs()?, [(Value::Int(1), Value::from("one"))]);
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedTable {
    family: Family,
    store: Arc<TableStore>,
}

impl SharedTable {
    /// An empty table.
    pub fn new(family: &Family) -> Result<SharedTable, Error> {
        const OPERATION: &str = "shared table";
        family.check(OPERATION)?;
        let store = TableStore::make(family.estate(), thread::me()).map_err(|error| Error::of_estate(OPERATION, error))?;
        Ok(SharedTable { family: family.clone(), store: Arc::new(store) })
    }

    /// A table with the pairs of a map, or the items of a list under 1, 2, 3 …
    pub fn of(family: &Family, value: &Value<'_>) -> Result<SharedTable, Error> {
        let table = Self::new(family)?;
        match value {
            Value::Map(pairs) => pairs.iter().try_for_each(|(key, value)| table.set(key, value).map(drop))?,
            Value::List(items) => {
                (1..).zip(items).try_for_each(|(index, item)| table.set(&Value::Int(index), item).map(drop))?;
            }
            other => {
                let detail = format!("a shared table is made of a map or a list, not of a {}", other.type_name());
                return Err(Error::Configuration { operation: "shared table", detail });
            }
        }
        Ok(table)
    }

    /// The same, and empties `value` when everything is in the table.
    pub fn moved(family: &Family, value: &mut Value<'_>) -> Result<SharedTable, Error> {
        let table = Self::of(family, value)?;
        match value {
            Value::Map(pairs) => pairs.clear(),
            Value::List(items) => items.clear(),
            _ => {}
        }
        Ok(table)
    }

    /// The table that a handle leads to.
    pub fn open(family: &Family, handle: &Value<'_>) -> Result<SharedTable, Error> {
        let held = held_by(family, handle, HandleKind::SharedTable, KIND_TABLE, "shared table")?;
        Ok(SharedTable { family: family.clone(), store: Arc::new(TableStore::over(held)) })
    }

    /// A handle, to be sent through other objects.
    pub fn handle(&self) -> Value<'static> {
        handle(&self.family, self.store.held(), HandleKind::SharedTable)
    }

    /// Writes `value` under `key`, which may be anything but nil; true when there was one before. A nil value is a value.
    pub fn set(&self, key: &Value<'_>, value: &Value<'_>) -> Result<bool, Error> {
        const OPERATION: &str = "shared table write";
        self.family.check(OPERATION)?;
        let key = key_bytes(key, OPERATION)?;
        let encoded =
            value.encode_local(Vec::new(), &Limits::default()).map_err(|cause| Error::Unsendable { operation: OPERATION, cause })?;
        let held = objects_of(&self.family, value, OPERATION)?;
        let whole = encoded.meta().len() as u64 + encoded.payload_len();
        // Objects are few: where they run short, the table takes what it can.
        if whole >= LARGE && !self.family.estate().is_crowded() {
            let deposit = laid_out(&self.family, &encoded, &held, OPERATION)?;
            return self.put(&key, &[], ELSEWHERE, &[Arc::clone(deposit.held())]);
        }
        self.put(&key, &pieces_of(&encoded), (encoded.meta().len() / 8) as u32, &held)
    }

    /// Writes an entry; true when there was one before.
    fn put(&self, key: &(Vec<u8>, u32), value: &[&[u8]], value_meta: u32, held: &[Arc<Held>]) -> Result<bool, Error> {
        let estate = self.family.estate();
        let objects: Vec<u64> = held.iter().map(|held| held.number()).collect();
        objects.iter().for_each(|object| estate.count_named(*object, true));
        match self.store.set(&NewEntry { key: &key.0, key_meta: key.1, value, value_meta, objects: &objects }) {
            Ok(before) => {
                let existed = before.is_some();
                self.forget(before.unwrap_or_default());
                Ok(existed)
            }
            Err(error) => {
                objects.iter().for_each(|object| estate.count_named(*object, false));
                Err(failed("shared table write", error))
            }
        }
    }

    /// Objects that an entry does not name any more: held for a moment, so that the last one's end is noticed.
    fn forget(&self, objects: Vec<u64>) {
        let estate = self.family.estate();
        for object in objects {
            let held = estate.hold(object);
            estate.count_named(object, false);
            drop(held);
        }
    }

    /// What stands under `key`; none if nothing does.
    pub fn get(&self, key: &Value<'_>) -> Result<Option<Value<'static>>, Error> {
        const OPERATION: &str = "shared table read";
        self.family.check(OPERATION)?;
        let key = key_bytes(key, OPERATION)?;
        let found = self.store.get(&key.0).map_err(|error| failed(OPERATION, error))?;
        found.map(|entry| self.value_of(&entry, self.arrived(&entry), OPERATION)).transpose()
    }

    /// The value of an entry whose objects are held.
    fn value_of(&self, entry: &Entry, held: Vec<Arc<Held>>, operation: &'static str) -> Result<Value<'static>, Error> {
        if entry.value_meta == ELSEWHERE {
            let deposit = held.into_iter().next();
            let deposit = deposit.ok_or_else(|| Error::Damaged { operation, detail: "an entry speaks of a value that is gone".into() })?;
            return deposited(&self.family, deposit, operation).map(|(value, _)| value);
        }
        let mut value = decoded(&entry.value, entry.value_meta, operation)?;
        if !held.is_empty() {
            value.visit_handles(&mut |handle| {
                let keeper = held.iter().find(|held| held.number() == handle.object && handle.family == self.family.id());
                handle.keeper = keeper.map(|held| Arc::clone(held) as _);
            });
        }
        Ok(value)
    }

    /// Holds the objects that were claimed for an entry.
    fn arrived(&self, entry: &Entry) -> Vec<Arc<Held>> {
        let estate = self.family.estate();
        let held = entry.objects.iter().filter_map(|object| estate.hold(*object).ok()).collect();
        estate.objects_arrived(&entry.objects);
        held
    }

    /// Removes `key`; false when nothing stood there.
    pub fn remove(&self, key: &Value<'_>) -> Result<bool, Error> {
        Ok(self.removed(key, "shared table remove")?.is_some())
    }

    /// Removes `key` and returns what stood under it, as one step; none if nothing did.
    pub fn take(&self, key: &Value<'_>) -> Result<Option<Value<'static>>, Error> {
        const OPERATION: &str = "shared table take";
        let removed = self.removed(key, OPERATION)?;
        removed.map(|(entry, held)| self.value_of(&entry, held, OPERATION)).transpose()
    }

    fn removed(&self, key: &Value<'_>, operation: &'static str) -> Result<Option<WithObjects>, Error> {
        self.family.check(operation)?;
        let key = key_bytes(key, operation)?;
        let Some(entry) = self.store.remove(&key.0).map_err(|error| failed(operation, error))? else { return Ok(None) };
        let held = self.arrived(&entry);
        self.forget(entry.objects.clone());
        Ok(Some((entry, held)))
    }

    /// Removes all pairs, as one step.
    pub fn clear(&self) -> Result<(), Error> {
        const OPERATION: &str = "shared table clear";
        self.family.check(OPERATION)?;
        let named = self.store.clear().map_err(|error| failed(OPERATION, error))?;
        self.forget(named);
        Ok(())
    }

    /// How many pairs there are.
    pub fn len(&self) -> Result<usize, Error> {
        self.family.check("shared table length")?;
        self.store.len().map_err(|error| failed("shared table length", error))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// All pairs as they are at one moment, in the order of their last change.
    pub fn pairs(&self) -> Result<Vec<(Value<'static>, Value<'static>)>, Error> {
        const OPERATION: &str = "shared table pairs";
        self.family.check(OPERATION)?;
        let entries = self.store.entries().map_err(|error| failed(OPERATION, error))?;
        // All of them first: one that cannot be read must not keep what was claimed for the others.
        let held: Vec<Vec<Arc<Held>>> = entries.iter().map(|entry| self.arrived(entry)).collect();
        let pair = |(entry, held): (&Entry, Vec<Arc<Held>>)| {
            Ok((decoded(&entry.key, entry.key_meta, OPERATION)?, self.value_of(entry, held, OPERATION)?))
        };
        entries.iter().zip(held).map(pair).collect()
    }

    /// Bytes of shared memory that it uses, those of large values included.
    pub fn size(&self) -> Result<usize, Error> {
        const OPERATION: &str = "shared table size";
        self.family.check(OPERATION)?;
        let own = self.store.bytes().map_err(|error| failed(OPERATION, error))?;
        let entries = self.store.entries().map_err(|error| failed(OPERATION, error))?;
        let elsewhere = entries.iter().flat_map(|entry| {
            let held = self.arrived(entry);
            held.into_iter().filter(|_| entry.value_meta == ELSEWHERE)
        });
        Ok(own + elsewhere.filter_map(|held| Deposit::over(held).ok()).map(|deposit| deposit.as_ref().len()).sum::<usize>())
    }
}

impl std::fmt::Debug for SharedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedTable({:x})", self.store.held().number())
    }
}

/// The bytes of a small value.
fn pieces_of<'e>(encoded: &'e EncodedValue<'_>) -> Vec<&'e [u8]> {
    let mut pieces = vec![encoded.meta()];
    pieces.extend_from_slice(encoded.payload());
    pieces
}

fn decoded(bytes: &[u8], meta_words: u32, operation: &'static str) -> Result<Value<'static>, Error> {
    let damaged = |detail: String| Error::Damaged { operation, detail };
    let parts = bytes.split_at_checked(meta_words as usize * 8);
    let (meta, payload) = parts.ok_or_else(|| damaged("an entry has less meta than it says".to_owned()))?;
    let value = Value::decode_local(meta, payload, &Limits::default()).map_err(|error| damaged(error.to_string()))?;
    Ok(value.into_owned())
}

/// A key as bytes, which are the same for equal keys, and the words of meta among them.
fn key_bytes(key: &Value<'_>, operation: &'static str) -> Result<(Vec<u8>, u32), Error> {
    if matches!(key, Value::Nil) || !key.handles().is_empty() {
        return Err(Error::Configuration { operation, detail: format!("a {} cannot be a key", key.type_name()) });
    }
    let encoded = key.encode_local(Vec::new(), &Limits::default()).map_err(|cause| Error::Unsendable { operation, cause })?;
    let payload = encoded.payload_to_vec();
    let mut bytes = encoded.into_meta();
    let words = (bytes.len() / 8) as u32;
    bytes.extend_from_slice(&payload);
    Ok((bytes, words))
}

fn failed(operation: &'static str, error: QueueError) -> Error {
    Error::of_queue(operation, error, "a latch", Default::default())
}
