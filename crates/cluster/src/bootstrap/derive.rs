//! Names, ports and paths that every rank works out alone and all agree on.
//!
//! They come from what the launcher gives to all ranks of one job and to nobody else. None of them is a secret:
//! whoever guesses a name still has to prove the token.

use std::path::{Path, PathBuf};

use super::{Environment, Meeting};

/// Below the range from which Linux hands out ports by itself (32768…), and clear of Kubernetes' node ports (30000…).
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 10_000;

/// How many ports a coordinator may fall back on; each costs the others one refused connection.
const SPARE_PORTS: usize = 4;

/// A hash of parts that cannot run into each other (`["a", "bc"]` differs from `["ab", "c"]`), as 32 hex digits.
pub(super) fn fingerprint(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The abstract socket of a job that stays on one host. The user id is part of it, so two users never collide.
pub(super) fn unix_meeting(environment: &Environment, launcher: &str, job: &str) -> Meeting {
    let user = environment.user();
    let name = format!("syncline-{user}-{}", fingerprint(&[launcher, job]));
    Meeting::Unix { name }
}

/// A port of `host` and spares, for a launcher whose own port is taken by its store.
pub(super) fn tcp_meeting(host: &str, launcher: &str, job: &str) -> Meeting {
    let mut ports: Vec<u16> = Vec::with_capacity(SPARE_PORTS + 1);
    let mut stream = blake3::Hasher::new().update(fingerprint(&[launcher, job]).as_bytes()).finalize_xof();
    while ports.len() <= SPARE_PORTS {
        let mut two = [0u8; 2];
        stream.fill(&mut two);
        let port = FIRST_PORT + u16::from_le_bytes(two) % PORTS;
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    let port = ports.remove(0);
    Meeting::Tcp { host: host.to_owned(), port, spare_ports: ports }
}

/// The rendezvous file of a job on several hosts, in the home folder that they share; `None` without a home.
pub(super) fn file_meeting(environment: &Environment, launcher: &str, id: &str, job: &str) -> Option<Meeting> {
    Some(file_in(&home(environment)?.join(".syncline"), launcher, id, job))
}

/// The rendezvous file of a job in a folder that all its hosts share.
pub(super) fn file_in(folder: &Path, launcher: &str, id: &str, job: &str) -> Meeting {
    let readable: String = id.chars().map(|c| if c.is_ascii_alphanumeric() || ".-_@".contains(c) { c } else { '_' }).take(64).collect();
    let name = format!("{launcher}-{readable}-{}", &fingerprint(&[launcher, job])[..16]);
    Meeting::File { path: folder.join(name) }
}

/// The user's key: `$XDG_CONFIG_HOME/syncline/key`, else `~/.config/syncline/key`.
pub(super) fn key_file(environment: &Environment) -> Option<PathBuf> {
    // The XDG rule: a relative path is to be ignored.
    let config = environment.get("XDG_CONFIG_HOME").map(Path::new).filter(|path| path.is_absolute());
    let config = match config {
        Some(path) => path.to_owned(),
        None => home(environment)?.join(".config"),
    };
    Some(config.join("syncline").join("key"))
}

fn home(environment: &Environment) -> Option<PathBuf> {
    environment.get("HOME").map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Whether a host name can only mean the machine it is used on.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(fingerprint(&["a", "bc"]), fingerprint(&["ab", "c"]));
        assert_ne!(fingerprint(&["a", ""]), fingerprint(&["a"]));
    }

    #[test]
    fn ports_are_distinct_below_the_ephemeral_range_and_agreed_by_all_ranks() {
        for job in ["a", "b", "c", "1/29500/0"] {
            let meeting = tcp_meeting("h", "torchrun", job);
            assert_eq!(meeting, tcp_meeting("h", "torchrun", job));
            let Meeting::Tcp { port, spare_ports, .. } = meeting else { panic!("not TCP") };
            let mut all = [&[port][..], &spare_ports].concat();
            assert!(all.iter().all(|port| (20_000..30_000).contains(port)), "{all:?}");
            all.sort();
            all.dedup();
            assert_eq!(all.len(), 5);
        }
    }

    #[test]
    fn a_relative_config_home_is_ignored_and_no_home_is_no_key() {
        let with = |variables: &[(&str, &str)]| key_file(&Environment::from_variables(variables.iter().copied()));
        assert_eq!(with(&[("HOME", "/h")]), Some("/h/.config/syncline/key".into()));
        assert_eq!(with(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]), Some("/c/syncline/key".into()));
        assert_eq!(with(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "c")]), Some("/h/.config/syncline/key".into()));
        assert_eq!(with(&[("HOME", "")]), None);
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn a_job_id_cannot_leave_its_folder() {
        let environment = Environment::from_variables([("HOME", "/h")]);
        let Some(Meeting::File { path }) = file_meeting(&environment, "slurm", "../../etc/x", "j") else { panic!() };
        assert_eq!(path.parent(), Some(Path::new("/h/.syncline")));
    }
}
