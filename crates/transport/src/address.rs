//! Where a door listens, in a form that fits into a message, a log line and an environment variable.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A place that can be dialed.
///
/// ```
/// use syncline_transport::Address;
///
/// let near: Address = "unix:@job-7-rank-0".parse()?;
/// let far: Address = "tcp://10.0.0.7:4100".parse()?;
/// assert_eq!(near, Address::Unix("job-7-rank-0".into()));
/// assert_eq!(far.to_string(), "tcp://10.0.0.7:4100");
/// # Ok::<(), syncline_transport::AddressError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An abstract Unix name: it lives in a network namespace rather than on disk, and ends with its listener.
    Unix(String),
    /// A TCP port at a numeric address. Names are resolved before they come here: looking one up can block.
    Tcp(SocketAddr),
}

/// The longest abstract name that fits into a socket address beside its leading zero byte.
pub const MAX_UNIX_NAME: usize = 107;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(name) => write!(f, "unix:@{name}"),
            Address::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if let Some(name) = text.strip_prefix("unix:@") {
            return if name.is_empty() || name.len() > MAX_UNIX_NAME || name.contains('\0') {
                Err(AddressError::UnixName { len: name.len() })
            } else {
                Ok(Address::Unix(name.to_owned()))
            };
        }
        if let Some(rest) = text.strip_prefix("tcp://") {
            return match rest.parse() {
                Ok(address) => Ok(Address::Tcp(address)),
                Err(_) => Err(AddressError::Tcp { text: rest.to_owned() }),
            };
        }
        Err(AddressError::Scheme { text: text.to_owned() })
    }
}

/// Why a text is no [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Neither of the known forms.
    #[error("{text:?} is no address; write unix:@name or tcp://host:port")]
    Scheme {
        /// What was given.
        text: String,
    },
    /// The part behind `tcp://` is not numeric.
    #[error("{text:?} is no numeric address with a port, such as 10.0.0.7:4100 or [fe80::1]:4100; resolve host names first")]
    Tcp {
        /// The part behind `tcp://`.
        text: String,
    },
    /// The name is empty, too long or holds a zero byte.
    #[error("an abstract Unix name has 1 to {MAX_UNIX_NAME} bytes and no zero byte, this one has {len}")]
    UnixName {
        /// Its length in bytes.
        len: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_survives_its_text() {
        for text in ["unix:@a", "unix:@job/7 é", "tcp://127.0.0.1:1", "tcp://[::1]:65535"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_says_what_would_be() {
        let long = format!("unix:@{}", "x".repeat(MAX_UNIX_NAME + 1));
        for text in ["", "10.0.0.1:5", "tcp://localhost:5", "tcp://10.0.0.1", "unix:/tmp/x", "unix:@", &long] {
            assert!(text.parse::<Address>().is_err(), "{text:?} was taken for an address");
        }
        let refused = "tcp://node7:4100".parse::<Address>().unwrap_err().to_string();
        assert!(refused.contains("resolve host names first"), "{refused}");
    }
}
