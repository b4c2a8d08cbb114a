//! Other programs, and files that are locked.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use mlua::{Lua, LuaString, UserData, UserDataRef};
use syncline::ipc::{Child, Flock, FlockError, Spawn, SpawnError};

use crate::interrupt::no_deadline;
use crate::reply::Failure;

pub(crate) struct Spawned {
    child: Child,
    waited_for: Cell<bool>,
}

impl UserData for Spawned {}

impl Spawned {
    /// The program, until it was waited for: from then on its number may be that of another process, and torch-ipc answers nothing more.
    fn open(&self) -> Result<&Child, Failure> {
        if self.waited_for.get() { Err(Failure::new("Closed", "spawn was already closed")) } else { Ok(&self.child) }
    }
}

type Given = UserDataRef<Spawned>;

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Failure {
        Failure::of_kind(error.kind(), error.to_string()).by_process(error.pid())
    }
}

impl From<FlockError> for Failure {
    fn from(error: FlockError) -> Failure {
        Failure::of_kind(error.kind(), error.to_string())
    }
}

fn os(text: &LuaString) -> Result<OsString, Failure> {
    let bytes = text.as_bytes().to_vec();
    if bytes.contains(&0) {
        return Err(Failure::argument("a text for the system has no byte 0"));
    }
    Ok(OsString::from_vec(bytes))
}

/// Starts a program; `env` has entries `NAME=value`.
pub(crate) fn start(_: &Lua, (file, args, env): (LuaString, Vec<LuaString>, Vec<LuaString>)) -> Result<Spawned, Failure> {
    let args = args.iter().map(os).collect::<Result<Vec<_>, _>>()?;
    let mut spawn = Spawn::new(os(&file)?).args(args);
    for entry in &env {
        let entry = os(entry)?.into_vec();
        let equals = entry.iter().position(|byte| *byte == b'=').filter(|place| *place > 0);
        let equals = equals.ok_or_else(|| Failure::argument(format!("env: `{}` is no NAME=value", String::from_utf8_lossy(&entry))))?;
        spawn = spawn.env(OsString::from_vec(entry[..equals].to_vec()), OsString::from_vec(entry[equals + 1..].to_vec()));
    }
    Ok(Spawned { child: spawn.start()?, waited_for: Cell::new(false) })
}

pub(crate) fn pid(_: &Lua, spawned: Given) -> Result<u32, Failure> {
    Ok(spawned.open()?.pid())
}

pub(crate) fn running(_: &Lua, spawned: Given) -> Result<bool, Failure> {
    Ok(spawned.open()?.running())
}

/// Writes all of a text, or closes its stdin.
pub(crate) fn stdin(_: &Lua, (spawned, text): (Given, Option<LuaString>)) -> Result<(), Failure> {
    match text {
        Some(text) => Ok(spawned.child.write(&text.as_bytes(), no_deadline())?),
        None => Ok(spawned.child.close_stdin(no_deadline())?),
    }
}

/// A line, everything (`*all`), or at most so many bytes; nil at the end.
pub(crate) fn stdout(lua: &Lua, (spawned, how): (Given, mlua::Value)) -> Result<Option<LuaString>, Failure> {
    let some = |most: f64| spawned.child.read_some(most as usize, no_deadline());
    let read = match &how {
        mlua::Value::Nil => spawned.child.read_line(no_deadline()),
        mlua::Value::String(how) if how.as_bytes() == b"*line" => spawned.child.read_line(no_deadline()),
        mlua::Value::String(how) if how.as_bytes() == b"*all" => spawned.child.read_all(no_deadline()),
        mlua::Value::Integer(most) if *most > 0 => some(*most as f64),
        mlua::Value::Number(most) if *most >= 1.0 => some(*most),
        _ => return Err(Failure::argument("stdout: '*line', '*all' or a number of bytes was expected")),
    };
    Ok(read?.map(|bytes| lua.create_string(bytes)).transpose()?)
}

/// The descriptor that its stdout is read from.
pub(crate) fn stdout_id(_: &Lua, spawned: Given) -> Result<i32, Failure> {
    Ok(spawned.open()?.stdout_descriptor())
}

/// Waits for its end, after a signal if one is named; torch-ipc's number, and the signal that ended it.
pub(crate) fn wait(_: &Lua, (spawned, signal): (Given, Option<String>)) -> Result<(i32, Option<i32>), Failure> {
    let signal = signal.map(|name| name.parse()).transpose()?;
    let exit = spawned.child.wait(signal, no_deadline())?;
    spawned.waited_for.set(true);
    Ok((exit.torch_code(), exit.signal))
}

/// A file that is locked, until it is closed.
pub(crate) struct Locked(RefCell<Option<Flock>>);

impl UserData for Locked {}

/// Locks a file; with `at_once` nil where that cannot be done now.
pub(crate) fn flock(_: &Lua, (file, at_once): (LuaString, bool)) -> Result<Option<Locked>, Failure> {
    let path = PathBuf::from(os(&file)?);
    let lock = if at_once { Flock::try_lock(path)? } else { Some(Flock::lock(path, no_deadline())?) };
    Ok(lock.map(|lock| Locked(Some(lock).into())))
}

pub(crate) fn unlock(_: &Lua, lock: UserDataRef<Locked>) -> Result<(), Failure> {
    drop(lock.0.take());
    Ok(())
}
