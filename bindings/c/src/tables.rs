//! Tables: arrays, matrices and key spaces that all workers read and add to.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use syncline::{AddOptions, Consistency, DType, Deadline, Pending, Session, Spec, Table, Updater};

use crate::border::{deadline, guarded, with_site};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::session::{SESSIONS, syncline_session};
use crate::{facts, memory};

/// A table. May be used from many threads.
pub struct syncline_table {
    _private: [u8; 0],
}

/// A get that is under way.
pub struct syncline_future {
    _private: [u8; 0],
}

pub(crate) struct Kept {
    pub(crate) table: Table,
    timeout: Duration,
}

pub(crate) static TABLES: Handles<syncline_table, Kept> = Handles::new("table", 2);
static FUTURES: Handles<syncline_future, Pending> = Handles::new("future", 3);

/// How a table is made. All zero is the default: floats, adds, as consistent as the session says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncline_table_options {
    /// A syncline_dtype.
    dtype: i32,
    /// Not 0: `staleness` counts.
    bounded: i32,
    /// A get after j own adds waits until every worker has made j - staleness; 0 is sync mode.
    staleness: u32,
    /// What an add does: "add", "sgd", "momentum_sgd", "adagrad", "dcasgd" or "dcasgda"; NULL is "add".
    updater: *const c_char,
    /// The name that checkpoints and errors use; NULL makes one up.
    name: *const c_char,
}

/// Numbers for the updater. All zero: what the updater does by itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct syncline_add_options {
    /// Which of the others count: 1 learning_rate, 2 momentum, 4 rho, 8 lambda, added up.
    given: u32,
    /// The learning rate that is already inside the delta.
    learning_rate: f32,
    /// Weight of the past.
    momentum: f32,
    /// Step of AdaGrad.
    rho: f32,
    /// Strength of the delay compensation.
    lambda: f32,
}

/// What the options say, for a table of this shape.
///
/// # Safety
/// `options` is NULL or can be read, and its texts are texts.
unsafe fn described(session: &Session, spec: Spec, options: *const syncline_table_options) -> Result<Spec, Failure> {
    // SAFETY: the caller's promise.
    let options = unsafe { memory::values(options, usize::from(!options.is_null()), "options") }?;
    let Some(options) = options.first() else { return Ok(spec.with_consistency(Consistency::new(session.sync(), None))) };
    if options.bounded == 0 && options.staleness != 0 {
        return Err(Failure::argument(format!("staleness is {}, and counts only where bounded is not 0", options.staleness)));
    }
    let staleness = (options.bounded != 0).then_some(options.staleness);
    let mut spec = spec.with_dtype(facts::dtype(options.dtype)?).with_consistency(Consistency::new(session.sync(), staleness));
    // SAFETY: the caller's promise.
    if let Some(updater) = unsafe { memory::text(options.updater, "updater") }? {
        spec = spec.with_updater(Updater::from_name(updater)?);
    }
    // SAFETY: the caller's promise.
    if let Some(name) = unsafe { memory::text(options.name, "name") }? {
        spec = spec.named(name);
    }
    Ok(spec)
}

/// # Safety
/// `initial` is NULL or has `count` numbers of the spec's dtype.
pub(crate) unsafe fn made(session: &Session, spec: Spec, initial: *const c_void, count: usize) -> Result<Kept, Failure> {
    // In the words that the table itself would use. Whether the initial value has the right length all workers hear together, from the table.
    spec.check()?;
    let initial = if initial.is_null() {
        if count != 0 {
            return Err(Failure::argument(format!("initial is NULL, and has {count} numbers")));
        }
        None
    } else {
        // SAFETY: the caller's promise.
        Some(unsafe { memory::numbers(initial, count, spec.dtype(), "initial") }?)
    };
    let table = with_site(|site| session.create_table_at(spec, initial, site, deadline(session.timeout())))?;
    Ok(Kept { table, timeout: session.timeout() })
}

fn numbers_in(spec: &Spec) -> Result<usize, Failure> {
    let (rows, cols) = spec.rows_and_cols().ok_or_else(|| Failure::argument("a table of keys has no fixed number of values"))?;
    rows.checked_mul(cols).and_then(|all| usize::try_from(all).ok()).ok_or_else(|| Failure::argument("the table is larger than memory"))
}

fn same_count(what: &str, given: usize, wanted: usize) -> Result<(), Failure> {
    if given == wanted { Ok(()) } else { Err(Failure::shape(format!("{what} has {given} numbers, and {wanted} are needed"))) }
}

/// Makes a table of `size` numbers that move together. Every worker makes the same tables in the same order; worker 0's
/// `initial` counts, `count` numbers or NULL for zeros. Returns when the initial value is in place everywhere.
///
/// # Safety
/// `options` is NULL or can be read; `initial` is NULL or has `count` numbers; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_array_create(
    session: *mut syncline_session,
    size: u64,
    options: *const syncline_table_options,
    initial: *const c_void,
    count: usize,
    out: *mut *mut syncline_table,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { create(session, Spec::array(size), options, initial, count, out) })
}

/// Makes a table of `rows` × `cols` numbers, row by row, that move together or by rows; else as syncline_array_create.
///
/// # Safety
/// As syncline_array_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_matrix_create(
    session: *mut syncline_session,
    rows: u64,
    cols: u64,
    options: *const syncline_table_options,
    initial: *const c_void,
    count: usize,
    out: *mut *mut syncline_table,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { create(session, Spec::matrix(rows, cols), options, initial, count, out) })
}

/// Makes a table with one number for each 64-bit key, zero until somebody adds to it.
///
/// # Safety
/// `options` is NULL or can be read; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_keys_create(
    session: *mut syncline_session,
    options: *const syncline_table_options,
    out: *mut *mut syncline_table,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { create(session, Spec::keys(), options, std::ptr::null(), 0, out) })
}

/// # Safety
/// As syncline_array_create.
unsafe fn create(
    session: *mut syncline_session,
    shape: Spec,
    options: *const syncline_table_options,
    initial: *const c_void,
    count: usize,
    out: *mut *mut syncline_table,
) -> Result<(), Failure> {
    memory::check_out(out, "out")?;
    let session = SESSIONS.get(session)?;
    // SAFETY: the caller's promise.
    let spec = unsafe { described(&session, shape, options) }?;
    // SAFETY: the caller's promise.
    let kept = unsafe { made(&session, spec, initial, count) }?;
    // SAFETY: the caller's promise.
    unsafe { memory::give(out, "out", TABLES.put(kept)) }
}

impl Kept {
    pub(crate) fn deadline(&self) -> Deadline {
        deadline(self.timeout)
    }

    pub(crate) fn dtype(&self) -> DType {
        self.table.spec().dtype()
    }

    /// Whether `given` numbers are what `rows` of its rows (`None`: all) hold.
    pub(crate) fn check(&self, given: usize, rows: Option<usize>) -> Result<(), Failure> {
        let all = numbers_in(self.table.spec())?;
        let wanted = match rows {
            None => all,
            Some(rows) => {
                let cols = self.table.spec().rows_and_cols().map_or(0, |(_, cols)| cols as usize);
                rows.checked_mul(cols).ok_or_else(|| Failure::argument(format!("{rows} rows are more than memory holds")))?
            }
        };
        same_count(&format!("the array for table `{}`", self.table.name()), given, wanted)
    }
}

/// # Safety
/// `options` is NULL or can be read.
unsafe fn for_updater(options: *const syncline_add_options) -> Result<AddOptions, Failure> {
    // SAFETY: the caller's promise.
    let options = unsafe { memory::values(options, usize::from(!options.is_null()), "options") }?;
    let Some(options) = options.first() else { return Ok(AddOptions::default()) };
    if options.given > 15 {
        return Err(Failure::argument(format!("given is {}, and 1, 2, 4 and 8 added up are 15 at most", options.given)));
    }
    let known = |bit: u32, number: f32| (options.given & bit != 0).then_some(number);
    Ok(AddOptions {
        learning_rate: known(1, options.learning_rate),
        momentum: known(2, options.momentum),
        rho: known(4, options.rho),
        lambda: known(8, options.lambda),
    })
}

/// Adds `count` numbers, one for each of the table's, through its updater. Returns at once: `delta` may be changed again,
/// while the add goes on. With `wait` not 0 it returns when everybody's next get sees it; in sync mode that needs everybody's
/// add of the same round.
///
/// # Safety
/// `delta` has `count` numbers of the table's dtype; `options` is NULL or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_add(
    table: *mut syncline_table,
    delta: *const c_void,
    count: usize,
    options: *const syncline_add_options,
    wait: c_int,
) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        kept.check(count, None)?;
        // SAFETY: the caller's promise.
        let (delta, options) = unsafe { (memory::numbers(delta, count, kept.dtype(), "delta")?, for_updater(options)?) };
        Ok(kept.table.add(delta, None, &options, wait != 0, kept.deadline())?)
    })
}

/// Gets all `count` numbers, as the table's consistency allows; this worker's own adds are always in them. After an error,
/// what `out` holds is not told.
///
/// # Safety
/// `out` has room for `count` numbers of the table's dtype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_get(table: *mut syncline_table, out: *mut c_void, count: usize) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        kept.check(count, None)?;
        // SAFETY: the caller's promise.
        let out = unsafe { memory::numbers_mut(out, count, kept.dtype(), "out") }?;
        Ok(kept.table.get(out, None, kept.deadline())?)
    })
}

/// Adds `delta` and gets the table after it into `out`, in one pass where the consistency allows it.
///
/// # Safety
/// `delta` and `out` have `count` numbers of the table's dtype and do not overlap; `options` is NULL or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_add_get(
    table: *mut syncline_table,
    delta: *const c_void,
    out: *mut c_void,
    count: usize,
    options: *const syncline_add_options,
) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        kept.check(count, None)?;
        // SAFETY: the caller's promise.
        let (delta, out, options) = unsafe {
            let delta = memory::numbers(delta, count, kept.dtype(), "delta")?;
            (delta, memory::numbers_mut(out, count, kept.dtype(), "out")?, for_updater(options)?)
        };
        Ok(kept.table.add_get(delta, out, None, &options, kept.deadline())?)
    })
}

/// Adds one row for each id; ids are counted from 0, may come in any order and more than once. A refused add changes nothing.
///
/// # Safety
/// `ids` has `num_ids` ids and `delta` `count` numbers of the table's dtype; `options` is NULL or can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_add_rows(
    table: *mut syncline_table,
    ids: *const i64,
    num_ids: usize,
    delta: *const c_void,
    count: usize,
    options: *const syncline_add_options,
    wait: c_int,
) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        kept.check(count, Some(num_ids))?;
        // SAFETY: the caller's promise.
        let (ids, delta, options) = unsafe {
            let ids = memory::values(ids, num_ids, "ids")?;
            (ids, memory::numbers(delta, count, kept.dtype(), "delta")?, for_updater(options)?)
        };
        Ok(kept.table.add(delta, Some(ids), &options, wait != 0, kept.deadline())?)
    })
}

/// Gets the rows of these ids, in their order.
///
/// # Safety
/// `ids` has `num_ids` ids, and `out` has room for `count` numbers of the table's dtype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_get_rows(
    table: *mut syncline_table,
    ids: *const i64,
    num_ids: usize,
    out: *mut c_void,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        kept.check(count, Some(num_ids))?;
        // SAFETY: the caller's promise.
        let (ids, out) = unsafe { (memory::values(ids, num_ids, "ids")?, memory::numbers_mut(out, count, kept.dtype(), "out")?) };
        Ok(kept.table.get(out, Some(ids), kept.deadline())?)
    })
}

/// Brings `copy`, which holds the whole table, up to date: writes the rows that others changed since this worker's last
/// call, and tells how many there were and, in order, their ids, as far as there is room. The first call fetches every row.
///
/// # Safety
/// `copy` has `count` numbers of the table's dtype; `ids` is NULL or has `room` places; `changed` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_get_changed(
    table: *mut syncline_table,
    copy: *mut c_void,
    count: usize,
    ids: *mut i64,
    room: usize,
    changed: *mut usize,
) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        kept.check(count, None)?;
        // SAFETY: the caller's promise.
        let (copy, places) = unsafe {
            let copy = memory::numbers_mut(copy, count, kept.dtype(), "copy")?;
            (copy, memory::values_mut(ids, if ids.is_null() { 0 } else { room }, "ids")?)
        };
        let found = kept.table.get_changed(copy, kept.deadline())?;
        places.iter_mut().zip(&found).for_each(|(place, id)| *place = *id);
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(changed, "changed", found.len()) }
    })
}

/// Adds one number for each key. Returns at once, or with `wait` not 0 when everybody's next get sees it.
///
/// # Safety
/// `keys` has `count` keys and `values` as many numbers of the table's dtype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_add_keys(
    table: *mut syncline_table,
    keys: *const i64,
    values: *const c_void,
    count: usize,
    wait: c_int,
) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        // SAFETY: the caller's promise.
        let (keys, values) = unsafe { (memory::values(keys, count, "keys")?, memory::numbers(values, count, kept.dtype(), "values")?) };
        Ok(kept.table.add_keys(keys, values, wait != 0, kept.deadline())?)
    })
}

/// The number of each key.
///
/// # Safety
/// `keys` has `count` keys, and `out` has room for as many numbers of the table's dtype.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_get_keys(
    table: *mut syncline_table,
    keys: *const i64,
    out: *mut c_void,
    count: usize,
) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        // SAFETY: the caller's promise.
        let (keys, out) = unsafe { (memory::values(keys, count, "keys")?, memory::numbers_mut(out, count, kept.dtype(), "out")?) };
        Ok(kept.table.get_keys(keys, out, kept.deadline())?)
    })
}

/// Begins to get the whole table and returns at once; compute meanwhile. Any number may be under way.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_get_async(table: *mut syncline_table, out: *mut *mut syncline_future) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let pending = TABLES.get(table)?.table.get_async(None)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", FUTURES.put(pending)) }
    })
}

/// Whether syncline_future_wait would return at once: 1 or 0.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_future_done(future: *mut syncline_future, out: *mut c_int) -> syncline_status {
    guarded(|| {
        let done = FUTURES.get(future)?.done();
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", c_int::from(done)) }
    })
}

/// Waits for the values and copies their `size` bytes into `out`. `timeout` is in seconds; 0 waits as long as the get itself does.
/// After SYNCLINE_TIMEOUT it may be waited for again.
///
/// # Safety
/// `out` has room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_future_wait(
    future: *mut syncline_future,
    timeout: f64,
    out: *mut c_void,
    size: usize,
) -> syncline_status {
    guarded(|| {
        let pending = FUTURES.get(future)?;
        let bytes = pending.wait(memory::patience(timeout)?, crate::border::no_deadline())?;
        if bytes.len() != size {
            return Err(Failure::shape(format!("the result has {} bytes, and out has {size}", bytes.len())));
        }
        // SAFETY: the caller's promise.
        unsafe { memory::values_mut(out.cast::<u8>(), size, "out") }?.copy_from_slice(&bytes);
        Ok(())
    })
}

/// Frees a future; the get goes on unseen if it is still under way.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_future_free(future: *mut syncline_future) -> syncline_status {
    guarded(|| FUTURES.take(future).map(drop))
}

/// How many rows and columns it has; an array has rows of one number, and a table of keys has 0 of both.
///
/// # Safety
/// `rows` and `cols` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_shape(table: *mut syncline_table, rows: *mut u64, cols: *mut u64) -> syncline_status {
    guarded(|| {
        let shape = TABLES.get(table)?.table.spec().rows_and_cols().unwrap_or((0, 0));
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(rows, "rows", shape.0)?;
            memory::give_if(cols, "cols", shape.1)
        }
    })
}

/// Copies the table's name, given or made up, into `out`, cut short where there is less room.
///
/// # Safety
/// `out` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_table_name(table: *mut syncline_table, out: *mut c_char, room: usize) -> syncline_status {
    guarded(|| {
        let kept = TABLES.get(table)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_text(out, room, kept.table.name()) }
    })
}

/// Frees the handle. The table itself lives as long as the session.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_table_free(table: *mut syncline_table) -> syncline_status {
    guarded(|| TABLES.take(table).map(drop))
}
