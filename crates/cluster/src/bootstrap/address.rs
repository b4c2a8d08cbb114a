//! The addresses a rank offers to other hosts, and what tells one host from another.
//!
//! Addresses are candidates: a member tries them all. The host's name is only a label, for it may resolve to 127.0.1.1 (Debian's
//! `/etc/hosts`). Loopback is never offered, and addresses that every machine has (container bridges) come last:
//! whoever connects to them reaches itself, and the token's proof and the rank in the greeting tell.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use super::Environment;

/// Interfaces that lead to containers and virtual machines of this host, not to another host.
const INNER_INTERFACES: [&str; 8] = ["docker", "br-", "virbr", "veth", "lxc", "lxd", "cni", "podman"];

/// An address of this host that another host may try.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The interface it belongs to.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
}

impl Candidate {
    /// The candidate with a port.
    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, port)
    }
}

/// Which interfaces are asked for: `SYNCLINE_INTERFACE`, names or beginnings of names between commas. `None` is all.
pub fn wanted_interfaces(environment: &Environment) -> Option<Vec<String>> {
    let list = environment.filled("SYNCLINE_INTERFACE")?;
    Some(list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

/// Every address to offer to another host, best first.
///
/// An empty list means that no interface but loopback is up, or that none has a wanted name.
pub fn candidates(wanted: Option<&[String]>) -> io::Result<Vec<Candidate>> {
    let interfaces = if_addrs::get_if_addrs()?.into_iter().map(|interface| Found {
        address: interface.ip(),
        up: !matches!(interface.oper_status, if_addrs::IfOperStatus::Down),
        name: interface.name,
    });
    Ok(choose(interfaces, wanted))
}

/// An interface's address as the system tells it.
struct Found {
    name: String,
    address: IpAddr,
    up: bool,
}

fn choose(found: impl Iterator<Item = Found>, wanted: Option<&[String]>) -> Vec<Candidate> {
    let is_wanted = |name: &str| wanted.is_none_or(|list| list.iter().any(|wanted| name.starts_with(wanted.as_str())));
    let mut chosen: Vec<Candidate> = found
        .filter(|found| found.up && is_offerable(found.address) && is_wanted(&found.name))
        .map(|found| Candidate { interface: found.name, address: found.address })
        .collect();
    // A name given in full goes before its namesakes: `eth1` before `eth10`. The sort is stable, so the system's order stays otherwise.
    chosen.sort_by_key(|candidate| {
        let name = &candidate.interface;
        let in_full = wanted.is_some_and(|list| list.contains(name));
        let inner = INNER_INTERFACES.iter().any(|inner| name.starts_with(inner));
        (!in_full, inner, is_last_resort(candidate.address), candidate.address.is_ipv6())
    });
    chosen.dedup_by(|a, b| a.address == b.address);
    chosen
}

/// Link-local IPv6 needs an interface number that means nothing elsewhere; loopback means the listener itself.
fn is_offerable(address: IpAddr) -> bool {
    let link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}

/// IPv4 that a machine gave itself because nobody gave it one.
fn is_last_resort(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.is_link_local())
}

/// The name this host goes by, for people.
pub fn host_label() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What two processes share exactly when they can reach each other through abstract sockets: a kernel and a network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostIdentity {
    /// The kernel's boot id: two machines never share it, a container shares its host's.
    pub boot: String,
    /// The inode of the network namespace.
    pub network: u64,
}

impl HostIdentity {
    /// This process's.
    ///
    /// Where the kernel hides its boot id, the answer is random: such a process counts as a host of its own, which is slow but right.
    pub fn current() -> io::Result<Self> {
        let network = fs::metadata("/proc/self/ns/net")?.ino();
        let boot = match fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(boot) => boot.trim().to_owned(),
            Err(_) => {
                let mut random = [0u8; 16];
                getrandom::fill(&mut random).map_err(io::Error::other)?;
                format!("hidden-{:032x}", u128::from_le_bytes(random))
            }
        };
        Ok(HostIdentity { boot, network })
    }
}

impl fmt::Display for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.boot, self.network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(list: &[(&str, &str, bool)]) -> impl Iterator<Item = Found> {
        let list: Vec<Found> =
            list.iter().map(|&(name, address, up)| Found { name: name.into(), address: address.parse().unwrap(), up }).collect();
        list.into_iter()
    }

    fn show(candidates: &[Candidate]) -> String {
        candidates.iter().map(|c| c.address.to_string()).collect::<Vec<_>>().join(" ")
    }

    const MACHINE: [(&str, &str, bool); 10] = [
        ("lo", "127.0.0.1", true),
        ("lo", "::1", true),
        ("docker0", "172.17.0.1", true),
        ("eth0", "169.254.7.7", true),
        ("eth0", "fd00::7", true),
        ("eth0", "fe80::7", true),
        ("eth0", "10.0.0.7", true),
        ("eth1", "10.1.0.7", false),
        ("eth10", "10.10.0.7", true),
        ("eth1", "10.1.1.7", true),
    ];

    #[test]
    fn what_cannot_lead_here_is_not_offered_and_bridges_come_last() {
        let chosen = choose(found(&MACHINE), None);
        assert_eq!(show(&chosen), "10.0.0.7 10.10.0.7 10.1.1.7 fd00::7 169.254.7.7 172.17.0.1");
    }

    #[test]
    fn interfaces_are_chosen_by_name_or_beginning() {
        let pick = |list: &str| {
            let environment = Environment::from_variables([("SYNCLINE_INTERFACE", list)]);
            show(&choose(found(&MACHINE), wanted_interfaces(&environment).as_deref()))
        };
        assert_eq!(pick("eth1"), "10.1.1.7 10.10.0.7");
        assert_eq!(pick("docker0, eth10"), "10.10.0.7 172.17.0.1");
        assert_eq!(pick("ib"), "");
        assert_eq!(pick("lo"), "", "loopback is never offered, not even by name");
        assert_eq!(pick(" "), show(&choose(found(&MACHINE), None)));
    }

    #[test]
    fn this_machine_offers_no_loopback() {
        let all = candidates(None).unwrap();
        assert!(all.iter().all(|candidate| !candidate.address.is_loopback()), "{all:?}");
    }

    #[test]
    fn a_host_is_itself() {
        assert_eq!(HostIdentity::current().unwrap(), HostIdentity::current().unwrap());
        assert!(!host_label().is_empty());
    }
}
