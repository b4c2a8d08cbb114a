//! What it is called when the other side's words make no sense.

/// A word that another process wrote is outside of what the protocol allows.
///
/// The memory was shared with a process that is broken or hostile; nothing of it can be trusted
/// any more, and nothing outside of it was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other side wrote {found:#x} as {word}, which must lie in {least:#x}..={most:#x}")]
pub struct Corrupt {
    /// Which word.
    pub word: &'static str,
    /// Its value.
    pub found: u64,
    /// The least value that would have been right.
    pub least: u64,
    /// The largest value that would have been right.
    pub most: u64,
}

impl Corrupt {
    /// Passes `found` on if it lies in `least..=most`.
    #[inline]
    pub(crate) fn check(word: &'static str, found: u64, least: u64, most: u64) -> Result<u64, Corrupt> {
        if found >= least && found <= most { Ok(found) } else { Err(Corrupt { word, found, least, most }) }
    }
}
