//! Where the members of a job find its coordinator, and how `SYNCLINE_RENDEZVOUS` spells it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::BootstrapError;

/// The longest abstract socket name: `sockaddr_un` has 108 bytes and the first is the zero that marks it.
const LONGEST_UNIX_NAME: usize = 107;

/// The place where a job's members find its coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Meeting {
    /// A world of one meets nobody.
    Alone,
    /// An abstract Unix socket: one host (one network namespace), nothing on disk.
    Unix {
        /// The name without its leading zero byte.
        name: String,
    },
    /// A TCP port. The coordinator binds the first free one of `port` and `spare_ports`, the others try them all.
    Tcp {
        /// A host name or an address.
        host: String,
        /// The port to try first.
        port: u16,
        /// Where else the coordinator may be, because a launcher's own port is already taken by its store.
        spare_ports: Vec<u16>,
    },
    /// A file on storage that all hosts share; see [`super::file`].
    File {
        /// Where rank 0 writes it.
        path: PathBuf,
    },
    /// An exchange through the launcher's PMI-1 server; see [`super::pmi`].
    Pmi {
        /// The number of the inherited descriptor.
        fd: i32,
    },
}

impl FromStr for Meeting {
    type Err = BootstrapError;

    /// Reads `unix:@name`, `tcp://host:port`, `host:port`, `[v6]:port` or `file:/path`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |problem: &'static str| BootstrapError::Rendezvous { value: text.to_owned(), problem };
        let trimmed = text.trim();
        if let Some(rest) = trimmed.strip_prefix("unix:") {
            let name = rest.strip_prefix('@').ok_or(wrong("only abstract names are used, so that nothing stays on disk"))?;
            if name.is_empty() || name.len() > LONGEST_UNIX_NAME || name.contains('\0') {
                return Err(wrong("an abstract name has 1 to 107 bytes and no zero byte"));
            }
            return Ok(Meeting::Unix { name: name.to_owned() });
        }
        if let Some(rest) = trimmed.strip_prefix("file:") {
            // `file:///path` is how browsers write it; an authority part (`file://host/path`) means nothing here.
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if !path.starts_with('/') {
                return Err(wrong("the path must be absolute: ranks may start in different folders"));
            }
            return Ok(Meeting::File { path: PathBuf::from(path) });
        }
        let endpoint = trimmed.strip_prefix("tcp://").unwrap_or(trimmed);
        let (host, port) = split_endpoint(endpoint).map_err(wrong)?;
        Ok(Meeting::Tcp { host, port, spare_ports: Vec::new() })
    }
}

/// Splits `host:port` or `[v6]:port`.
pub(super) fn split_endpoint(endpoint: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = endpoint.rsplit_once(':').ok_or("it has no port")?;
    let host = match host.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']').ok_or("the bracket of the IPv6 address is not closed")?;
            inner.parse::<std::net::Ipv6Addr>().map_err(|_| "the brackets hold no IPv6 address")?;
            inner
        }
        None if host.contains(':') => {
            return Err("an IPv6 address needs brackets, as in [fd00::1]:5000");
        }
        None => host,
    };
    if host.is_empty() || host.contains(['/', '@', ' ', '\t']) {
        return Err("it has no usable host name");
    }
    match port.parse::<u16>() {
        Ok(0) => Err("port 0 cannot be found by the others"),
        Ok(port) => Ok((host.to_owned(), port)),
        Err(_) => Err("the port is not a number from 1 to 65535"),
    }
}

impl fmt::Display for Meeting {
    /// The spelling that `SYNCLINE_RENDEZVOUS` accepts, where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Meeting::Alone => f.write_str("alone"),
            Meeting::Unix { name } => write!(f, "unix:@{name}"),
            Meeting::Tcp { host, port, .. } if host.contains(':') => {
                write!(f, "tcp://[{host}]:{port}")
            }
            Meeting::Tcp { host, port, .. } => write!(f, "tcp://{host}:{port}"),
            Meeting::File { path } => write!(f, "file:{}", path.display()),
            Meeting::Pmi { fd } => write!(f, "pmi:{fd}"),
        }
    }
}
