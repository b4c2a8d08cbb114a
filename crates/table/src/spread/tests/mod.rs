//! Whole tables in one process: real clients and servers over links in memory, and the protocol in a simulated network.
