//! What Lua calls on tensors. Each takes the numbers first.

use mlua::{Lua, LuaString, Table, UserDataRef, Value};
use syncline::ReduceOp;
use syncline_tensor::kernels::reduce_into;

use super::element::{InLua, by_dtype};
use super::memory::Memory;
use super::{Numbers, dtype_of, nested, shape_of};
use crate::arguments::Whole;
use crate::reply::{Failure, shaped};

type Given = UserDataRef<Numbers>;

pub(crate) fn zeros(_: &Lua, (dtype, dims): (String, Vec<Whole>)) -> Result<Numbers, Failure> {
    Ok(Numbers::zeros(dtype_of(&dtype)?, shape_of(&extents(&dims))?))
}

fn extents(dims: &[Whole]) -> Vec<i64> {
    dims.iter().map(|Whole(dim)| *dim).collect()
}

/// Memory of somebody else's, which `owner` keeps alive.
pub(crate) fn lend(_: &Lua, (address, dtype, dims, owner): (f64, String, Vec<Whole>, Value)) -> Result<Numbers, Failure> {
    let (dtype, shape) = (dtype_of(&dtype)?, shape_of(&extents(&dims))?);
    if shape.elements() > 0 && address < 4096.0 {
        return Err(Failure::argument("the tensor has no memory"));
    }
    // Nothing lies at the address of an empty tensor, and a slice must not begin at zero.
    let address = if shape.elements() == 0 { 64 } else { address as usize };
    Ok(Numbers { memory: Memory::Lent { address, _owner: owner }, dtype, shape })
}

pub(crate) fn of_table(_: &Lua, (dtype, table): (String, Table)) -> Result<Numbers, Failure> {
    nested::of_table(&table, dtype_of(&dtype)?)
}

pub(crate) fn at(lua: &Lua, (numbers, Whole(place)): (Given, Whole)) -> Result<Value, Failure> {
    match numbers.at(place)? {
        Ok(value) => Ok(value),
        Err(row) => Ok(Value::UserData(lua.create_userdata(row)?)),
    }
}

pub(crate) fn put(_: &Lua, (numbers, Whole(place), value): (Given, Whole, Value)) -> Result<(), Failure> {
    let index = numbers.index(place)?;
    if numbers.shape.axes() != 1 {
        return Err(Failure::shape("only a number of a vector can be set; t[i][j] = x, or t[i]:copy(row)"));
    }
    let size = numbers.dtype.size();
    numbers.write(|bytes| {
        by_dtype!(numbers.dtype, T => T::of_lua(&value)?.put(&mut bytes[index * size..][..size]));
        Ok(())
    })
}

pub(crate) fn dims(_: &Lua, numbers: Given) -> Result<Vec<i64>, Failure> {
    Ok(dims_of(&numbers))
}

fn dims_of(numbers: &Numbers) -> Vec<i64> {
    numbers.shape.dims().iter().map(|dim| *dim as i64).collect()
}

pub(crate) fn dtype(_: &Lua, numbers: Given) -> Result<&'static str, Failure> {
    Ok(numbers.dtype.name())
}

pub(crate) fn fill(_: &Lua, (numbers, value): (Given, Value)) -> Result<(), Failure> {
    numbers.write(|bytes| {
        by_dtype!(numbers.dtype, T => {
            let one = T::of_lua(&value)?;
            T::change_all(bytes, |_| one);
        });
        Ok(())
    })
}

/// Each number x becomes `factor`·x + `term`.
pub(crate) fn scale(_: &Lua, (numbers, factor, term): (Given, f64, f64)) -> Result<(), Failure> {
    numbers.write(|bytes| {
        by_dtype!(numbers.dtype, T => T::change_all(bytes, |x| T::of_float(factor * x.to_float() + term)));
        Ok(())
    })
}

/// Adds `factor` times the others.
pub(crate) fn add(_: &Lua, (numbers, factor, others): (Given, f64, Given)) -> Result<(), Failure> {
    let mut terms = bytes_for(&numbers, &others)?;
    if factor != 1.0 {
        by_dtype!(numbers.dtype, T => T::change_all(&mut terms, |x| T::of_float(factor * x.to_float())));
    }
    numbers.write(|bytes| shaped(reduce_into(ReduceOp::Sum, numbers.dtype, bytes, &terms)))
}

pub(crate) fn copy(_: &Lua, (numbers, others): (Given, Given)) -> Result<(), Failure> {
    let others = bytes_for(&numbers, &others)?;
    numbers.write(|bytes| {
        bytes.copy_from_slice(&others);
        Ok(())
    })
}

/// The bytes of as many `others`, of the dtype of `numbers`: a copy, since both may share memory.
fn bytes_for(numbers: &Numbers, others: &Numbers) -> Result<Vec<u8>, Failure> {
    if numbers.count() != others.count() {
        return Err(Failure::shape(format!("{} numbers do not go with {}", others.count(), numbers.count())));
    }
    others.as_dtype(numbers.dtype)?.read(|bytes| Ok(bytes.to_vec()))
}

/// A copy of its own as `dtype`.
pub(crate) fn cast(_: &Lua, (numbers, dtype): (Given, String)) -> Result<Numbers, Failure> {
    numbers.as_dtype(dtype_of(&dtype)?)?.copied()
}

/// The same memory with other extents.
pub(crate) fn reshape(_: &Lua, (numbers, dims): (Given, Vec<Whole>)) -> Result<Numbers, Failure> {
    let shape = shape_of(&extents(&dims))?;
    if shape.elements() != numbers.count() {
        return Err(Failure::shape(format!("{} numbers cannot be seen as {}", numbers.count(), shape.elements())));
    }
    Ok(numbers.part(0, shape))
}

/// `count` places of the first extent, from `first`, sharing their memory.
pub(crate) fn narrow(_: &Lua, (numbers, Whole(first), Whole(count)): (Given, Whole, Whole)) -> Result<Numbers, Failure> {
    let mut dims = dims_of(&numbers);
    if first < 1 || count < 0 || dims.is_empty() || first - 1 > dims[0] - count {
        return Err(Failure::argument(format!("there are no {count} places from {first}")));
    }
    let row = numbers.size().checked_div(dims[0] as usize).unwrap_or(0);
    dims[0] = count;
    Ok(numbers.part((first as usize - 1) * row, shape_of(&dims)?))
}

pub(crate) fn sum(_: &Lua, numbers: Given) -> Result<f64, Failure> {
    numbers.read(|bytes| Ok(by_dtype!(numbers.dtype, T => T::all(bytes).map(T::to_float).sum())))
}

pub(crate) fn to_table(lua: &Lua, numbers: Given) -> Result<Table, Failure> {
    nested::to_table(lua, &numbers)
}

/// The bytes as a string.
pub(crate) fn to_string(lua: &Lua, numbers: Given) -> Result<LuaString, Failure> {
    numbers.read(|bytes| Ok(lua.create_string(bytes)?))
}

/// Makes them the bytes of a string of the same length.
pub(crate) fn from_string(_: &Lua, (numbers, text): (Given, LuaString)) -> Result<(), Failure> {
    let text = text.as_bytes();
    numbers.write(|bytes| {
        if bytes.len() != text.len() {
            return Err(Failure::shape(format!("{} bytes do not go into {}", text.len(), bytes.len())));
        }
        bytes.copy_from_slice(&text);
        Ok(())
    })
}
