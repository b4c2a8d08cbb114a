//! Tables that threads read and change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlua::{Lua, Table as LuaTable, UserData, UserDataRef, Value as LuaValue};
use syncline::Value;
use syncline::ipc::SharedTable;

use super::family;
use super::parcel::{Parcel, named, pack, unpack};
use super::shelf::{Reference, Shelf};
use crate::arguments::kind;
use crate::reply::Failure;

/// A table, as all states of this process see it.
pub(super) struct Shared {
    table: SharedTable,
    shelf: Shelf,
    /// Which objects the value of a key names. Locked while a value is changed, or is read together with its objects.
    objects: Mutex<HashMap<String, Vec<u64>>>,
}

pub(crate) struct Handle(pub(super) Arc<Shared>);

impl UserData for Handle {}

type Given = UserDataRef<Handle>;

/// A value, and the objects it names as far as they are still there.
type Found = (Value<'static>, HashMap<u64, Reference>);

impl Shared {
    fn objects(&self) -> MutexGuard<'_, HashMap<String, Vec<u64>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner) // one change at a time: nothing is left half done
    }

    /// Writes a value under a key, or removes the key.
    fn set(&self, key: &Value<'static>, parcel: Option<Parcel>) -> Result<(), Failure> {
        let mut objects = self.objects();
        let gone = match parcel {
            Some(parcel) => {
                self.shelf.put(&parcel.references);
                if let Err(error) = self.table.set(key, &parcel.value) {
                    self.shelf.clear_away(parcel.numbers());
                    return Err(error.into());
                }
                if parcel.references.is_empty() && objects.is_empty() {
                    return Ok(()); // the usual case needs no name for the key
                }
                objects.insert(format!("{key:?}"), parcel.numbers().collect())
            }
            None => {
                self.table.remove(key)?;
                objects.remove(&format!("{key:?}"))
            }
        };
        drop(objects);
        self.shelf.clear_away(gone.into_iter().flatten());
        Ok(())
    }

    fn with_objects(&self, value: Value<'static>) -> Found {
        let found = named(&value).into_iter().filter_map(|number| Some((number, self.shelf.look(number)?))).collect();
        (value, found)
    }

    fn get(&self, key: &Value<'static>) -> Result<Option<Found>, Failure> {
        let _unchanged = self.objects();
        Ok(self.table.get(key)?.map(|value| self.with_objects(value)))
    }
}

fn to_lua(lua: &Lua, (value, found): Found) -> Result<LuaValue, Failure> {
    unpack(lua, value, true, |number| found.get(&number).cloned())
}

/// A key as it is kept: 1 and 1.0 are one.
fn key_of(lua: &Lua, key: &LuaValue) -> Result<Value<'static>, Failure> {
    match key {
        LuaValue::Number(number) if number.is_nan() => Err(Failure::argument("sharedtable: index is NaN")),
        LuaValue::Number(number) if number.trunc() == *number && number.abs() < 9e15 => Ok(Value::Int(*number as i64)),
        LuaValue::Nil => Err(Failure::argument("sharedtable: index is nil")),
        LuaValue::Table(_) | LuaValue::Function(_) | LuaValue::UserData(_) => {
            // A copy of it would be another key in Lua.
            Err(Failure::argument(format!("sharedtable: a {} cannot be a key; use texts and numbers", kind(key))))
        }
        other => Ok(pack(lua, other, "sharedtable", false)?.value),
    }
}

/// A table with what is in `source`, which is emptied if it is to be moved.
pub(crate) fn open(lua: &Lua, (source, moves): (Option<LuaTable>, bool)) -> Result<Handle, Failure> {
    let table = SharedTable::new(&family()?)?;
    let shared = Shared { table, shelf: Shelf::default(), objects: Mutex::default() };
    let mut keys = Vec::new();
    for pair in source.iter().flat_map(LuaTable::pairs::<LuaValue, LuaValue>) {
        let (key, value) = pair?;
        shared.set(&key_of(lua, &key)?, Some(pack(lua, &value, "sharedtable", false)?))?;
        keys.push(key);
    }
    if let Some(source) = source.filter(|_| moves) {
        keys.into_iter().try_for_each(|key| source.raw_set(key, LuaValue::Nil))?;
    }
    Ok(Handle(Arc::new(shared)))
}

pub(crate) fn get(lua: &Lua, (handle, key): (Given, LuaValue)) -> Result<LuaValue, Failure> {
    if key.is_nil() {
        return Ok(LuaValue::Nil); // as any table answers
    }
    match handle.0.get(&key_of(lua, &key)?)? {
        Some(found) => to_lua(lua, found),
        None => Ok(LuaValue::Nil),
    }
}

pub(crate) fn set(lua: &Lua, (handle, key, value): (Given, LuaValue, LuaValue)) -> Result<(), Failure> {
    let parcel = if value.is_nil() { None } else { Some(pack(lua, &value, "sharedtable", false)?) };
    handle.0.set(&key_of(lua, &key)?, parcel)
}

pub(crate) fn len(_: &Lua, handle: Given) -> Result<usize, Failure> {
    Ok(handle.0.table.len()?)
}

/// All pairs as they are at one moment: a table of keys and one of values.
pub(crate) fn pairs(lua: &Lua, handle: Given) -> Result<(LuaTable, LuaTable), Failure> {
    let unchanged = handle.0.objects();
    let pairs: Vec<(Value<'static>, Found)> =
        handle.0.table.pairs()?.into_iter().map(|(key, value)| (key, handle.0.with_objects(value))).collect();
    drop(unchanged);
    let (keys, values) = (lua.create_table()?, lua.create_table()?);
    for (place, (key, found)) in (1..).zip(pairs) {
        keys.raw_set(place, unpack(lua, key, true, |_| None)?)?;
        values.raw_set(place, to_lua(lua, found)?)?;
    }
    Ok((keys, values))
}

/// Kilobytes of memory that it uses.
pub(crate) fn size(_: &Lua, handle: Given) -> Result<f64, Failure> {
    Ok(handle.0.table.size()? as f64 / 1024.0)
}
