//! Collectives among ranks that share memory.
