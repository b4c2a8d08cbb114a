//! Ctrl-C reaches a program that waits.
//!
//! The `lua` command answers Ctrl-C by a hook that raises at the next instruction, and a wait has none. So each wait asks now
//! and then whether that hook was set; the hook itself then raises `interrupted!` once the call has returned.

use std::cell::Cell;
use std::ptr::null_mut;
use std::time::Duration;

use mlua::ffi::{LUA_MASKCALL, LUA_MASKCOUNT, LUA_MASKRET, lua_State, lua_gethook, lua_gethookcount, lua_gethookmask};
use syncline::Deadline;

thread_local! {
    static STATE: Cell<*mut lua_State> = const { Cell::new(null_mut()) };
}

/// Remembers the interpreter of this thread.
pub(crate) fn watch(state: *mut lua_State) {
    STATE.set(state);
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
    // SAFETY: the state loaded this module in this very thread, which is now inside a call from it: it is alive. The three
    // functions only read from it.
    unsafe { lua_gethook(state).is_some() && lua_gethookcount(state) == 1 && lua_gethookmask(state) & STOP == STOP }
}
