//! Numbers as Lua's tables: flat, or nested as their extents say.

use mlua::{Lua, Table, Value};
use syncline::DType;
use syncline_tensor::Tensor;

use super::element::{InLua, by_dtype};
use super::{Numbers, shape_of};
use crate::arguments::kind;
use crate::reply::Failure;

/// A Lua table of numbers, or of such tables of equal length.
pub(crate) fn of_table(table: &Table, dtype: DType) -> Result<Numbers, Failure> {
    let mut dims = Vec::new();
    extents(table, &mut dims)?;
    let mut tensor = Tensor::zeros(dtype, shape_of(&dims)?);
    let mut places = tensor.bytes_mut().chunks_exact_mut(dtype.size());
    fill_from(table, &dims, &mut |value| {
        let place = places.next().ok_or_else(|| Failure::shape("a table changed while it was read"))?;
        by_dtype!(dtype, T => T::of_lua(&value)?.put(place));
        Ok(())
    })?;
    Ok(Numbers::own(tensor))
}

fn extents(table: &Table, dims: &mut Vec<i64>) -> Result<(), Failure> {
    dims.push(table.raw_len() as i64);
    if dims.len() > 8 {
        return Err(Failure::argument("a table of numbers is nested more than 8 deep; does it contain itself?"));
    }
    match table.raw_get::<Value>(1)? {
        Value::Nil if !table.is_empty() => Err(Failure::argument("a list of numbers was expected, and a table without [1] came")),
        Value::Table(inner) => extents(&inner, dims),
        _ => Ok(()),
    }
}

fn fill_from(table: &Table, dims: &[i64], put: &mut dyn FnMut(Value) -> Result<(), Failure>) -> Result<(), Failure> {
    if table.raw_len() as i64 != dims[0] {
        return Err(Failure::shape(format!("a row has {} numbers, and the first one {}", table.raw_len(), dims[0])));
    }
    for index in 1..=dims[0] {
        match (table.raw_get::<Value>(index)?, &dims[1..]) {
            (Value::Table(inner), rest) if !rest.is_empty() => fill_from(&inner, rest, put)?,
            (value, []) => put(value)?,
            (other, _) => return Err(Failure::shape(format!("a row is a {}", kind(&other)))),
        }
    }
    Ok(())
}

/// The numbers as tables.
pub(super) fn to_table(lua: &Lua, numbers: &Numbers) -> Result<Table, Failure> {
    let dims = numbers.shape.dims();
    let table = lua.create_table_with_capacity(dims.first().copied().unwrap_or(1).min(1 << 26), 0)?;
    if dims.len() <= 1 {
        numbers.read(|bytes| {
            by_dtype!(numbers.dtype, T => for (index, number) in T::all(bytes).enumerate() {
                table.raw_set(index + 1, number.to_lua())?;
            });
            Ok(())
        })?;
        return Ok(table);
    }
    for place in 1..=dims[0] as i64 {
        if let Err(row) = numbers.at(place)? {
            table.raw_set(place, to_table(lua, &row)?)?;
        }
    }
    Ok(table)
}
