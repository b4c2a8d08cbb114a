//! Servers and clients as the tests make them: every kind of address, one token.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use syncline_ipc::{Client, Deadline, Error, Options, Order, Place, Server};

/// Long enough for a busy machine, short enough for a failing test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn soon() -> Deadline {
    Deadline::after(PATIENCE)
}

pub(crate) fn options() -> Options {
    Options::with_token("the token of these tests").timeout(PATIENCE)
}

/// A name that no other test of this machine uses.
pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("/syncline-ipc-test/{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

pub(crate) fn loopback() -> Server {
    Server::open(&Place::tcp("127.0.0.1", 0), &options()).expect("a free port")
}

pub(crate) fn client_of(server: &Server) -> Client {
    Client::connect(&server.place(), &options()).expect("it listens")
}

/// One server and clients that it has let in, with the ids 0, 1, …
pub(crate) fn company(clients: usize) -> (Server, Vec<Client>) {
    let server = loopback();
    let clients = (0..clients).map(|_| seated(&server, &options())).collect();
    number(&server);
    (server, clients)
}

/// A client that its server has let in: one by one, so that the order in which they come is known.
pub(crate) fn seated(server: &Server, options: &Options) -> Client {
    let client = Client::connect(&server.place(), options).expect("it listens");
    let there = server.len() + 1;
    assert_eq!(server.clients::<Error>(there, |_| Ok(())).expect("it came"), there);
    client
}

/// Gives the clients the ids 0, 1, … in the order they came.
pub(crate) fn number(server: &Server) {
    let mut id = 0;
    let numbered = server.clients_with::<Error>(None, Order::Ascending, |peer| {
        id += 1;
        peer.set_id(id - 1)
    });
    numbered.expect("they are there");
}
