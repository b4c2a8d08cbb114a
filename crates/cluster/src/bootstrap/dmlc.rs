//! `DMLC_ROLE` and its siblings, as MXNet's and ps-lite's launch scripts set them.
//!
//! Nobody tells a process its rank: the scheduler, which is none itself, gives ranks in order of joining, workers
//! first. The scheduler listens where `DMLC_PS_ROOT_URI` and `DMLC_PS_ROOT_PORT` say.

use super::derive::is_loopback;
use super::{BootstrapError, Environment, HostSpan, Launch, Launcher, Meeting, Role};

/// Knows a job by `DMLC_ROLE`.
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    environment.get("DMLC_ROLE").map(|role| read(environment, role))
}

fn read(environment: &Environment, role_name: &str) -> Result<Launch, BootstrapError> {
    let role = match role_name.trim().to_ascii_lowercase().as_str() {
        "worker" => Role::Worker,
        "server" => Role::Server,
        "scheduler" => Role::Coordinator,
        _ => {
            return Err(BootstrapError::NotUnderstood {
                variable: "DMLC_ROLE".into(),
                value: role_name.to_owned(),
                expected: "one of worker, server, scheduler",
            });
        }
    };
    let missing = |missing| BootstrapError::HalfSet { variable: "DMLC_ROLE".into(), value: role_name.to_owned(), missing };
    let workers = environment.number("DMLC_NUM_WORKER")?.ok_or(missing("DMLC_NUM_WORKER"))?;
    let servers = environment.number("DMLC_NUM_SERVER")?.ok_or(missing("DMLC_NUM_SERVER"))?;
    let host = environment.get("DMLC_PS_ROOT_URI").ok_or(missing("DMLC_PS_ROOT_URI"))?.trim().to_owned();
    let port = environment.get("DMLC_PS_ROOT_PORT").ok_or(missing("DMLC_PS_ROOT_PORT"))?;
    let port = port.trim().parse::<u16>().ok().filter(|&port| port > 0).ok_or_else(|| BootstrapError::NotUnderstood {
        variable: "DMLC_PS_ROOT_PORT".into(),
        value: port.to_owned(),
        expected: "a port from 1 to 65535",
    })?;
    let world = workers.checked_add(servers).filter(|&world| world > 0).ok_or_else(|| BootstrapError::NotUnderstood {
        variable: "DMLC_NUM_WORKER".into(),
        value: workers.to_string(),
        expected: "a number of workers that makes a world together with DMLC_NUM_SERVER",
    })?;
    let because = format!("found DMLC_ROLE={} among {workers} workers and {servers} servers", role_name.trim());
    let mut launch = Launch::new(Launcher::Dmlc, 0, world, because);
    launch.rank = None;
    launch.role = role;
    launch.servers = servers;
    launch.hosts = if is_loopback(&host) { HostSpan::One } else { HostSpan::Unknown };
    launch.job = format!("{host}:{port} {workers}+{servers}");
    launch.meeting = Meeting::Tcp { host, port, spare_ports: Vec::new() };
    Ok(launch)
}
