//! A process's place in its job.

use std::ffi::{c_char, c_int, c_void};

use syncline::{Config, Session};

use crate::border::{deadline, guarded, no_deadline};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::{facts, memory};

/// A process's place in its job; everything else hangs from it. May be used from many threads.
pub struct syncline_session {
    _private: [u8; 0],
}

pub(crate) static SESSIONS: Handles<syncline_session, Session> = Handles::new("session", 1);

/// Joins the job that the environment describes, or a world of one, and returns when everybody is there.
///
/// Tables are in sync mode if `sync` is not 0. `timeout` is in seconds, how long a call waits for somebody who neither comes nor
/// dies; 0 takes SYNCLINE_TIMEOUT, or 30 s. A process that ends without syncline_close has failed, and the others are told.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_open(sync: c_int, timeout: f64, out: *mut *mut syncline_session) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let session = open(sync != 0, timeout)?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", SESSIONS.put(session)) }
    })
}

/// What the environment describes, with these settings.
pub(crate) fn open(sync: bool, timeout: f64) -> Result<Session, Failure> {
    let mut config = Config::from_env()?.sync(sync);
    if let Some(timeout) = memory::patience(timeout)? {
        config = config.timeout(timeout);
    }
    let by = deadline(config.settings().timeout);
    Ok(Session::open_by(config, by)?)
}

/// Leaves the job politely and frees the session. Its tables and trees stay to be freed; calls on them fail with
/// SYNCLINE_CLOSED. The process where the others meet stays until they have left.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_close(session: *mut syncline_session) -> syncline_status {
    guarded(|| Ok(SESSIONS.take(session)?.shutdown_by(no_deadline())?))
}

/// Leaves the job because this process failed, and frees the session; the others are told `reason`.
///
/// # Safety
/// `reason` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_abort(session: *mut syncline_session, reason: *const c_char) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let reason = unsafe { memory::text(reason, "reason") }?;
        SESSIONS.take(session)?.abort(reason.unwrap_or("the program gave up"));
        Ok(())
    })
}

/// Returns when every rank has called it. Every add issued before it by anyone is applied before anyone leaves it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_barrier(session: *mut syncline_session) -> syncline_status {
    guarded(|| {
        let session = SESSIONS.get(session)?;
        Ok(session.barrier_by(deadline(session.timeout()))?)
    })
}

/// Returns when every worker has left or died: what a dedicated server does (SYNCLINE_ROLE=server) between syncline_open and
/// syncline_close. The tables of the job are served meanwhile, as they are beside any other call.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_stay_for_workers(session: *mut syncline_session) -> syncline_status {
    guarded(|| {
        let session = SESSIONS.get(session)?;
        if session.worker_id().is_some() {
            return Err(Failure::new(
                syncline_status::SYNCLINE_CONFIGURATION,
                "stay_for_workers: this process is a worker, and would wait for itself\nhint: SYNCLINE_ROLE=server makes it a dedicated server",
            ));
        }
        Ok(session.stay_for_workers(no_deadline())?)
    })
}

/// Who this process is in its job.
#[repr(C)]
pub struct syncline_place {
    /// This process's number, from 0.
    rank: i32,
    /// How many processes the job has.
    size: i32,
    /// This process's number among those of its host.
    local_rank: i32,
    /// How many processes of the job share this host.
    local_size: i32,
    /// This process's number among the workers; -1 on a dedicated server.
    worker_id: i32,
    /// How many processes train.
    num_workers: i32,
    /// This process's number among the servers; -1 on a pure worker.
    server_id: i32,
    /// How many processes hold shards.
    num_servers: i32,
}

/// Who this process is in its job.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_where(session: *mut syncline_session, out: *mut syncline_place) -> syncline_status {
    guarded(|| {
        let session = SESSIONS.get(session)?;
        let place = syncline_place {
            rank: session.rank() as i32,
            size: session.size() as i32,
            local_rank: session.local_rank() as i32,
            local_size: session.local_size() as i32,
            worker_id: session.worker_id().map_or(-1, |id| id as i32),
            num_workers: session.num_workers() as i32,
            server_id: session.server_id().map_or(-1, |id| id as i32),
            num_servers: session.num_servers() as i32,
        };
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", place) }
    })
}

/// Combines `count` numbers over all workers, in place and in order of worker; no server takes part. Every worker calls it.
///
/// # Safety
/// `data` has `count` numbers of `dtype`, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_aggregate(
    session: *mut syncline_session,
    data: *mut c_void,
    count: usize,
    dtype: i32,
    op: i32,
) -> syncline_status {
    guarded(|| {
        let (session, dtype, op) = (SESSIONS.get(session)?, facts::dtype(dtype)?, facts::op(op)?);
        // SAFETY: the caller's promise.
        let data = unsafe { memory::numbers_mut(data, count, dtype, "data") }?;
        Ok(session.aggregate_bytes(data, dtype, op, deadline(session.timeout()))?)
    })
}

/// Saves all tables with their updater states below `path`. Every worker calls it. A crash while saving leaves the previous
/// checkpoint as it was.
///
/// # Safety
/// `path` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_save(session: *mut syncline_session, path: *const c_char) -> syncline_status {
    guarded(|| {
        let session = SESSIONS.get(session)?;
        // SAFETY: the caller's promise.
        let path = unsafe { memory::needed_text(path, "path") }?;
        Ok(session.save_by(path, deadline(session.timeout()))?)
    })
}

/// Fills the tables, made before in the same manner, from a checkpoint of any number of workers and servers.
///
/// # Safety
/// `path` is a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_load(session: *mut syncline_session, path: *const c_char) -> syncline_status {
    guarded(|| {
        let session = SESSIONS.get(session)?;
        // SAFETY: the caller's promise.
        let path = unsafe { memory::needed_text(path, "path") }?;
        Ok(session.load_by(path, deadline(session.timeout()))?)
    })
}
