//! Collective operations: what all ranks of a group call together, and all get the result of.
//!
//! [`Collectives`] belongs to a job and a group of its ranks. Arrays are raw bytes of a dtype; the facade and the bindings
//! give them types. Every default plan gives the bits of the left fold in group order, ((a0 ∘ a1) ∘ a2) ∘ …, whichever
//! way the numbers travel.
#![forbid(unsafe_code)]

mod aggregate;
mod call;
mod engine;
mod hosts;
mod leaves;
mod letters;
mod links;
mod memory;
pub mod plan;
#[cfg(test)]
mod rehearsal;
mod setback;
mod stats;

pub use aggregate::Aggregates;
pub use call::How;
pub use engine::{Collectives, Merge, Pending};
pub use leaves::{Leaf, OwnedLeaf};
pub use plan::{PlanName, PlanSettings};
pub use stats::LinkReport;
pub use syncline_cluster::Error;
