//! Programs that talk to each other without being ranks of a job: [`Server`] and [`Client`].
//!
//! ```
//! use syncline::ipc::{Client, Options, Place, Server, Value};
//!
//! let options = Options::with_token("a secret of these two");
//! let server = Server::open(&Place::unix("/docs/syncline-ipc"), &options)?;
//! let client = Client::connect(&server.place(), &options)?;
//! client.send(&Value::from(vec![Value::from("loss"), Value::from(0.25)]))?;
//! let (message, peer) = { server.clients(1, |_| Ok::<(), syncline::ipc::Error>(()))?; server.recv_any(None)? };
//! assert_eq!(message, Value::from(vec![Value::from("loss"), Value::from(0.25)]));
//! peer.send(&Value::from("thanks"))?;
//! assert_eq!(client.recv()?, Value::from("thanks"));
//! # Ok::<(), syncline::ipc::Error>(())
//! ```

pub use syncline_ipc::*;
