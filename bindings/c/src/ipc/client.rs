//! The side that connects.

use std::ffi::{c_char, c_int, c_void};

use syncline::ipc::Client;

use super::ends::{Patient, give_stats, syncline_traffic};
use super::server::{options, place};
use crate::border::{deadline, guarded};
use crate::failure::syncline_status;
use crate::handles::Handles;
use crate::memory;
use crate::values::syncline_value;

/// The side that connects.
pub struct syncline_client {
    _private: [u8; 0],
}

static CLIENTS: Handles<syncline_client, Patient<Client>> = Handles::new("client", 7);

/// Connects to a server, which may start later: it is tried again until the timeout. Arguments as syncline_server_open.
///
/// # Safety
/// `host` and `token` are NULL or texts; `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_connect(
    host: *const c_char,
    port: c_int,
    token: *const c_char,
    timeout: f64,
    out: *mut *mut syncline_client,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        // SAFETY: the caller's promise.
        let (place, options) = unsafe { (place(host, port)?, options(token, timeout)?) };
        let client = Client::connect_by(&place, &options, deadline(options.timeout))?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", CLIENTS.put(Patient { end: client, timeout: options.timeout })) }
    })
}

/// Sends a message; returns when the system has taken all of it, which is not when the other side has read it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_client_send(client: *mut syncline_client, value: *const syncline_value) -> syncline_status {
    guarded(|| CLIENTS.get(client)?.send(value))
}

/// Sends numbers of one dtype straight from where they lie.
///
/// # Safety
/// `dims` has `axes` extents, `data` as many numbers as they multiply to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_send_array(
    client: *mut syncline_client,
    dtype: i32,
    dims: *const usize,
    axes: usize,
    data: *const c_void,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { CLIENTS.get(client)?.send_array(dtype, dims, axes, data) })
}

/// The next message.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_recv(client: *mut syncline_client, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { CLIENTS.get(client)?.recv(out) })
}

/// The next message if it is completely here, else NULL, without waiting.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_try_recv(client: *mut syncline_client, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { CLIENTS.get(client)?.try_recv(out) })
}

/// The next message, a tensor of this very dtype and shape, into `data`. Anything else is SYNCLINE_SHAPE_MISMATCH; the message
/// stays and can be received otherwise.
///
/// # Safety
/// `dims` has `axes` extents, `data` room for as many numbers as they multiply to, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_recv_into(
    client: *mut syncline_client,
    dtype: i32,
    dims: *const usize,
    axes: usize,
    data: *mut c_void,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { CLIENTS.get(client)?.recv_into(dtype, dims, axes, data) })
}

/// What went through this client so far.
///
/// # Safety
/// `sent` and `received` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_stats(
    client: *mut syncline_client,
    sent: *mut syncline_traffic,
    received: *mut syncline_traffic,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_stats(CLIENTS.get(client)?.end.net_stats(), sent, received) })
}

/// Closes the connection, and frees the client; the server hears that it was on purpose.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_client_close(client: *mut syncline_client) -> syncline_status {
    guarded(|| {
        CLIENTS.take(client)?.end.close();
        Ok(())
    })
}
