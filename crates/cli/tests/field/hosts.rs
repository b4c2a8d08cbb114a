//! Several hosts on one machine: network namespaces joined by a bridge, each with a name of its own.
//!
//! ```text
//!   h1            h2            h3        namespaces; every rank in one also has its own host name
//!   eth0 .1       eth0 .2       eth0 .3   10.77.0.0/24 or fd77::/64
//!    │             │             │
//!   port 1 ────── port 2 ────── port 3    a bridge without an address: nothing outside can be reached, so many
//!                                         fields may use the same addresses at the same time
//! ```
//! All names carry the test's process id. Dropping a field removes it; what a killed test left is removed by the next one.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::program::{Program, command, rank_words};

/// Begins every name that is made here.
const PREFIX: &str = "slf";

/// How the hosts reach each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    V4,
    V6,
}

/// A number of hosts.
pub(crate) struct Field {
    id: String,
    addresses: Addresses,
    hosts: usize,
}

/// One job on a field: who runs where, and how they meet.
pub(crate) struct Plan<'a> {
    pub(crate) field: &'a Field,
    /// The host of each rank, from 1.
    pub(crate) hosts: &'a [usize],
    pub(crate) env: Vec<(&'static str, String)>,
}

/// Why no hosts can be made here, if so; found out once for all tests of the process.
fn cannot() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("network namespaces need root".into());
    }
    sweep();
    let probe = format!("{PREFIX}{}-probe", std::process::id());
    let made = ip(&["netns", "add", &probe]).and_then(|()| ip(&["-n", &probe, "link", "set", "lo", "up"]));
    remove(&probe);
    made.err().map(|error| format!("ip netns does not work here: {error}"))
}

/// Whether to go on; says why not.
pub(crate) fn ready() -> bool {
    static REASON: OnceLock<Option<String>> = OnceLock::new();
    match REASON.get_or_init(cannot) {
        Some(reason) => {
            println!("skipped: {reason}");
            false
        }
        None => true,
    }
}

impl Field {
    /// Makes hosts h1, h2, … that see each other.
    pub(crate) fn new(hosts: usize, addresses: Addresses) -> Field {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let id = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let field = Field { id, addresses, hosts };
        let bridge = field.bridge();
        let mut root = vec![format!("link add {bridge} type bridge mcast_snooping 0"), format!("link set {bridge} up")];
        for host in 1..=hosts {
            root.push(format!("netns add {}", field.namespace(host)));
        }
        batch(&[], &root);
        for host in 1..=hosts {
            let (space, port) = (field.namespace(host), field.port(host));
            let local = [
                "link set lo up".to_owned(),
                // An interface that leads nowhere exists first in every list; it gets its address only when a test wants it.
                "link add aaa0 type veth peer name aaa1".into(),
            ];
            batch(&["-n", &space], &local);
            batch(&[], &[format!("link add {port} type veth peer name eth0 netns {space}"), format!("link set {port} master {bridge} up")]);
            let address = match addresses {
                Addresses::V4 => format!("addr add 10.77.0.{host}/24 dev eth0"),
                Addresses::V6 => format!("addr add fd77::{host}/64 dev eth0 nodad"),
            };
            batch(&["-n", &space], &[address, "link set eth0 up".into()]);
        }
        field.write_names();
        field
    }

    /// Gives every host an interface that comes first and swallows everything, and one that has the same address everywhere.
    pub(crate) fn add_dead_interfaces(&self) {
        for host in 1..=self.hosts {
            let mut lines = vec![format!("addr add 10.66.0.{host}/24 dev aaa0"), "link set aaa0 up".into(), "link set aaa1 up".into()];
            // With a neighbour entry nothing is resolved and nothing refused: packets leave and are never seen again.
            lines.extend(
                (1..=self.hosts)
                    .filter(|other| *other != host)
                    .map(|other| format!("neigh add 10.66.0.{other} lladdr 02:00:00:00:00:0{other} dev aaa0 nud permanent")),
            );
            lines.push("link add docker0 type bridge".into());
            lines.push("addr add 172.17.0.1/16 dev docker0".into());
            lines.push("link set docker0 up".into());
            batch(&["-n", &self.namespace(host)], &lines);
        }
    }

    /// Every host knows the others by name, and takes its own name for 127.0.1.1, as Debian sets it up.
    fn write_names(&self) {
        for host in 1..=self.hosts {
            let mut text = String::from("127.0.0.1 localhost\n::1 localhost\n");
            for other in 1..=self.hosts {
                let address = if other == host { "127.0.1.1".to_owned() } else { self.address(other) };
                text.push_str(&format!("{address} h{other}\n"));
            }
            let folder = self.folder(host);
            fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join("hosts"), text)).expect("root may write to /etc/netns");
        }
    }

    pub(crate) fn namespace(&self, host: usize) -> String {
        format!("{}-h{host}", self.id)
    }

    pub(crate) fn address(&self, host: usize) -> String {
        match self.addresses {
            Addresses::V4 => format!("10.77.0.{host}"),
            Addresses::V6 => format!("fd77::{host}"),
        }
    }

    /// A meeting point on a host, at a port that nobody else can have: the namespace is new.
    pub(crate) fn rendezvous(&self, host: usize) -> String {
        match self.addresses {
            Addresses::V4 => format!("tcp://{}:5005", self.address(host)),
            Addresses::V6 => format!("tcp://[{}]:5005", self.address(host)),
        }
    }

    /// Pulls the cable of a host: nobody is told, packets just stop.
    pub(crate) fn cut(&self, host: usize) {
        batch(&[], &[format!("link set {} down", self.port(host))]);
    }

    /// Lets a host send no faster than this, for example `100mbit`.
    pub(crate) fn slow_down(&self, host: usize, rate: &str) {
        let words = ["netns", "exec", &self.namespace(host), "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate];
        ip(&[&words[..], &["burst", "256kb", "latency", "50ms"]].concat()).expect("tbf is there");
    }

    /// Runs `words` on a host, as its own process with the host's name.
    pub(crate) fn on(&self, host: usize, words: &[String]) -> Vec<String> {
        let enter = [
            "ip",
            "netns",
            "exec",
            &self.namespace(host),
            "unshare",
            "--uts",
            "sh",
            "-c",
            "hostname $0 && exec \"$@\"",
            &format!("h{host}"),
        ]
        .map(str::to_owned);
        [&enter[..], words].concat()
    }

    fn bridge(&self) -> String {
        self.id.clone() + "b"
    }

    fn port(&self, host: usize) -> String {
        format!("{}p{host}", self.id)
    }

    fn folder(&self, host: usize) -> PathBuf {
        Path::new("/etc/netns").join(self.namespace(host))
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for host in 1..=self.hosts {
            remove(&self.namespace(host));
            // A namespace lives on, nameless, until the last socket in it has given up; its cable need not.
            let _ = ip(&["link", "del", &self.port(host)]);
        }
        let _ = ip(&["link", "del", &self.bridge()]);
    }
}

impl Plan<'_> {
    /// A job whose ranks run on these hosts and meet on the host of rank 0.
    pub(crate) fn new<'a>(field: &'a Field, hosts: &'a [usize], env: &[(&'static str, &str)]) -> Plan<'a> {
        let mut all = vec![
            ("SYNCLINE_WORLD_SIZE", hosts.len().to_string()),
            ("SYNCLINE_RENDEZVOUS", field.rendezvous(hosts[0])),
            ("SYNCLINE_TOKEN", format!("token of {}", field.id)),
        ];
        all.retain(|(name, _)| env.iter().all(|(other, _)| other != name));
        all.extend(env.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Plan { field, hosts, env: all }
    }

    pub(crate) fn start(&self, rank: usize, part: &str) -> Program {
        let number = rank.to_string();
        let mut env: Vec<(&str, &str)> = self.env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        env.push(("SYNCLINE_RANK", &number));
        let words = self.field.on(self.hosts[rank], &rank_words());
        Program::start(format!("rank {rank} on h{}", self.hosts[rank]), command(&words, part, &env))
    }

    pub(crate) fn start_all(&self, part: &str) -> Vec<Program> {
        (0..self.hosts.len()).map(|rank| self.start(rank, part)).collect()
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(words).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if ran.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&ran.stderr).trim().to_owned()) }
}

/// Several commands of `ip` in one go; one that fails fails the test.
fn batch(options: &[&str], lines: &[String]) {
    let mut child =
        Command::new("ip").args(options).args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ip starts");
    child.stdin.take().expect("piped").write_all(lines.join("\n").as_bytes()).expect("ip reads its commands");
    let ran = child.wait_with_output().expect("ip ends");
    assert!(ran.status.success(), "ip {}\n{}\n{}", options.join(" "), lines.join("\n"), String::from_utf8_lossy(&ran.stderr));
}

/// Ends what runs in a namespace of ours and removes it.
fn remove(namespace: &str) {
    let ran = Command::new("ip").args(["netns", "pids", namespace]).stderr(Stdio::null()).output();
    let pids = ran.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned()).unwrap_or_default();
    for pid in pids.split_whitespace().filter_map(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let _ = ip(&["netns", "del", namespace]);
    let _ = fs::remove_dir_all(Path::new("/etc/netns").join(namespace));
    let _ = fs::remove_dir("/etc/netns"); // only if nobody else uses it
}

/// Removes what tests left that were killed.
fn sweep() {
    let entries = |folder: &str| -> Vec<String> {
        let list = fs::read_dir(folder).into_iter().flatten().flatten();
        list.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let is_left = |name: &String| {
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    };
    let spaces: HashSet<String> = entries("/run/netns").into_iter().chain(entries("/etc/netns")).filter(is_left).collect();
    spaces.iter().for_each(|space| remove(space));
    for link in entries("/sys/class/net").iter().filter(|name| is_left(name)) {
        let _ = ip(&["link", "del", link]);
    }
}
