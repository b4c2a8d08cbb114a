//! Whole tables in one process: real clients and servers over links in memory, and the protocol in a simulated network.
#![expect(clippy::single_range_in_vec_init, reason = "a table in one share has one range")]

mod called_off;
mod counting;
mod courier;
mod given_up;
mod keys;
mod naive;
mod operations;
mod patience;
mod refusals;
mod simulated;
mod threads;
mod throughput;
mod turns;
mod waiting;
mod world;
