//! Ctrl-C reaches a process that waits: signals are asked about from inside every wait.
//!
//! Python runs its signal handlers only between byte codes, and a wait has none. So each wait carries a deadline that
//! now and then calls [`signal_raised`]; what a handler raises is kept here until the wait has unwound.

use std::cell::RefCell;
use std::time::Duration;

use pyo3::prelude::*;
use syncline::Deadline;

use crate::log;

thread_local! {
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// `timeout` from now, given up early when a signal handler raises.
pub(crate) fn deadline(timeout: Duration) -> Deadline {
    Deadline::after(timeout).with_interrupt(signal_raised)
}

/// As long as it takes, or until a signal handler raises.
pub(crate) fn no_deadline() -> Deadline {
    Deadline::never().with_interrupt(signal_raised)
}

/// As long as it takes, when the interpreter is gone and a signal does what it does to any process.
pub(crate) fn after_python() -> Deadline {
    Deadline::never().with_interrupt(|| {
        log::deliver_without_python();
        false
    })
}

/// Runs pending signal handlers; true when one of them raised (for Ctrl-C: `KeyboardInterrupt`).
///
/// Only Python's main thread runs handlers, elsewhere this is always false.
pub(crate) fn signal_raised() -> bool {
    let raised = Python::try_attach(|py| {
        let raised = py.check_signals().err(); // first: else the handler runs in the middle of what follows
        log::deliver(py); // a wait that takes long may have something to say
        raised
    })
    .flatten();
    let any = raised.is_some();
    if any {
        RAISED.set(raised);
    }
    any
}

/// What the handler raised in this thread's last interrupted wait.
pub(crate) fn take_raised() -> Option<PyErr> {
    RAISED.take()
}
