//! Whole adds over several shares, as plain values: no socket, no thread, no clock.
//!
//! ```text
//!  worker          primary share        other shares
//!    │ Add, hold ──────▶│                    │          1  everybody has the bytes, nobody counts them
//!    │ Add, hold ──────────────────────────▶│
//!    │ ◀───── Staged ───│◀─────── Staged ────│
//!    │ Commit ─────────▶│  ◀ moment of truth │          2  published at the primary: it counts
//!    │ ◀─────── Done ───│                    │
//!    │ Commit ─────────────────────────────▶│          3  and so everywhere
//! ```
//! The primary is the share in the worker's own memory if the add touches it, else the lowest-numbered one that it touches;
//! every held add carries its name and its number there. When a worker dies, the servers hold an *inquest*: each share reports
//! what of the worker it has published and what it holds, after it has read the worker's last word, and an add that the
//! primary has published is published everywhere, any other is discarded everywhere.
//!
//! Invariants: a share never publishes a held add before its primary; no share publishes one after another discarded it.

mod adding;
mod inquest;
mod ward;

pub(crate) use adding::{Adding, Step};
pub(crate) use inquest::{Inquest, Report};
pub(crate) use ward::{Answer, Ward};
