//! The one job of this Python process, and the functions of `syncline` that act on it.
//!
//! Rust's sessions are values; Python's users expect `sl.init()` and module functions, so one session is kept here.
//! ```text
//!   Idle ──open──▶ Opening ──▶ Open ──shutdown, abort──▶ Idle (remembering that a job ended)
//!                     └──fork──┴──▶ Forked, in the child and for good
//! ```
//! The lock is taken only while the interpreter is held and never across a wait. Python forks with the interpreter held
//! too, so a child never inherits it locked.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use syncline::{Config, Error, OnPeerLoss, Session};

use crate::topology::Topology;
use crate::{errors, exit, interrupt, log, trees};

static JOB: Mutex<State> = Mutex::new(State::Idle { ended: false });

/// Whether this process was forked from a member: tables it inherited are its parent's.
static FORKED: AtomicBool = AtomicBool::new(false);

enum State {
    Idle { ended: bool },
    Opening,
    Open(Arc<Session>),
    Forked,
}

fn state() -> MutexGuard<'static, State> {
    // The lock guards one assignment at a time: a panic elsewhere leaves nothing half done.
    JOB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Joins the job that this process was started in, or a world of one.
///
/// `sync` is what tables do unless they say otherwise. `timeout` is in seconds, `on_peer_loss` is `raise` or `continue`;
/// `None` takes the environment's or the default.
#[pyfunction]
#[pyo3(signature = (sync = false, timeout = None, on_peer_loss = None))]
pub(crate) fn open(py: Python<'_>, sync: bool, timeout: Option<f64>, on_peer_loss: Option<&str>) -> PyResult<()> {
    let timeout = timeout.map(|seconds| seconds_from(py, seconds)).transpose()?;
    let on_peer_loss = on_peer_loss.map(|choice| loss_from(py, choice)).transpose()?;
    let claim = claim(py)?;
    log::follow_level(py);
    let session = wait(py, || {
        let mut config = Config::from_env()?.sync(sync);
        if let Some(timeout) = timeout {
            config = config.timeout(timeout);
        }
        if let Some(choice) = on_peer_loss {
            config = config.on_peer_loss(choice);
        }
        let deadline = interrupt::deadline(config.settings().timeout);
        Session::open_by(config, deadline)
    })?;
    exit::watch();
    claim.fill(session);
    Ok(())
}

/// Leaves the job; the others are told that this was on purpose. Does nothing when no job is open.
///
/// The process where the others meet (rank 0, unless `syncline run` is that place) stays until they have left.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) -> PyResult<()> {
    match take(py, "shutdown")? {
        Some(session) => wait(py, move || session.shutdown_by(interrupt::no_deadline())),
        None => Ok(()),
    }
}

/// Leaves the job because this process failed; the others are told why. Does nothing when no job is open.
#[pyfunction]
pub(crate) fn abort(py: Python<'_>, reason: &str) -> PyResult<()> {
    match take(py, "abort")? {
        Some(session) => wait(py, move || {
            session.abort(reason);
            Ok::<(), Error>(())
        }),
        None => Ok(()),
    }
}

/// Whether a job is open in this process.
#[pyfunction]
pub(crate) fn is_open() -> bool {
    matches!(*state(), State::Open(_))
}

/// The session of the job that is open in this process.
pub(crate) fn open_session() -> Option<Arc<Session>> {
    match &*state() {
        State::Open(session) => Some(Arc::clone(session)),
        _ => None,
    }
}

/// Called in a forked child: the session stays its parent's, untouched.
#[pyfunction]
pub(crate) fn forget_in_child() {
    let mut state = state();
    if !matches!(*state, State::Idle { .. }) || trees::any_open() {
        FORKED.store(true, Relaxed);
        // Dropping it here would say goodbye in the parent's name.
        std::mem::forget(std::mem::replace(&mut *state, State::Forked));
    }
}

/// Waits until every process of the job has come here.
///
/// Raises PeerLost when one of them is gone, Timeout when one stays away longer than the job's timeout; both name it.
#[pyfunction]
pub(crate) fn barrier(py: Python<'_>) -> PyResult<()> {
    let session = current(py, "barrier")?;
    wait(py, move || session.barrier_by(interrupt::deadline(session.timeout())))
}

/// The number of this process in the job, from 0.
#[pyfunction]
pub(crate) fn rank(py: Python<'_>) -> PyResult<u32> {
    Ok(current(py, "rank")?.rank())
}

/// How many processes the job has.
#[pyfunction]
pub(crate) fn size(py: Python<'_>) -> PyResult<u32> {
    Ok(current(py, "size")?.size())
}

/// The number of this process among those of its host, from 0.
#[pyfunction]
pub(crate) fn local_rank(py: Python<'_>) -> PyResult<u32> {
    Ok(current(py, "local_rank")?.local_rank())
}

/// How many processes of the job are workers.
#[pyfunction]
pub(crate) fn num_workers(py: Python<'_>) -> PyResult<u32> {
    Ok(current(py, "num_workers")?.num_workers())
}

/// The number of this worker, from 0; -1 in a process that is no worker.
#[pyfunction]
pub(crate) fn worker_id(py: Python<'_>) -> PyResult<i64> {
    Ok(current(py, "worker_id")?.worker_id().map_or(-1, i64::from))
}

/// The number of this server, from 0; -1 in a process that is no server.
#[pyfunction]
pub(crate) fn server_id(py: Python<'_>) -> PyResult<i64> {
    Ok(current(py, "server_id")?.server_id().map_or(-1, i64::from))
}

/// Whether this is worker 0, the one whose initial values count.
#[pyfunction]
pub(crate) fn is_master_worker(py: Python<'_>) -> PyResult<bool> {
    Ok(current(py, "is_master_worker")?.is_master_worker())
}

/// The members of the job grouped by host.
#[pyfunction]
pub(crate) fn topology(py: Python<'_>) -> PyResult<Topology> {
    Topology::new(py, current(py, "topology")?.topology())
}

/// Ends the open session when the process ends, as its exit status says; see `exit.rs`.
pub(crate) fn end_with_process(status: i32) {
    trees::end_with_process(status);
    // A thread that still holds the lock while the process ends will never give it back: then the kernel ends the session.
    let Ok(mut state) = JOB.try_lock() else { return };
    if let State::Open(session) = &*state {
        match status {
            // A failure to leave has nobody left to be raised to, and changes nothing for the others.
            0 => drop(session.shutdown_by(interrupt::after_python())),
            _ => session.abort(&format!("exited with status {status}")),
        }
        *state = State::Idle { ended: true };
        log::deliver_without_python();
    }
}

/// Runs a call that may wait, without the interpreter.
pub(crate) fn wait<T: Send, E: Into<Error> + Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, E> + Send) -> PyResult<T> {
    let result = py.detach(call);
    log::deliver(py);
    result.map_err(|error| errors::exception(py, &error.into()))
}

/// Whether this process is a forked child of a member.
pub(crate) fn is_fork() -> bool {
    FORKED.load(Relaxed)
}

/// An error in a forked child, where what was inherited belongs to the parent.
pub(crate) fn refuse_fork(py: Python<'_>, operation: impl FnOnce() -> String) -> PyResult<()> {
    if is_fork() { Err(Refusal::Forked.exception(py, &operation())) } else { Ok(()) }
}

pub(crate) fn current(py: Python<'_>, operation: &str) -> PyResult<Arc<Session>> {
    let found = match &*state() {
        State::Open(session) => Ok(Arc::clone(session)),
        State::Forked => Err(Refusal::Forked),
        State::Opening | State::Idle { ended: false } => Err(Refusal::NotYet),
        State::Idle { ended: true } => Err(Refusal::Left),
    };
    found.map_err(|refusal| refusal.exception(py, operation))
}

/// The session, taken out so that it is ended once.
fn take(py: Python<'_>, operation: &str) -> PyResult<Option<Arc<Session>>> {
    let taken = {
        let mut state = state();
        match &*state {
            State::Open(session) => {
                let session = Arc::clone(session);
                *state = State::Idle { ended: true };
                Ok(Some(session))
            }
            State::Forked => Err(Refusal::Forked),
            State::Opening | State::Idle { .. } => Ok(None),
        }
    };
    taken.map_err(|refusal| refusal.exception(py, operation))
}

/// Reserves the place for a session that is being opened.
fn claim(py: Python<'_>) -> PyResult<Claim> {
    let claimed = {
        let mut state = state();
        match *state {
            State::Idle { ended } => {
                *state = State::Opening;
                Ok(Claim { ended })
            }
            State::Opening => Err(Refusal::Joining),
            State::Open(_) => Err(Refusal::Already),
            State::Forked => Err(Refusal::Forked),
        }
    };
    claimed.map_err(|refusal| refusal.exception(py, "init"))
}

/// Why the job's state does not allow a call. Plain data: an exception is Python code, which must not run under the lock.
enum Refusal {
    NotYet,
    Left,
    Joining,
    Already,
    Forked,
}

impl Refusal {
    fn exception(self, py: Python<'_>, operation: &str) -> PyErr {
        let (class, fact, hint) = match self {
            Refusal::NotYet => ("Closed", "this process is in no job yet", "call sl.init() first"),
            Refusal::Left => {
                ("Closed", "this process has left its job", "call sl.shutdown() last, or not at all: it happens when Python exits")
            }
            Refusal::Joining => ("SynclineError", "another thread is joining the job right now", "call sl.init() once"),
            Refusal::Already => {
                ("SynclineError", "this process is already in a job", "call sl.init() once, at the start; sl.shutdown() leaves the job")
            }
            Refusal::Forked => (
                "ForkError",
                "this process was forked from a member of the job and is not one itself",
                "start it with multiprocessing's \"spawn\" or \"forkserver\" method, or fork before sl.init()",
            ),
        };
        errors::of_class(py, class, format!("{operation}: {fact}\nhint: {hint}"))
    }
}

/// Gives the place back when opening fails, whichever way.
struct Claim {
    ended: bool,
}

impl Claim {
    fn fill(self, session: Session) {
        *state() = State::Open(Arc::new(session));
        std::mem::forget(self);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        *state() = State::Idle { ended: self.ended };
    }
}

fn loss_from(py: Python<'_>, choice: &str) -> PyResult<OnPeerLoss> {
    match choice {
        "raise" => Ok(OnPeerLoss::Fail),
        "continue" => Ok(OnPeerLoss::Continue),
        other => {
            let text = format!("init: on_peer_loss={other:?} is neither \"raise\" nor \"continue\"");
            Err(errors::of_class(py, "ConfigurationError", text))
        }
    }
}

fn seconds_from(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).ok().filter(|timeout| !timeout.is_zero()).ok_or_else(|| {
        errors::of_class(
            py,
            "ConfigurationError",
            format!("init: timeout={seconds} is not a time to wait\nhint: give seconds, for example timeout=30.0"),
        )
    })
}
