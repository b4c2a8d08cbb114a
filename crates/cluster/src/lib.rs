//! cluster
pub mod bootstrap;
