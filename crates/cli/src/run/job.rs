//! What stays the same through all attempts of a job: its name, its secret, who takes part and what they execute.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use super::meeting::Role;
use super::options::RunOptions;
use super::program::Program;

/// The variable by which every process of a job is recognised, however deep in the tree it was started.
pub(super) const JOB_VARIABLE: &str = "SYNCLINE_JOB";

pub(super) struct Job {
    pub(super) id: String,
    pub(super) token: String,
    pub(super) roles: Vec<Role>,
    pub(super) timeout: Option<Duration>,
    program: Program,
    python_unbuffered: Option<OsString>,
}

impl Job {
    pub(super) fn new(options: &RunOptions, program: Program) -> io::Result<Job> {
        let given = std::env::var("SYNCLINE_TOKEN").ok().filter(|token| !token.is_empty());
        let workers = vec![Role::Worker; options.workers as usize];
        let servers = vec![Role::Server; options.servers as usize];
        Ok(Job {
            id: random_hex::<8>()?,
            token: match given {
                Some(token) => token,
                None => random_hex::<32>()?,
            },
            roles: [workers, servers].concat(),
            timeout: options.timeout,
            program,
            python_unbuffered: std::env::var_os("PYTHONUNBUFFERED"),
        })
    }

    /// The words that a rank executes.
    pub(super) fn words(&self, role: Role) -> Vec<OsString> {
        match role {
            Role::Worker => self.program.words.clone(),
            Role::Server => vec!["/proc/self/exe".into(), "server".into()],
        }
    }

    /// What a rank finds in its environment beside what it inherits; `None` takes a variable away.
    pub(super) fn environment(&self, rank: u32, epoch: u32, rendezvous: &str) -> Vec<(&'static str, Option<OsString>)> {
        let has_servers = self.roles.contains(&Role::Server);
        let role = match self.roles[rank as usize] {
            Role::Worker => "worker",
            Role::Server => "server",
        };
        let mut variables = vec![
            ("SYNCLINE_LAUNCHER", Some("run".into())),
            (JOB_VARIABLE, Some(self.id.clone().into())),
            ("SYNCLINE_RANK", Some(rank.to_string().into())),
            ("SYNCLINE_LOCAL_RANK", Some(rank.to_string().into())),
            ("SYNCLINE_WORLD_SIZE", Some(self.roles.len().to_string().into())),
            ("SYNCLINE_RENDEZVOUS", Some(rendezvous.into())),
            ("SYNCLINE_TOKEN", Some(self.token.clone().into())),
            ("SYNCLINE_EPOCH", Some(epoch.to_string().into())),
            ("SYNCLINE_ROLE", has_servers.then(|| role.into())),
        ];
        if let Some(timeout) = self.timeout {
            variables.push(("SYNCLINE_TIMEOUT", Some(timeout.as_secs_f64().to_string().into())));
        }
        if self.python_unbuffered.is_none() {
            // A print before a crash must be seen, and lines of different ranks should come in the order they were said.
            variables.push(("PYTHONUNBUFFERED", Some("1".into())));
        }
        variables
    }
}

fn random_hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
