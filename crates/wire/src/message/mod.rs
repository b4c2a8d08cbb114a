//! What the members of a job and its coordinator tell each other: plain data, checked at the door.
//!
//! ```text
//!  member                              coordinator
//!    │ Hello{Control} ─────────────────▶ │   who connects, and what for
//!    │ Join ───────────────────────────▶ │   waits for the whole world …
//!    │ ◀─────────── Welcome{roster} ──── │   … or Refused / StartTimeout
//!    │ ◀─ Heartbeat ─▶  ◀─── Down{…} ─── │   as long as the job lives
//!    │ Leaving ────────────────────────▶ │
//!    │ ◀──── Left{…} ──── AllLeft ────── │
//! ```
//! A message is as large as its sender likes only within caps: `check` of each type is asked on both sides, so
//! a member with a nonsensical message hears of it itself instead of being thrown out by its peer.

mod control;
mod hello;
mod member;

pub use control::{Blame, Call, Control, DownCause, MAX_NOTICE, MAX_PROPOSAL, MAX_TEXT, clip_text};
pub use hello::{Hello, Purpose};
pub use member::{HostId, MAX_ADDRESSES, MAX_NAME, MAX_ROSTER, MemberInfo, RoleCode};

use crate::error::{Result, WireError};

/// Refuses a string or list that is longer than its field may be.
fn cap(part: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max {
        return Err(WireError::TooLarge { part, len: len as u64, max: max as u64 });
    }
    Ok(())
}
