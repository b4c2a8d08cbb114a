//! A place of its own for daemons and jobs that a test starts: processes, network, host names and files inside it end with it.
//!
//! ```text
//!   test ── pipe ──▶ keeper: bash, process 1 of a new pid namespace, in new network, mount and UTS namespaces
//!                      ├─ daemons, ranks, …: the kernel kills them all when the keeper ends
//!                      ├─ folder/: a tmpfs, seen from inside only
//!                      └─ h1, h2, …: network namespaces, joined by a bridge that leads nowhere else
//! ```
//! The keeper ends when the pipe is closed, which happens however the test ends, `kill -9` included. Nothing inside can be reached from
//! outside, so ports are always free and a daemon without authentication does no harm. Needs root.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What the keeper does; `$1` is its folder, `$2` the number of hosts.
const KEEPER: &str = r#"
set -e
# This is still the outer /proc, so it tells the keeper's number outside.
read -r outside _ </proc/self/stat
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs "$1"
mkdir "$1/home" "$1/tmp"
hostname enclosure
{
  echo '127.0.0.1 localhost enclosure'
  echo '10.77.0.254 controller'
  for ((host = 1; host <= $2; host++)); do echo "10.77.0.$host h$host"; done
} >"$1/hosts"
mount --bind "$1/hosts" /etc/hosts
{
  echo 'link set lo up'
  # Also without hosts: where loopback has the only address, getaddrinfo finds none for daemons that ask for configured ones.
  echo 'link add bridge0 type bridge mcast_snooping 0'
  echo 'addr add 10.77.0.254/24 dev bridge0'
  echo 'link set bridge0 up'
  for ((host = 1; host <= $2; host++)); do
    echo "netns add h$host"
    echo "link add port$host type veth peer name eth0 netns h$host"
    echo "link set port$host master bridge0 up"
  done
} | ip -batch -
for ((host = 1; host <= $2; host++)); do
  printf '%s\n' 'link set lo up' "addr add 10.77.0.$host/24 dev eth0" 'link set eth0 up' | ip -n "h$host" -batch -
done
echo "$outside"
# Until the pipe ends; bash buries the orphans meanwhile.
while read -r _; do :; done
umount -l "$1" && rmdir "$1"
"#;

/// A place that ends with its owner, and everything in it.
#[derive(Debug)]
pub struct Enclosure {
    keeper: Child,
    outside: u32,
    folder: PathBuf,
}

impl Enclosure {
    /// Makes a place with so many hosts h1, h2, … at 10.77.0.1, 10.77.0.2, …; none means that everything runs on one host.
    ///
    /// # Errors
    /// The reason why this machine cannot have one: for a test to say `skipped: reason`.
    pub fn new(hosts: usize) -> Result<Enclosure, String> {
        for tool in ["unshare", "nsenter", "ip", "bash", "mount"] {
            find_program(tool).ok_or_else(|| format!("{tool} is not installed"))?;
        }
        let folder = tempfile::Builder::new().prefix("syncline-").tempdir_in("/tmp").map_err(|error| error.to_string())?.keep();
        let mut command = Command::new("unshare");
        command.args(["--net", "--uts", "--pid", "--mount", "--fork", "--kill-child", "bash", "-c", KEEPER, "keeper"]);
        command.arg(&folder).arg(hosts.to_string());
        let keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut keeper = keeper.map_err(|error| format!("cannot start unshare: {error}"))?;
        let mut line = String::new();
        let _ = BufReader::new(keeper.stdout.take().expect("piped")).read_line(&mut line);
        let Ok(outside) = line.trim().parse() else {
            let mut words = String::new();
            let _ = keeper.stderr.take().expect("piped").read_to_string(&mut words);
            let _ = keeper.wait();
            let _ = std::fs::remove_dir(&folder);
            return Err(format!("namespaces cannot be made here (root is needed): {}", words.trim()));
        };
        Ok(Enclosure { keeper, outside, folder })
    }

    /// A folder that only the inside sees under this name; gone with the enclosure.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How the outside sees a file of the inside.
    pub fn from_outside(&self, path: &Path) -> PathBuf {
        let below_root = path.strip_prefix("/").unwrap_or(path);
        Path::new("/proc").join(self.outside.to_string()).join("root").join(below_root)
    }

    /// A command that runs `words` inside, with a home and a scratch folder there.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.outside.to_string(), "--net", "--uts", "--pid", "--mount", "--"]).args(words);
        command.env("HOME", self.folder.join("home")).env("TMPDIR", self.folder.join("tmp")).env_remove("XDG_RUNTIME_DIR");
        command.env_remove("XDG_CONFIG_HOME");
        command
    }

    /// The words that run `words` on a host, under its name, when given to [`command`](Self::command).
    pub fn on_host(&self, host: usize, words: &[String]) -> Vec<String> {
        let enter = ["nsenter", "--net=/run/netns/hHOST", "unshare", "--uts", "sh", "-c", "hostname hHOST; exec \"$@\"", "sh"];
        enter.iter().map(|word| word.replace("HOST", &host.to_string())).chain(words.iter().cloned()).collect()
    }

    /// Runs a shell script inside and returns what it said; panics with everything if it fails.
    pub fn shell(&self, script: &str) -> String {
        let output = self.command(&["bash", "-euo", "pipefail", "-c", script]).stdin(Stdio::null()).output().expect("nsenter starts");
        let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{}\n{said}\n{complained}", output.status);
        said.into_owned()
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Where a program is, also among those for root.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}
