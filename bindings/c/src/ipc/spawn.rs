//! Programs that this one starts and talks to through their standard input and output.

use std::ffi::{c_char, c_int, c_void};

use syncline::Value;
use syncline::ipc::{Child, Signal, Spawn, SpawnError};

use crate::border::{guarded, until};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::values::{give_if_any, syncline_value};

/// A program that was started. Freed before it was waited for, it gets SIGTERM, after two seconds SIGKILL.
pub struct syncline_child {
    _private: [u8; 0],
}

static CHILDREN: Handles<syncline_child, Child> = Handles::new("child", 19);

/// Starts a program with standard input and output as pipes. A `file` with a slash is a path, any other is looked for in PATH. `args` and
/// `env` end with NULL, or are NULL; `env` has "NAME=value" entries, and replaces this process's environment unless it is empty.
///
/// # Safety
/// `file` is a text; `args` and `env` are NULL or texts and then NULL; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_spawn(
    file: *const c_char,
    args: *const *const c_char,
    env: *const *const c_char,
    out: *mut *mut syncline_child,
) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (file, args, env) = unsafe { (memory::needed_text(file, "file")?, texts(args, "args")?, texts(env, "env")?) };
        let mut spawn = Spawn::new(file).args(args);
        for entry in env {
            let (name, value) =
                entry.split_once('=').ok_or_else(|| Failure::argument(format!("env: `{entry}` is not of the form NAME=value")))?;
            spawn = spawn.env(name, value);
        }
        // SAFETY: the caller's promise.
        unsafe { CHILDREN.give(out, || Ok(spawn.start()?)) }
    })
}

/// # Safety
/// `list` is NULL or texts and then NULL.
unsafe fn texts<'a>(list: *const *const c_char, name: &str) -> Result<Vec<&'a str>, Failure> {
    let mut all = Vec::new();
    // SAFETY: the caller's promise: there is one more for each that is not NULL.
    while let Some(text) = (!list.is_null()).then(|| unsafe { list.add(all.len()).read() }) {
        // SAFETY: the caller's promise.
        let Some(text) = unsafe { memory::text(text, name) }? else { break };
        all.push(text);
    }
    Ok(all)
}

/// The number of its process, and whether it has not ended yet, 1 or 0.
///
/// # Safety
/// Both are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_child_look(child: *mut syncline_child, pid: *mut i64, running: *mut c_int) -> syncline_status {
    guarded(|| {
        let child = CHILDREN.get(child)?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(pid, "pid", i64::from(child.pid()))?;
            memory::give_if(running, "running", c_int::from(child.running()))
        }
    })
}

/// Writes `size` bytes to its standard input; what it says meanwhile is kept.
///
/// # Safety
/// `data` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_child_write(
    child: *mut syncline_child,
    data: *const c_void,
    size: usize,
    timeout: f64,
) -> syncline_status {
    guarded(|| {
        let child = CHILDREN.get(child)?;
        // SAFETY: the caller's promise.
        let bytes = unsafe { memory::values(data.cast::<u8>(), size, "data") }?;
        Ok(child.write(bytes, until(timeout)?)?)
    })
}

/// Closes its standard input. A second time does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_child_close_stdin(child: *mut syncline_child) -> syncline_status {
    guarded(|| Ok(CHILDREN.get(child)?.close_stdin(until(0.0)?)?))
}

/// The next line of its standard output without the newline, as SYNCLINE_BYTES; NULL at its end.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_child_read_line(
    child: *mut syncline_child,
    timeout: f64,
    out: *mut *mut syncline_value,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_if_any(out, || Ok(CHILDREN.get(child)?.read_line(until(timeout)?)?.map(Value::from))) })
}

/// All that its standard output still says, as SYNCLINE_BYTES; NULL if that has ended before.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_child_read_all(
    child: *mut syncline_child,
    timeout: f64,
    out: *mut *mut syncline_value,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_if_any(out, || Ok(CHILDREN.get(child)?.read_all(until(timeout)?)?.map(Value::from))) })
}

/// At most `most` bytes of its standard output, as soon as there are any; NULL at its end.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_child_read_some(
    child: *mut syncline_child,
    most: usize,
    timeout: f64,
    out: *mut *mut syncline_value,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_if_any(out, || Ok(CHILDREN.get(child)?.read_some(most, until(timeout)?)?.map(Value::from))) })
}

/// Sends `signal` ("TERM", "KILL" or NULL for none), closes its standard input, forgets what it still says, waits until it has ended
/// and tells how: the code it returned, or -1 and the signal that ended it, 0 if none did. Then only syncline_child_free is left.
///
/// # Safety
/// `signal` is NULL or a text; `code` and `by_signal` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_child_wait(
    child: *mut syncline_child,
    signal: *const c_char,
    timeout: f64,
    code: *mut c_int,
    by_signal: *mut c_int,
) -> syncline_status {
    guarded(|| {
        let child = CHILDREN.get(child)?;
        // SAFETY: the caller's promise.
        let signal = unsafe { memory::text(signal, "signal") }?.map(str::parse::<Signal>).transpose()?;
        let exit = child.wait(signal, until(timeout)?)?;
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(code, "code", exit.code.unwrap_or(-1))?;
            memory::give_if(by_signal, "by_signal", exit.signal.unwrap_or(0))
        }
    })
}

/// Frees a child.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_child_free(child: *mut syncline_child) -> syncline_status {
    guarded(|| CHILDREN.take(child).map(drop))
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Failure {
        Failure::of_kind(error.kind(), &error).of_process(error.pid())
    }
}
