//! The side that listens, and the clients that came to it.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use syncline::ipc::{Error, Options, Order, Peer, Place, Server};

use super::ends::{Patient, give_stats, syncline_traffic};
use crate::border::guarded;
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::memory;
use crate::values::{VALUES, give as give_value, syncline_value};

/// The side that listens.
pub struct syncline_server {
    _private: [u8; 0],
}

/// A client in the hands of its server.
pub struct syncline_peer {
    _private: [u8; 0],
}

static SERVERS: Handles<syncline_server, Patient<Server>> = Handles::new("server", 6);
static PEERS: Handles<syncline_peer, Patient<Peer>> = Handles::new("peer", 8);

/// # Safety
/// `token` is NULL or a text.
pub(super) unsafe fn options(token: *const c_char, timeout: f64) -> Result<Options, Failure> {
    // SAFETY: the caller's promise.
    let mut options = unsafe { memory::text(token, "token") }?.map_or_else(Options::default, Options::with_token);
    if let Some(timeout) = memory::patience(timeout)? {
        options = options.timeout(timeout);
    }
    Ok(options)
}

/// # Safety
/// `host` is NULL or a text.
pub(super) unsafe fn place(host: *const c_char, port: c_int) -> Result<Place, Failure> {
    // SAFETY: the caller's promise.
    let host = unsafe { memory::text(host, "host") }?.unwrap_or("127.0.0.1");
    let port = u16::try_from(port).map_err(|_| Failure::argument(format!("port {port} is none: they go from 0 to 65535")))?;
    Ok(Place::new(host, port)?)
}

/// Listens at `host` (NULL: 127.0.0.1; "unix:NAME" is a Unix socket) and `port` (0: a free one), and tells the port.
///
/// Both sides need the same `token`; NULL takes SYNCLINE_TOKEN or what all programs of this user on this host know. Calls wait
/// `timeout` seconds; 0 is 300.
///
/// # Safety
/// `host` and `token` are NULL or texts; `out` and `port_out` may be written, the latter may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_server_open(
    host: *const c_char,
    port: c_int,
    token: *const c_char,
    timeout: f64,
    out: *mut *mut syncline_server,
    port_out: *mut c_int,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        // SAFETY: the caller's promise.
        let (place, options) = unsafe { (place(host, port)?, options(token, timeout)?) };
        let server = Server::open(&place, &options)?;
        let listens = c_int::from(server.port());
        // SAFETY: the caller's promise.
        unsafe {
            memory::give_if(port_out, "port_out", listens)?;
            memory::give(out, "out", SERVERS.put(Patient { end: server, timeout: options.timeout }))
        }
    })
}

/// What is called for each client; the peer is valid until it returns. Not 0 ends the call with SYNCLINE_CALLER.
pub type syncline_each = Option<unsafe extern "C" fn(peer: *mut syncline_peer, user: *mut c_void) -> c_int>;

/// Why going through clients ended.
enum Ended {
    ByCaller(c_int),
    By(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::By(error)
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Failure {
        match ended {
            Ended::ByCaller(code) => Failure::of_caller("clients", code),
            Ended::By(error) => Failure::from(error),
        }
    }
}

/// Calls the user's function with a handle that is void afterwards.
fn visit(
    peer: &Peer,
    timeout: Duration,
    each: unsafe extern "C" fn(*mut syncline_peer, *mut c_void) -> c_int,
    user: *mut c_void,
) -> Result<(), Ended> {
    let handle = PEERS.put(Patient { end: peer.handle(), timeout });
    // SAFETY: the caller of `clients` promised that its function can be called with a peer and its own pointer.
    let code = unsafe { each(handle, user) };
    let _ = PEERS.take(handle); // the function may have closed it
    if code == 0 { Ok(()) } else { Err(Ended::ByCaller(code)) }
}

/// Waits until `n` clients in total are connected, then calls `each` for every one, ascending by id, and tells how many there are.
///
/// # Safety
/// `each` can be called with `user`; `count` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_server_clients(
    server: *mut syncline_server,
    n: usize,
    each: syncline_each,
    user: *mut c_void,
    count: *mut usize,
) -> syncline_status {
    guarded(|| {
        let server = SERVERS.get(server)?;
        let each = each.ok_or_else(|| Failure::argument("each is NULL"))?;
        let served = server.end.clients_by(n, server.deadline(), |peer| visit(peer, server.timeout, each, user))?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(count, "count", served) }
    })
}

/// Calls `each` for every client that is connected and has this tag (NULL: all), descending by id if `descending` is not 0.
///
/// # Safety
/// `tag` is NULL or a text; `each` can be called with `user`; `count` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_server_clients_with(
    server: *mut syncline_server,
    tag: *const c_char,
    descending: c_int,
    each: syncline_each,
    user: *mut c_void,
    count: *mut usize,
) -> syncline_status {
    guarded(|| {
        let server = SERVERS.get(server)?;
        let each = each.ok_or_else(|| Failure::argument("each is NULL"))?;
        // SAFETY: the caller's promise.
        let tag = unsafe { memory::text(tag, "tag") }?;
        let order = if descending == 0 { Order::Ascending } else { Order::Descending };
        let served = server.end.clients_with(tag, order, |peer| visit(peer, server.timeout, each, user))?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(count, "count", served) }
    })
}

/// Sends a message to every client with this tag (NULL: all), and tells how many there are.
///
/// # Safety
/// `tag` is NULL or a text; `count` is NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_server_broadcast(
    server: *mut syncline_server,
    value: *const syncline_value,
    tag: *const c_char,
    count: *mut usize,
) -> syncline_status {
    guarded(|| {
        let (server, value) = (SERVERS.get(server)?, VALUES.get(value)?);
        // SAFETY: the caller's promise.
        let tag = unsafe { memory::text(tag, "tag") }?;
        let sent = server.end.broadcast_by(value.value(), tag, server.deadline())?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_if(count, "count", sent) }
    })
}

/// The next message of any client with this tag (NULL: all), and whose it is. Clients take turns. Free the peer.
///
/// # Safety
/// `tag` is NULL or a text; `out` may be written, and `peer` is NULL or may be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_server_recv_any(
    server: *mut syncline_server,
    tag: *const c_char,
    out: *mut *mut syncline_value,
    peer: *mut *mut syncline_peer,
) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let server = SERVERS.get(server)?;
        // SAFETY: the caller's promise.
        let tag = unsafe { memory::text(tag, "tag") }?;
        let (value, whose) = server.end.recv_any_by(tag, server.deadline())?;
        // SAFETY: the caller's promise.
        unsafe {
            if !peer.is_null() {
                memory::give(peer, "peer", PEERS.put(Patient { end: whose, timeout: server.timeout }))?;
            }
            give_value(out, value)
        }
    })
}

/// Closes all connections, stops listening and frees the server; the clients hear that it was on purpose.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_server_close(server: *mut syncline_server) -> syncline_status {
    guarded(|| {
        SERVERS.take(server)?.end.close();
        Ok(())
    })
}

/// Sends a message to this client, as syncline_client_send does in the other direction.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_peer_send(peer: *mut syncline_peer, value: *const syncline_value) -> syncline_status {
    guarded(|| PEERS.get(peer)?.send(value))
}

/// Sends numbers to this client, as syncline_client_send_array does.
///
/// # Safety
/// `dims` has `axes` extents, `data` as many numbers as they multiply to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_send_array(
    peer: *mut syncline_peer,
    dtype: i32,
    dims: *const usize,
    axes: usize,
    data: *const c_void,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { PEERS.get(peer)?.send_array(dtype, dims, axes, data) })
}

/// The next message of this client.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_recv(peer: *mut syncline_peer, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { PEERS.get(peer)?.recv(out) })
}

/// This client's next message if it is completely here, else NULL, without waiting.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_try_recv(peer: *mut syncline_peer, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { PEERS.get(peer)?.try_recv(out) })
}

/// This client's next message into `data`, as syncline_client_recv_into does.
///
/// # Safety
/// `dims` has `axes` extents, `data` room for as many numbers as they multiply to, which nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_recv_into(
    peer: *mut syncline_peer,
    dtype: i32,
    dims: *const usize,
    axes: usize,
    data: *mut c_void,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { PEERS.get(peer)?.recv_into(dtype, dims, axes, data) })
}

/// The client's number, by which clients are ordered; 0 unless it was given one.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_id(peer: *mut syncline_peer, out: *mut i64) -> syncline_status {
    guarded(|| {
        let id = PEERS.get(peer)?.end.id()?;
        // SAFETY: the caller's promise.
        unsafe { memory::give(out, "out", id) }
    })
}

/// Gives the client a number.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_peer_set_id(peer: *mut syncline_peer, id: i64) -> syncline_status {
    guarded(|| Ok(PEERS.get(peer)?.end.set_id(id)?))
}

/// Copies the client's tag into `out`, cut short where there is less room; "" if it has none.
///
/// # Safety
/// `out` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_tag(peer: *mut syncline_peer, out: *mut c_char, room: usize) -> syncline_status {
    guarded(|| {
        let tag = PEERS.get(peer)?.end.tag()?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_text(out, room, tag.as_deref().unwrap_or_default()) }
    })
}

/// Gives the client a tag, by which groups of clients are served; NULL takes it away.
///
/// # Safety
/// `tag` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_set_tag(peer: *mut syncline_peer, tag: *const c_char) -> syncline_status {
    guarded(|| {
        // SAFETY: the caller's promise.
        let tag = unsafe { memory::text(tag, "tag") }?;
        Ok(PEERS.get(peer)?.end.set_tag(tag)?)
    })
}

/// Copies where the client comes from into `out`: its IP address, or for a Unix socket its process.
///
/// # Safety
/// `out` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_address(peer: *mut syncline_peer, out: *mut c_char, room: usize) -> syncline_status {
    guarded(|| {
        let address = PEERS.get(peer)?.end.address()?;
        // SAFETY: the caller's promise.
        unsafe { memory::give_text(out, room, &address) }
    })
}

/// Closes the client's connection and frees the handle; it hears that this was on purpose, and the server forgets it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_peer_close(peer: *mut syncline_peer) -> syncline_status {
    guarded(|| Ok(PEERS.take(peer)?.end.close()?))
}

/// Frees the handle of a peer; the connection stays.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_peer_free(peer: *mut syncline_peer) -> syncline_status {
    guarded(|| PEERS.take(peer).map(drop))
}

/// What went to and came from all clients so far.
///
/// # Safety
/// `sent` and `received` are NULL or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_server_stats(
    server: *mut syncline_server,
    sent: *mut syncline_traffic,
    received: *mut syncline_traffic,
) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_stats(SERVERS.get(server)?.end.net_stats(), sent, received) })
}
