//! Other programs, and files that are locked.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use mlua::{Lua, LuaString, UserData, UserDataRef};
use syncline::ipc::{Child, Flock, FlockError, Spawn, SpawnError};

use crate::interrupt::no_deadline;
use crate::reply::Failure;

pub(crate) struct Spawned(Child);

impl UserData for Spawned {}

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
    Ok(Spawned(spawn.start()?))
}

pub(crate) fn pid(_: &Lua, child: Given) -> Result<u32, Failure> {
    Ok(child.0.pid())
}

pub(crate) fn running(_: &Lua, child: Given) -> Result<bool, Failure> {
    Ok(child.0.running())
}

/// Writes all of a text, or closes its stdin.
pub(crate) fn stdin(_: &Lua, (child, text): (Given, Option<LuaString>)) -> Result<(), Failure> {
    match text {
        Some(text) => Ok(child.0.write(&text.as_bytes(), no_deadline())?),
        None => Ok(child.0.close_stdin(no_deadline())?),
    }
}

/// A line, everything (`*all`), or at most so many bytes; nil at the end.
pub(crate) fn stdout(lua: &Lua, (child, how): (Given, mlua::Value)) -> Result<Option<LuaString>, Failure> {
    let some = |most: f64| child.0.read_some(most as usize, no_deadline());
    let read = match &how {
        mlua::Value::Nil => child.0.read_line(no_deadline()),
        mlua::Value::String(how) if how.as_bytes() == b"*line" => child.0.read_line(no_deadline()),
        mlua::Value::String(how) if how.as_bytes() == b"*all" => child.0.read_all(no_deadline()),
        mlua::Value::Integer(most) if *most > 0 => some(*most as f64),
        mlua::Value::Number(most) if *most >= 1.0 => some(*most),
        _ => return Err(Failure::argument("stdout: '*line', '*all' or a number of bytes was expected")),
    };
    Ok(read?.map(|bytes| lua.create_string(bytes)).transpose()?)
}

/// The descriptor that its stdout is read from.
pub(crate) fn stdout_id(_: &Lua, child: Given) -> Result<i32, Failure> {
    Ok(child.0.stdout_descriptor())
}

/// Waits for its end, after a signal if one is named; torch-ipc's number, and the signal that ended it.
pub(crate) fn wait(_: &Lua, (child, signal): (Given, Option<String>)) -> Result<(i32, Option<i32>), Failure> {
    let signal = signal.map(|name| name.parse()).transpose()?;
    let exit = child.0.wait(signal, no_deadline())?;
    Ok((exit.torch_code(), exit.signal))
}

/// A file that is locked, until it is closed.
pub(crate) struct Locked(std::cell::RefCell<Option<Flock>>);

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
