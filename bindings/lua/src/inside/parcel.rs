//! A Lua value as it goes from one thread's state to another's.

use mlua::{AnyUserData, Function, Lua, MultiValue, Table, Value as LuaValue};
use syncline::{Value, ipc};

use super::functions;
use super::shelf::{Reference, Shelf, fresh_number};
use crate::numbers::Numbers;
use crate::reply::Failure;
use crate::values::{Arrival, Carrier, arrived, carried};

const ADAPTER: &str = "syncline.adapter";

/// From now on `adapter` gives objects their classes (`dress`), names those of tables (`class_name`, `with_class`), and passes on
/// objects of Torch7's (`keep`, `revive`).
pub(crate) fn adopt(lua: &Lua, adapter: Table) -> Result<(), Failure> {
    Ok(lua.set_named_registry_value(ADAPTER, adapter)?)
}

fn adapter(lua: &Lua, name: &str) -> Result<Function, Failure> {
    Ok(lua.named_registry_value::<Table>(ADAPTER)?.get(name)?)
}

/// The mark of a function; a class's is its name behind [`CLASS`].
const FUNCTION: &[u8] = b"byte code";
const CLASS: &[u8] = b"class ";

/// Plain data, and the objects it names.
#[derive(Clone)]
pub(super) struct Parcel {
    pub(super) value: Value<'static>,
    pub(super) references: Vec<(u64, Reference)>,
}

impl Parcel {
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.references.iter().map(|(number, _)| *number)
    }

    /// The value in this state; the parcel can be opened in others too.
    pub(super) fn open(&self, lua: &Lua) -> Result<LuaValue, Failure> {
        let find = |number| self.references.iter().find(|(known, _)| *known == number).map(|(_, reference)| reference.clone());
        unpack(lua, self.value.clone(), true, find)
    }
}

/// All values as parcels; `closures` may be among them.
pub(super) fn pack_all(lua: &Lua, values: &MultiValue, operation: &'static str, closures: bool) -> Result<Vec<Parcel>, Failure> {
    values.iter().map(|value| pack(lua, value, operation, closures)).collect()
}

pub(super) fn pack(lua: &Lua, value: &LuaValue, operation: &'static str, closures: bool) -> Result<Parcel, Failure> {
    let mut packing = Packing { operation, closures, references: Vec::new() };
    let value = carried(lua, value, &mut packing, 0)?;
    Ok(Parcel { value, references: packing.references })
}

/// Sends parcels as items of a container whose shelf keeps their objects; what `went` says has not gone is taken back.
pub(super) fn send<T>(
    parcels: Vec<Parcel>,
    shelf: &Shelf,
    write: impl FnOnce(&[Value<'static>]) -> Result<T, ipc::Error>,
    went: impl FnOnce(&T) -> bool,
) -> Result<T, Failure> {
    let (values, references): (Vec<_>, Vec<_>) = parcels.into_iter().map(|parcel| (parcel.value, parcel.references)).unzip();
    let references = references.concat();
    shelf.put(&references);
    let written = write(&values);
    if !written.as_ref().is_ok_and(went) {
        shelf.clear_away(references.iter().map(|(number, _)| *number));
    }
    Ok(written?)
}

/// The value in this state. `find` brings the objects that it names; `again` tells that others will find them too.
pub(super) fn unpack(lua: &Lua, value: Value<'static>, again: bool, find: impl Fn(u64) -> Option<Reference>) -> Result<LuaValue, Failure> {
    arrived(lua, value, &mut Unpacking { find: &find, again })
}

/// The numbers of the objects that a value names.
pub(super) fn named(value: &Value<'_>) -> Vec<u64> {
    match value {
        Value::Opaque(bytes) => number_of(bytes).into_iter().collect(),
        Value::List(items) => items.iter().flat_map(named).collect(),
        Value::Map(pairs) => pairs.iter().flat_map(|(key, value)| [named(key), named(value)].concat()).collect(),
        _ => Vec::new(),
    }
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

fn marked(mark: &[u8], value: Value<'static>) -> Value<'static> {
    Value::Map(vec![(Value::Opaque(mark.to_vec().into()), value)])
}

struct Packing {
    operation: &'static str,
    closures: bool,
    references: Vec<(u64, Reference)>,
}

impl Packing {
    fn refer(&mut self, reference: Reference) -> Value<'static> {
        let number = fresh_number();
        self.references.push((number, reference));
        Value::Opaque(number.to_le_bytes().to_vec().into())
    }
}

impl Carrier for Packing {
    fn operation(&self) -> &str {
        self.operation
    }

    /// By reference. Torch's is retained and named, where its Torch can do that; else it is copied.
    fn tensor(&mut self, lua: &Lua, numbers: &Numbers, given: &LuaValue) -> Result<Value<'static>, Failure> {
        if let Some(shared) = numbers.share() {
            return Ok(self.refer(Reference::Numbers(shared)));
        }
        let kept: (Option<String>, Option<f64>) = adapter(lua, "keep")?.call(given)?;
        let reference = match kept {
            (Some(class), Some(address)) => Reference::Torch(class, address as u64),
            _ => numbers.copied()?.share().map(Reference::Numbers).ok_or_else(|| Failure::argument("a tensor without memory"))?,
        };
        Ok(self.refer(reference))
    }

    fn function(&mut self, lua: &Lua, function: &Function, depth: usize) -> Result<Value<'static>, Failure> {
        let taken = functions::taken_apart(lua, function, self.closures)?;
        let mut upvalues = Vec::with_capacity(taken.upvalues.len());
        for upvalue in &taken.upvalues {
            upvalues.push(carried(lua, upvalue, self, depth + 1)?);
        }
        let parts = vec![Value::from(taken.code), Value::Int(taken.globals as i64), Value::List(upvalues)];
        Ok(marked(FUNCTION, Value::List(parts)))
    }

    fn object(&mut self, object: &AnyUserData) -> Result<Value<'static>, Failure> {
        match Reference::to(object)? {
            Some(reference) => Ok(self.refer(reference)),
            None => Err(Failure::argument(format!("{}: this userdata belongs to its thread (Invalid argument)", self.operation))),
        }
    }

    fn classed(&mut self, lua: &Lua, table: &Table, plain: Value<'static>) -> Result<Value<'static>, Failure> {
        match adapter(lua, "class_name")?.call::<Option<String>>(table)? {
            Some(name) => Ok(marked(&[CLASS, name.as_bytes()].concat(), plain)),
            None => Ok(plain),
        }
    }
}

struct Unpacking<'a> {
    find: &'a dyn Fn(u64) -> Option<Reference>,
    again: bool,
}

impl Arrival for Unpacking<'_> {
    fn opaque(&mut self, lua: &Lua, bytes: &[u8]) -> Result<LuaValue, Failure> {
        let found = number_of(bytes).and_then(|number| (self.find)(number));
        match found.ok_or_else(|| Failure::new("Closed", "an object that the value names is gone"))? {
            Reference::Torch(class, address) => Ok(adapter(lua, "revive")?.call((class, address as f64, self.again))?),
            reference => {
                let (object, class) = reference.into_lua(lua)?;
                if class.is_empty() { Ok(object) } else { Ok(adapter(lua, "dress")?.call((object, class))?) }
            }
        }
    }

    fn marked(&mut self, lua: &Lua, mark: &[u8], value: Value<'static>) -> Result<LuaValue, Failure> {
        if let Some(name) = mark.strip_prefix(CLASS) {
            let table = arrived(lua, value, self)?;
            return Ok(adapter(lua, "with_class")?.call((table, lua.create_string(name)?))?);
        }
        let damaged = || Failure::argument("a function arrived in pieces");
        let Value::List(parts) = value else { return Err(damaged()) };
        let Ok([Value::Bytes(code), Value::Int(globals), Value::List(upvalues)]) = <[_; 3]>::try_from(parts) else {
            return Err(damaged());
        };
        let upvalues = upvalues.into_iter().map(|upvalue| arrived(lua, upvalue, self)).collect::<Result<_, _>>()?;
        functions::put_together(lua, functions::Parts { code: code.into_owned(), globals: globals as usize, upvalues })
    }
}
