//! Numbers of one dtype in row-major order: what `syncline.Tensor` is made of, and how Torch7's tensors are lent.
//!
//! A row and its matrix share memory. Memory of Torch's is used where it lies while its tensor is kept alive.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Lua, Table, UserData, UserDataRef, Value};
use syncline::{DType, Element, ReduceOp, bf16, f16};
use syncline_tensor::kernels::reduce_into;
use syncline_tensor::{Shape, Tensor, TensorView};

use crate::reply::Failure;

#[derive(Clone)]
pub(crate) struct Numbers {
    memory: Memory,
    /// The first byte of it that is ours.
    from: usize,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

#[derive(Clone)]
enum Memory {
    Own(Rc<RefCell<Tensor>>),
    /// Memory at an address, kept alive by its owner.
    Lent {
        address: usize,
        _owner: Value,
    },
}

impl UserData for Numbers {}

/// Runs `$body` with `$T` as the type behind a dtype.
macro_rules! by_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            DType::I8 => {
                type $T = i8;
                $body
            }
            DType::I16 => {
                type $T = i16;
                $body
            }
            DType::I32 => {
                type $T = i32;
                $body
            }
            DType::I64 => {
                type $T = i64;
                $body
            }
            DType::U8 => {
                type $T = u8;
                $body
            }
        }
    };
}

/// A number as Lua has it.
trait InLua: Element {
    fn of_float(number: f64) -> Self;
    fn of_int(number: i64) -> Self;
    fn to_lua(self) -> Value;
    fn to_float(self) -> f64;
}

macro_rules! whole {
    ($($T:ty)*) => { $(impl InLua for $T {
        fn of_float(number: f64) -> Self { number as $T }
        fn of_int(number: i64) -> Self { number as $T }
        fn to_lua(self) -> Value { integer(i64::from(self)) }
        fn to_float(self) -> f64 { self as f64 }
    })* };
}
whole!(i8 i16 i32 i64 u8);

macro_rules! real {
    ($($T:ty, $of:expr, $to:expr;)*) => { $(impl InLua for $T {
        fn of_float(number: f64) -> Self { $of(number) }
        fn of_int(number: i64) -> Self { $of(number as f64) }
        fn to_lua(self) -> Value { Value::Number($to(self)) }
        fn to_float(self) -> f64 { $to(self) }
    })* };
}
real! {
    f32, |number| number as f32, f64::from;
    f64, |number| number, |number| number;
    f16, f16::from_f64, f16::to_f64;
    bf16, bf16::from_f64, bf16::to_f64;
}

/// A whole number; Lua 5.1 has none as large as these may be, and takes a float.
fn integer(number: i64) -> Value {
    if cfg!(feature = "lua51") { Value::Number(number as f64) } else { Value::Integer(number as mlua::Integer) }
}

impl Numbers {
    pub(crate) fn own(tensor: Tensor) -> Numbers {
        let (dtype, shape) = (tensor.dtype(), tensor.shape().clone());
        Numbers { memory: Memory::Own(Rc::new(RefCell::new(tensor))), from: 0, dtype, shape }
    }

    pub(crate) fn zeros(dtype: DType, shape: Shape) -> Numbers {
        Numbers::own(Tensor::zeros(dtype, shape))
    }

    pub(crate) fn of_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Numbers, Failure> {
        Ok(Numbers::own(Tensor::from_bytes(dtype, shape, bytes).map_err(|error| Failure::shape(error.to_string()))?))
    }

    pub(crate) fn count(&self) -> usize {
        self.shape.elements()
    }

    fn size(&self) -> usize {
        self.shape.byte_len(self.dtype)
    }

    /// Lends the bytes.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&[u8]) -> Result<T, Failure>) -> Result<T, Failure> {
        match &self.memory {
            Memory::Own(tensor) => {
                let tensor = tensor.try_borrow().map_err(|_| in_use())?;
                read(&tensor.bytes()[self.from..][..self.size()])
            }
            Memory::Lent { address, .. } => {
                // SAFETY: `lend` was told that so many bytes lie there, its owner is kept alive, and no Lua runs meanwhile.
                read(unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(*address), self.size()) })
            }
        }
    }

    /// Lends the bytes to be written.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut [u8]) -> Result<T, Failure>) -> Result<T, Failure> {
        match &self.memory {
            Memory::Own(tensor) => {
                let mut tensor = tensor.try_borrow_mut().map_err(|_| in_use())?;
                write(&mut tensor.bytes_mut()[self.from..][..self.size()])
            }
            Memory::Lent { address, .. } => {
                // SAFETY: as in `read`; nobody else uses the memory, since no Lua runs and the library gets it once.
                write(unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(*address), self.size()) })
            }
        }
    }

    /// The same numbers as `dtype`: themselves, or a copy.
    pub(crate) fn as_dtype(&self, dtype: DType) -> Result<Numbers, Failure> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        self.read(|bytes| {
            let view = TensorView::contiguous(bytes, self.dtype, self.shape.clone()).map_err(|error| Failure::shape(error.to_string()))?;
            Ok(Numbers::own(view.to_tensor().cast(dtype)))
        })
    }

    /// What Lua has at `place`: a number of a vector, a row that shares its memory otherwise.
    fn at(&self, place: i64) -> Result<Result<Value, Numbers>, Failure> {
        let index = self.index(place)?;
        let dims = self.shape.dims();
        if dims.len() == 1 {
            let size = self.dtype.size();
            return self.read(|bytes| {
                Ok(Ok(by_dtype!(self.dtype, T => bytemuck::pod_read_unaligned::<T>(&bytes[index * size..][..size]).to_lua())))
            });
        }
        let shape = Shape::new(&dims[1..]).map_err(|error| Failure::shape(error.to_string()))?;
        let from = self.from + index * shape.byte_len(self.dtype);
        Ok(Err(Numbers {
            memory: self.memory_from(index * shape.byte_len(self.dtype)),
            from: self.from_or_zero(from),
            dtype: self.dtype,
            shape,
        }))
    }

    /// Memory of one's own keeps its beginning and moves `from`; lent memory moves its address.
    fn memory_from(&self, offset: usize) -> Memory {
        match &self.memory {
            Memory::Own(tensor) => Memory::Own(Rc::clone(tensor)),
            Memory::Lent { address, _owner } => Memory::Lent { address: address + offset, _owner: _owner.clone() },
        }
    }

    fn from_or_zero(&self, from: usize) -> usize {
        if matches!(self.memory, Memory::Own(_)) { from } else { 0 }
    }

    /// A place from 1 as an index of the first extent.
    fn index(&self, place: i64) -> Result<usize, Failure> {
        let first = self.shape.dims().first().copied().unwrap_or(0);
        let index = usize::try_from(place).ok().and_then(|place| place.checked_sub(1)).filter(|index| *index < first);
        index.ok_or_else(|| Failure::argument(format!("there is no place {place}: they are numbered from 1 to {first}")))
    }
}

fn in_use() -> Failure {
    Failure::argument("the same tensor cannot be read and written in one call")
}

/// A table as extents.
pub(crate) fn shape_of(dims: &[i64]) -> Result<Shape, Failure> {
    let dims = dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| Failure::argument("a size is negative"))?;
    let shape = Shape::new(&dims).map_err(|error| Failure::argument(error.to_string()))?;
    // A typing error should not end the process: what cannot be had is found out by asking politely first.
    if Vec::<u64>::new().try_reserve_exact(shape.elements()).is_err() {
        return Err(Failure::argument(format!("{} numbers do not fit into memory", shape.elements())));
    }
    Ok(shape)
}

pub(crate) fn dtype_of(name: &str) -> Result<DType, Failure> {
    DType::from_name(name).map_err(|error| Failure::argument(error.to_string()))
}

/// A Lua table of numbers, or of such tables of equal length.
pub(crate) fn of_table(table: &Table, dtype: DType) -> Result<Numbers, Failure> {
    let mut dims = Vec::new();
    extents(table, &mut dims)?;
    let shape = shape_of(&dims)?;
    let mut tensor = Tensor::zeros(dtype, shape);
    let size = dtype.size();
    let mut place = 0;
    let bytes = tensor.bytes_mut();
    fill_from(table, &dims, &mut |value| {
        let out = &mut bytes[place..place + size];
        place += size;
        by_dtype!(dtype, T => out.copy_from_slice(bytemuck::bytes_of(&number::<T>(value)?)));
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
            (other, _) => return Err(Failure::shape(format!("a row is a {}", other.type_name()))),
        }
    }
    Ok(())
}

fn number<T: InLua>(value: Value) -> Result<T, Failure> {
    match value {
        Value::Integer(number) => Ok(T::of_int(number as i64)),
        Value::Number(number) => Ok(T::of_float(number)),
        other => Err(Failure::argument(format!("a number was expected, and a {} came", other.type_name()))),
    }
}

/// What Lua calls on tensors. Each takes the numbers first.
pub(crate) mod calls {
    use super::*;

    type Given = UserDataRef<Numbers>;

    pub(crate) fn zeros(_: &Lua, (dtype, dims): (String, Vec<i64>)) -> Result<Numbers, Failure> {
        Ok(Numbers::zeros(dtype_of(&dtype)?, shape_of(&dims)?))
    }

    /// Memory of somebody else's, which `owner` keeps alive.
    pub(crate) fn lend(_: &Lua, (address, dtype, dims, owner): (f64, String, Vec<i64>, Value)) -> Result<Numbers, Failure> {
        let (dtype, shape) = (dtype_of(&dtype)?, shape_of(&dims)?);
        if shape.elements() > 0 && address < 4096.0 {
            return Err(Failure::argument("the tensor has no memory"));
        }
        // Nothing lies at the address of an empty tensor, and a slice must not begin at zero.
        let address = if shape.elements() == 0 { 64 } else { address as usize };
        Ok(Numbers { memory: Memory::Lent { address, _owner: owner }, from: 0, dtype, shape })
    }

    pub(crate) fn of_table(_: &Lua, (dtype, table): (String, Table)) -> Result<Numbers, Failure> {
        super::of_table(&table, dtype_of(&dtype)?)
    }

    pub(crate) fn at(lua: &Lua, (numbers, place): (Given, i64)) -> Result<Value, Failure> {
        match numbers.at(place)? {
            Ok(value) => Ok(value),
            Err(row) => Ok(Value::UserData(lua.create_userdata(row)?)),
        }
    }

    pub(crate) fn put(_: &Lua, (numbers, place, value): (Given, i64, Value)) -> Result<(), Failure> {
        let index = numbers.index(place)?;
        if numbers.shape.axes() != 1 {
            return Err(Failure::shape("only a number of a vector can be set; t[i][j] = x, or t[i]:copy(row)"));
        }
        let size = numbers.dtype.size();
        numbers.write(|bytes| {
            by_dtype!(numbers.dtype, T => bytes[index * size..][..size].copy_from_slice(bytemuck::bytes_of(&number::<T>(value)?)));
            Ok(())
        })
    }

    pub(crate) fn dims(_: &Lua, numbers: Given) -> Result<Vec<i64>, Failure> {
        Ok(numbers.shape.dims().iter().map(|dim| *dim as i64).collect())
    }

    pub(crate) fn dtype(_: &Lua, numbers: Given) -> Result<&'static str, Failure> {
        Ok(numbers.dtype.name())
    }

    pub(crate) fn fill(_: &Lua, (numbers, value): (Given, Value)) -> Result<(), Failure> {
        numbers.write(|bytes| {
            by_dtype!(numbers.dtype, T => {
                let one = number::<T>(value)?;
                bytes.chunks_exact_mut(size_of::<T>()).for_each(|place| place.copy_from_slice(bytemuck::bytes_of(&one)));
            });
            Ok(())
        })
    }

    /// Each number x becomes `factor`·x + `term`.
    pub(crate) fn scale(_: &Lua, (numbers, factor, term): (Given, f64, f64)) -> Result<(), Failure> {
        numbers.write(|bytes| {
            by_dtype!(numbers.dtype, T => bytes.chunks_exact_mut(size_of::<T>()).for_each(|place| {
                let x = bytemuck::pod_read_unaligned::<T>(place).to_float();
                place.copy_from_slice(bytemuck::bytes_of(&T::of_float(factor * x + term)));
            }));
            Ok(())
        })
    }

    /// Adds `factor` times the others.
    pub(crate) fn add(_: &Lua, (numbers, factor, others): (Given, f64, Given)) -> Result<(), Failure> {
        same_count(&numbers, &others)?;
        let others = others.as_dtype(numbers.dtype)?;
        let mut terms = others.read(|bytes| Ok(bytes.to_vec()))?;
        if factor != 1.0 {
            by_dtype!(numbers.dtype, T => terms.chunks_exact_mut(size_of::<T>()).for_each(|place| {
                let x = bytemuck::pod_read_unaligned::<T>(place).to_float();
                place.copy_from_slice(bytemuck::bytes_of(&T::of_float(factor * x)));
            }));
        }
        numbers.write(|bytes| reduce_into(ReduceOp::Sum, numbers.dtype, bytes, &terms).map_err(|error| Failure::shape(error.to_string())))
    }

    pub(crate) fn copy(_: &Lua, (numbers, others): (Given, Given)) -> Result<(), Failure> {
        same_count(&numbers, &others)?;
        let others = others.as_dtype(numbers.dtype)?.read(|bytes| Ok(bytes.to_vec()))?;
        numbers.write(|bytes| {
            bytes.copy_from_slice(&others);
            Ok(())
        })
    }

    fn same_count(numbers: &Numbers, others: &Numbers) -> Result<(), Failure> {
        if numbers.count() == others.count() {
            return Ok(());
        }
        Err(Failure::shape(format!("{} numbers do not go with {}", others.count(), numbers.count())))
    }

    /// A copy of its own as `dtype`.
    pub(crate) fn cast(_: &Lua, (numbers, dtype): (Given, String)) -> Result<Numbers, Failure> {
        let other = numbers.as_dtype(dtype_of(&dtype)?)?;
        other.read(|bytes| Numbers::of_bytes(other.dtype, other.shape.clone(), bytes))
    }

    /// The same memory with other extents.
    pub(crate) fn reshape(_: &Lua, (numbers, dims): (Given, Vec<i64>)) -> Result<Numbers, Failure> {
        let shape = shape_of(&dims)?;
        if shape.elements() != numbers.count() {
            return Err(Failure::shape(format!("{} numbers cannot be seen as {}", numbers.count(), shape.elements())));
        }
        Ok(Numbers { shape, ..numbers.clone() })
    }

    /// `count` places of the first extent, from `first`, sharing their memory.
    pub(crate) fn narrow(_: &Lua, (numbers, first, count): (Given, i64, i64)) -> Result<Numbers, Failure> {
        let mut dims: Vec<i64> = numbers.shape.dims().iter().map(|dim| *dim as i64).collect();
        if first < 1 || count < 0 || dims.is_empty() || first - 1 > dims[0] - count {
            return Err(Failure::argument(format!("there are no {count} places from {first}")));
        }
        dims[0] = count;
        let row = numbers.size().checked_div(numbers.shape.dims()[0]).unwrap_or(0);
        let offset = (first as usize - 1) * row;
        let from = numbers.from_or_zero(numbers.from + offset);
        Ok(Numbers { memory: numbers.memory_from(offset), from, dtype: numbers.dtype, shape: shape_of(&dims)? })
    }

    pub(crate) fn sum(_: &Lua, numbers: Given) -> Result<f64, Failure> {
        numbers.read(|bytes| {
            Ok(by_dtype!(numbers.dtype, T => bytes.chunks_exact(size_of::<T>()).map(|place| bytemuck::pod_read_unaligned::<T>(place).to_float()).sum()))
        })
    }

    pub(crate) fn to_table(lua: &Lua, numbers: Given) -> Result<Table, Failure> {
        fn listed(lua: &Lua, numbers: &Numbers) -> Result<Table, Failure> {
            let dims = numbers.shape.dims();
            let table = lua.create_table_with_capacity(dims.first().copied().unwrap_or(1).min(1 << 26), 0)?;
            if dims.len() <= 1 {
                numbers.read(|bytes| {
                    by_dtype!(numbers.dtype, T => for (index, place) in bytes.chunks_exact(size_of::<T>()).enumerate() {
                        table.raw_set(index + 1, bytemuck::pod_read_unaligned::<T>(place).to_lua())?;
                    });
                    Ok(())
                })?;
                return Ok(table);
            }
            for place in 1..=dims[0] as i64 {
                if let Err(row) = numbers.at(place)? {
                    table.raw_set(place, listed(lua, &row)?)?;
                }
            }
            Ok(table)
        }
        listed(lua, &numbers)
    }

    /// The bytes as a string.
    pub(crate) fn to_string(lua: &Lua, numbers: Given) -> Result<mlua::LuaString, Failure> {
        numbers.read(|bytes| Ok(lua.create_string(bytes)?))
    }

    /// Makes them the bytes of a string of the same length.
    pub(crate) fn from_string(_: &Lua, (numbers, text): (Given, mlua::LuaString)) -> Result<(), Failure> {
        let text = text.as_bytes();
        numbers.write(|bytes| {
            if bytes.len() != text.len() {
                return Err(Failure::shape(format!("{} bytes do not go into {}", text.len(), bytes.len())));
            }
            bytes.copy_from_slice(&text);
            Ok(())
        })
    }
}
