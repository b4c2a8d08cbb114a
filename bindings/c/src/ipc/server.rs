//! Programs that talk to each other without being ranks of a job: servers and clients.

use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

use syncline::ipc::{Client, Error, NetStats, Options, Order, Peer, Place, Server, TensorView, TensorViewMut, Traffic};
use syncline::{DType, Value};

use crate::border::{deadline, guarded};
use crate::failure::{Failure, syncline_status};
use crate::handles::Handles;
use crate::values::{VALUES, give as give_value, syncline_value};
use crate::{facts, memory};

/// The side that listens.
pub struct syncline_server {
    _private: [u8; 0],
}

/// The side that connects.
pub struct syncline_client {
    _private: [u8; 0],
}

/// A client in the hands of its server.
pub struct syncline_peer {
    _private: [u8; 0],
}

/// A connection's end and its patience.
struct Patient<T> {
    end: T,
    timeout: Duration,
}

static SERVERS: Handles<syncline_server, Patient<Server>> = Handles::new("server", 6);
static CLIENTS: Handles<syncline_client, Patient<Client>> = Handles::new("client", 7);
static PEERS: Handles<syncline_peer, Patient<Peer>> = Handles::new("peer", 8);

/// # Safety
/// `token` is NULL or a text.
unsafe fn options(token: *const c_char, timeout: f64) -> Result<Options, Failure> {
    // SAFETY: the caller's promise.
    let mut options = unsafe { memory::text(token, "token") }?.map_or_else(Options::default, Options::with_token);
    if let Some(timeout) = memory::patience(timeout)? {
        options = options.timeout(timeout);
    }
    Ok(options)
}

/// # Safety
/// `host` is NULL or a text.
unsafe fn place(host: *const c_char, port: c_int) -> Result<Place, Failure> {
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
    guarded(|| {
        let to = CLIENTS.get(client)?;
        Ok(to.end.send_by(VALUES.get(value)?.value(), deadline(to.timeout))?)
    })
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
    guarded(|| {
        let (to, dtype) = (CLIENTS.get(client)?, facts::dtype(dtype)?);
        // SAFETY: the caller's promise.
        let view = unsafe { view(dtype, dims, axes, data) }?;
        Ok(to.end.send_tensor(&view)?)
    })
}

/// The next message.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_recv(client: *mut syncline_client, out: *mut *mut syncline_value) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let from = CLIENTS.get(client)?;
        // SAFETY: the caller's promise.
        unsafe { give_value(out, from.end.recv_by(deadline(from.timeout))?) }
    })
}

/// The next message if it is completely here, else NULL, without waiting.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_client_try_recv(client: *mut syncline_client, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_if_any(out, || Ok(CLIENTS.get(client)?.end.try_recv()?)) })
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
    guarded(|| {
        let (from, dtype) = (CLIENTS.get(client)?, facts::dtype(dtype)?);
        // SAFETY: the caller's promise.
        let mut target = unsafe { view_mut(dtype, dims, axes, data) }?;
        Ok(from.end.recv_into_by(&mut target, deadline(from.timeout))?)
    })
}

/// Sends a message; returns when the system has taken all of it, which is not when the other side has read it.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_peer_send(peer: *mut syncline_peer, value: *const syncline_value) -> syncline_status {
    guarded(|| {
        let to = PEERS.get(peer)?;
        Ok(to.end.send_by(VALUES.get(value)?.value(), deadline(to.timeout))?)
    })
}

/// Sends numbers of one dtype straight from where they lie.
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
    guarded(|| {
        let (to, dtype) = (PEERS.get(peer)?, facts::dtype(dtype)?);
        // SAFETY: the caller's promise.
        let view = unsafe { view(dtype, dims, axes, data) }?;
        Ok(to.end.send_tensor(&view)?)
    })
}

/// The next message.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_recv(peer: *mut syncline_peer, out: *mut *mut syncline_value) -> syncline_status {
    guarded(|| {
        memory::check_out(out, "out")?;
        let from = PEERS.get(peer)?;
        // SAFETY: the caller's promise.
        unsafe { give_value(out, from.end.recv_by(deadline(from.timeout))?) }
    })
}

/// The next message if it is completely here, else NULL, without waiting.
///
/// # Safety
/// `out` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syncline_peer_try_recv(peer: *mut syncline_peer, out: *mut *mut syncline_value) -> syncline_status {
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_if_any(out, || Ok(PEERS.get(peer)?.end.try_recv()?)) })
}

/// The next message, a tensor of this very dtype and shape, into `data`. Anything else is SYNCLINE_SHAPE_MISMATCH; the message
/// stays and can be received otherwise.
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
    guarded(|| {
        let (from, dtype) = (PEERS.get(peer)?, facts::dtype(dtype)?);
        // SAFETY: the caller's promise.
        let mut target = unsafe { view_mut(dtype, dims, axes, data) }?;
        Ok(from.end.recv_into_by(&mut target, deadline(from.timeout))?)
    })
}

/// Writes the message, or NULL where there is none.
///
/// # Safety
/// `out` may be written.
unsafe fn give_if_any(
    out: *mut *mut syncline_value,
    receive: impl FnOnce() -> Result<Option<Value<'static>>, Failure>,
) -> Result<(), Failure> {
    memory::check_out(out, "out")?;
    match receive()? {
        // SAFETY: the caller's promise.
        Some(value) => unsafe { give_value(out, value) },
        // SAFETY: the caller's promise.
        None => unsafe { memory::give(out, "out", std::ptr::null_mut()) },
    }
}

/// # Safety
/// `dims` has `axes` extents, `data` as many numbers as they multiply to.
unsafe fn view<'a>(dtype: DType, dims: *const usize, axes: usize, data: *const c_void) -> Result<TensorView<'a>, Failure> {
    // SAFETY: the caller's promise.
    let shape = unsafe { memory::shape(dims, axes) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory::numbers(data, shape.elements(), dtype, "data") }?;
    TensorView::contiguous(bytes, dtype, shape).map_err(|error| Failure::argument(error.to_string()))
}

/// # Safety
/// As [`view`], and nobody else uses `data`.
unsafe fn view_mut<'a>(dtype: DType, dims: *const usize, axes: usize, data: *mut c_void) -> Result<TensorViewMut<'a>, Failure> {
    // SAFETY: the caller's promise.
    let shape = unsafe { memory::shape(dims, axes) }?;
    // SAFETY: the caller's promise.
    let bytes = unsafe { memory::numbers_mut(data, shape.elements(), dtype, "data") }?;
    TensorViewMut::contiguous(bytes, dtype, shape).map_err(|error| Failure::argument(error.to_string()))
}

/// Closes the connection, and frees the client; the server hears that it was on purpose.
#[unsafe(no_mangle)]
pub extern "C" fn syncline_client_close(client: *mut syncline_client) -> syncline_status {
    guarded(|| {
        CLIENTS.take(client)?.end.close();
        Ok(())
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
            Ended::ByCaller(code) => {
                Failure::new(syncline_status::SYNCLINE_CALLER, format!("clients: the caller's function returned {code}"))
            }
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
        let served = server.end.clients_by(n, deadline(server.timeout), |peer| visit(peer, server.timeout, each, user))?;
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
        let sent = server.end.broadcast_by(value.value(), tag, deadline(server.timeout))?;
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
        let (value, whose) = server.end.recv_any_by(tag, deadline(server.timeout))?;
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

/// Counts of one direction.
#[repr(C)]
pub struct syncline_traffic {
    /// Bytes of messages, headers included.
    num_bytes: u64,
    /// Pieces of memory that they were gathered from, or scattered to.
    num_regions: u64,
    /// Messages.
    num_calls: u64,
    /// Attempts to move bytes, each of them about one system call.
    num_system_calls: u64,
    /// Seconds spent in calls that send, or receive.
    total_seconds: f64,
    /// Seconds of these that were spent in the system calls.
    system_seconds: f64,
}

fn counted(traffic: Traffic) -> syncline_traffic {
    syncline_traffic {
        num_bytes: traffic.num_bytes,
        num_regions: traffic.num_regions,
        num_calls: traffic.num_calls,
        num_system_calls: traffic.num_system_calls,
        total_seconds: traffic.total_seconds,
        system_seconds: traffic.system_seconds,
    }
}

/// # Safety
/// `sent` and `received` are NULL or may be written.
unsafe fn give_stats(stats: NetStats, sent: *mut syncline_traffic, received: *mut syncline_traffic) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe {
        memory::give_if(sent, "sent", counted(stats.tx))?;
        memory::give_if(received, "received", counted(stats.rx))
    }
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
