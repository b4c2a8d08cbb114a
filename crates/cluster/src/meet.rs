//! Where the coordinator listens and how members find it, for each kind of meeting point.
//!
//! | meeting | rank 0 | the others |
//! |---|---|---|
//! | abstract Unix name | listens there | dial it until it is up |
//! | `tcp://host:port` | binds the port (or a spare one) on all interfaces; loopback if `host` is | resolve `host` again at each try, dial all its addresses |
//! | file | binds any port, writes its addresses and the token into the file | wait for the file |
//! | PMI | binds any port, puts addresses and token into the job's key space | get them after a fence |
//!
//! A host name is only trusted to find rank 0, never to tell where this process can be reached: that is what the
//! addresses of the interfaces are for.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use syncline_shm::wait::Deadline;
use syncline_transport::{Address, Connection, DialConfig, DialError, JobKey, dial_any};
use syncline_wire::message::{Hello, Purpose};

use crate::bootstrap::{Launch, Meeting, Token};
use crate::coordinator::{Coordinator, Listen, Spec};
use crate::settings::Settings;
use crate::{Error, Who};

/// The job's token as the launch names it.
pub(crate) fn token(launch: &Launch) -> Result<Token, Error> {
    match launch.token.resolve() {
        Ok(Some(token)) => Ok(token),
        Ok(None) => Err(Error::Configuration { detail: "this job has no token\nhint: set the same SYNCLINE_TOKEN for all of its processes".into() }),
        Err(error) => Err(Error::Configuration { detail: error.to_string() }),
    }
}

/// Opens the coordinator where the others will look for it.
pub(crate) fn host(launch: &Launch, spec: Spec, key: &JobKey, settings: &Settings) -> Result<Coordinator, Error> {
    let listen = |unix: Option<String>, tcp: Vec<SocketAddr>| Listen { unix, tcp, encrypt: settings.encrypt };
    match &launch.meeting {
        Meeting::Unix { name } => Coordinator::host(spec, key.clone(), listen(Some(name.clone()), Vec::new())),
        Meeting::Tcp { host, port, spare_ports } => {
            let ip = binding(host);
            let ports = std::iter::once(*port).chain(spare_ports.iter().copied());
            let mut last = None;
            for port in ports {
                match Coordinator::host(spec.clone(), key.clone(), listen(None, vec![SocketAddr::new(ip, port)])) {
                    Ok(coordinator) => return Ok(coordinator),
                    Err(error) => last = Some(error),
                }
            }
            Err(last.unwrap_or_else(|| Error::system("start", "no port to listen on")))
        }
        other => Err(Error::Configuration { detail: format!("rank 0 cannot listen at {other}") }),
    }
}

/// Loopback stays loopback; any other name means "where the others can see me", which is every interface.
fn binding(host: &str) -> IpAddr {
    let loopback = |ip: &IpAddr| ip.is_loopback();
    match host.parse::<IpAddr>() {
        Ok(ip) if loopback(&ip) => ip,
        Err(_) if host.eq_ignore_ascii_case("localhost") => IpAddr::from([127, 0, 0, 1]),
        _ => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    }
}

/// Dials the coordinator until it answers or the deadline passes: it may still be starting, or be named but not yet known.
pub(crate) fn dial(
    launch: &Launch,
    own: Option<&Coordinator>,
    key: &JobKey,
    settings: &Settings,
    instance: [u8; 16],
    started: Instant,
    deadline: Deadline,
) -> Result<Connection, Error> {
    const FIRST_PAUSE: Duration = Duration::from_millis(1);
    const LONGEST_PAUSE: Duration = Duration::from_millis(100);
    let hello = Hello { purpose: Purpose::Control, rank: launch.rank, epoch: launch.epoch, instance };
    let hello = hello.encode().map_err(|error| Error::system("start", error))?;
    let config = DialConfig { key: key.clone(), expect_identity: None, encrypt: settings.encrypt };
    let mut pause = FIRST_PAUSE;
    loop {
        let trouble = match addresses(launch, own) {
            Ok(addresses) => match dial_any(&addresses, &config, &hello, None, deadline.within(Duration::from_secs(5))) {
                Ok(connection) => return Ok(connection),
                Err(error) if error.is_about_the_token() => return Err(refused(launch, &error)),
                Err(error) => error.to_string(),
            },
            Err(trouble) => trouble,
        };
        if deadline.interrupted() {
            return Err(Error::Interrupted { operation: "start".into(), waited: started.elapsed() });
        }
        if deadline.expired() {
            return Err(nobody_there(launch, &trouble, started));
        }
        thread::sleep(deadline.slice(pause)); // Nobody can wake us: the listener does not exist yet.
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn addresses(launch: &Launch, own: Option<&Coordinator>) -> Result<Vec<Address>, String> {
    if let Some(coordinator) = own {
        return Ok(vec![coordinator.unix_address()]);
    }
    match &launch.meeting {
        Meeting::Unix { name } => Ok(vec![Address::Unix(name.clone())]),
        Meeting::Tcp { host, port, spare_ports } => {
            let mut found = Vec::new();
            for port in std::iter::once(port).chain(spare_ports) {
                let resolved = (host.as_str(), *port).to_socket_addrs().map_err(|error| format!("{host} does not resolve: {error}"))?;
                found.extend(resolved.map(Address::Tcp));
            }
            Ok(found)
        }
        other => Err(format!("nobody can be dialed at {other}")),
    }
}

fn refused(launch: &Launch, error: &DialError) -> Error {
    Error::Auth { operation: "start".into(), detail: format!("the coordinator at {} and this process do not hold the same token: {error}", launch.meeting) }
}

fn nobody_there(launch: &Launch, trouble: &str, started: Instant) -> Error {
    let myself = Who { rank: launch.rank.unwrap_or(0), host: rustix::system::uname().nodename().to_string_lossy().into_owned(), pid: std::process::id() };
    Error::Missing {
        world: launch.world,
        arrived: vec![myself],
        missing: vec![Who { rank: 0, host: String::new(), pid: 0 }],
        expected: format!("hint: rank 0 hosts the coordinator, and nobody answers at {} ({trouble})\n  rank 0: {}", launch.meeting, launch.how_rank_starts(0)),
        waited: started.elapsed(),
    }
}
