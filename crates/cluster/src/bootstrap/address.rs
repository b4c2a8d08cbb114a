//! The addresses a rank offers to other hosts, and what tells one host from another.
//!
//! Addresses are candidates: a member tries them all. The host's name is only a label, for it may resolve to 127.0.1.1 (Debian's
//! `/etc/hosts`). Loopback is never offered, and addresses that every machine has (container bridges) come last:
//! whoever connects to them reaches itself, and the token's proof and the rank in the greeting tell.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use syncline_wire::message::HostId;

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

/// Where others can reach listeners that listen at `listening`, best first.
///
/// A listener on all interfaces is offered at every candidate address of its family. `interface` narrows the choice to names, or
/// beginnings of names, between commas. A listener on one address is offered as it is, also on loopback: it was put there because the job
/// stays on this host.
pub fn offer(listening: Vec<SocketAddr>, interface: Option<&str>) -> Vec<SocketAddr> {
    if listening.iter().all(|address| !address.ip().is_unspecified()) {
        return listening;
    }
    // Without a list of interfaces there is nothing to offer; the members say so when nobody can reach this one.
    let candidates = candidates(interface).unwrap_or_default();
    spread(&listening, &candidates)
}

fn spread(listening: &[SocketAddr], candidates: &[Candidate]) -> Vec<SocketAddr> {
    let mut offered = Vec::new();
    for listener in listening {
        let ip = listener.ip();
        if !ip.is_unspecified() {
            offered.push(*listener);
            continue;
        }
        // A listener on `::` hears IPv4 too.
        let heard = candidates.iter().filter(|candidate| ip.is_ipv6() || candidate.address.is_ipv4());
        offered.extend(heard.map(|candidate| candidate.at(listener.port())));
    }
    let mut seen = std::collections::HashSet::new();
    offered.retain(|address| seen.insert(*address));
    offered
}

/// Every address of this host that another host may try, best first.
///
/// An empty list means that no interface but loopback is up, or that none has a wanted name.
pub fn candidates(interface: Option<&str>) -> io::Result<Vec<Candidate>> {
    let interfaces = if_addrs::get_if_addrs()?.into_iter().map(|interface| Found {
        address: interface.ip(),
        up: !matches!(interface.oper_status, if_addrs::IfOperStatus::Down),
        name: interface.name,
    });
    Ok(choose(interfaces, interface))
}

/// An interface's address as the system tells it.
struct Found {
    name: String,
    address: IpAddr,
    up: bool,
}

fn choose(found: impl Iterator<Item = Found>, wanted: Option<&str>) -> Vec<Candidate> {
    let wanted: Vec<&str> = wanted.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.starts_with(wanted));
    let mut chosen: Vec<Candidate> = found
        .filter(|found| found.up && is_offerable(found.address) && is_wanted(&found.name))
        .map(|found| Candidate { interface: found.name, address: found.address })
        .collect();
    // A name given in full goes before its namesakes: `eth1` before `eth10`. The sort is stable, so the system's order stays otherwise.
    chosen.sort_by_key(|candidate| {
        let name = &candidate.interface;
        let in_full = wanted.contains(&name.as_str());
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
///
/// Where the system hides one of them, a random number stands in: such a process counts as a host of its own, which is slow but right.
pub fn host_identity() -> HostId {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().and_then(|text| parse_boot_id(&text));
    let network = fs::metadata("/proc/self/ns/net").map(|namespace| namespace.ino());
    HostId {
        boot: boot.unwrap_or_else(|| random_bytes(std::process::id())),
        network: network.unwrap_or_else(|_| u64::from(std::process::id())),
    }
}

/// A UUID as the kernel prints it.
fn parse_boot_id(text: &str) -> Option<[u8; 16]> {
    let digits = text.trim().replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32)?;
    Some(number.to_be_bytes())
}

/// Without randomness the process id tells at least the ranks of one job apart.
fn random_bytes(otherwise: u32) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    match getrandom::fill(&mut bytes) {
        Ok(()) => bytes,
        Err(_) => u128::from(otherwise).to_be_bytes(),
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
        let pick = |list: &str| show(&choose(found(&MACHINE), Some(list)));
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
    fn a_listener_on_all_interfaces_is_offered_at_each_of_its_family() {
        let candidates = choose(found(&MACHINE[4..7]), None);
        let offered = |listening: &str| {
            let listening: Vec<SocketAddr> = listening.split(' ').map(|address| address.parse().unwrap()).collect();
            spread(&listening, &candidates).iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(offered("0.0.0.0:5"), "10.0.0.7:5");
        assert_eq!(offered("[::]:5"), "10.0.0.7:5 [fd00::7]:5");
        assert_eq!(offered("[::]:5 0.0.0.0:5"), "10.0.0.7:5 [fd00::7]:5");
        assert_eq!(offered("10.0.0.7:5 [::]:6"), "10.0.0.7:5 10.0.0.7:6 [fd00::7]:6");
        assert_eq!(offered("127.0.0.1:5"), "127.0.0.1:5");
    }

    #[test]
    fn a_host_is_itself() {
        assert_eq!(host_identity(), host_identity());
        assert_eq!(parse_boot_id("0001-0203\n"), None);
        assert_eq!(parse_boot_id("00010203-0405-0607-0809-0a0b0c0d0e0f\n").unwrap(), std::array::from_fn(|byte| byte as u8));
        assert!(!host_label().is_empty());
    }
}
