//! Starts the processes of a measurement: this very program, once per rank, with a coordinator in the middle.
//!
//! Workers come first; dedicated servers, if any, have the highest ranks and are plain `syncline server`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use syncline_cluster::DownCause;
use syncline_cluster::bootstrap::Token;
use syncline_cluster::coordinator::{Coordinator, Listen, Spec};
use syncline_transport::JobKey;

/// Who takes part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Crew {
    /// Ranks that measure.
    pub(crate) workers: u32,
    /// Ranks that only hold tables; without them every worker holds its part.
    pub(crate) servers: u32,
}

impl Crew {
    /// Workers alone.
    pub(crate) fn of(workers: u32) -> Crew {
        Crew { workers, servers: 0 }
    }

    fn world(self) -> u32 {
        self.workers + self.servers
    }

    fn role(self, rank: u32) -> &'static str {
        match self.servers {
            0 => "both",
            _ if rank < self.workers => "worker",
            _ => "server",
        }
    }
}

/// A job of ranks of this program, whose standard output is collected.
pub(crate) struct Fleet {
    coordinator: Coordinator,
    children: Vec<Child>,
}

impl Fleet {
    /// Starts a crew whose workers get `arguments`, and all of them `variables` beside the job's own.
    pub(crate) fn start(crew: Crew, arguments: &[String], variables: &[(&str, String)]) -> Result<Fleet, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
        let token = Token::random().map_err(|error| error.to_string())?;
        let mut job = [0; 16];
        getrandom::fill(&mut job).map_err(|error| error.to_string())?;
        let world = crew.world();
        let how_ranks_start = (0..world).map(|_| "this measurement starts it".to_owned()).collect();
        let timeout = Duration::from_secs(30);
        let spec = Spec { workers: crew.workers, servers: crew.servers, epoch: 0, job, timeout, knows_exits: true, how_ranks_start };
        let key = JobKey::from_token(token.reveal());
        let coordinator = Coordinator::host(spec, key, Listen::default()).map_err(|error| error.to_string())?;
        let mut fleet = Fleet { coordinator, children: Vec::new() };
        for rank in 0..world {
            let mut command = Command::new(&program);
            if rank < crew.workers {
                command.args(arguments)
            } else {
                command.arg("server")
            };
            let child = command
                .env("SYNCLINE_LAUNCHER", "run")
                .env("SYNCLINE_RANK", rank.to_string())
                .env("SYNCLINE_LOCAL_RANK", rank.to_string())
                .env("SYNCLINE_WORLD_SIZE", world.to_string())
                .env("SYNCLINE_RENDEZVOUS", fleet.coordinator.unix_address().to_string())
                .env("SYNCLINE_TOKEN", token.reveal())
                .env("SYNCLINE_ROLE", crew.role(rank))
                .env_remove("SYNCLINE_EPOCH")
                .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| format!("cannot start rank {rank}: {error}"))?;
            fleet.children.push(child);
        }
        Ok(fleet)
    }

    /// Waits for all and returns the lines each rank printed, in order of rank. A failed rank is an error, after all have ended.
    pub(crate) fn finish(mut self) -> Result<Vec<Vec<String>>, String> {
        let mut readers = Vec::new();
        for child in &mut self.children {
            let pipe = child.stdout.take().expect("standard output is piped");
            readers.push(std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).collect::<Vec<_>>()));
        }
        let mut failure = None;
        for (rank, child) in self.children.iter_mut().enumerate() {
            let status = child.wait().map_err(|error| format!("rank {rank} cannot be waited for: {error}"))?;
            if !status.success() {
                let cause = match status.signal() {
                    Some(signal) => DownCause::Killed { signal },
                    None => DownCause::Exited { code: status.code().unwrap_or(1) },
                };
                self.coordinator.process_ended(rank as u32, cause);
                failure.get_or_insert(format!("rank {rank} ended with {status}"));
            }
        }
        let lines = readers.into_iter().map(|reader| reader.join().unwrap_or_default()).collect();
        match failure {
            Some(failure) => Err(failure),
            None => Ok(lines),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
