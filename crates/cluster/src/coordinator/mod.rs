//! Collects the members of a job and passes on who is gone. `README.md` in this folder draws the states.

mod agreements;
mod events;
mod pulse;
mod serve;
mod state;

pub use events::{Action, ConnectionId, Event, Spec};
pub use pulse::{heartbeat_interval, silent_after};
pub(crate) use serve::hex;
pub use serve::{Coordinator, Listen};
pub use state::State;
