//! Whole tables in one process: real clients and servers over links in memory, and the protocol in a simulated network.

mod keys;
mod naive;
mod operations;
mod simulated;
mod world;
