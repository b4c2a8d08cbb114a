//! Turns each kind of error into its Python exception: the only place that knows both.
//!
//! The classes themselves are written in Python (`_errors.py`), where several bases, attributes and type checkers are at home.

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use syncline::{Error, ErrorKind, Who, ipc};

use crate::interrupt;

/// The exception for `error`, with the culprit's rank, host and pid where they are known.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    if error.kind() == ErrorKind::Interrupted {
        return interrupted(&error.to_string());
    }
    build(py, class_of(error.kind()), error.to_string(), error.who().map(Culprit::from))
}

/// The exception for an `error` between a server and a client, with the other side's host and pid where they are known.
pub(crate) fn of_ipc(py: Python<'_>, error: &ipc::Error) -> PyErr {
    if error.kind() == ErrorKind::Interrupted {
        return interrupted(&error.to_string());
    }
    let whom = error.whom().map(|whom| Culprit { rank: None, host: whom.host.as_deref(), pid: whom.pid });
    build(py, class_of(error.kind()), error.to_string(), whom)
}

/// The exception for an error of this kind between this process and a neighbour.
pub(crate) fn of_kind(py: Python<'_>, kind: ErrorKind, text: String, pid: Option<u32>) -> PyErr {
    if kind == ErrorKind::Interrupted {
        return interrupted(&text);
    }
    build(py, class_of(kind), text, pid.map(|pid| Culprit { rank: None, host: None, pid: Some(pid) }))
}

fn interrupted(text: &str) -> PyErr {
    interrupt::take_raised().unwrap_or_else(|| PyKeyboardInterrupt::new_err(text.to_owned()))
}

fn class_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PeerLost => "PeerLost",
        ErrorKind::Timeout => "Timeout",
        ErrorKind::ContractMismatch => "ContractMismatch",
        ErrorKind::Auth => "AuthError",
        ErrorKind::ShapeMismatch => "ShapeMismatch",
        ErrorKind::UnknownKey => "UnknownKey",
        ErrorKind::Closed => "Closed",
        ErrorKind::Configuration => "ConfigurationError",
        ErrorKind::Forked => "ForkError",
        // `System`, and whatever a later version adds before this table learns its name.
        _ => "SynclineError",
    }
}

/// Who is at fault, as far as that is known.
struct Culprit<'a> {
    rank: Option<u32>,
    host: Option<&'a str>,
    pid: Option<u32>,
}

impl<'a> From<&'a Who> for Culprit<'a> {
    fn from(who: &'a Who) -> Culprit<'a> {
        Culprit {
            rank: Some(who.rank),
            host: Some(who.host.as_str()).filter(|host| !host.is_empty()),
            pid: Some(who.pid).filter(|pid| *pid != 0),
        }
    }
}

/// An exception of the named class for what only the Python side can know, such as a call before `init()`.
pub(crate) fn of_class(py: Python<'_>, class: &str, text: impl Into<String>) -> PyErr {
    build(py, class, text.into(), None)
}

/// Whether `error` is one of the named class.
pub(crate) fn is_of_class(py: Python<'_>, error: &PyErr, class: &str) -> bool {
    classes(py).and_then(|classes| classes.getattr(class)).is_ok_and(|class| error.is_instance(py, &class))
}

fn build(py: Python<'_>, class: &str, text: String, who: Option<Culprit<'_>>) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let facts = PyDict::new(py);
        if let Some(who) = who {
            facts.set_item("rank", who.rank)?;
            facts.set_item("host", who.host)?;
            facts.set_item("pid", who.pid)?;
        }
        let class = classes(py)?.getattr(class)?.cast_into::<PyType>()?;
        Ok(PyErr::from_value(class.call((text,), Some(&facts))?))
    };
    // A failure to build the exception is itself an exception worth seeing.
    made().unwrap_or_else(|failure| failure)
}

fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(CLASSES.get_or_try_init(py, || py.import("syncline._errors").map(Bound::unbind))?.bind(py))
}
