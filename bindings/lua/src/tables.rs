//! Tables, as the Lua side calls them.

use std::time::Duration;

use mlua::{Either, Lua, Table as LuaTable, UserData, UserDataRef, Value};
use syncline::{AddOptions, Consistency, DType, ReduceOp, Spec, Table, Updater};
use syncline_tensor::Shape;

use crate::arguments::{Whole, kind, whole, words};
use crate::interrupt::deadline;
use crate::numbers::{Numbers, dtype_of, of_table, relieve};
use crate::reply::{Failure, shaped};
use crate::values::opened;
use crate::{job, values};

pub(crate) struct Kept {
    table: Table,
    timeout: Duration,
}

impl UserData for Kept {}

type Given = UserDataRef<Kept>;

/// The operation of this name.
pub(crate) fn op_of(name: &str) -> Result<ReduceOp, Failure> {
    let known = ReduceOp::ALL.into_iter().find(|op| op.name() == name);
    known.ok_or_else(|| Failure::argument(format!("`{name}` is no reduction\nhint: sum, prod, min, max, mean, and, or, or a function")))
}

/// Makes a table of one number per place, `rows` × `cols` of them, or with a number for each key (neither given).
pub(crate) fn create(
    lua: &Lua,
    (rows, cols, initial, options, site): (Option<Whole>, Option<Whole>, Value, LuaTable, String),
) -> Result<Kept, Failure> {
    let session = job::current("table")?;
    let extent =
        |name: &str, Whole(number): Whole| u64::try_from(number).map_err(|_| Failure::argument(format!("{name} {number} is negative")));
    let spec = match (rows, cols) {
        (None, _) => Spec::keys(),
        (Some(size), None) => Spec::array(extent("size", size)?),
        (Some(rows), Some(cols)) => Spec::matrix(extent("num_row", rows)?, extent("num_col", cols)?),
    };
    let dtype = options.get::<Option<String>>("dtype")?.map_or(Ok(DType::F32), |name| dtype_of(&name))?;
    let staleness = options.get::<Option<u32>>("staleness")?;
    let mut spec = spec.with_dtype(dtype).with_consistency(Consistency::new(session.sync(), staleness));
    if let Some(updater) = options.get::<Option<String>>("updater")? {
        spec = spec.with_updater(Updater::from_name(&updater)?);
    }
    if let Some(name) = options.get::<Option<String>>("name")? {
        spec = spec.named(name);
    }
    spec.check()?;
    let by = deadline(session.timeout());
    let table = match initial {
        Value::Nil => session.create_table_at(spec, None, &site, by)?,
        initial => {
            let numbers = numbers_from(lua, &initial, dtype, "init_value")?;
            // Whether it has the right length all workers hear together, from the table.
            numbers.read(|bytes| Ok(session.create_table_at(spec, Some(bytes), &site, by)?))?
        }
    };
    Ok(Kept { table, timeout: session.timeout() })
}

/// A tensor, or a table of numbers, as numbers of `dtype`.
pub(crate) fn numbers_from(lua: &Lua, value: &Value, dtype: DType, name: &str) -> Result<Numbers, Failure> {
    if let Some(numbers) = opened(lua, value)? {
        return numbers.held_as(dtype, name);
    }
    match value {
        Value::Table(table) => of_table(table, dtype),
        other => Err(Failure::argument(format!("{name}: a tensor or a table of numbers was expected, and a {} came", kind(other)))),
    }
}

impl Kept {
    fn dtype(&self) -> DType {
        self.table.spec().dtype()
    }

    fn shape(&self) -> (u64, u64) {
        self.table.spec().rows_and_cols().unwrap_or((0, 0))
    }

    fn check(&self, numbers: &Numbers, rows: Option<&[i64]>) -> Result<(), Failure> {
        let (all, cols) = self.shape();
        let wanted = rows.map_or(all, |ids| ids.len() as u64) * cols;
        if numbers.count() as u64 == wanted {
            return Ok(());
        }
        let text = format!("table `{}`: {} numbers came, and {wanted} are needed", self.table.name(), numbers.count());
        Err(Failure::shape(text))
    }

    /// Whether these are as many numbers of the same type.
    fn is_all_of_it(&self, numbers: &Numbers) -> bool {
        let (rows, cols) = self.shape();
        numbers.dtype == self.dtype() && numbers.count() as u64 == rows * cols
    }

    /// The extents of a whole table or of so many rows: those of a vector for an array and of a matrix else.
    fn extents(&self, is_array: bool, rows: Option<usize>) -> Result<Shape, Failure> {
        let (all, cols) = self.shape();
        let rows = rows.unwrap_or(all as usize);
        shaped(if is_array { Shape::new(&[rows]) } else { Shape::new(&[rows, cols as usize]) })
    }

    /// Room for a whole table or for rows.
    fn room(&self, is_array: bool, rows: Option<&[i64]>) -> Result<Numbers, Failure> {
        Ok(Numbers::to_fill(self.dtype(), self.extents(is_array, rows.map(<[i64]>::len))?))
    }
}

/// What the native object behind a value is, if it is a `T`.
fn behind<T: 'static>(value: &Value) -> Option<UserDataRef<T>> {
    if let Value::UserData(data) = value { data.borrow().ok() } else { None }
}

/// How the two quick calls below answer: true; nil where something is not as simple as most calls are, and the whole call has to be made; or false for a
/// failure, whose words are asked for by `last_words`. Nothing of Lua's is made on these ways, so that no finaliser runs, nothing is raised, and Lua need
/// not watch them.
fn quickly(done: Result<(), Failure>) -> mlua::Result<Option<bool>> {
    Ok(Some(done.map_err(Failure::told).is_ok()))
}

/// Gets a whole table into a tensor of ours.
pub(crate) fn get_into(_: &Lua, (kept, out): (Value, Value)) -> mlua::Result<Option<bool>> {
    let (Some(kept), Some(out)) = (behind::<Kept>(&kept), behind::<Numbers>(&out)) else { return Ok(None) };
    if !kept.is_all_of_it(&out) {
        return Ok(None);
    }
    quickly(out.write(|bytes| Ok(kept.table.get(bytes, None, deadline(kept.timeout))?)))
}

/// Adds a tensor of ours to a whole table, and does not wait.
pub(crate) fn add_all(_: &Lua, (kept, delta): (Value, Value)) -> mlua::Result<Option<bool>> {
    let (Some(kept), Some(delta)) = (behind::<Kept>(&kept), behind::<Numbers>(&delta)) else { return Ok(None) };
    if !kept.is_all_of_it(&delta) {
        return Ok(None);
    }
    quickly(delta.read(|bytes| Ok(kept.table.add(bytes, None, &AddOptions::default(), false, deadline(kept.timeout))?)))
}

/// Gets a whole table into a new tensor of ours: that tensor; else as the two above. Lua watches it, since a tensor is made.
pub(crate) fn get_new(lua: &Lua, (kept, is_array): (Value, bool)) -> mlua::Result<Either<Numbers, Option<bool>>> {
    let Some(kept) = behind::<Kept>(&kept) else { return Ok(Either::Right(None)) };
    relieve(lua);
    let got = kept.room(is_array, None).and_then(|out| {
        out.write(|bytes| Ok(kept.table.get(bytes, None, deadline(kept.timeout))?))?;
        Ok(out)
    });
    match got {
        Ok(out) => Ok(Either::Left(out)),
        Err(failure) => quickly(Err(failure)).map(Either::Right),
    }
}

/// The rows or keys that a call is about: a table of whole numbers.
fn ids_from(ids: Value, name: &str) -> Result<Option<Vec<i64>>, Failure> {
    let Value::Table(table) = ids else {
        return match ids {
            Value::Nil => Ok(None),
            other => Err(Failure::argument(format!("{name}: a table of numbers was expected, and a {} came", kind(&other)))),
        };
    };
    let count = table.raw_len();
    if count == 0 && !table.is_empty() {
        return Err(Failure::argument(format!("{name}: a list was expected, and a table without [1] came")));
    }
    let id = |index: usize| {
        let id = table.raw_get::<Value>(index)?;
        whole(&id).ok_or_else(|| Failure::argument(format!("{name}[{index}] is no whole number but {}", words(&id))))
    };
    (1..=count).map(id).collect::<Result<_, Failure>>().map(Some)
}

/// The numbers that the updater is told.
fn options_from(options: Option<LuaTable>) -> Result<AddOptions, Failure> {
    let Some(options) = options else { return Ok(AddOptions::default()) };
    let lambda = options.get::<Option<f32>>("lambda")?.or(options.get("lambda_")?);
    Ok(AddOptions { learning_rate: options.get("learning_rate")?, momentum: options.get("momentum")?, rho: options.get("rho")?, lambda })
}

/// Adds a tensor or a table of numbers, all of it or by rows.
pub(crate) fn add(lua: &Lua, (kept, delta, ids, wait, options): (Given, Value, Value, bool, Option<LuaTable>)) -> Result<(), Failure> {
    let delta = numbers_from(lua, &delta, kept.dtype(), "data")?;
    let (ids, options) = (ids_from(ids, "row_ids")?, options_from(options)?);
    kept.check(&delta, ids.as_deref())?;
    delta.read(|bytes| Ok(kept.table.add(bytes, ids.as_deref(), &options, wait, deadline(kept.timeout))?))
}

/// Gets all numbers or some rows, into a tensor of the caller's or a new one.
pub(crate) fn get(lua: &Lua, (kept, ids, out, is_array): (Given, Value, Value, bool)) -> Result<Value, Failure> {
    let ids = ids_from(ids, "row_ids")?;
    let given = opened(lua, &out)?;
    if given.is_none() && !out.is_nil() {
        return Err(Failure::argument(format!("out: a tensor was expected, and a {} came", kind(&out))));
    }
    let target = match &given {
        Some(numbers) if numbers.dtype != kept.dtype() => {
            return Err(Failure::shape(format!("out has {}, and table `{}` has {}", numbers.dtype, kept.table.name(), kept.dtype())));
        }
        Some(numbers) => {
            kept.check(numbers, ids.as_deref())?;
            numbers.clone()
        }
        None => kept.room(is_array, ids.as_deref())?,
    };
    target.write(|bytes| Ok(kept.table.get(bytes, ids.as_deref(), deadline(kept.timeout))?))?;
    if given.is_some() { Ok(out) } else { values::presented(lua, target) }
}

/// Adds one number for each key.
pub(crate) fn add_keys(lua: &Lua, (kept, keys, numbers, wait): (Given, Value, Value, bool)) -> Result<(), Failure> {
    let keys = ids_from(keys, "keys")?.ok_or_else(|| Failure::argument("keys: a table of whole numbers was expected"))?;
    let numbers = numbers_from(lua, &numbers, kept.dtype(), "values")?;
    numbers.read(|bytes| Ok(kept.table.add_keys(&keys, bytes, wait, deadline(kept.timeout))?))
}

/// The number of each key.
pub(crate) fn get_keys(lua: &Lua, (kept, keys): (Given, Value)) -> Result<Value, Failure> {
    let keys = ids_from(keys, "keys")?.ok_or_else(|| Failure::argument("keys: a table of whole numbers was expected"))?;
    let numbers = Numbers::zeros(kept.dtype(), shaped(Shape::new(&[keys.len()]))?);
    numbers.write(|bytes| Ok(kept.table.get_keys(&keys, bytes, deadline(kept.timeout))?))?;
    values::presented(lua, numbers)
}

pub(crate) fn name(_: &Lua, kept: Given) -> Result<String, Failure> {
    Ok(kept.table.name().to_owned())
}

/// What a tensor for the whole table, or for so many of its rows, has to be: its dtype and extents.
pub(crate) fn form(_: &Lua, (kept, rows, is_array): (Given, Option<usize>, bool)) -> Result<(&'static str, Vec<usize>), Failure> {
    Ok((kept.dtype().name(), kept.extents(is_array, rows)?.dims().to_vec()))
}
