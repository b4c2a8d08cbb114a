//! What a server or a client is told beside its address: whom to trust, whether to encrypt, how long to wait.

use std::time::Duration;

use syncline_cluster::bootstrap::{Environment, Token};
use syncline_transport::JobKey;

use crate::Error;

/// The settings of one server or client. Both sides need the same token; the rest is each side's own.
#[derive(Debug, Clone)]
pub struct Options {
    /// The secret of both sides. `None` takes `SYNCLINE_TOKEN`, and without that a token that all programs of this user
    /// on this host derive from the user's key file, so that they need to be told nothing.
    pub token: Option<Token>,
    /// Whether TCP traffic is encrypted; one side's wish is enough. `None`: yes, except over loopback. Unix sockets never
    /// leave the machine and are not encrypted.
    pub encrypt: Option<bool>,
    /// How long a call waits for the other side unless it is given a deadline of its own.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { token: None, encrypt: None, timeout: Duration::from_secs(300) }
    }
}

impl Options {
    /// The default settings with this token; one of white space only counts as none.
    pub fn with_token(token: &str) -> Options {
        Options { token: Token::from_text(token), ..Options::default() }
    }

    /// The same with another patience.
    pub fn timeout(mut self, timeout: Duration) -> Options {
        self.timeout = timeout;
        self
    }

    /// The key of the handshake. The prefix keeps clients away from the doors of a job with the same token.
    pub(crate) fn key(&self, operation: &'static str) -> Result<JobKey, Error> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => Token::of_user(&Environment::current(), "ipc").map_err(|error| Error::Auth { operation, detail: error.to_string() })?,
        };
        Ok(JobKey::from_token(format!("ipc {}", token.reveal())))
    }
}
