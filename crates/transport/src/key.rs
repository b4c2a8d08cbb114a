//! The one secret of a job, in the form the handshake needs.

use std::fmt;

/// The 32 bytes that every member of a job holds and nobody else; derived from the job's token.
///
/// It is never printed: its `Debug` says that there is a key and nothing more.
/// ```
/// use syncline_transport::JobKey;
///
/// let mine = JobKey::from_token("correct horse battery staple");
/// assert_eq!(mine, JobKey::from_token("correct horse battery staple"));
/// assert_ne!(mine, JobKey::from_token("correct horse battery stable"));
/// assert_eq!(format!("{mine:?}"), "JobKey(…)");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct JobKey([u8; 32]);

impl JobKey {
    /// The key of the job with this token. The same token gives the same key on every host.
    pub fn from_token(token: impl AsRef<[u8]>) -> JobKey {
        JobKey(blake3::derive_key("syncline 2026 job token to handshake key", token.as_ref()))
    }

    /// A key that was derived elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> JobKey {
        JobKey(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(…)")
    }
}
