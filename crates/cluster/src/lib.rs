//! Who takes part in a job, who is still alive, and how to reach them.
//!
//! [`bootstrap`] turns the environment into a [`bootstrap::Launch`]; [`Job::join`] meets the others and returns this
//! process's seat. Everything above (tables, trees, queues) asks the seat for links, barriers and fates.
#![forbid(unsafe_code)]

mod agree;
mod barrier;
mod blame;
pub mod bootstrap;
mod circle;
mod claimed;
mod control;
mod control_thread;
pub mod coordinator;
mod error;
mod fate;
mod group;
mod job;
mod join;
mod meet;
mod notices;
mod roster;
mod seat;
mod settings;
mod switchboard;
mod topology;
mod vigil;
mod watcher;

pub use agree::Agreement;
pub use bootstrap::Role;
pub use circle::{WaitGuard, waits};
pub use error::{Error, ErrorKind, Who};
pub use group::Group;
pub use job::Job;
pub use join::coordinate;
pub use notices::Notice;
pub use settings::{OnPeerLoss, Settings, TransportChoice};
pub use switchboard::Lane;
pub use syncline_transport::Deadline;
pub use syncline_wire::message::DownCause;
pub use topology::{Host, Topology};
pub use vigil::Vigil;
