//! Programs, processes and threads that pass things to each other: servers and clients, and what a family of processes shares.

mod ends;

pub mod server;

pub mod client;

pub mod family;

pub mod channel;
pub mod item;
pub mod workqueue;

pub mod mutex;
pub mod sharedtable;

pub mod background;
pub mod map;

pub mod flock;
pub mod spawn;
