//! Counters and timers that anyone may bump, and a registry that shows them.
//!
//! ```text
//! counter     a number that only grows               one relaxed atomic add
//! histogram   how long things took, p50 and p99      two relaxed atomic adds
//! link        what one link sent and received        counters, one cache line per direction
//! registry    names them, renders Prometheus text    a lock, taken when a metric is made or shown
//! ```
//!
//! Bumping never waits, allocates or fails. Nothing is global: whoever owns a [`Registry`] hands out its metrics.
//!
//! ```
//! use syncline_metrics::Registry;
//!
//! let registry = Registry::new();
//! let pushes = registry.counter("syncline_pushes_total", "Pushes sent by this rank.", &[("table", "embeddings")])?;
//! pushes.increment();
//! assert!(registry.render().contains("syncline_pushes_total{table=\"embeddings\"} 1\n"));
//! # Ok::<(), syncline_metrics::RegistryError>(())
//! ```
#![forbid(unsafe_code)]

mod counter;
mod histogram;
mod link;
mod prometheus;
mod registry;

pub use counter::Counter;
pub use histogram::{Histogram, HistogramSnapshot, Timer};
pub use link::{LinkSnapshot, LinkStats};
pub use registry::{Registry, RegistryError};
