//! Nodes of one host that know a process id in common: usually their parent's.
//!
//! The file carries an abstract socket's name and a random token, so that nobody else can answer and no port is opened. It exists
//! only while the nodes gather: the same key serves one tree after another, also while an earlier one lives.

use std::path::{Path, PathBuf};

use super::super::{BootstrapError, Environment, HostSpan, Launch, Meeting};
use super::{node_of, settled};

/// The begin of every such file's name.
pub(crate) const LOCALHOST_NAMES: &str = "syncline-localhost-";

/// Node `node` of `nodes` on this host. They find each other by `key`, a process id; by default that of their parent.
///
/// # Errors
/// A node outside of 1…`nodes`, or no parent to be known by.
pub fn localhost(environment: &Environment, node: u32, nodes: u32, key: Option<u32>) -> Result<Launch, BootstrapError> {
    let parent = environment.ancestors().first().map(|parent| parent.pid);
    let key = key.or(parent).or((nodes == 1).then_some(0)).ok_or(BootstrapError::NoParent { node, nodes })?;
    let mut launch = node_of(node, nodes, format!("node {node} of {nodes} on this host, known to each other by process {key}"))?;
    launch.hosts = HostSpan::One;
    launch.job = format!("localhost {key} of {nodes}");
    launch.meeting = Meeting::File { path: meeting_file(environment, key) };
    settled(launch, environment)
}

/// In the user's own run-time folder, else in the folder that every process of a host shares.
fn meeting_file(environment: &Environment, key: u32) -> PathBuf {
    let own = environment.get("XDG_RUNTIME_DIR").map(Path::new).filter(|path| path.is_absolute() && path.is_dir());
    own.unwrap_or(Path::new("/tmp")).join(format!("{LOCALHOST_NAMES}{}-{key}", environment.user()))
}
