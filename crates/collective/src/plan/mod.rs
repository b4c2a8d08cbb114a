//! Plans: who tells whom what and when, as plain data.

/// A plan that may be forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanName {}

/// What the choice of a plan goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanSettings {
    /// The plan to use whatever the costs.
    pub forced: Option<PlanName>,
    /// Children of each node of a tree.
    pub base: u32,
}

impl Default for PlanSettings {
    fn default() -> Self {
        PlanSettings { forced: None, base: 2 }
    }
}
