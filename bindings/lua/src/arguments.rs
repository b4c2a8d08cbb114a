//! What Lua passes: whole numbers, and what to call a value that should not have come.
//!
//! mlua's own conversions drop a fraction in Lua 5.1 and call it out of range in 5.4; here every Lua refuses it in the same words.

use mlua::{Error, FromLua, Lua, Value};

/// A whole number that a `T` can be.
pub(crate) struct Whole<T = i64>(pub(crate) T);

impl<T: TryFrom<i64>> FromLua for Whole<T> {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Whole<T>> {
        let number = whole(&value).ok_or_else(|| Error::external(format!("a whole number was expected, and {} came", words(&value))))?;
        T::try_from(number).map(Whole).map_err(|_| Error::external(format!("{number} is out of range")))
    }
}

/// The number, if it is a whole one.
pub(crate) fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        Value::Number(number) if *number == number.trunc() && number.abs() < 9e18 => Some(*number as i64),
        _ => None,
    }
}

/// What came instead.
pub(crate) fn words(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        other => format!("a {}", kind(other)),
    }
}

/// Its type as Lua's own `type` calls it; mlua tells numbers apart.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        other => other.type_name(),
    }
}
