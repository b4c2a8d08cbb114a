//! Ctrl-C reaches a program that waits.
//!
//! The `lua` command answers Ctrl-C by a hook that raises at the next instruction, and a wait has none. So each wait asks now
//! and then whether that hook was set; the hook itself then raises `interrupted!` once the call has returned.

use std::cell::Cell;
use std::ptr::null_mut;
use std::time::Duration;

use mlua::ffi::{LUA_MASKCALL, LUA_MASKCOUNT, LUA_MASKRET, LUA_REGISTRYINDEX, lua_State, lua_gethook, lua_gethookcount, lua_gethookmask};
use syncline::Deadline;

thread_local! {
    static STATE: Cell<*mut lua_State> = const { Cell::new(null_mut()) };
}

/// Remembers the interpreter of this thread. `state` may be a coroutine that nobody keeps once it has loaded this module.
///
/// # Safety
/// `state` is the interpreter that loads the module, it has room for a value on its stack, and no value of Rust's waits to be dropped: for want
/// of memory Lua leaves this function by raising.
pub(crate) unsafe fn watch(state: *mut lua_State) {
    // SAFETY: the state is alive and has room for one value, which is taken off again.
    STATE.set(unsafe { main_of(state) });
}

/// The main thread of a state, on which the `lua` command sets its hook.
///
/// # Safety
/// As of `watch`.
#[cfg(feature = "lua54")]
unsafe fn main_of(state: *mut lua_State) -> *mut lua_State {
    use mlua::ffi::{LUA_RIDX_MAINTHREAD, lua_pop, lua_rawgeti, lua_tothread};
    // SAFETY: every registry has its main thread at this place; one value is pushed and popped.
    unsafe {
        lua_rawgeti(state, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
        let main = lua_tothread(state, -1);
        lua_pop(state, 1);
        main
    }
}

/// Lua 5.1 does not tell its main thread, so the one that is here is kept for ever; LuaJIT has one hook for all of them.
///
/// # Safety
/// As of `watch`.
#[cfg(feature = "lua51")]
unsafe fn main_of(state: *mut lua_State) -> *mut lua_State {
    use mlua::ffi::{lua_pushthread, luaL_ref};
    // SAFETY: one value is pushed, and `luaL_ref` takes it off.
    unsafe {
        lua_pushthread(state);
        luaL_ref(state, LUA_REGISTRYINDEX);
    }
    state
}

/// `timeout` from now, given up early when the user presses Ctrl-C.
pub(crate) fn deadline(timeout: Duration) -> Deadline {
    Deadline::after(timeout).with_interrupt(pressed)
}

/// As long as it takes, or until the user presses Ctrl-C.
pub(crate) fn no_deadline() -> Deadline {
    Deadline::never().with_interrupt(pressed)
}

/// Whether the hook is set that the `lua` command sets on Ctrl-C: it looks at calls, returns and every single instruction.
pub(crate) fn pressed() -> bool {
    const STOP: i32 = LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT;
    let state = STATE.get();
    if state.is_null() {
        return false;
    }
    // SAFETY: the state belongs to the interpreter that loaded this module in this very thread, which is now inside a call from it; `main_of`
    // saw to it that it lives as long as that one. The three functions only read from it.
    unsafe { lua_gethook(state).is_some() && lua_gethookcount(state) == 1 && lua_gethookmask(state) & STOP == STOP }
}
