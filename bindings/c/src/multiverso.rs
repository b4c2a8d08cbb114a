//! Multiverso's C functions under their old names: one job per process, tables of floats.
//!
//! They return nothing, so a program that was written for them cannot see a failure. Where the original ended the process,
//! these keep it alive: the call has done nothing, the words go to stderr once and stay in `syncline_last_error`.

use std::ffi::{c_char, c_int, c_void};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use syncline::{AddOptions, Consistency, ReduceOp, Session, Spec, Updater};

use crate::border::{deadline, guarded, no_deadline};
use crate::failure::{Failure, syncline_last_error, syncline_status};
use crate::session::open;
use crate::tables::{TABLES, made, syncline_table};
use crate::{facts, memory};

/// A table of Multiverso's.
pub type TableHandler = *mut c_void;

/// The one job of this process.
static JOB: Mutex<Option<Job>> = Mutex::new(None);

struct Job {
    session: Arc<Session>,
    /// What adds do in the tables to come.
    updater: Updater,
}

fn current() -> Result<Arc<Session>, Failure> {
    with_job(|job| Arc::clone(&job.session))
}

fn with_job<T>(look: impl FnOnce(&Job) -> T) -> Result<T, Failure> {
    let job = JOB.lock().unwrap_or_else(PoisonError::into_inner);
    job.as_ref()
        .map(look)
        .ok_or_else(|| Failure::new(syncline_status::SYNCLINE_CLOSED, "this process is in no job\nhint: call MV_Init first"))
}

/// Runs a call that cannot tell its caller how it went.
fn told(call: impl FnOnce() -> Result<(), Failure>) -> bool {
    let worked = guarded(call) == syncline_status::SYNCLINE_OK;
    if !worked {
        // SAFETY: the text of the failure just remembered is valid until the next one in this thread.
        let words = unsafe { std::ffi::CStr::from_ptr(syncline_last_error()) };
        let _ = writeln!(std::io::stderr(), "multiverso: {}", words.to_string_lossy());
    }
    worked
}

/// Joins the job. Flags such as `-sync=true` (or `--sync=true`) and `-updater_type=sgd` are taken out of `argv`, as Multiverso does;
/// others are left.
///
/// # Safety
/// `argc` and `argv` are NULL, or those of `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_Init(argc: *mut c_int, argv: *mut *mut c_char) {
    told(|| {
        let (mut sync, mut updater, mut role) = (false, Updater::Add, Role::Any);
        if !argc.is_null() && !argv.is_null() {
            // SAFETY: the caller's promise.
            let given = usize::try_from(unsafe { argc.read() }).unwrap_or(0);
            // SAFETY: the caller's promise.
            let words = unsafe { memory::values_mut(argv, given, "argv") }?;
            let mut kept = 0;
            for index in 0..given {
                // SAFETY: the caller's promise.
                match flag(unsafe { memory::text(words[index], "argv") }.ok().flatten()) {
                    Some(Flag::Sync(on)) => sync = on,
                    Some(Flag::Updater(name)) => updater = Updater::from_name(name)?,
                    Some(Flag::Role(name)) => role = Role::from_name(name)?,
                    Some(Flag::Other) => {}
                    None => {
                        words[kept] = words[index];
                        kept += 1;
                    }
                }
            }
            if kept < given {
                words[kept] = std::ptr::null_mut(); // as main's has behind its last word
            }
            // SAFETY: the caller's promise.
            unsafe { argc.write(kept as c_int) };
        }
        let mut job = JOB.lock().unwrap_or_else(PoisonError::into_inner);
        if job.is_some() {
            return Err(Failure::new(
                syncline_status::SYNCLINE_CONFIGURATION,
                "MV_Init: this process is already in a job\nhint: MV_ShutDown leaves it",
            ));
        }
        let session = open(sync, 0.0)?;
        role.check(&session)?;
        *job = Some(Job { session: Arc::new(session), updater });
        Ok(())
    });
}

/// What `-ps_role` asks for. Who starts the processes decides what they are; one that is something else than its program means is told so.
#[derive(Clone, Copy)]
enum Role {
    Any,
    Worker,
    Server,
}

impl Role {
    fn from_name(name: &str) -> Result<Role, Failure> {
        match name {
            "default" | "all" => Ok(Role::Any),
            "worker" => Ok(Role::Worker),
            "server" => Ok(Role::Server),
            other => Err(Failure::argument(format!("MV_Init: -ps_role={other} is none of default, worker, server"))),
        }
    }

    fn check(self, session: &Session) -> Result<(), Failure> {
        let (works, serves) = (session.worker_id().is_some(), session.server_id().is_some());
        let (wanted, is_it) = match self {
            Role::Any => return Ok(()),
            Role::Worker => ("worker", works && !serves),
            Role::Server => ("server", serves && !works),
        };
        if is_it {
            return Ok(());
        }
        let is = if works && serves {
            "both a worker and a server"
        } else if works {
            "a worker"
        } else {
            "a server"
        };
        Err(Failure::new(
            syncline_status::SYNCLINE_CONFIGURATION,
            format!(
                "MV_Init: -ps_role={wanted}, and this process is {is}\nhint: who starts it decides: syncline run --servers, SYNCLINE_ROLE"
            ),
        ))
    }
}

enum Flag<'a> {
    Sync(bool),
    Updater(&'a str),
    Role(&'a str),
    /// One that Multiverso knows and that means nothing here.
    Other,
}

/// What a word of the command line means to Multiverso.
fn flag(word: Option<&str>) -> Option<Flag<'_>> {
    const KNOWN: &[&str] =
        &["ma", "backup_worker_ratio", "omp_threads", "machine_file", "port", "allocator_type", "allocator_alignment", "logtostderr"];
    let (name, value) = word?.strip_prefix('-')?.split_once('=')?;
    let name = name.strip_prefix('-').unwrap_or(name);
    if name == "sync" {
        return Some(Flag::Sync(value.eq_ignore_ascii_case("true")));
    }
    if name == "updater_type" {
        return Some(Flag::Updater(value));
    }
    if name == "ps_role" {
        return Some(Flag::Role(value));
    }
    KNOWN.contains(&name).then_some(Flag::Other)
}

/// Leaves the job.
#[unsafe(no_mangle)]
pub extern "C" fn MV_ShutDown() {
    told(|| {
        let job = JOB.lock().unwrap_or_else(PoisonError::into_inner).take();
        job.map_or(Ok(()), |job| Ok(job.session.shutdown_by(no_deadline())?))
    });
}

/// Returns when every process has called it.
#[unsafe(no_mangle)]
pub extern "C" fn MV_Barrier() {
    told(|| {
        let session = current()?;
        Ok(session.barrier_by(deadline(session.timeout()))?)
    });
}

fn number(read: impl FnOnce(&Session) -> Option<u32>) -> c_int {
    let mut number = -1;
    told(|| {
        number = read(&*current()?).map_or(-1, |number| number as c_int);
        Ok(())
    });
    number
}

/// How many workers there are; -1 before MV_Init.
#[unsafe(no_mangle)]
pub extern "C" fn MV_NumWorkers() -> c_int {
    number(|session| Some(session.num_workers()))
}

/// How many servers there are; -1 before MV_Init.
#[unsafe(no_mangle)]
pub extern "C" fn MV_NumServers() -> c_int {
    number(|session| Some(session.num_servers()))
}

/// This worker's number; -1 when it is none.
#[unsafe(no_mangle)]
pub extern "C" fn MV_WorkerId() -> c_int {
    number(Session::worker_id)
}

/// This server's number; -1 when it is none.
#[unsafe(no_mangle)]
pub extern "C" fn MV_ServerId() -> c_int {
    number(Session::server_id)
}

/// This process's number; -1 before MV_Init.
#[unsafe(no_mangle)]
pub extern "C" fn MV_Rank() -> c_int {
    number(|session| Some(session.rank()))
}

/// How many processes there are; -1 before MV_Init.
#[unsafe(no_mangle)]
pub extern "C" fn MV_Size() -> c_int {
    number(|session| Some(session.size()))
}

/// Sums `count` floats over all processes, in place: what the original's `MV_Aggregate<float>` does.
///
/// # Safety
/// `data` has `count` floats, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_Aggregate(data: *mut f32, count: c_int) {
    told(|| {
        let session = current()?;
        let dtype = facts::dtype(facts::syncline_dtype::SYNCLINE_FLOAT32 as i32)?;
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data.cast(), checked("count", count)?, dtype, "data") }?;
        Ok(session.aggregate_bytes(data, dtype, ReduceOp::Sum, deadline(session.timeout()))?)
    });
}

fn checked(name: &str, number: c_int) -> Result<usize, Failure> {
    usize::try_from(number).map_err(|_| Failure::argument(format!("{name} {number} is negative")))
}

/// # Safety
/// `out` may be written.
unsafe fn make(spec: Spec, out: *mut TableHandler) -> Result<(), Failure> {
    memory::check_out(out, "out")?;
    let (session, updater) = with_job(|job| (Arc::clone(&job.session), job.updater))?;
    let spec = spec.with_updater(updater).with_consistency(Consistency::new(session.sync(), None));
    // SAFETY: there is no initial value.
    let kept = unsafe { made(&session, spec, std::ptr::null(), 0) }?;
    // SAFETY: the caller's promise.
    unsafe { memory::give(out, "out", TABLES.put(kept).cast()) }
}

/// Makes an array table of `size` zeros; every process makes the same tables in the same order.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_NewArrayTable(size: c_int, out: *mut TableHandler) {
    // SAFETY: the caller's promise.
    told(|| unsafe { make(Spec::array(checked("size", size)? as u64), out) });
}

/// Makes a matrix table of zeros; every process makes the same tables in the same order.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_NewMatrixTable(num_row: c_int, num_col: c_int, out: *mut TableHandler) {
    // SAFETY: the caller's promise.
    told(|| unsafe { make(Spec::matrix(checked("num_row", num_row)? as u64, checked("num_col", num_col)? as u64), out) });
}

/// Rows that a call is about: ids of C's `int`, as the table wants them.
///
/// # Safety
/// `ids` has `count` ids.
unsafe fn rows(ids: *const c_int, count: c_int) -> Result<Vec<i64>, Failure> {
    // SAFETY: the caller's promise.
    let ids = unsafe { memory::values(ids, checked("row_ids_n", count)?, "row_ids") }?;
    Ok(ids.iter().map(|id| i64::from(*id)).collect())
}

/// # Safety
/// `out` has room for `size` floats.
unsafe fn get(table: TableHandler, out: *mut f32, size: c_int, rows: Option<&[i64]>) -> Result<(), Failure> {
    let kept = TABLES.get(table.cast::<syncline_table>())?;
    let size = checked("size", size)?;
    kept.check(size, rows.map(<[i64]>::len))?;
    // SAFETY: the caller's promise.
    let out = unsafe { memory::numbers_mut(out.cast(), size, kept.dtype(), "data") }?;
    Ok(kept.table.get(out, rows, kept.deadline())?)
}

/// # Safety
/// `delta` has `size` floats.
unsafe fn add(table: TableHandler, delta: *const f32, size: c_int, rows: Option<&[i64]>, wait: bool) -> Result<(), Failure> {
    let kept = TABLES.get(table.cast::<syncline_table>())?;
    let size = checked("size", size)?;
    kept.check(size, rows.map(<[i64]>::len))?;
    // SAFETY: the caller's promise.
    let delta = unsafe { memory::numbers(delta.cast(), size, kept.dtype(), "data") }?;
    Ok(kept.table.add(delta, rows, &AddOptions::default(), wait, kept.deadline())?)
}

/// Gets all `size` floats of an array table.
///
/// # Safety
/// `data` has room for `size` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_GetArrayTable(handler: TableHandler, data: *mut f32, size: c_int) {
    // SAFETY: the caller's promise.
    told(|| unsafe { get(handler, data, size, None) });
}

/// Adds `size` floats to an array table and returns when the add is applied.
///
/// # Safety
/// `data` has `size` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_AddArrayTable(handler: TableHandler, data: *mut f32, size: c_int) {
    // SAFETY: the caller's promise.
    told(|| unsafe { add(handler, data, size, None, true) });
}

/// Adds `size` floats to an array table and returns at once; `data` may be changed again.
///
/// # Safety
/// `data` has `size` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_AddAsyncArrayTable(handler: TableHandler, data: *mut f32, size: c_int) {
    // SAFETY: the caller's promise.
    told(|| unsafe { add(handler, data, size, None, false) });
}

/// Gets all `size` floats of a matrix table, row by row.
///
/// # Safety
/// `data` has room for `size` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_GetMatrixTableAll(handler: TableHandler, data: *mut f32, size: c_int) {
    // SAFETY: the caller's promise.
    told(|| unsafe { get(handler, data, size, None) });
}

/// Adds `size` floats to a matrix table and returns when the add is applied.
///
/// # Safety
/// `data` has `size` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_AddMatrixTableAll(handler: TableHandler, data: *mut f32, size: c_int) {
    // SAFETY: the caller's promise.
    told(|| unsafe { add(handler, data, size, None, true) });
}

/// Adds `size` floats to a matrix table and returns at once; `data` may be changed again.
///
/// # Safety
/// `data` has `size` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_AddAsyncMatrixTableAll(handler: TableHandler, data: *mut f32, size: c_int) {
    // SAFETY: the caller's promise.
    told(|| unsafe { add(handler, data, size, None, false) });
}

/// Gets the rows of these ids, in their order.
///
/// # Safety
/// `data` has room for `size` floats, and `row_ids` has `row_ids_n` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_GetMatrixTableByRows(
    handler: TableHandler,
    data: *mut f32,
    size: c_int,
    row_ids: *mut c_int,
    row_ids_n: c_int,
) {
    // SAFETY: the caller's promise.
    told(|| unsafe { get(handler, data, size, Some(&rows(row_ids, row_ids_n)?)) });
}

/// Adds one row for each id and returns when the add is applied.
///
/// # Safety
/// `data` has `size` floats, and `row_ids` has `row_ids_n` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_AddMatrixTableByRows(
    handler: TableHandler,
    data: *mut f32,
    size: c_int,
    row_ids: *mut c_int,
    row_ids_n: c_int,
) {
    // SAFETY: the caller's promise.
    told(|| unsafe { add(handler, data, size, Some(&rows(row_ids, row_ids_n)?), true) });
}

/// Adds one row for each id and returns at once; `data` may be changed again.
///
/// # Safety
/// `data` has `size` floats, and `row_ids` has `row_ids_n` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MV_AddAsyncMatrixTableByRows(
    handler: TableHandler,
    data: *mut f32,
    size: c_int,
    row_ids: *mut c_int,
    row_ids_n: c_int,
) {
    // SAFETY: the caller's promise.
    told(|| unsafe { add(handler, data, size, Some(&rows(row_ids, row_ids_n)?), false) });
}
