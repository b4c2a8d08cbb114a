//! Numbers of one dtype in row-major order: what `syncline.Tensor` is made of, and how Torch7's tensors are lent.
//!
//! A row and its matrix share memory, and so do the threads of a process that one has sent a tensor to another. Each call is one
//! step for all of them. Memory of Torch's is used where it lies while its tensor is kept alive.

pub(crate) mod calls;
mod element;
mod memory;
mod nested;
mod room;

use std::sync::{Arc, RwLock};

use mlua::{UserData, Value};
use syncline::DType;
use syncline_tensor::{Shape, Tensor, TensorView};

use self::element::{InLua, by_dtype};
use self::memory::Memory;
use self::room::Room;
use crate::reply::{Failure, shaped};
pub(crate) use element::integer;
pub(crate) use nested::of_table;
pub(crate) use room::relieve;

#[derive(Clone)]
pub(crate) struct Numbers {
    memory: Memory,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
}

impl UserData for Numbers {}

/// Numbers with memory of their own, as they go from thread to thread: not copied.
#[derive(Clone)]
pub(crate) struct SharedNumbers {
    tensor: Arc<RwLock<Room>>,
    from: usize,
    dtype: DType,
    shape: Shape,
}

impl Numbers {
    pub(crate) fn own(tensor: Tensor) -> Numbers {
        Numbers::in_room(Room::of(tensor))
    }

    pub(crate) fn zeros(dtype: DType, shape: Shape) -> Numbers {
        Numbers::in_room(Room::zeros(dtype, shape))
    }

    /// Numbers of any value, for whoever writes all of them.
    pub(crate) fn to_fill(dtype: DType, shape: Shape) -> Numbers {
        Numbers::in_room(Room::to_fill(dtype, shape))
    }

    fn in_room(room: Room) -> Numbers {
        let (dtype, shape) = (room.dtype(), room.shape().clone());
        Numbers { memory: Memory::own(room), dtype, shape }
    }

    pub(crate) fn of_bytes(dtype: DType, shape: Shape, bytes: &[u8]) -> Result<Numbers, Failure> {
        Ok(Numbers::own(shaped(Tensor::from_bytes(dtype, shape, bytes))?))
    }

    /// For another thread; none if the memory is somebody else's.
    pub(crate) fn share(&self) -> Option<SharedNumbers> {
        let Memory::Own { tensor, from } = &self.memory else { return None };
        Some(SharedNumbers { tensor: Arc::clone(tensor), from: *from, dtype: self.dtype, shape: self.shape.clone() })
    }

    /// What another thread shared.
    pub(crate) fn shared(shared: SharedNumbers) -> Numbers {
        let SharedNumbers { tensor, from, dtype, shape } = shared;
        Numbers { memory: Memory::Own { tensor, from }, dtype, shape }
    }

    pub(crate) fn count(&self) -> usize {
        self.shape.elements()
    }

    fn size(&self) -> usize {
        self.shape.byte_len(self.dtype)
    }

    /// Lends the bytes.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&[u8]) -> Result<T, Failure>) -> Result<T, Failure> {
        self.memory.read(self.size(), read)
    }

    /// Lends the bytes to be written.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&mut [u8]) -> Result<T, Failure>) -> Result<T, Failure> {
        self.memory.write(self.size(), write)
    }

    /// The same numbers as `dtype`: themselves, or a copy.
    pub(crate) fn as_dtype(&self, dtype: DType) -> Result<Numbers, Failure> {
        if dtype == self.dtype {
            return Ok(self.clone());
        }
        self.read(|bytes| {
            let view = shaped(TensorView::contiguous(bytes, self.dtype, self.shape.clone()))?;
            Ok(Numbers::own(view.to_tensor().cast(dtype)))
        })
    }

    /// The same numbers as `dtype` for a table: whole ones hold neither fractions nor what is too large for them, and would lose it without a word.
    pub(crate) fn held_as(&self, dtype: DType, name: &str) -> Result<Numbers, Failure> {
        let held = self.as_dtype(dtype)?;
        if dtype == self.dtype || dtype.is_float() {
            return Ok(held);
        }
        let (given, kept) = (self.floats()?, held.floats()?);
        match given.iter().zip(&kept).position(|(given, kept)| given != kept) {
            None => Ok(held),
            Some(place) => Err(Failure::argument(format!("{name}: number {} is {}, and the table has {dtype}", place + 1, given[place]))),
        }
    }

    fn floats(&self) -> Result<Vec<f64>, Failure> {
        self.read(|bytes| Ok(by_dtype!(self.dtype, T => T::all(bytes).map(InLua::to_float).collect())))
    }

    /// Their own copy.
    pub(crate) fn copied(&self) -> Result<Numbers, Failure> {
        self.read(|bytes| Numbers::of_bytes(self.dtype, self.shape.clone(), bytes))
    }

    /// What Lua has at `place`: a number of a vector, a row that shares its memory otherwise.
    fn at(&self, place: i64) -> Result<Result<Value, Numbers>, Failure> {
        let index = self.index(place)?;
        let dims = self.shape.dims();
        if dims.len() == 1 {
            let size = self.dtype.size();
            return self.read(|bytes| Ok(Ok(by_dtype!(self.dtype, T => T::of_place(&bytes[index * size..][..size]).to_lua()))));
        }
        let shape = shaped(Shape::new(&dims[1..]))?;
        Ok(Err(self.part(index * shape.byte_len(self.dtype), shape)))
    }

    /// The numbers from byte `offset` on, as `shape` says, in the same memory.
    fn part(&self, offset: usize, shape: Shape) -> Numbers {
        Numbers { memory: self.memory.from(offset), dtype: self.dtype, shape }
    }

    /// A place from 1 as an index of the first extent.
    fn index(&self, place: i64) -> Result<usize, Failure> {
        let first = self.shape.dims().first().copied().unwrap_or(0);
        let index = usize::try_from(place).ok().and_then(|place| place.checked_sub(1)).filter(|index| *index < first);
        index.ok_or_else(|| Failure::argument(format!("there is no place {place}: they are numbered from 1 to {first}")))
    }
}

/// A table as extents.
pub(crate) fn shape_of(dims: &[i64]) -> Result<Shape, Failure> {
    let dims = dims.iter().map(|dim| usize::try_from(*dim)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|_| Failure::argument("a size is negative"))?;
    let shape = Shape::new(&dims).map_err(|error| Failure::argument(error.to_string()))?;
    // A typing error should not end the process: what cannot be had is found out by asking politely first.
    if !can_be_had(shape.elements()) {
        return Err(Failure::argument(format!("{} numbers do not fit into memory", shape.elements())));
    }
    Ok(shape)
}

/// Whether there is memory for so many of the widest numbers.
///
/// From 128 KB on `malloc` takes pages of their own, and when up to 32 MB of them come back it begins to take as much from its heap. There large tensors lay worse than
/// those of Rust, only because somebody had asked: an add of 4 MB took up to 5 % longer. So who asks for much asks for more than 32 MB.
fn can_be_had(count: usize) -> bool {
    const MUCH: usize = (128 << 10) / size_of::<u64>();
    const MORE: usize = (64 << 20) / size_of::<u64>();
    let had = |count| Vec::<u64>::new().try_reserve_exact(count).is_ok();
    (count >= MUCH && had(count.max(MORE))) || had(count)
}

pub(crate) fn dtype_of(name: &str) -> Result<DType, Failure> {
    DType::from_name(name).map_err(|error| Failure::argument(error.to_string()))
}
