//! Lua values as messages and back.
//!
//! Plain data is the same wherever it goes. What else a value may hold is up to its [`Carrier`] and [`Arrival`]: a message to another
//! process takes tensors as copies and nothing that could be executed; a parcel inside this process takes functions and objects too.
//! Tensors of Torch7's are opened and made by functions that the adapter in Lua hands in.

use mlua::{AnyUserData, Function, Lua, Table, Value as LuaValue};
use syncline::Value;

use crate::numbers::Numbers;
use crate::reply::Failure;

/// As deep as a message may be nested.
const DEEPEST: usize = 128;

const OPENER: &str = "syncline.opener";
const PRESENTER: &str = "syncline.presenter";

/// From now on `opener(object)` gives the numbers of a foreign tensor, or nil, and `presenter(numbers)` makes one.
pub(crate) fn adopt(lua: &Lua, (opener, presenter): (Function, Function)) -> Result<(), Failure> {
    lua.set_named_registry_value(OPENER, opener)?;
    Ok(lua.set_named_registry_value(PRESENTER, presenter)?)
}

/// The numbers behind a value, if it is a tensor of any kind.
pub(crate) fn opened(lua: &Lua, value: &LuaValue) -> Result<Option<Numbers>, Failure> {
    if let LuaValue::UserData(data) = value
        && let Ok(numbers) = data.borrow::<Numbers>()
    {
        return Ok(Some(numbers.clone()));
    }
    let foreign = match value {
        LuaValue::UserData(_) | LuaValue::Other(_) => true,
        LuaValue::Table(table) => table.metatable().is_some(),
        _ => false,
    };
    let opener: Option<Function> = if foreign { lua.named_registry_value(OPENER)? } else { None };
    let Some(opener) = opener else { return Ok(None) };
    match opener.call::<LuaValue>(value)? {
        LuaValue::UserData(data) => Ok(Some(data.borrow::<Numbers>()?.clone())),
        _ => Ok(None),
    }
}

/// Numbers as the tensor that the program works with.
pub(crate) fn presented(lua: &Lua, numbers: Numbers) -> Result<LuaValue, Failure> {
    let data = LuaValue::UserData(lua.create_userdata(numbers)?);
    match lua.named_registry_value::<Option<Function>>(PRESENTER)? {
        Some(presenter) => Ok(presenter.call(data)?),
        None => Ok(data),
    }
}

/// What becomes of values that are no plain data, on their way out.
pub(crate) trait Carrier {
    /// What the value is sent by, for errors.
    fn operation(&self) -> &str;
    /// A tensor, which the program has as `given`.
    fn tensor(&mut self, lua: &Lua, numbers: &Numbers, given: &LuaValue) -> Result<Value<'static>, Failure>;
    fn function(&mut self, lua: &Lua, function: &Function, depth: usize) -> Result<Value<'static>, Failure>;
    fn object(&mut self, object: &AnyUserData) -> Result<Value<'static>, Failure>;
    /// A table with a metatable, whose pairs are `plain`.
    fn classed(&mut self, lua: &Lua, table: &Table, plain: Value<'static>) -> Result<Value<'static>, Failure>;
}

/// What becomes of values that are no plain data, where they arrive.
pub(crate) trait Arrival {
    fn opaque(&mut self, lua: &Lua, bytes: &[u8]) -> Result<LuaValue, Failure>;
    /// A map whose one key is no key of Lua's, but the mark of something else.
    fn marked(&mut self, lua: &Lua, mark: &[u8], value: Value<'static>) -> Result<LuaValue, Failure>;
}

/// Messages between processes.
struct Message<'a>(&'a str);

impl Carrier for Message<'_> {
    fn operation(&self) -> &str {
        self.0
    }

    fn tensor(&mut self, _: &Lua, numbers: &Numbers, _: &LuaValue) -> Result<Value<'static>, Failure> {
        numbers.read(|bytes| {
            let value = Value::tensor(numbers.dtype, numbers.shape.clone(), bytes.to_vec());
            value.map_err(|error| Failure::argument(format!("{}: {error}", self.0)))
        })
    }

    fn function(&mut self, _: &Lua, _: &Function, _: usize) -> Result<Value<'static>, Failure> {
        Err(Failure::argument(format!(
            "{}: functions do not travel between processes\nhint: send a name, and let the other side look it up",
            self.0
        )))
    }

    fn object(&mut self, _: &AnyUserData) -> Result<Value<'static>, Failure> {
        Err(unsendable(self.0, "userdata"))
    }

    fn classed(&mut self, _: &Lua, _: &Table, plain: Value<'static>) -> Result<Value<'static>, Failure> {
        Ok(plain)
    }
}

impl Arrival for Message<'_> {
    fn opaque(&mut self, _: &Lua, _: &[u8]) -> Result<LuaValue, Failure> {
        Err(Failure::argument("what came from another process is never executed"))
    }

    fn marked(&mut self, lua: &Lua, _: &[u8], _: Value<'static>) -> Result<LuaValue, Failure> {
        self.opaque(lua, &[])
    }
}

fn unsendable(operation: &str, kind: &str) -> Failure {
    Failure::argument(format!("{operation}: a {kind} cannot be sent (Operation not permitted)"))
}

/// A Lua value as a message to another process.
pub(crate) fn from_lua(lua: &Lua, value: &LuaValue, operation: &str) -> Result<Value<'static>, Failure> {
    carried(lua, value, &mut Message(operation), 0)
}

/// A Lua value as its carrier takes it; `depth` tables are around it.
pub(crate) fn carried(lua: &Lua, value: &LuaValue, by: &mut dyn Carrier, depth: usize) -> Result<Value<'static>, Failure> {
    if depth > DEEPEST {
        let text = format!("{}: the value is nested deeper than {DEEPEST}; does it contain itself?", by.operation());
        return Err(Failure::argument(text));
    }
    if let Some(numbers) = opened(lua, value)? {
        return by.tensor(lua, &numbers, value);
    }
    match value {
        LuaValue::Nil => Ok(Value::Nil),
        LuaValue::Boolean(truth) => Ok(Value::Bool(*truth)),
        LuaValue::Integer(number) => Ok(Value::Int(*number)),
        LuaValue::Number(number) => Ok(Value::Float(*number)),
        LuaValue::String(text) => Ok(match text.to_str() {
            Ok(text) => Value::from(text.to_owned()),
            Err(_) => Value::from(text.as_bytes().to_vec()),
        }),
        LuaValue::Table(table) => {
            let plain = of_table(lua, table, by, depth)?;
            if table.metatable().is_some() { by.classed(lua, table, plain) } else { Ok(plain) }
        }
        LuaValue::Function(function) => by.function(lua, function, depth),
        LuaValue::UserData(object) => by.object(object),
        other => Err(unsendable(by.operation(), other.type_name())),
    }
}

/// A list if the keys are 1, 2, … n, else a map.
fn of_table(lua: &Lua, table: &Table, by: &mut dyn Carrier, depth: usize) -> Result<Value<'static>, Failure> {
    let length = table.raw_len();
    let mut pairs = Vec::new();
    let mut keys = 0;
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair?;
        keys += 1;
        if keys > length || !matches!(&key, LuaValue::Integer(index) if (1..=length as i64).contains(index)) {
            keys = usize::MAX;
            break;
        }
        drop(value);
    }
    if keys == length {
        let mut items = Vec::with_capacity(length);
        for index in 1..=length {
            items.push(carried(lua, &table.raw_get(index)?, by, depth + 1)?);
        }
        return Ok(Value::List(items));
    }
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair?;
        pairs.push((carried(lua, &key, by, depth + 1)?, carried(lua, &value, by, depth + 1)?));
    }
    Ok(Value::Map(pairs))
}

/// A message of another process as a Lua value.
pub(crate) fn to_lua(lua: &Lua, value: Value<'static>) -> Result<LuaValue, Failure> {
    arrived(lua, value, &mut Message("recv"))
}

/// What has arrived, as a Lua value.
pub(crate) fn arrived(lua: &Lua, value: Value<'static>, by: &mut dyn Arrival) -> Result<LuaValue, Failure> {
    Ok(match value {
        Value::Nil => LuaValue::Nil,
        Value::Bool(truth) => LuaValue::Boolean(truth),
        Value::Int(number) if cfg!(feature = "lua51") => LuaValue::Number(number as f64),
        Value::Int(number) => LuaValue::Integer(number),
        Value::Float(number) => LuaValue::Number(number),
        Value::Str(text) => LuaValue::String(lua.create_string(text.as_bytes())?),
        Value::Bytes(bytes) => LuaValue::String(lua.create_string(&bytes[..])?),
        Value::List(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (index, item) in items.into_iter().enumerate() {
                table.raw_set(index + 1, arrived(lua, item, by)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Map(mut pairs) => {
            if let [(Value::Opaque(mark), value)] = &mut pairs[..] {
                return by.marked(lua, mark, std::mem::take(value));
            }
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, item) in pairs {
                let key = arrived(lua, key, by)?;
                // Neither can be a key in Lua; another language may have sent them.
                if key.is_nil() || matches!(key, LuaValue::Number(number) if number.is_nan()) {
                    continue;
                }
                table.raw_set(key, arrived(lua, item, by)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Tensor(tensor) => presented(lua, Numbers::of_bytes(tensor.dtype(), tensor.shape().clone(), tensor.data())?)?,
        Value::Opaque(bytes) => by.opaque(lua, &bytes)?,
        // They belong to a family of processes, and Lua's has one member.
        Value::Handle(handle) => return Err(Failure::argument(format!("a {} has no form in Lua", handle.kind.name()))),
    })
}
