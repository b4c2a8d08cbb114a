//! The job's token: the secret that lets a process in.

use std::fmt;
use std::path::PathBuf;

use super::{Launcher, TokenError};

/// A job's secret. It never shows itself in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Where a job's token comes from. Nothing is read before [`TokenOrigin::resolve`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenOrigin {
    /// `SYNCLINE_TOKEN` or an argument.
    Given(Token),
    /// From a key that only this user can read, and the job's id: one host, or hosts that share the home folder.
    Derived {
        /// The user's key file; `None` when there is no home to keep it in.
        key_file: Option<PathBuf>,
        /// Who started the job.
        launcher: Launcher,
        /// What its ranks share.
        job: String,
    },
    /// Rank 0 makes a random one and passes it through the meeting (PMI, or the rendezvous file of mode 0600).
    Exchanged,
    /// A world of one lets nobody in.
    None,
}

impl Token {
    /// The token that a text means; `None` when nothing but white space is in it.
    pub fn from_text(text: &str) -> Option<Token> {
        let text = text.trim();
        (!text.is_empty()).then(|| Token(text.to_owned()))
    }

    /// A fresh token: 32 random bytes in hex.
    pub fn random() -> Result<Token, TokenError> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| TokenError::NoRandomness(error.to_string()))?;
        Ok(Token(blake3::Hash::from_bytes(bytes).to_hex().to_string()))
    }

    /// The text to hand to a child process, in `SYNCLINE_TOKEN` and nowhere else.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// The 32-byte key that connections prove.
    pub fn key(&self) -> [u8; 32] {
        blake3::derive_key("syncline 2024 job token v1", self.0.as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

impl TokenOrigin {
    /// The token, made or read if need be.
    ///
    /// `Ok(None)` means that there is none yet: alone, or rank 0 brings it to the meeting.
    pub fn resolve(&self) -> Result<Option<Token>, TokenError> {
        match self {
            TokenOrigin::Given(token) => Ok(Some(token.clone())),
            TokenOrigin::Derived { .. } => Err(TokenError::NoHome { home: None }),
            TokenOrigin::Exchanged | TokenOrigin::None => Ok(None),
        }
    }
}

impl fmt::Display for TokenOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenOrigin::Given(_) => f.write_str("given"),
            TokenOrigin::Derived {
                key_file: Some(path),
                ..
            } => write!(f, "derived from {}", path.display()),
            TokenOrigin::Derived { key_file: None, .. } => {
                f.write_str("derived, but there is no home folder")
            }
            TokenOrigin::Exchanged => f.write_str("made by rank 0 and passed through the meeting"),
            TokenOrigin::None => f.write_str("none needed"),
        }
    }
}
