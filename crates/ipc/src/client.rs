//! The side that connects: one server, ordered messages both ways.

use std::fmt;
use std::sync::Arc;

use syncline_tensor::{TensorView, TensorViewMut};
use syncline_transport::{Connection, Deadline, DialConfig, DialError, dial_any_until};
use syncline_wire::Value;

use crate::connection::{Fault, Meter, NetStats, Pipe, deliver, encode};
use crate::hello::Hello;
use crate::place::stays_here;
use crate::{Error, Options, Place, Whom};

/// A connection to a [`Server`](crate::Server). May be used from many threads; each direction serves one at a time.
///
/// Calls wait as long as [`Options::timeout`] says, those that end in `_by` as long as their deadline. A server that dies
/// meanwhile is [`Error::PeerLost`] at once. Dropping the client closes it.
pub struct Client {
    pipe: Pipe,
    server: Whom,
    address: String,
    encrypted: bool,
    options: Options,
}

impl Client {
    /// Connects to the server at `place`, which may start later: it is tried again until the timeout.
    pub fn connect(place: &Place, options: &Options) -> Result<Client, Error> {
        Client::connect_by(place, options, Deadline::after(options.timeout))
    }

    /// [`connect`](Client::connect) with a deadline of the caller's.
    pub fn connect_by(place: &Place, options: &Options, by: Deadline) -> Result<Client, Error> {
        const OPERATION: &str = "client";
        let addresses = place.addresses(OPERATION)?;
        let encrypt = options.encrypt.unwrap_or_else(|| !addresses.iter().all(stays_here));
        let config = DialConfig { key: options.key(OPERATION)?, expect_identity: None, encrypt };
        let hello = Hello::of_this_process().encode();
        let connection = dial_any_until(&addresses, &config, &hello, None, by).map_err(|error| unreached(OPERATION, place, error, by))?;
        let server = Whom { name: format!("the server at {place}"), host: None, pid: connection.peer_pid() };
        let (address, encrypted) = (peer_address(&connection), connection.encrypted());
        Ok(Client { pipe: Pipe::new(connection, Arc::new(Meter::default())), server, address, encrypted, options: options.clone() })
    }

    /// Sends a message; returns when the system has taken all of it, which is not when the server has read it.
    pub fn send(&self, value: &Value<'_>) -> Result<(), Error> {
        self.send_by(value, self.patience())
    }

    /// [`send`](Client::send) with a deadline of the caller's. A message that had begun when it passes is not lost: the
    /// rest of it goes out while later calls on this client wait.
    pub fn send_by(&self, value: &Value<'_>, by: Deadline) -> Result<(), Error> {
        let encoded = encode("send", value)?;
        let sent = deliver(&[&self.pipe], &encoded, by).pop().unwrap_or(Err(Fault::Closed));
        sent.map_err(|fault| self.failed("send", fault, by))
    }

    /// Sends a tensor of any layout; one that is not contiguous is copied first.
    pub fn send_tensor(&self, tensor: &TensorView<'_>) -> Result<(), Error> {
        self.send_tensor_by(tensor, self.patience())
    }

    /// [`send_tensor`](Client::send_tensor) with a deadline of the caller's, as [`send_by`](Client::send_by) has it.
    pub fn send_tensor_by(&self, tensor: &TensorView<'_>, by: Deadline) -> Result<(), Error> {
        self.send_by(&tensor_value("send", tensor)?, by)
    }

    /// The next message.
    pub fn recv(&self) -> Result<Value<'static>, Error> {
        self.recv_by(self.patience())
    }

    /// [`recv`](Client::recv) with a deadline of the caller's. What has arrived when it passes is kept.
    pub fn recv_by(&self, by: Deadline) -> Result<Value<'static>, Error> {
        self.pipe.recv(by).map_err(|fault| self.failed("recv", fault, by))
    }

    /// The next message, a tensor of the very dtype and shape of `target`, into it.
    ///
    /// Anything else is [`Error::ShapeMismatch`]; the message stays and can be received otherwise.
    pub fn recv_into(&self, target: &mut TensorViewMut<'_>) -> Result<(), Error> {
        self.recv_into_by(target, self.patience())
    }

    /// [`recv_into`](Client::recv_into) with a deadline of the caller's. If it passes, `target` may hold part of the
    /// message, which stays whole for the next call.
    pub fn recv_into_by(&self, target: &mut TensorViewMut<'_>, by: Deadline) -> Result<(), Error> {
        self.pipe.recv_into(target, by).map_err(|fault| self.failed("recv", fault, by))
    }

    /// The next message if it is completely here, without waiting: torch-ipc's `recvAsync`.
    pub fn try_recv(&self) -> Result<Option<Value<'static>>, Error> {
        self.pipe.try_recv().map_err(|fault| self.failed("recv_async", fault, self.patience()))
    }

    /// Where the server is: its IP address, or the name of its Unix socket.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether what travels is encrypted.
    pub fn encrypted(&self) -> bool {
        self.encrypted
    }

    /// What went through this client so far.
    pub fn net_stats(&self) -> NetStats {
        self.pipe.meter.read()
    }

    /// Closes the connection and ends every wait on it; the server hears that it was on purpose. A second time does nothing.
    pub fn close(&self) {
        self.pipe.close();
    }

    fn patience(&self) -> Deadline {
        Deadline::after(self.options.timeout)
    }

    fn failed(&self, operation: &'static str, fault: Fault, by: Deadline) -> Error {
        fault.error(operation, self.server.clone(), by)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.server.name).field("encrypted", &self.encrypted).finish_non_exhaustive()
    }
}

/// A tensor as a message.
pub(crate) fn tensor_value<'t>(operation: &'static str, tensor: &TensorView<'t>) -> Result<Value<'t>, Error> {
    let value = Value::tensor(tensor.dtype(), tensor.shape().clone(), tensor.to_contiguous());
    value.map_err(|cause| Error::Unsendable { operation, cause })
}

/// The other end as torch-ipc shows it: an IP address without its port.
pub(crate) fn peer_address(connection: &Connection) -> String {
    let peer = connection.peer();
    match peer.strip_prefix("tcp://").and_then(|peer| peer.parse::<std::net::SocketAddr>().ok()) {
        Some(address) => address.ip().to_string(),
        None => peer.to_owned(),
    }
}

fn unreached(operation: &'static str, place: &Place, error: DialError, by: Deadline) -> Error {
    match error {
        DialError::Interrupted => Error::Interrupted { operation, waited: by.waited() },
        error if error.is_about_the_token() => Error::Auth { operation, detail: error.to_string() },
        error if by.expired() => Error::Timeout {
            operation,
            waited_for: format!("a server at {place}; {error}"),
            whom: None,
            waited: by.waited(),
            hint: "is it running, does it listen there and not only on 127.0.0.1, is the port open?",
        },
        error => Error::Configuration { operation, detail: format!("{place}: {error}") },
    }
}
