//! Functions as byte code and upvalues. Byte code is not checked by any Lua: it comes from this process only.

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table, Value};

use crate::reply::Failure;

/// A function in parts.
pub(super) struct Parts {
    pub(super) code: Vec<u8>,
    /// Which upvalue is `_ENV`, from 1; 0 for none. It stays with its state: the other one's globals take its place.
    pub(super) globals: usize,
    /// All upvalues by number, nil for `_ENV`; none where they were not asked for.
    pub(super) upvalues: Vec<Value>,
}

fn debug(lua: &Lua, name: &str) -> Result<Function, Failure> {
    Ok(lua.globals().get::<Table>("debug")?.get(name)?)
}

/// The parts of a function. Without `closures` it may have no upvalue but `_ENV`.
pub(super) fn taken_apart(lua: &Lua, function: &Function, closures: bool) -> Result<Parts, Failure> {
    let facts = function.info();
    if facts.what == "C" {
        return Err(Failure::argument("attempt to persist a C function"));
    }
    let (getupvalue, mut names, mut upvalues, mut globals) = (debug(lua, "getupvalue")?, Vec::new(), Vec::new(), 0);
    while let (Some(name), value) = getupvalue.call::<(Option<String>, Value)>((function, upvalues.len() + 1))? {
        let is_globals = name == "_ENV";
        upvalues.push(if is_globals { Value::Nil } else { value });
        if is_globals {
            globals = upvalues.len();
        }
        names.push(name);
    }
    if !closures && names.iter().any(|name| name != "_ENV") {
        let first = names.first().map_or("", String::as_str);
        return Err(Failure::new(
            "",
            format!(
                "Attempt to serialize closure '{}:{}' with {} upvalues; first is: '{first}'.\nConsider using ipc.workqueue.writeup() instead.",
                facts.short_src.as_deref().unwrap_or("?"),
                facts.line_defined.unwrap_or(0),
                names.len()
            ),
        ));
    }
    Ok(Parts { code: function.dump(false), globals, upvalues })
}

/// The function in this state, with upvalues of its own.
pub(super) fn put_together(lua: &Lua, parts: Parts) -> Result<Value, Failure> {
    let function = lua.load(parts.code).set_mode(ChunkMode::Binary).into_function()?;
    if parts.upvalues.is_empty() {
        return Ok(Value::Function(function));
    }
    let setupvalue = debug(lua, "setupvalue")?;
    for (number, upvalue) in (1..).zip(parts.upvalues) {
        let upvalue = if number == parts.globals { Value::Table(lua.globals()) } else { upvalue };
        setupvalue.call::<()>((&function, number, upvalue))?;
    }
    Ok(Value::Function(function))
}
