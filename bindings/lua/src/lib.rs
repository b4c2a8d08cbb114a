//! The native half of the Lua modules `multiverso`, `libipc` and `ipc.*`.
//!
//! One crate, built for Lua 5.1 (which LuaJIT loads too) and for 5.4. It converts, calls and converts back; names, defaults and
//! classes are in `bindings/lua/lua`. Every function answers as `reply.rs` says, so that errors are raised in Lua, as strings.

mod arguments;
mod inside;
mod interrupt;
mod ipc;
mod job;
mod numbers;
mod process;
mod reply;
mod spawn;
mod tables;
mod trees;
mod values;

use std::ffi::c_int;

use mlua::{FromLuaMulti, Function, IntoLuaMulti, Lua, Table};

use crate::numbers::calls;
use crate::reply::{Failure, reply};

/// Called by Lua's `require 'syncline_native'`.
///
/// # Safety
/// `state` is the interpreter that loads the module.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn luaopen_syncline_native(state: *mut mlua::ffi::lua_State) -> c_int {
    // SAFETY: Lua calls this with its own state and room for a score of values; nothing was made yet. A panic inside `entrypoint1` becomes an
    // error of Lua's.
    unsafe {
        interrupt::watch(state);
        Lua::entrypoint1(state, module)
    }
}

/// The module: a table that makes its functions when they are asked for.
///
/// A program uses a few of them. Each is two objects that Lua's collector would look at in every round, and there are as many modules as threads.
fn module(lua: &Lua) -> mlua::Result<Table> {
    let (module, meta) = (lua.create_table()?, lua.create_table()?);
    module.set("version", env!("CARGO_PKG_VERSION"))?;
    let make = lua.create_function(|lua, (module, name): (Table, String)| {
        let made = function(lua, &name)?;
        if let Some(function) = &made {
            module.raw_set(name, function)?;
        }
        Ok(made)
    })?;
    meta.set("__index", make)?;
    module.set_metatable(Some(meta))?;
    Ok(module)
}

/// A function of the module, made from one of ours.
fn answering<A, R>(lua: &Lua, call: fn(&Lua, A) -> Result<R, Failure>) -> mlua::Result<Option<Function>>
where
    A: FromLuaMulti + 'static,
    R: IntoLuaMulti + 'static,
{
    lua.create_function(move |lua, arguments: A| reply(lua, call(lua, arguments))).map(Some)
}

/// The function of that name, if there is one.
fn function(lua: &Lua, name: &str) -> mlua::Result<Option<Function>> {
    macro_rules! functions {
        ($($name:literal => $call:path,)*) => {
            match name {
                // These answer in a manner of their own.
                "last_error" => lua.create_function(reply::last_error).map(Some),
                "last_words" => lua.create_function(reply::last_words).map(Some),
                "table_get_into" => lua.create_function(tables::get_into).map(Some),
                "table_get_new" => lua.create_function(tables::get_new).map(Some),
                "table_add_all" => lua.create_function(tables::add_all).map(Some),
                $($name => answering(lua, $call),)*
                _ => Ok(None),
            }
        };
    }
    functions! {
        "open" => job::open,
        "shutdown" => job::shutdown,
        "abort" => job::abort,
        "barrier" => job::barrier,
        "place" => job::place,
        "num_workers" => job::num_workers,
        "worker_id" => job::worker_id,
        "server_id" => job::server_id,
        "aggregate" => job::aggregate,
        "save" => job::save,
        "load" => job::load,
        "adopt" => values::adopt,
        "table_create" => tables::create,
        "table_add" => tables::add,
        "table_get" => tables::get,
        "table_add_keys" => tables::add_keys,
        "table_get_keys" => tables::get_keys,
        "table_name" => tables::name,
        "table_form" => tables::form,
        "tensor_zeros" => calls::zeros,
        "tensor_lend" => calls::lend,
        "tensor_of_table" => calls::of_table,
        "tensor_at" => calls::at,
        "tensor_put" => calls::put,
        "tensor_dims" => calls::dims,
        "tensor_dtype" => calls::dtype,
        "tensor_fill" => calls::fill,
        "tensor_scale" => calls::scale,
        "tensor_add" => calls::add,
        "tensor_copy" => calls::copy,
        "tensor_cast" => calls::cast,
        "tensor_reshape" => calls::reshape,
        "tensor_narrow" => calls::narrow,
        "tensor_sum" => calls::sum,
        "tensor_to_table" => calls::to_table,
        "tensor_to_string" => calls::to_string,
        "tensor_from_string" => calls::from_string,
        "tree_null" => trees::null,
        "tree_of_job" => trees::of_job,
        "tree_localhost" => trees::localhost,
        "tree_fixed" => trees::fixed,
        "tree_discovered" => trees::discovered,
        "tree_slurm" => trees::slurm,
        "tree_place" => trees::place,
        "tree_all_reduce" => trees::all_reduce,
        "tree_fold" => trees::fold,
        "tree_broadcast" => trees::broadcast,
        "tree_gather" => trees::gather,
        "tree_all_gather" => trees::all_gather,
        "tree_all_to_all" => trees::all_to_all,
        "tree_reduce_scatter" => trees::reduce_scatter,
        "tree_barrier" => trees::barrier,
        "tree_net_stats" => trees::net_stats,
        "tree_close" => trees::close,
        "server" => ipc::server,
        "server_clients" => ipc::server_clients,
        "server_clients_with" => ipc::server_clients_with,
        "server_broadcast" => ipc::server_broadcast,
        "server_recv_any" => ipc::server_recv_any,
        "server_close" => ipc::server_close,
        "server_stats" => ipc::server_stats,
        "client" => ipc::client,
        "client_send" => ipc::client_send,
        "client_recv" => ipc::client_recv,
        "client_recv_async" => ipc::client_recv_async,
        "client_close" => ipc::client_close,
        "client_stats" => ipc::client_stats,
        "peer_send" => ipc::peer_send,
        "peer_recv" => ipc::peer_recv,
        "peer_recv_async" => ipc::peer_recv_async,
        "peer_id" => ipc::peer_id,
        "peer_tag" => ipc::peer_tag,
        "peer_address" => ipc::peer_address,
        "peer_close" => ipc::peer_close,
        "adopt_objects" => inside::adopt,
        "map" => inside::map::start,
        "map_join" => inside::map::join,
        "map_check_errors" => inside::map::check_errors,
        "pool" => inside::background::open,
        "pool_add" => inside::background::add,
        "pool_has_task" => inside::background::has_task,
        "pool_is_done" => inside::background::is_done,
        "pool_get_result" => inside::background::get_result,
        "workqueue" => inside::workqueue::open,
        "workqueue_write" => inside::workqueue::write,
        "workqueue_read" => inside::workqueue::read,
        "workqueue_drain" => inside::workqueue::drain,
        "workqueue_close" => inside::workqueue::close,
        "channel" => inside::channel::open,
        "channel_write" => inside::channel::write,
        "channel_read" => inside::channel::read,
        "channel_close" => inside::channel::close,
        "channel_closed" => inside::channel::closed,
        "channel_drained" => inside::channel::drained,
        "channel_num_items" => inside::channel::num_items,
        "mutex" => inside::mutex::open,
        "mutex_lock" => inside::mutex::lock,
        "mutex_unlock" => inside::mutex::unlock,
        "mutex_barrier" => inside::mutex::barrier,
        "sharedtable" => inside::table::open,
        "sharedtable_get" => inside::table::get,
        "sharedtable_set" => inside::table::set,
        "sharedtable_len" => inside::table::len,
        "sharedtable_pairs" => inside::table::pairs,
        "sharedtable_size" => inside::table::size,
        "marshal" => inside::marshal::open,
        "marshal_read" => inside::marshal::read,
        "marshal_close" => inside::marshal::close,
        "spawn" => spawn::start,
        "spawn_pid" => spawn::pid,
        "spawn_running" => spawn::running,
        "spawn_stdin" => spawn::stdin,
        "spawn_stdout" => spawn::stdout,
        "spawn_stdout_id" => spawn::stdout_id,
        "spawn_wait" => spawn::wait,
        "flock" => spawn::flock,
        "flock_close" => spawn::unlock,
        "fork" => process::fork,
        "waitpid" => process::waitpid,
        "getpid" => process::getpid,
        "getppid" => process::getppid,
        "gettid" => process::gettid,
    }
}
