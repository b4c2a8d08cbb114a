//! Collects the members of a job and passes on who is gone. `README.md` in this folder draws the states.

mod agreements;
mod serve;
mod state;

pub(crate) use serve::hex;
pub use serve::{Coordinator, Listen};
pub use state::{Action, ConnectionId, Event, Spec, State, heartbeat_interval, silent_after};
