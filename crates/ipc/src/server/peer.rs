//! One client in the hands of the server's user.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use syncline_tensor::{TensorView, TensorViewMut};
use syncline_transport::Deadline;
use syncline_wire::Value;

use super::hall::{Hall, Seat};
use crate::Error;
use crate::client::tensor_value;
use crate::connection::{Fault, deliver, encode};

/// A client of a [`Server`](crate::Server), while its function runs ([`clients`](crate::Server::clients)) or until it is
/// closed ([`recv_any`](crate::Server::recv_any)).
pub struct Peer {
    hall: Arc<Hall>,
    seat: Arc<Seat>,
    /// False once the function that it was made for has returned.
    valid: Arc<AtomicBool>,
    timeout: Duration,
}

impl Peer {
    pub(super) fn new(hall: Arc<Hall>, seat: Arc<Seat>, timeout: Duration) -> Peer {
        Peer { hall, seat, valid: Arc::new(AtomicBool::new(true)), timeout }
    }

    /// The same client, valid exactly as long as this: for languages whose values outlive a function's arguments.
    pub fn handle(&self) -> Peer {
        Peer { hall: Arc::clone(&self.hall), seat: Arc::clone(&self.seat), valid: Arc::clone(&self.valid), timeout: self.timeout }
    }

    pub(super) fn expire(&self) {
        self.valid.store(false, Release);
    }

    /// Sends a message; see [`Client::send`](crate::Client::send).
    pub fn send(&self, value: &Value<'_>) -> Result<(), Error> {
        self.send_by(value, self.patience())
    }

    /// [`send`](Peer::send) with a deadline of the caller's. A message that had begun when it passes is finished behind the
    /// scenes as the client reads.
    pub fn send_by(&self, value: &Value<'_>, by: Deadline) -> Result<(), Error> {
        let seat = self.seat("send")?;
        let encoded = encode("send", value)?;
        let sent = deliver(&[&seat.pipe], &encoded, by).pop().unwrap_or(Err(Fault::Closed));
        self.hall.look_after_debts();
        sent.map_err(|fault| self.failed("send", fault, by))
    }

    /// Sends a tensor of any layout; one that is not contiguous is copied first.
    pub fn send_tensor(&self, tensor: &TensorView<'_>) -> Result<(), Error> {
        self.send_tensor_by(tensor, self.patience())
    }

    /// [`send_tensor`](Peer::send_tensor) with a deadline of the caller's, as [`send_by`](Peer::send_by) has it.
    pub fn send_tensor_by(&self, tensor: &TensorView<'_>, by: Deadline) -> Result<(), Error> {
        self.send_by(&tensor_value("send", tensor)?, by)
    }

    /// This client's next message.
    pub fn recv(&self) -> Result<Value<'static>, Error> {
        self.recv_by(self.patience())
    }

    /// [`recv`](Peer::recv) with a deadline of the caller's. What has arrived when it passes is kept.
    pub fn recv_by(&self, by: Deadline) -> Result<Value<'static>, Error> {
        self.seat("recv")?.pipe.recv(by).map_err(|fault| self.failed("recv", fault, by))
    }

    /// Its next message into `target`; see [`Client::recv_into`](crate::Client::recv_into).
    pub fn recv_into(&self, target: &mut TensorViewMut<'_>) -> Result<(), Error> {
        self.recv_into_by(target, self.patience())
    }

    /// [`recv_into`](Peer::recv_into) with a deadline of the caller's.
    pub fn recv_into_by(&self, target: &mut TensorViewMut<'_>, by: Deadline) -> Result<(), Error> {
        self.seat("recv")?.pipe.recv_into(target, by).map_err(|fault| self.failed("recv", fault, by))
    }

    /// Its next message if it is completely here.
    pub fn try_recv(&self) -> Result<Option<Value<'static>>, Error> {
        self.seat("recv_async")?.pipe.try_recv().map_err(|fault| self.failed("recv_async", fault, self.patience()))
    }

    /// Its number, by which clients are ordered; 0 unless it was given one.
    pub fn id(&self) -> Result<i64, Error> {
        Ok(self.seat("id")?.manner().id)
    }

    /// Gives it a number.
    pub fn set_id(&self, id: i64) -> Result<(), Error> {
        self.seat("id")?.manner().id = id;
        Ok(())
    }

    /// Its tag, if it was given one.
    pub fn tag(&self) -> Result<Option<String>, Error> {
        Ok(self.seat("tag")?.manner().tag.clone())
    }

    /// Gives it a tag, by which groups of clients are served; `None` takes it away.
    pub fn set_tag(&self, tag: Option<&str>) -> Result<(), Error> {
        self.seat("tag")?.manner().tag = tag.map(str::to_owned);
        Ok(())
    }

    /// Where it comes from: its IP address, or for a Unix socket its process.
    pub fn address(&self) -> Result<String, Error> {
        Ok(self.seat("address")?.address.clone())
    }

    /// Closes its connection; it hears that this was on purpose, and the server forgets it.
    pub fn close(&self) -> Result<(), Error> {
        self.hall.dismiss(self.seat("close")?);
        Ok(())
    }

    fn seat(&self, operation: &'static str) -> Result<&Seat, Error> {
        if !self.hall.owner.is_this_process() {
            return Err(Error::Forked { operation });
        }
        if self.valid.load(Acquire) && !self.seat.is_closed() { Ok(&self.seat) } else { Err(Error::InvalidClient) }
    }

    fn failed(&self, operation: &'static str, fault: Fault, by: Deadline) -> Error {
        if fault.ends_it() {
            self.hall.forget(&self.seat);
        }
        fault.error(operation, self.seat.whom(), by)
    }

    fn patience(&self) -> Deadline {
        Deadline::after(self.timeout)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("client", &self.seat.whom().name).field("valid", &self.seat("debug").is_ok()).finish_non_exhaustive()
    }
}
