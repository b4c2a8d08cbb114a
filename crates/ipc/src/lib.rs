//! What programs, processes and threads pass to each other: torch-ipc's primitives.
//!
//! [`Family`] is for processes of one host that share objects: [`Channel`], [`Workqueue`] and their relatives; the README of
//! this crate has the calls on one page. [`Server`] and [`Client`] are for programs that know nothing of each other but an
//! address:
//!
//! ```text
//!   Server ── porter thread: door, token ──▶ lobby ── clients(n, …) ──▶ the clients it knows, by id and tag
//!     │ broadcast, recv_any: one loop over all of them                     ▲
//!     └ Peer: send, recv, tag, id ◀── ordered messages ──▶ Client ─────────┘
//! ```
//! A message is a [`Value`]: nil, numbers, text, lists, maps, tensors of any size. It arrives whole, in order, or
//! as an error that says whom it was to come from; a tensor can be received into memory that is already there.
//! ```
//! use syncline_ipc::{Client, Options, Place, Server, Value};
//!
//! let options = Options::with_token("a secret of these two");
//! let server = Server::open(&Place::tcp("127.0.0.1", 0), &options)?;
//! let client = Client::connect(&server.place(), &options)?;
//! client.send(&Value::from("ping"))?;
//! let served = server.clients(1, |peer| {
//!     assert_eq!(peer.recv()?, Value::from("ping"));
//!     peer.send(&Value::from("pong"))
//! })?;
//! assert_eq!((served, client.recv()?), (1, Value::from("pong")));
//! # Ok::<(), syncline_ipc::Error>(())
//! ```
//! Nobody gets in without the token (see [`Options`]), and nothing that arrives is ever executed.
#![forbid(unsafe_code)]

mod background;
mod channel;
mod client;
mod connection;
mod deposit;
mod error;
mod family;
mod flock;
mod handle;
mod hello;
mod item;
mod map;
mod marshal;
mod mutex;
mod options;
mod passing;
mod place;
mod select;
mod server;
mod shared_table;
mod spawn;
mod thread;
mod workqueue;

pub use background::{BackgroundTask, BackgroundTaskPool, TaskError};
pub use channel::{Channel, ChannelOptions, Read, Status};
pub use client::Client;
pub use connection::{NetStats, Traffic};
pub use error::{Error, Whom};
pub use family::{Family, FamilyStats, Member};
pub use flock::{Flock, FlockError};
pub use item::{Item, Taken};
pub use map::{Failure, Map, MapError, Outcome, WorkerStats, map, map_extended};
pub use marshal::Marshal;
pub use mutex::{Mutex, MutexGuard};
pub use options::Options;
pub use place::Place;
pub use select::{Selected, select};
pub use server::{Order, Peer, Server};
pub use shared_table::SharedTable;
pub use spawn::{Child, Exit, Signal, Spawn, SpawnError};
pub use syncline_cluster::{Deadline, ErrorKind};
pub use syncline_tensor::{DType, Shape, TensorView, TensorViewMut};
pub use syncline_wire::{Data, Handle, HandleKind, SharedBytes, TensorValue, Value, WireError};
pub use workqueue::{Side, Workqueue};
