//! Where the coordinator listens and how members find it, for each kind of meeting point.
//!
//! | meeting | rank 0 | the others |
//! |---|---|---|
//! | abstract Unix name | listens there | dial it until it is up |
//! | `tcp://host:port` | binds the port (or a spare one) on all interfaces; loopback if `host` is | resolve `host` again at each try, dial all its addresses |
//! | file | binds any port, writes its addresses, its Unix name and the token into the file | wait for the file |
//! | PMI | binds any port, puts the same into the job's key space | get them after a fence |
//!
//! An invitation by file or PMI is taken by its Unix name on rank 0's own host, so that such a job needs no network there.
//!
//! A host name is only trusted to find rank 0, never to tell where this process can be reached: that is what the
//! addresses of the interfaces are for.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use syncline_transport::{Address, Connection, Deadline, DialConfig, DialError, JobKey, dial_any};
use syncline_wire::message::{Hello, Purpose};

use crate::bootstrap::file::{self, FileMeetingError};
use crate::bootstrap::pmi::{Pmi, PmiError};
use crate::bootstrap::{HostSpan, Invitation, Launch, LocalDoor, Meeting, Token, TokenOrigin, address};
use crate::coordinator::{Coordinator, Listen, Spec};
use crate::settings::Settings;
use crate::{Error, Who};

/// What a process holds once it knows how to reach the coordinator.
pub(crate) struct Met {
    /// Proves this process to the others and them to it.
    pub(crate) key: JobKey,
    /// Runs here, if this process hosts it.
    pub(crate) coordinator: Option<Coordinator>,
    /// Where else it is; empty when the launch itself says so.
    invited_to: Vec<Address>,
    /// What another process wrote into the rendezvous file.
    invitation: Option<Invitation>,
}

impl Met {
    /// Takes what the rendezvous file says now: the one that was read may be left over from nodes that were killed before they had
    /// all come, under a name that is used again.
    fn look_again(&mut self, launch: &Launch) {
        let Meeting::File { path } = &launch.meeting else { return };
        let Some(invitation) = file::read(path, &launch.job, launch.epoch).filter(|_| self.coordinator.is_none()) else { return };
        if let (Ok(doors), Some(token)) = (doors(&invitation, launch), &invitation.token) {
            self.invited_to = doors;
            if launch.token == TokenOrigin::Exchanged {
                self.key = JobKey::from_token(token.reveal());
            }
            self.invitation = Some(invitation);
        }
    }

    /// Removes the file that led here, if it is still the same: whoever wrote it may have been killed.
    pub(crate) fn remove_leftover(&self, launch: &Launch) {
        if let (Meeting::File { path }, Some(invitation)) = (&launch.meeting, &self.invitation) {
            file::remove_leftover(path, invitation);
        }
    }
}

/// Opens the coordinator if it is hosted here, and learns where it is if the launch does not say.
pub(crate) fn meet(launch: &Launch, settings: &Settings, deadline: Deadline) -> Result<Met, Error> {
    let known = launch.token.resolve().map_err(|error| Error::Configuration { detail: error.to_string() })?;
    if launch.hosts_coordinator() { invite(launch, settings, known, deadline) } else { accept_invitation(launch, known, deadline) }
}

fn invite(launch: &Launch, settings: &Settings, known: Option<Token>, deadline: Deadline) -> Result<Met, Error> {
    let token = match known {
        Some(token) => token,
        None => Token::random().map_err(|error| Error::system("start: a token for the job", error))?,
    };
    let key = JobKey::from_token(token.reveal());
    let coordinator = host(launch, spec(launch, settings)?, &key, settings)?;
    if let Meeting::File { .. } | Meeting::Pmi { .. } = launch.meeting {
        let invitation = Invitation {
            job: launch.job.clone(),
            epoch: launch.epoch,
            addresses: offers(coordinator.tcp_addresses(), settings),
            local: match coordinator.unix_address() {
                Address::Unix(name) => Some(LocalDoor { host: address::host_identity(), name }),
                _ => None,
            },
            token: Some(token),
        };
        match &launch.meeting {
            Meeting::File { path } => coordinator.invited_by(file::publish(path, &invitation).map_err(|error| file_error(launch, error))?),
            Meeting::Pmi { fd } => {
                drop(Pmi::open(*fd, deadline).and_then(|pmi| pmi.exchange(Some(&invitation), deadline)).map_err(pmi_error)?)
            }
            _ => {}
        }
    }
    Ok(Met { key, coordinator: Some(coordinator), invited_to: Vec::new(), invitation: None })
}

fn accept_invitation(launch: &Launch, known: Option<Token>, deadline: Deadline) -> Result<Met, Error> {
    let invitation = match &launch.meeting {
        Meeting::File { path } => Some(file::wait(path, &launch.job, launch.epoch, deadline).map_err(|error| file_error(launch, error))?),
        Meeting::Pmi { fd } => Some(Pmi::open(*fd, deadline).and_then(|pmi| pmi.exchange(None, deadline)).map_err(pmi_error)?),
        _ => None,
    };
    let (invited_to, passed) = match &invitation {
        Some(invitation) => (doors(invitation, launch)?, invitation.token.clone()),
        None => (Vec::new(), None),
    };
    let Some(token) = known.or(passed) else {
        return Err(Error::Configuration {
            detail: "this job has no token\nhint: set the same SYNCLINE_TOKEN for all of its processes".into(),
        });
    };
    Ok(Met { key: JobKey::from_token(token.reveal()), coordinator: None, invited_to, invitation })
}

/// Where to go with an invitation: by name on the coordinator's own host, by address from elsewhere.
fn doors(invitation: &Invitation, launch: &Launch) -> Result<Vec<Address>, Error> {
    if let Some(local) = invitation.local.as_ref().filter(|local| local.host == address::host_identity()) {
        return Ok(vec![Address::Unix(local.name.clone())]);
    }
    if invitation.addresses.is_empty() {
        let why = match launch.hosts {
            HostSpan::One => "this job was started as one of one host, yet rank 0 runs in another network namespace or on another machine",
            _ => {
                "rank 0 runs on another host and offers no address: no interface but loopback is up there, or SYNCLINE_INTERFACE names none"
            }
        };
        return Err(Error::Configuration { detail: format!("start: {why} ({})", launch.meeting) });
    }
    Ok(invitation.addresses.iter().copied().map(Address::Tcp).collect())
}

/// The addresses at which other hosts may reach what listens here.
pub(crate) fn offers(listeners: &[SocketAddr], settings: &Settings) -> Vec<SocketAddr> {
    let mut offers = address::offer(listeners.to_vec(), settings.interface.as_deref());
    offers.truncate(syncline_wire::message::MAX_ADDRESSES);
    offers
}

/// In a job of several hosts a choice of interfaces that leaves nothing to offer is a mistake: told at once, and not by a wait for
/// somebody who cannot call.
pub(crate) fn check_interface(settings: &Settings) -> Result<(), Error> {
    let found = |wanted: Option<&str>| address::candidates(wanted).unwrap_or_default();
    let Some(wanted) = settings.interface.as_deref().filter(|wanted| found(Some(wanted)).is_empty()) else { return Ok(()) };
    let mut names: Vec<String> = found(None).into_iter().map(|candidate| candidate.interface).collect();
    names.sort();
    names.dedup();
    let there = if names.is_empty() { "only loopback".into() } else { names.join(", ") };
    Err(Error::Configuration {
        detail: format!(
            "start: the job spans hosts, and SYNCLINE_INTERFACE={wanted} names no interface by which the others could reach {}\n\
             hint: it has {there}; names may be cut short (`eth` is any of eth0, eth1), several are separated by commas",
            address::host_label()
        ),
    })
}

fn spec(launch: &Launch, settings: &Settings) -> Result<Spec, Error> {
    let mut job = [0; 16];
    getrandom::fill(&mut job).map_err(|error| Error::system("start: random numbers", error))?;
    Ok(Spec {
        workers: launch.world - launch.servers,
        servers: launch.servers,
        epoch: launch.epoch,
        job,
        timeout: settings.timeout,
        knows_exits: false,
        how_ranks_start: (0..launch.world).map(|rank| launch.how_rank_starts(rank)).collect(),
    })
}

/// Opens the coordinator where the others will look for it.
fn host(launch: &Launch, spec: Spec, key: &JobKey, settings: &Settings) -> Result<Coordinator, Error> {
    let listen = |unix: Option<String>, tcp: Vec<SocketAddr>| Listen { unix, tcp, encrypt: settings.encrypt };
    let anywhere = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    match &launch.meeting {
        Meeting::Unix { name } => Coordinator::host(spec, key.clone(), listen(Some(name.clone()), Vec::new())),
        Meeting::File { .. } | Meeting::Pmi { .. } => {
            // Ranks of one host come by the Unix name alone.
            let tcp = if launch.hosts == HostSpan::One { Vec::new() } else { vec![SocketAddr::new(anywhere, 0)] };
            Coordinator::host(spec, key.clone(), listen(None, tcp))
        }
        Meeting::Tcp { host, port, spare_ports } => {
            let mut last = Error::system("start", "no port to listen on");
            for port in std::iter::once(*port).chain(spare_ports.iter().copied()) {
                match Coordinator::host(spec.clone(), key.clone(), listen(None, vec![SocketAddr::new(binding(host), port)])) {
                    Ok(coordinator) => return Ok(coordinator),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
        other => Err(Error::Configuration { detail: format!("rank 0 cannot listen at {other}") }),
    }
}

fn file_error(launch: &Launch, error: FileMeetingError) -> Error {
    match error {
        FileMeetingError::Interrupted { .. } => Error::Interrupted { operation: "start".into(), waited: Duration::ZERO },
        FileMeetingError::Timeout { waited, .. } => nobody_there(launch, &error.to_string(), Instant::now() - waited),
        other => Error::system("start", other),
    }
}

fn pmi_error(error: PmiError) -> Error {
    Error::system("start: meeting through PMI", error)
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
    met: &mut Met,
    settings: &Settings,
    instance: [u8; 16],
    started: Instant,
    deadline: Deadline,
) -> Result<Connection, Error> {
    const FIRST_PAUSE: Duration = Duration::from_millis(1);
    const LONGEST_PAUSE: Duration = Duration::from_millis(100);
    let hello = Hello { purpose: Purpose::Control, rank: launch.rank, epoch: launch.epoch, instance };
    let hello = hello.encode().map_err(|error| Error::system("start", error))?;
    let mut pause = FIRST_PAUSE;
    loop {
        let config = DialConfig { key: met.key.clone(), expect_identity: None, encrypt: settings.encrypt };
        let trouble = match addresses(launch, met) {
            Ok(addresses) => match dial_any(&addresses, &config, &hello, None, deadline.within(Duration::from_secs(5))) {
                Ok(connection) => return Ok(connection),
                Err(DialError::Interrupted) => return Err(Error::Interrupted { operation: "start".into(), waited: started.elapsed() }),
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
        if deadline.expired() {
            return Err(nobody_there(launch, &trouble, started)); // A last try without time would only hide what went wrong.
        }
        met.look_again(launch);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn addresses(launch: &Launch, met: &Met) -> Result<Vec<Address>, String> {
    if let Some(coordinator) = &met.coordinator {
        return Ok(vec![coordinator.unix_address()]);
    }
    if !met.invited_to.is_empty() {
        return Ok(met.invited_to.clone());
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
    Error::Auth {
        operation: "start".into(),
        detail: format!("the coordinator at {} and this process do not hold the same token: {error}", launch.meeting),
    }
}

fn nobody_there(launch: &Launch, trouble: &str, started: Instant) -> Error {
    let myself = Who {
        rank: launch.rank.unwrap_or(0),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        pid: std::process::id(),
    };
    Error::Missing {
        world: launch.world,
        arrived: vec![myself],
        missing: vec![Who { rank: 0, host: String::new(), pid: 0 }],
        expected: format!(
            "hint: rank 0 hosts the coordinator, and nobody answers at {} ({trouble})\n  rank 0: {}",
            launch.meeting,
            launch.how_rank_starts(0)
        ),
        waited: started.elapsed(),
    }
}
