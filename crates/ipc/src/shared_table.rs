//! A table of keys and values that threads and processes read and change.

use std::sync::Arc;

use syncline_shm::estate::{Entry, Held, KIND_TABLE, NewEntry, TableStore};
use syncline_shm::queue::QueueError;
use syncline_wire::{HandleKind, Limits, Value};

use crate::channel::{handle, held_by};
use crate::{Error, Family, thread};

/// A shared table, as one handle to it. Values are copied in and out; a table inside a table is a handle, and its changes
/// are seen through it. Each call is one step for all others; a change that depends on what was read needs a [`Mutex`](crate::Mutex).
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
        let held = self.hold_all(value, OPERATION)?;
        let objects: Vec<u64> = held.iter().map(|held| held.number()).collect();
        let mut pieces = vec![encoded.meta()];
        pieces.extend_from_slice(encoded.payload());
        let estate = self.family.estate();
        objects.iter().for_each(|object| estate.count_named(*object, true));
        let new =
            NewEntry { key: &key.0, key_meta: key.1, value: &pieces, value_meta: (encoded.meta().len() / 8) as u32, objects: &objects };
        match self.store.set(&new) {
            Ok(before) => {
                let existed = before.is_some();
                self.forget(before.unwrap_or_default());
                Ok(existed)
            }
            Err(error) => {
                objects.iter().for_each(|object| estate.count_named(*object, false));
                Err(failed(OPERATION, error))
            }
        }
    }

    /// The objects that a value leads to, held until they are named.
    fn hold_all(&self, value: &Value<'_>, operation: &'static str) -> Result<Vec<Arc<Held>>, Error> {
        let handles = value.handles();
        let hold = |handle: &&syncline_wire::Handle| {
            if handle.family != self.family.id() {
                let detail = format!("a {} of another family cannot be kept in this one", handle.kind.name());
                return Err(Error::Configuration { operation, detail });
            }
            self.family.estate().hold(handle.object).map_err(|error| Error::of_estate(operation, error))
        };
        handles.iter().map(hold).collect()
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
        match self.store.get(&key.0).map_err(|error| failed(OPERATION, error))? {
            Some(entry) => self.value_of(&entry.value, entry.value_meta, &entry, OPERATION).map(Some),
            None => Ok(None),
        }
    }

    fn value_of(&self, bytes: &[u8], meta_words: u32, entry: &Entry, operation: &'static str) -> Result<Value<'static>, Error> {
        let damaged = |detail: String| Error::Damaged { operation, detail };
        let (meta, payload) =
            bytes.split_at_checked(meta_words as usize * 8).ok_or_else(|| damaged("an entry has less meta than it says".to_owned()))?;
        let value = Value::decode_local(meta, payload, &Limits::default()).map_err(|error| damaged(error.to_string()))?;
        let mut value = value.into_owned();
        if !entry.objects.is_empty() {
            value.visit_handles(&mut |handle| {
                // It may have been removed and ended since; then the handle says so when it is opened.
                handle.keeper = self.family.estate().hold(handle.object).ok().map(|held| held as _);
            });
        }
        Ok(value)
    }

    /// Removes `key`; false when nothing stood there.
    pub fn remove(&self, key: &Value<'_>) -> Result<bool, Error> {
        const OPERATION: &str = "shared table remove";
        self.family.check(OPERATION)?;
        let key = key_bytes(key, OPERATION)?;
        let before = self.store.remove(&key.0).map_err(|error| failed(OPERATION, error))?;
        let existed = before.is_some();
        self.forget(before.unwrap_or_default());
        Ok(existed)
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
        let pair = |entry: &Entry| {
            let key = self.value_of(&entry.key, entry.key_meta, entry, OPERATION)?;
            Ok((key, self.value_of(&entry.value, entry.value_meta, entry, OPERATION)?))
        };
        entries.iter().map(pair).collect()
    }

    /// Bytes of shared memory that it uses.
    pub fn size(&self) -> Result<usize, Error> {
        self.family.check("shared table size")?;
        self.store.bytes().map_err(|error| failed("shared table size", error))
    }
}

impl std::fmt::Debug for SharedTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedTable({:x})", self.store.held().number())
    }
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
