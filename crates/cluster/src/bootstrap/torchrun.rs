//! torchrun, and scripts that set the same variables.
//!
//! `MASTER_PORT` is taken: torch's own store listens there. So ranks of one host meet at an abstract socket whose
//! name is derived from run id, port and restart count; ranks of several hosts at `MASTER_ADDR`, on the first free one of a
//! few ports derived from the same.

use super::derive::{is_loopback, tcp_meeting, unix_meeting};
use super::{BootstrapError, Environment, HostSpan, Launch, Launcher};

const NAME: &str = "torchrun";

/// Knows a job by `RANK` and `WORLD_SIZE` together with a meeting point.
///
/// The two names are so general that scripts set one of them for their own use (`WORLD_SIZE` in a batch script before
/// `srun`). So a half is left to the launchers after this one; [`leftover`] complains when none of them knows better.
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    environment.filled("RANK")?;
    let alone = environment.filled("WORLD_SIZE")?.trim() == "1";
    let master = environment.filled("MASTER_ADDR").is_some() && environment.filled("MASTER_PORT").is_some();
    (alone || master || environment.filled("TORCHELASTIC_RUN_ID").is_some()).then(|| read(environment))
}

fn read(environment: &Environment) -> Result<Launch, BootstrapError> {
    let (rank, world) = environment.rank_and_size("RANK", "WORLD_SIZE")?.unwrap_or((0, 1));
    let elastic = environment.filled("TORCHELASTIC_RUN_ID");
    let who = if elastic.is_some() { "torchrun set" } else { "found torch's" };
    let mut launch = Launch::new(Launcher::Torchrun, rank, world, format!("{who} RANK={rank} of WORLD_SIZE={world}"));
    if environment.filled("LOCAL_RANK").is_some() {
        launch.local_rank = environment.number("LOCAL_RANK")?;
    }
    if environment.filled("LOCAL_WORLD_SIZE").is_some() {
        launch.local_size = environment.number("LOCAL_WORLD_SIZE")?;
    }
    launch.epoch = environment.number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0);
    let master = environment.filled("MASTER_ADDR");
    let port = environment.filled("MASTER_PORT");
    launch.job = format!("{}/{}/{}", elastic.unwrap_or("none"), port.unwrap_or("none"), launch.epoch);
    let only_here = launch.local_size == Some(world);
    if only_here || world == 1 || (launch.local_size.is_none() && master.is_some_and(is_loopback)) {
        launch.hosts = HostSpan::One;
        launch.meeting = unix_meeting(environment, NAME, &launch.job);
        return Ok(launch);
    }
    launch.hosts = if launch.local_size.is_some() { HostSpan::Several } else { HostSpan::Unknown };
    match (master, port) {
        (Some(host), Some(_)) => {
            environment.number("MASTER_PORT")?;
            launch.meeting = tcp_meeting(host, NAME, &launch.job);
            launch.because.push("MASTER_PORT belongs to torch's store, so ports are derived from it".into());
            Ok(launch)
        }
        (address, _) => Err(BootstrapError::HalfSet {
            variable: "RANK".into(),
            value: rank.to_string(),
            missing: if address.is_none() { "MASTER_ADDR" } else { "MASTER_PORT" },
        }),
    }
}

/// Complains about a half that no launcher explained.
pub(super) fn leftover(environment: &Environment) -> Result<(), BootstrapError> {
    let half = |variable: &str, value: &str, missing| {
        Err(BootstrapError::HalfSet { variable: variable.to_owned(), value: value.to_owned(), missing })
    };
    match (environment.filled("RANK"), environment.filled("WORLD_SIZE")) {
        (Some(rank), None) => half("RANK", rank, "WORLD_SIZE"),
        (None, Some(size)) if size.trim() != "1" => half("WORLD_SIZE", size, "RANK"),
        (Some(rank), Some(_)) if environment.filled("MASTER_ADDR").is_none() => half("RANK", rank, "MASTER_ADDR"),
        (Some(rank), Some(_)) => half("RANK", rank, "MASTER_PORT"),
        _ => Ok(()),
    }
}
