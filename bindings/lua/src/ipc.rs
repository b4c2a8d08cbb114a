//! Servers and clients, as the Lua side calls them.

use std::sync::Arc;
use std::time::Duration;

use mlua::{Function, Lua, Table, UserData, UserDataRef, Value as LuaValue};
use syncline::Value;
use syncline::ipc::{Client, Error, NetStats, Options, Order, Peer, Place, Server, TensorView, TensorViewMut, Traffic};

use crate::arguments::{Whole, kind};
use crate::interrupt::deadline;
use crate::job::seconds_from;
use crate::numbers::Numbers;
use crate::reply::{Failure, shaped};
use crate::values::{from_lua, opened, to_lua};

/// A connection's end and its patience.
#[derive(Clone)]
pub(crate) struct Patient<T> {
    end: T,
    timeout: Duration,
}

/// A client, which several threads may use.
pub(crate) type SharedClient = Patient<Arc<Client>>;

impl UserData for Patient<Server> {}
impl UserData for SharedClient {}
impl UserData for Patient<Peer> {}

type ServerGiven = UserDataRef<Patient<Server>>;
type ClientGiven = UserDataRef<SharedClient>;
type PeerGiven = UserDataRef<Patient<Peer>>;

fn options(token: Option<String>, timeout: Option<f64>) -> Result<Options, Failure> {
    let mut options = token.map_or_else(Options::default, |token| Options::with_token(&token));
    if let Some(seconds) = timeout {
        options = options.timeout(seconds_from(seconds)?);
    }
    Ok(options)
}

fn place(host: &str, port: i64) -> Result<Place, Failure> {
    let port = u16::try_from(port).map_err(|_| Failure::argument(format!("port {port} is none: they go from 0 to 65535")))?;
    Ok(Place::new(host, port)?)
}

/// A server, and the port it listens at.
pub(crate) fn server(
    _: &Lua,
    (host, Whole(port), token, timeout): (String, Whole, Option<String>, Option<f64>),
) -> Result<(Patient<Server>, u16), Failure> {
    let options = options(token, timeout)?;
    let server = Server::open(&place(&host, port)?, &options)?;
    let port = server.port();
    Ok((Patient { end: server, timeout: options.timeout }, port))
}

pub(crate) fn client(
    _: &Lua,
    (host, Whole(port), token, timeout): (String, Whole, Option<String>, Option<f64>),
) -> Result<SharedClient, Failure> {
    let options = options(token, timeout)?;
    let client = Client::connect_by(&place(&host, port)?, &options, deadline(options.timeout))?;
    Ok(Patient { end: Arc::new(client), timeout: options.timeout })
}

/// What a client and a server's client have in common.
pub(crate) trait End {
    fn send(&self, value: &Value<'_>, timeout: Duration) -> Result<(), Error>;
    fn send_numbers(&self, tensor: &TensorView<'_>, timeout: Duration) -> Result<(), Error>;
    fn receive(&self, timeout: Duration) -> Result<Value<'static>, Error>;
    fn receive_into(&self, target: &mut TensorViewMut<'_>, timeout: Duration) -> Result<(), Error>;
    fn receive_if_here(&self) -> Result<Option<Value<'static>>, Error>;
}

macro_rules! end {
    ($T:ty) => {
        impl End for $T {
            fn send(&self, value: &Value<'_>, timeout: Duration) -> Result<(), Error> {
                self.send_by(value, deadline(timeout))
            }
            fn send_numbers(&self, tensor: &TensorView<'_>, timeout: Duration) -> Result<(), Error> {
                self.send_tensor_by(tensor, deadline(timeout))
            }
            fn receive(&self, timeout: Duration) -> Result<Value<'static>, Error> {
                self.recv_by(deadline(timeout))
            }
            fn receive_into(&self, target: &mut TensorViewMut<'_>, timeout: Duration) -> Result<(), Error> {
                self.recv_into_by(target, deadline(timeout))
            }
            fn receive_if_here(&self) -> Result<Option<Value<'static>>, Error> {
                self.try_recv()
            }
        }
    };
}
end!(Arc<Client>);
end!(Peer);

impl<T: End> Patient<T> {
    /// A lone tensor goes straight from where it lies.
    fn send(&self, lua: &Lua, value: &LuaValue) -> Result<(), Failure> {
        if let Some(numbers) = opened(lua, value)? {
            return numbers.read(|bytes| {
                let view = TensorView::contiguous(bytes, numbers.dtype, numbers.shape.clone());
                Ok(self.end.send_numbers(&shaped(view)?, self.timeout)?)
            });
        }
        Ok(self.end.send(&from_lua(lua, value, "send")?, self.timeout)?)
    }

    fn recv(&self, lua: &Lua, target: LuaValue) -> Result<LuaValue, Failure> {
        if target.is_nil() {
            return to_lua(lua, self.end.receive(self.timeout)?);
        }
        let numbers = opened(lua, &target)?;
        let numbers: Numbers = numbers.ok_or_else(|| Failure::argument(format!("recv: a {} is no tensor", kind(&target))))?;
        numbers.write(|bytes| {
            let view = TensorViewMut::contiguous(bytes, numbers.dtype, numbers.shape.clone());
            Ok(self.end.receive_into(&mut shaped(view)?, self.timeout)?)
        })?;
        Ok(target)
    }

    /// Whether there was a message, and it.
    fn recv_async(&self, lua: &Lua) -> Result<(bool, LuaValue), Failure> {
        match self.end.receive_if_here()? {
            Some(value) => Ok((true, to_lua(lua, value)?)),
            None => Ok((false, LuaValue::Nil)),
        }
    }
}

pub(crate) fn client_send(lua: &Lua, (client, value): (ClientGiven, LuaValue)) -> Result<(), Failure> {
    client.send(lua, &value)
}

pub(crate) fn client_recv(lua: &Lua, (client, target): (ClientGiven, LuaValue)) -> Result<LuaValue, Failure> {
    client.recv(lua, target)
}

pub(crate) fn client_recv_async(lua: &Lua, client: ClientGiven) -> Result<(bool, LuaValue), Failure> {
    client.recv_async(lua)
}

pub(crate) fn client_close(_: &Lua, client: ClientGiven) -> Result<(), Failure> {
    client.end.close();
    Ok(())
}

pub(crate) fn client_stats(lua: &Lua, client: ClientGiven) -> Result<Table, Failure> {
    stats(lua, client.end.net_stats())
}

pub(crate) fn peer_send(lua: &Lua, (peer, value): (PeerGiven, LuaValue)) -> Result<(), Failure> {
    peer.send(lua, &value)
}

pub(crate) fn peer_recv(lua: &Lua, (peer, target): (PeerGiven, LuaValue)) -> Result<LuaValue, Failure> {
    peer.recv(lua, target)
}

pub(crate) fn peer_recv_async(lua: &Lua, peer: PeerGiven) -> Result<(bool, LuaValue), Failure> {
    peer.recv_async(lua)
}

/// The id, after it was set if one is given.
pub(crate) fn peer_id(_: &Lua, (peer, id): (PeerGiven, Option<Whole>)) -> Result<i64, Failure> {
    if let Some(Whole(id)) = id {
        peer.end.set_id(id)?;
    }
    Ok(peer.end.id()?)
}

/// The tag, after it was set if one is given.
pub(crate) fn peer_tag(_: &Lua, (peer, tag): (PeerGiven, Option<String>)) -> Result<Option<String>, Failure> {
    if let Some(tag) = tag {
        peer.end.set_tag(Some(&tag))?;
    }
    Ok(peer.end.tag()?)
}

pub(crate) fn peer_address(_: &Lua, peer: PeerGiven) -> Result<String, Failure> {
    Ok(peer.end.address()?)
}

pub(crate) fn peer_close(_: &Lua, peer: PeerGiven) -> Result<(), Failure> {
    Ok(peer.end.close()?)
}

/// Why going through clients ended.
enum Ended {
    Raised(mlua::Error),
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
            Ended::Raised(error) => Failure::raised(&error),
            Ended::By(error) => Failure::from(error),
        }
    }
}

/// Waits until `n` clients in total are there, then calls `f` for each, ascending by id.
pub(crate) fn server_clients(lua: &Lua, (server, Whole(n), f): (ServerGiven, Whole, Function)) -> Result<usize, Failure> {
    let n = usize::try_from(n).map_err(|_| Failure::argument(format!("clients: {n} is no number of clients")))?;
    let timeout = server.timeout;
    let visit = |peer: &Peer| visited(lua, peer, timeout, &f);
    Ok(server.end.clients_by(n, deadline(timeout), visit)?)
}

/// Calls `f` for each client that is there and has this tag.
pub(crate) fn server_clients_with(
    lua: &Lua,
    (server, f, tag, descending): (ServerGiven, Function, Option<String>, bool),
) -> Result<usize, Failure> {
    let order = if descending { Order::Descending } else { Order::Ascending };
    let timeout = server.timeout;
    Ok(server.end.clients_with(tag.as_deref(), order, |peer| visited(lua, peer, timeout, &f))?)
}

fn visited(lua: &Lua, peer: &Peer, timeout: Duration, f: &Function) -> Result<(), Ended> {
    let given = lua.create_userdata(Patient { end: peer.handle(), timeout });
    given.and_then(|given| f.call::<()>(given)).map_err(Ended::Raised)
}

pub(crate) fn server_broadcast(lua: &Lua, (server, value, tag): (ServerGiven, LuaValue, Option<String>)) -> Result<usize, Failure> {
    let value = from_lua(lua, &value, "broadcast")?;
    Ok(server.end.broadcast_by(&value, tag.as_deref(), deadline(server.timeout))?)
}

pub(crate) fn server_recv_any(lua: &Lua, (server, tag): (ServerGiven, Option<String>)) -> Result<(LuaValue, Patient<Peer>), Failure> {
    let (value, peer) = server.end.recv_any_by(tag.as_deref(), deadline(server.timeout))?;
    Ok((to_lua(lua, value)?, Patient { end: peer, timeout: server.timeout }))
}

pub(crate) fn server_close(_: &Lua, server: ServerGiven) -> Result<(), Failure> {
    server.end.close();
    Ok(())
}

pub(crate) fn server_stats(lua: &Lua, server: ServerGiven) -> Result<Table, Failure> {
    stats(lua, server.end.net_stats())
}

/// torch-ipc's table; what belongs to CUDA is there and zero.
fn stats(lua: &Lua, stats: NetStats) -> Result<Table, Failure> {
    let one = |traffic: Traffic| -> mlua::Result<Table> {
        let facts = lua.create_table()?;
        facts.set("num_bytes", traffic.num_bytes)?;
        facts.set("num_regions", traffic.num_regions)?;
        facts.set("num_calls", traffic.num_calls)?;
        facts.set("num_system_calls", traffic.num_system_calls)?;
        facts.set("total_seconds", traffic.total_seconds)?;
        facts.set("system_seconds", traffic.system_seconds)?;
        for none in ["cuda_sync_seconds", "cudacliser_profile_seconds", "cuda_ipc_seconds", "cuda_ipc_bytes", "CUDA IPC MB/s"] {
            facts.set(none, 0)?;
        }
        facts.set("NETWORK MB/s", traffic.mb_per_s())?;
        Ok(facts)
    };
    let both = lua.create_table()?;
    both.set("tx", one(stats.tx)?)?;
    both.set("rx", one(stats.rx)?)?;
    Ok(both)
}
