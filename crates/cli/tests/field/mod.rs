//! A field for tests that need real processes: hosts made of network namespaces, ranks that say what they see.
//!
//! The rank program is the test binary itself, started again for its test `as_a_rank` with the part it plays in its
//! environment; so nothing has to be built or found besides the test. Every line a rank says is kept with the moment
//! it came, so that a test can ask how long something took without sleeping.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod hosts;
pub(crate) mod program;
pub(crate) mod rank;
pub(crate) mod sums;
pub(crate) mod training;

use std::time::Duration;

/// Far longer than anything here takes; only a failing test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
