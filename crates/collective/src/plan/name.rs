//! What plans are called when somebody wants a certain one.

use std::fmt;

/// A plan that may be forced, by `plan=` or `SYNCLINE_PLAN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanName {
    /// Up a tree and down again, see [`tree`](super::tree); without a base that of the [`PlanSettings`].
    Tree {
        /// 2 is the binomial tree.
        base: Option<u32>,
    },
    /// Around a ring, see [`ring`](super::ring).
    Ring,
    /// Recursive halving and doubling, see [`halving`](super::halving).
    Halving,
    /// Up a chain and down again in pieces, see [`chain`](super::chain).
    Chain,
    /// Everybody gets all contributions and folds them, see [`doubling`](super::doubling).
    Doubling,
    /// Through memory that all share, see [`memory`](super::memory).
    Memory,
    /// Inside each host first, then between them, see [`hosts`](super::hosts); the chain for what this would put out of order.
    Hosts,
}

/// A name that no plan has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no plan is called `{0}`; there are tree, tree:BASE (2 or more), ring, halving, chain, doubling, memory and hosts")]
pub struct PlanNameError(String);

impl PlanName {
    /// Reads a name as people write it.
    /// ```
    /// use syncline_collective::PlanName;
    ///
    /// assert_eq!(PlanName::parse("tree:4"), Ok(PlanName::Tree { base: Some(4) }));
    /// assert!(PlanName::parse("star").unwrap_err().to_string().contains("ring, halving"));
    /// ```
    pub fn parse(text: &str) -> Result<PlanName, PlanNameError> {
        let unknown = || PlanNameError(text.trim().to_owned());
        Ok(match text.trim().to_ascii_lowercase().as_str() {
            "tree" => PlanName::Tree { base: None },
            "ring" => PlanName::Ring,
            "halving" => PlanName::Halving,
            "chain" => PlanName::Chain,
            "doubling" => PlanName::Doubling,
            "memory" => PlanName::Memory,
            "hosts" => PlanName::Hosts,
            other => {
                let base = other.strip_prefix("tree:").and_then(|base| base.parse().ok()).filter(|base| *base >= 2);
                PlanName::Tree { base: Some(base.ok_or_else(unknown)?) }
            }
        })
    }
}

impl fmt::Display for PlanName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PlanName::Tree { base: None } => "tree",
            PlanName::Tree { base: Some(base) } => return write!(f, "tree:{base}"),
            PlanName::Ring => "ring",
            PlanName::Halving => "halving",
            PlanName::Chain => "chain",
            PlanName::Doubling => "doubling",
            PlanName::Memory => "memory",
            PlanName::Hosts => "hosts",
        })
    }
}

/// What the choice of a plan goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanSettings {
    /// The plan to use whatever the costs.
    pub forced: Option<PlanName>,
    /// The base of trees, at least 2.
    pub base: u32,
}

impl Default for PlanSettings {
    fn default() -> Self {
        PlanSettings { forced: None, base: 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_as_it_is_written() {
        for text in ["tree", "tree:2", "tree:4", "ring", "halving", "chain", "doubling", "memory", "hosts"] {
            assert_eq!(PlanName::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(PlanName::parse(" Ring "), Ok(PlanName::Ring));
        for text in ["", "tree:", "tree:1", "tree:x", "trees", "tree:-2"] {
            let error = PlanName::parse(text).expect_err(text).to_string();
            assert!(error.contains("`") && error.contains("doubling, memory and hosts"), "{error}");
        }
    }
}
