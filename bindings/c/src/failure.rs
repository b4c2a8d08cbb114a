//! What went wrong, as C programs learn it: a status from the call, words and facts from the thread's last failure.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};

use syncline::{Error, ErrorKind, ipc};

/// What every call returns. The numbers never change.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum syncline_status {
    /// It worked.
    SYNCLINE_OK = 0,
    /// A member was killed, ended or was cut off.
    SYNCLINE_PEER_LOST = 1,
    /// A member is there but silent, or never came.
    SYNCLINE_TIMEOUT = 2,
    /// Two members called different things where the same was needed.
    SYNCLINE_CONTRACT_MISMATCH = 3,
    /// A peer could not prove that it belongs to the job.
    SYNCLINE_AUTH = 4,
    /// An array has another length, shape or dtype than the operation needs.
    SYNCLINE_SHAPE_MISMATCH = 5,
    /// A row, key, table or name that does not exist.
    SYNCLINE_UNKNOWN_KEY = 6,
    /// The session or connection was closed, or never opened.
    SYNCLINE_CLOSED = 7,
    /// The settings or the launcher's variables make no sense.
    SYNCLINE_CONFIGURATION = 8,
    /// The process was forked after the session was opened.
    SYNCLINE_FORKED = 9,
    /// The function of syncline_set_interrupt ended the wait.
    SYNCLINE_INTERRUPTED = 10,
    /// The operating system refused something.
    SYNCLINE_SYSTEM = 11,
    /// An argument cannot be: NULL, a handle that was freed or is of another kind, a number that is none of the constants.
    SYNCLINE_ARGUMENT = 12,
    /// A function of the caller's that ran inside the call failed.
    SYNCLINE_CALLER = 13,
    /// A bug in Syncline. Nothing is known about what the call has done.
    SYNCLINE_BUG = 14,
}

use syncline_status::*;

/// A failed call, before it is remembered.
#[derive(Debug)]
pub(crate) struct Failure {
    status: syncline_status,
    text: String,
    rank: i64,
    host: Option<String>,
    pid: i64,
}

impl Failure {
    pub(crate) fn new(status: syncline_status, text: impl Into<String>) -> Failure {
        Failure { status, text: text.into(), rank: -1, host: None, pid: -1 }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Failure {
        Failure::new(SYNCLINE_ARGUMENT, text)
    }

    pub(crate) fn shape(text: impl Into<String>) -> Failure {
        Failure::new(SYNCLINE_SHAPE_MISMATCH, text)
    }

    pub(crate) fn bug(text: &str) -> Failure {
        Failure::new(SYNCLINE_BUG, format!("a bug in Syncline: {text}"))
    }

    /// A function of the caller's that ran inside `operation` has returned `code`.
    pub(crate) fn of_caller(operation: &str, code: c_int) -> Failure {
        Failure::new(SYNCLINE_CALLER, format!("{operation}: the caller's function returned {code}"))
    }

    /// An error of this kind, in its own words.
    pub(crate) fn of_kind(kind: ErrorKind, error: &dyn std::fmt::Display) -> Failure {
        Failure::new(status_of(kind), error.to_string())
    }

    /// The same, with the process that is to blame.
    pub(crate) fn of_process(self, pid: Option<u32>) -> Failure {
        Failure { pid: pid.map_or(-1, i64::from), ..self }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Keeps it for this thread's questions and returns the status.
    pub(crate) fn remember(self) -> syncline_status {
        let status = self.status;
        let of = |text: String| CString::new(text.replace('\0', "?")).unwrap_or_default();
        let last = Last { status, text: of(self.text), rank: self.rank, host: self.host.map(of), pid: self.pid };
        LAST.set(Some(last));
        status
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let who = error.who();
        Failure {
            status: status_of(error.kind()),
            text: error.to_string(),
            rank: who.map_or(-1, |who| i64::from(who.rank)),
            host: who.map(|who| who.host.clone()).filter(|host| !host.is_empty()),
            pid: who.map(|who| i64::from(who.pid)).filter(|pid| *pid != 0).unwrap_or(-1),
        }
    }
}

impl From<syncline::collective::Error> for Failure {
    fn from(error: syncline::collective::Error) -> Failure {
        Failure::from(Error::from(error))
    }
}

impl From<ipc::Error> for Failure {
    fn from(error: ipc::Error) -> Failure {
        let whom = error.whom();
        Failure {
            status: status_of(error.kind()),
            text: error.to_string(),
            rank: -1,
            host: whom.and_then(|whom| whom.host.clone()),
            pid: whom.and_then(|whom| whom.pid).map_or(-1, i64::from),
        }
    }
}

fn status_of(kind: ErrorKind) -> syncline_status {
    match kind {
        ErrorKind::PeerLost => SYNCLINE_PEER_LOST,
        ErrorKind::Timeout => SYNCLINE_TIMEOUT,
        ErrorKind::ContractMismatch => SYNCLINE_CONTRACT_MISMATCH,
        ErrorKind::Auth => SYNCLINE_AUTH,
        ErrorKind::ShapeMismatch => SYNCLINE_SHAPE_MISMATCH,
        ErrorKind::UnknownKey => SYNCLINE_UNKNOWN_KEY,
        ErrorKind::Closed => SYNCLINE_CLOSED,
        ErrorKind::Interrupted => SYNCLINE_INTERRUPTED,
        ErrorKind::Configuration => SYNCLINE_CONFIGURATION,
        ErrorKind::Forked => SYNCLINE_FORKED,
        // `System`, and whatever a later version adds before this table learns its name.
        _ => SYNCLINE_SYSTEM,
    }
}

struct Last {
    status: syncline_status,
    text: CString,
    rank: i64,
    host: Option<CString>,
    pid: i64,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Forgets this thread's last failure, so that the next question is about what comes now.
pub(crate) fn forget() {
    LAST.set(None);
}

/// What a function of the caller's that has returned `code` on a thread of ours says about it: its thread's last failure.
pub(crate) fn words_of_caller(code: c_int) -> String {
    let because = last(String::new(), |last| format!(": {}", last.text.to_string_lossy()));
    format!("the function returned {code}{because}")
}

fn last<T>(nothing: T, read: impl FnOnce(&Last) -> T) -> T {
    LAST.with_borrow(|last| last.as_ref().map_or(nothing, read))
}

/// What went wrong in this thread's last call that failed, in words; "" before the first. Yours until the next failure in
/// this thread.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_last_error() -> *const c_char {
    last(c"".as_ptr(), |last| last.text.as_ptr())
}

/// The status of this thread's last call that failed; SYNCLINE_OK before the first.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_last_error_kind() -> syncline_status {
    last(SYNCLINE_OK, |last| last.status)
}

/// The rank that is to blame for this thread's last failure; -1 where none is.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_last_error_rank() -> i64 {
    last(-1, |last| last.rank)
}

/// The process that is to blame for this thread's last failure; -1 where none is known.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_last_error_pid() -> i64 {
    last(-1, |last| last.pid)
}

/// The host of the process that is to blame for this thread's last failure; NULL where none is known. Yours until the next
/// failure in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_last_error_host() -> *const c_char {
    last(std::ptr::null(), |last| last.host.as_ref().map_or(std::ptr::null(), |host| host.as_ptr()))
}

/// The name of a status, such as "PeerLost", as other languages call their exceptions; "unknown" for any other number.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_status_name(status: i32) -> *const c_char {
    const NAMES: [&std::ffi::CStr; 15] = [
        c"Ok",
        c"PeerLost",
        c"Timeout",
        c"ContractMismatch",
        c"AuthError",
        c"ShapeMismatch",
        c"UnknownKey",
        c"Closed",
        c"ConfigurationError",
        c"ForkError",
        c"Interrupted",
        c"SystemError",
        c"ArgumentError",
        c"CallerError",
        c"Bug",
    ];
    usize::try_from(status).ok().and_then(|index| NAMES.get(index)).unwrap_or(&c"unknown").as_ptr()
}
