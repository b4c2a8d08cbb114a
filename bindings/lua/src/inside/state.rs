//! A fresh Lua state for a thread, with what a program expects to find in it.

use mlua::ffi::{lua_State, lua_close, luaL_newstate, luaL_openlibs};
use mlua::{Function, Lua, MultiValue, Table};

use super::parcel::{Parcel, pack_all};
use crate::reply::Failure;

/// Run first: modules are found where the program that started the thread finds them, and Torch is there if it is there. One
/// thread of Torch's own is enough in one of many.
const PRELUDE: &str = "
local path, cpath, torch_wanted = ...
package.path, package.cpath = path, cpath
if torch_wanted then
   local ok, torch = pcall(require, 'torch')
   if ok and type(torch) == 'table' and torch.setnumthreads then torch.setnumthreads(1) end
end
require 'libipc'
";

/// What a thread's state takes over from the state that starts it.
#[derive(Clone)]
pub(super) struct Origin {
    path: String,
    cpath: String,
    torch: bool,
}

impl Origin {
    pub(super) fn of(lua: &Lua) -> Result<Origin, Failure> {
        let package: Table = lua.globals().get("package")?;
        let torch = package.get::<Table>("loaded")?.contains_key("torch")?;
        Ok(Origin { path: package.get("path")?, cpath: package.get("cpath")?, torch })
    }
}

/// A Lua state that belongs to the thread that made it.
pub(super) struct State(*mut lua_State);

impl State {
    pub(super) fn fresh(origin: &Origin) -> Result<State, Failure> {
        // SAFETY: takes no argument; the state is closed when this is dropped.
        let state = State(unsafe { luaL_newstate() });
        if state.0.is_null() {
            return Err(Failure::new("SystemError", "there is no memory for another Lua state"));
        }
        // SAFETY: the state is new and whole; opening the libraries fails only for want of memory, which ends the process.
        unsafe { luaL_openlibs(state.0) };
        state.lua().load(PRELUDE).set_name("=libipc").call::<()>((&*origin.path, &*origin.cpath, origin.torch))?;
        Ok(state)
    }

    pub(super) fn lua(&self) -> &Lua {
        // SAFETY: the state is alive as long as `self` is, and no other thread knows of it.
        unsafe { Lua::get_or_init_from_ptr(self.0) }
    }

    /// Calls the function in the first parcel with what is in the others and `last`; its results as parcels.
    pub(super) fn call(&self, call: &[Parcel], last: Option<usize>) -> Result<Vec<Parcel>, Failure> {
        let lua = self.lua();
        let (function, arguments) = call.split_first().ok_or_else(|| Failure::argument("there is no function to call"))?;
        let function = mlua::FromLua::from_lua(function.open(lua)?, lua).map(|function: Function| function)?;
        let mut given = MultiValue::new();
        for argument in arguments {
            given.push_back(argument.open(lua)?);
        }
        given.extend(last.map(|number| crate::numbers::integer(number as i64)));
        let results: MultiValue = function.call(given)?;
        pack_all(lua, &results, "result", false)
    }

    /// Runs Lua source, or the function in a parcel, without arguments.
    pub(super) fn begin(&self, init: &Init) -> Result<(), Failure> {
        match init {
            Init::Nothing => Ok(()),
            Init::Source(source) => Ok(self.lua().load(&**source).set_name("=init").exec()?),
            Init::Function(function) => self.call(std::slice::from_ref(&**function), None).map(drop),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `fresh`, in this thread; whatever borrowed from it is gone, since it borrowed `self`.
            unsafe { lua_close(self.0) };
        }
    }
}

/// What each thread runs first.
#[derive(Clone)]
pub(super) enum Init {
    Nothing,
    Source(String),
    Function(Box<Parcel>),
}
