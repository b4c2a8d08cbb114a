//! `SYNCLINE_RANK` and its siblings: set by `syncline run`, by a script, or by hand.

use super::{BootstrapError, Environment, Launch, Launcher, Meeting, Role};

/// Knows a job by `SYNCLINE_RANK`. `SYNCLINE_WORLD_SIZE` alone only helps launchers that do not say their size.
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    environment.get("SYNCLINE_RANK").map(|_| read(environment))
}

fn read(environment: &Environment) -> Result<Launch, BootstrapError> {
    let (rank, world) = environment.rank_and_size("SYNCLINE_RANK", "SYNCLINE_WORLD_SIZE")?.unwrap_or((0, 1));
    let by_run = environment.get("SYNCLINE_LAUNCHER") == Some("run");
    let launcher = if by_run { Launcher::SynclineRun } else { Launcher::Explicit };
    let setter = if by_run { "`syncline run` set" } else { "found" };
    let mut launch = Launch::new(launcher, rank, world, format!("{setter} SYNCLINE_RANK={rank} of {world}"));
    launch.local_rank = environment.number("SYNCLINE_LOCAL_RANK")?;
    launch.local_size = environment.number("SYNCLINE_LOCAL_SIZE")?;
    let rendezvous = environment.get("SYNCLINE_RENDEZVOUS");
    if world > 1 && rendezvous.is_none() {
        return Err(BootstrapError::HalfSet { variable: "SYNCLINE_RANK".into(), value: rank.to_string(), missing: "SYNCLINE_RENDEZVOUS" });
    }
    launch.job = rendezvous.unwrap_or("alone").trim().to_owned();
    Ok(launch)
}

/// What may be said beside any launcher: token, role, meeting point and epoch.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub(super) role: Option<Role>,
    pub(super) meeting: Option<Meeting>,
    pub(super) token: Option<super::Token>,
    pub(super) epoch: Option<u32>,
}

impl Wishes {
    pub(super) fn read(environment: &Environment) -> Result<Self, BootstrapError> {
        let not_understood = |variable: &str, value: &str, expected| BootstrapError::NotUnderstood {
            variable: variable.to_owned(),
            value: value.to_owned(),
            expected,
        };
        let role = match environment.get("SYNCLINE_ROLE") {
            None => None,
            Some(name) => match Role::from_name(name) {
                Some(Role::Coordinator) | None => {
                    return Err(not_understood("SYNCLINE_ROLE", name, "one of both, worker, server"));
                }
                role => role,
            },
        };
        let token = match environment.get("SYNCLINE_TOKEN") {
            None => None,
            Some(text) => match super::Token::from_text(text) {
                None => return Err(not_understood("SYNCLINE_TOKEN", text, "a secret: it is empty")),
                token => token,
            },
        };
        let meeting = environment.get("SYNCLINE_RENDEZVOUS").map(str::parse).transpose()?;
        Ok(Wishes { role, meeting, token, epoch: environment.number("SYNCLINE_EPOCH")? })
    }
}

/// What was half set and belongs to no launcher: a process that was meant to be one of many must not run alone.
pub(super) fn leftover(environment: &Environment) -> Result<(), BootstrapError> {
    let half = |variable: &'static str, value: &str, missing| {
        Err(BootstrapError::HalfSet { variable: variable.to_owned(), value: value.to_owned(), missing })
    };
    if let Some(size) = environment.number("SYNCLINE_WORLD_SIZE")?.filter(|&size| size != 1) {
        return half("SYNCLINE_WORLD_SIZE", &size.to_string(), "SYNCLINE_RANK");
    }
    for variable in ["SYNCLINE_RENDEZVOUS", "SYNCLINE_LOCAL_RANK"] {
        if let Some(value) = environment.get(variable) {
            return half(variable, value, "SYNCLINE_RANK");
        }
    }
    if let Some(value) = environment.get("SYNCLINE_LAUNCHER").filter(|&value| value == "run") {
        return half("SYNCLINE_LAUNCHER", value, "SYNCLINE_RANK");
    }
    Ok(())
}
