//! The job's token: the secret that lets a process in.
//!
//! ```text
//! SYNCLINE_TOKEN ──────────────────────────────────────────► the token
//! the user's key file ─┐
//! launcher and job id ─┴─ keyed hash ──────────────────────► the token, the same on every rank of this user and job
//! (or a purpose, where there is no job)
//! rank 0's random bytes ── PMI or rendezvous file (0600) ──► the token, on hosts that share neither
//! ```

use std::fmt;
use std::path::PathBuf;

use super::{Environment, Launcher, TokenError, user_key};

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

    /// The token of programs that belong to no job: `SYNCLINE_TOKEN`, else one that all programs of this user on this host
    /// (or on hosts that share the home folder) work out for `purpose`.
    pub fn of_user(environment: &Environment, purpose: &str) -> Result<Token, TokenError> {
        if let Some(token) = environment.get("SYNCLINE_TOKEN").and_then(Token::from_text) {
            return Ok(token);
        }
        let key = user_key::read_or_create(&super::derive::key_file(environment).ok_or(TokenError::NoHome)?)?;
        Ok(Token::derived(&key, &["no launcher", purpose]))
    }

    fn derived(key: &[u8; 32], named: &[&str]) -> Token {
        Token(blake3::keyed_hash(key, super::derive::fingerprint(named).as_bytes()).to_hex().to_string())
    }

    /// The text to hand to a child process, in `SYNCLINE_TOKEN` and nowhere else.
    pub fn reveal(&self) -> &str {
        &self.0
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
            TokenOrigin::Derived { key_file, launcher, job } => {
                let key = user_key::read_or_create(key_file.as_deref().ok_or(TokenError::NoHome)?)?;
                Ok(Some(Token::derived(&key, &[launcher.name(), job])))
            }
            TokenOrigin::Exchanged | TokenOrigin::None => Ok(None),
        }
    }
}

impl fmt::Display for TokenOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenOrigin::Given(_) => f.write_str("given"),
            TokenOrigin::Derived { key_file: Some(path), .. } => write!(f, "derived from {}", path.display()),
            TokenOrigin::Derived { key_file: None, .. } => f.write_str("derived, but there is no home folder"),
            TokenOrigin::Exchanged => f.write_str("made by rank 0 and passed through the meeting"),
            TokenOrigin::None => f.write_str("none needed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(folder: &std::path::Path, launcher: Launcher, job: &str) -> Token {
        let origin = TokenOrigin::Derived { key_file: Some(folder.join("syncline/key")), launcher, job: job.into() };
        origin.resolve().unwrap().unwrap()
    }

    #[test]
    fn a_token_shows_itself_only_when_asked() {
        let token = Token::from_text(" hunter2\n").unwrap();
        assert_eq!(format!("{token:?} {:?}", TokenOrigin::Given(token.clone())), "Token(redacted) Given(Token(redacted))");
        assert_eq!(token.reveal(), "hunter2");
        assert_eq!(Token::from_text(" \n"), None);
    }

    #[test]
    fn random_tokens_differ_and_carry_32_bytes() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.reveal().len(), 64);
    }

    #[test]
    fn a_derived_token_depends_on_user_key_launcher_and_job() {
        let (home, other_home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let token = derived(home.path(), Launcher::OpenMpi, "7");
        assert_eq!(token, derived(home.path(), Launcher::OpenMpi, "7"));
        assert_ne!(token, derived(home.path(), Launcher::OpenMpi, "8"));
        assert_ne!(token, derived(home.path(), Launcher::Hydra, "7"));
        assert_ne!(token, derived(other_home.path(), Launcher::OpenMpi, "7"));
    }

    #[test]
    fn programs_of_one_user_agree_on_a_token_without_a_job() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().to_str().unwrap();
        let of = |purpose| Token::of_user(&Environment::from_variables([("HOME", home)]), purpose).unwrap();
        assert_eq!(of("ipc"), of("ipc"));
        assert_ne!(of("ipc"), of("other"));
        let given = Environment::from_variables([("HOME", home), ("SYNCLINE_TOKEN", " given ")]);
        assert_eq!(Token::of_user(&given, "ipc").unwrap().reveal(), "given");
        let homeless = Environment::from_variables([("SYNCLINE_TOKEN", "")]);
        assert!(Token::of_user(&homeless, "ipc").unwrap_err().to_string().contains("set SYNCLINE_TOKEN"));
    }

    #[test]
    fn without_a_home_the_error_says_what_to_set() {
        let origin = TokenOrigin::Derived { key_file: None, launcher: Launcher::OpenMpi, job: "7".into() };
        assert!(origin.resolve().unwrap_err().to_string().contains("set SYNCLINE_TOKEN"));
    }
}
