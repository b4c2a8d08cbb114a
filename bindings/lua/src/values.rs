//! Lua values as messages and back: plain data only. Nothing that arrives is executed.
//!
//! Tensors of Torch7's are opened and made by two functions that the adapter in Lua hands in.

use mlua::{Function, Lua, Table, Value as LuaValue};
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

/// A Lua value as a message.
pub(crate) fn from_lua(lua: &Lua, value: &LuaValue, operation: &str) -> Result<Value<'static>, Failure> {
    nested(lua, value, operation, 0)
}

fn nested(lua: &Lua, value: &LuaValue, operation: &str, depth: usize) -> Result<Value<'static>, Failure> {
    if depth > DEEPEST {
        return Err(Failure::argument(format!("{operation}: the value is nested deeper than {DEEPEST}; does it contain itself?")));
    }
    if let Some(numbers) = opened(lua, value)? {
        return numbers.read(|bytes| {
            let value = Value::tensor(numbers.dtype, numbers.shape.clone(), bytes.to_vec());
            value.map_err(|error| Failure::argument(format!("{operation}: {error}")))
        });
    }
    match value {
        LuaValue::Nil => Ok(Value::Nil),
        LuaValue::Boolean(truth) => Ok(Value::Bool(*truth)),
        LuaValue::Integer(number) => Ok(Value::Int(*number as i64)),
        LuaValue::Number(number) => Ok(Value::Float(*number)),
        LuaValue::String(text) => Ok(match text.to_str() {
            Ok(text) => Value::from(text.to_owned()),
            Err(_) => Value::from(text.as_bytes().to_vec()),
        }),
        LuaValue::Table(table) => of_table(lua, table, operation, depth),
        LuaValue::Function(_) => Err(Failure::argument(format!(
            "{operation}: functions do not travel between processes\nhint: send a name, and let the other side look it up"
        ))),
        other => Err(Failure::argument(format!("{operation}: a {} cannot be sent (Operation not permitted)", other.type_name()))),
    }
}

/// A list if the keys are 1, 2, … n, else a map.
fn of_table(lua: &Lua, table: &Table, operation: &str, depth: usize) -> Result<Value<'static>, Failure> {
    let length = table.raw_len();
    let mut pairs = Vec::new();
    let mut keys = 0;
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair?;
        keys += 1;
        if keys > length || !matches!(&key, LuaValue::Integer(index) if (1..=length as i64).contains(&(*index as i64))) {
            keys = usize::MAX;
            break;
        }
        drop(value);
    }
    if keys == length {
        let items = (1..=length).map(|index| nested(lua, &table.raw_get(index)?, operation, depth + 1));
        return Ok(Value::List(items.collect::<Result<_, Failure>>()?));
    }
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair?;
        pairs.push((nested(lua, &key, operation, depth + 1)?, nested(lua, &value, operation, depth + 1)?));
    }
    Ok(Value::Map(pairs))
}

/// A message as a Lua value.
pub(crate) fn to_lua(lua: &Lua, value: Value<'static>) -> Result<LuaValue, Failure> {
    Ok(match value {
        Value::Nil => LuaValue::Nil,
        Value::Bool(truth) => LuaValue::Boolean(truth),
        Value::Int(number) if cfg!(feature = "lua51") => LuaValue::Number(number as f64),
        Value::Int(number) => LuaValue::Integer(number as mlua::Integer),
        Value::Float(number) => LuaValue::Number(number),
        Value::Str(text) => LuaValue::String(lua.create_string(text.as_bytes())?),
        Value::Bytes(bytes) => LuaValue::String(lua.create_string(&bytes[..])?),
        Value::List(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (index, item) in items.into_iter().enumerate() {
                table.raw_set(index + 1, to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Map(pairs) => {
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, item) in pairs {
                let key = to_lua(lua, key)?;
                // Neither can be a key in Lua; another language may have sent them.
                if key.is_nil() || matches!(key, LuaValue::Number(number) if number.is_nan()) {
                    continue;
                }
                table.raw_set(key, to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Tensor(tensor) => presented(lua, Numbers::of_bytes(tensor.dtype(), tensor.shape().clone(), tensor.data())?)?,
        // They belong to a family of processes and never arrive over a connection.
        other @ (Value::Opaque(_) | Value::Handle(_)) => {
            return Err(Failure::argument(format!("a {} has no form in Lua", other.type_name())));
        }
    })
}
