//! Tables with parts elsewhere: what travels, what a worker does with it, and what a server does.
//!
//! ```text
//!  worker: Spread ── Parts ─┬─ Here: a share in this process's memory
//!                           └─ There: Line, Replies ═══ link ═══ Service, WaitingRoom ── the share, in a server's memory
//! ```
//! A worker's threads take turns with the parts and share the links; what waits for other workers waits outside of both ([`asking`],
//! [`waiting_room`]).
//!
//! [`protocol`] has the decisions, without a socket; [`messages`] the bytes. Key-value tables go the same way: their
//! parts are the servers' maps, and ids are keys.

mod adds;
mod answering;
mod asking;
mod baton;
mod client;
mod copies;
mod counting;
mod courier;
mod debts;
mod estate;
mod gate;
mod layout;
mod line;
pub(crate) mod messages;
mod moving;
mod outflow;
mod parts;
pub(crate) mod protocol;
mod reach;
mod refusal;
mod replies;
mod server;
#[cfg(test)]
mod tests;
mod waiting_room;
mod words;

pub(crate) use baton::{Baton, NoTurn};
pub(crate) use client::{Form, Manner, Spread};
pub(crate) use estate::Watch;
pub(crate) use gate::Gates;
pub(crate) use layout::{Layout, scattered};
pub(crate) use reach::{Fate, Places, Reach};
pub(crate) use server::Service;
pub(crate) use words::Code;
