//! Where a server listens, as its users write it.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};

use syncline_transport::{Address, MAX_UNIX_NAME};

use crate::Error;

/// A place to listen at or to connect to.
///
/// ```
/// use syncline_ipc::Place;
///
/// assert_eq!(Place::new("127.0.0.1", 4100)?.to_string(), "127.0.0.1:4100");
/// assert_eq!(Place::new("::1", 4100)?.to_string(), "[::1]:4100");
/// assert_eq!(Place::new("unix:/run/me/server", 0)?, Place::unix("/run/me/server"));
/// # Ok::<(), syncline_ipc::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A port of a host, by name or by IPv4 or IPv6 address.
    Tcp {
        /// The host.
        host: String,
        /// Its port; 0 lets the system choose one to listen at.
        port: u16,
    },
    /// A Unix socket of this machine (more exactly, of this network namespace). The name may look like a path, but no
    /// file is made: it ends with its listener, so nothing is left behind.
    Unix {
        /// The abstract name.
        name: String,
    },
}

impl Place {
    /// What `host` means: `unix:NAME` (or `unix:@NAME`) is a Unix socket, anything else a host with a port.
    pub fn new(host: &str, port: u16) -> Result<Place, Error> {
        let Some(name) = host.strip_prefix("unix:") else {
            return Ok(Place::tcp(host, port));
        };
        let name = name.strip_prefix('@').unwrap_or(name);
        if name.is_empty() || name.len() > MAX_UNIX_NAME || name.contains('\0') {
            let detail = format!("{host:?} names no Unix socket: 1 to {MAX_UNIX_NAME} bytes must follow unix: and none may be zero");
            return Err(Error::Configuration { operation: "ipc", detail });
        }
        Ok(Place::unix(name))
    }

    /// A port of a host.
    pub fn tcp(host: &str, port: u16) -> Place {
        // Brackets are how people write an IPv6 address where a port may follow.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Place::Tcp { host: host.to_owned(), port }
    }

    /// A Unix socket by name.
    pub fn unix(name: &str) -> Place {
        Place::Unix { name: name.to_owned() }
    }

    /// The addresses behind it; a name may have several.
    pub(crate) fn addresses(&self, operation: &'static str) -> Result<Vec<Address>, Error> {
        match self {
            Place::Unix { name } => Ok(vec![Address::Unix(name.clone())]),
            Place::Tcp { host, port } => {
                let unknown = |detail: String| Error::Configuration { operation, detail: format!("host {host:?} {detail}") };
                let found = (host.as_str(), *port).to_socket_addrs();
                let found: Vec<Address> = found.map_err(|error| unknown(format!("is not known: {error}")))?.map(Address::Tcp).collect();
                if found.is_empty() { Err(unknown("has no address".to_owned())) } else { Ok(found) }
            }
        }
    }
}

/// Whether traffic to an address cannot leave the machine.
pub(crate) fn stays_here(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Place {
        Place::Tcp { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix { name } => write!(f, "unix:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_names_are_told_apart() {
        assert_eq!(Place::new("[::1]", 7).unwrap(), Place::tcp("::1", 7));
        assert_eq!(Place::new("unix:@name", 7).unwrap(), Place::new("unix:name", 0).unwrap());
        for wrong in ["unix:", "unix:@", "unix:a\0b", &format!("unix:{}", "x".repeat(108))] {
            assert!(Place::new(wrong, 0).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_that_nobody_knows_is_repeated_in_the_error() {
        let error = Place::tcp("no-such-host.invalid", 7).addresses("client").unwrap_err().to_string();
        assert!(error.contains("no-such-host.invalid"), "{error}");
    }
}
