//! Hands Syncline's log lines to Python's `logging`, logger `syncline`.
//!
//! A line is first put aside and handed over by the next Python thread that comes back from a call. Threads of Syncline's
//! own never touch the interpreter: one that did could be caught in its end, and whoever joins that thread would hang.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{Write as _, stderr};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyString;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::subscriber::{Interest, Subscriber, set_global_default};
use tracing::{Event, Level, Metadata};

/// Lines kept while no Python thread comes by; older ones go first.
const KEPT: usize = 256;

static LINES: Mutex<VecDeque<(u8, String)>> = Mutex::new(VecDeque::new());
static ANY: AtomicBool = AtomicBool::new(false);
static LOWEST: AtomicU8 = AtomicU8::new(WARNING);

const WARNING: u8 = 30;

/// Starts collecting lines; once per process.
pub(crate) fn listen() {
    // Only this library's own copy of `tracing` is concerned, so nobody else can have been first, save a second import.
    let _ = set_global_default(Collector);
}

/// Collects what the logger `syncline` would show, as it is configured now.
pub(crate) fn follow_level(py: Python<'_>) {
    let level = || -> PyResult<u8> {
        // A program that never imported `logging` has not configured it: Python then shows warnings and worse.
        let modules = py.import("sys")?.getattr("modules")?;
        if !modules.contains("logging")? {
            return Ok(WARNING);
        }
        let level: i64 = logger(py)?.call_method0("getEffectiveLevel")?.extract()?;
        Ok(level.clamp(0, i64::from(u8::MAX)) as u8)
    };
    LOWEST.store(level().unwrap_or(WARNING), Relaxed);
}

/// Hands over the lines collected so far.
pub(crate) fn deliver(py: Python<'_>) {
    if !ANY.load(Relaxed) {
        return;
    }
    for (level, line) in take_lines() {
        // A logging handler that raises must not change the outcome of the call that delivers. But Ctrl-C may have come while it ran, and
        // is not its to swallow.
        let said = logger(py).and_then(|logger| logger.call_method1("log", (level, "%s", line)));
        if said.is_err_and(|error| error.is_instance_of::<PyKeyboardInterrupt>(py)) {
            let _ = py.import("_thread").and_then(|thread| thread.call_method0("interrupt_main"));
        }
    }
}

/// Writes what is left to stderr once the interpreter is gone, as Python does with warnings that nobody handles.
pub(crate) fn deliver_without_python() {
    for (level, line) in take_lines() {
        if level >= WARNING {
            let _ = writeln!(stderr(), "{line}");
        }
    }
}

fn take_lines() -> VecDeque<(u8, String)> {
    ANY.store(false, Relaxed);
    std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner))
}

fn logger(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("logging")?.call_method1("getLogger", (PyString::intern(py, "syncline"),))
}

fn python_level(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 40,
        Level::WARN => WARNING,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct Collector;

impl Subscriber for Collector {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes() // the level may change with the next `init()`
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && python_level(metadata.level()) >= LOWEST.load(Relaxed)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back((python_level(event.metadata().level()), line.text()));
        drop(lines);
        ANY.store(true, Relaxed);
    }

    // Spans carry nothing that a line of log would show.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// `message (field=value, field=value)`.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn text(self) -> String {
        if self.fields.is_empty() { self.message } else { format!("{} ({})", self.message, self.fields) }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            let separator = if self.fields.is_empty() { "" } else { ", " };
            write!(self.fields, "{separator}{}={value:?}", field.name())
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
