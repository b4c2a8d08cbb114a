//! An indexed Kubernetes Job (or JobSet), or a Kubeflow training job whose pods start the program directly.
//!
//! The index is the rank. Kubernetes tells a pod nothing of the number of pods, so `SYNCLINE_WORLD_SIZE` or Kubeflow's
//! `PET_NNODES` must. The meeting point is the headless service of index 0; its name may appear in DNS seconds after the pod: whoever
//! connects has to look it up again and again.

use super::derive::tcp_meeting;
use super::meeting::split_endpoint;
use super::{BootstrapError, Environment, HostSpan, Launch, Launcher, Meeting};

const NAME: &str = "kubernetes";

/// Knows a job by `JOB_COMPLETION_INDEX` or `PET_NODE_RANK`.
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    let variable = ["JOB_COMPLETION_INDEX", "PET_NODE_RANK"].into_iter().find(|name| environment.filled(name).is_some())?;
    Some(read(environment, variable))
}

fn read(environment: &Environment, rank_variable: &'static str) -> Result<Launch, BootstrapError> {
    let rank = environment.number(rank_variable)?.unwrap_or(0);
    let missing = |missing| BootstrapError::HalfSet { variable: rank_variable.to_owned(), value: rank.to_string(), missing };
    let (size_variable, world) = match environment.number("SYNCLINE_WORLD_SIZE")? {
        Some(world) => ("SYNCLINE_WORLD_SIZE", world),
        None => match environment.filled("PET_NNODES") {
            Some(nodes) => ("PET_NNODES", fixed_size(nodes)?),
            None => return Err(missing("SYNCLINE_WORLD_SIZE (how many pods work together; 1 for a pod on its own)")),
        },
    };
    if size_variable == "SYNCLINE_WORLD_SIZE" && world == 1 {
        // Pods of a job array that have nothing to do with each other.
        let because = format!("{rank_variable}={rank}, but SYNCLINE_WORLD_SIZE=1 says the pod is on its own");
        return Ok(Launch::new(Launcher::Kubernetes, 0, 1, because));
    }
    if rank >= world {
        return Err(BootstrapError::TooLarge {
            variable: rank_variable.to_owned(),
            value: rank,
            limit_variable: size_variable.to_owned(),
            limit: world,
        });
    }
    let because = format!("found {rank_variable}={rank} and {size_variable}={world}");
    let mut launch = Launch::new(Launcher::Kubernetes, rank, world, because);
    launch.hosts = HostSpan::Several;
    launch.epoch = environment.number("TORCHELASTIC_RESTART_COUNT")?.unwrap_or(0);
    if let Some(meeting) = master(environment)? {
        let Meeting::Tcp { host, port, .. } = meeting else { return Ok(launch) };
        // As under torchrun: a torch store in the same pod would own the port itself.
        launch.job = format!("{host}:{port}/{}", launch.epoch);
        launch.meeting = tcp_meeting(&host, NAME, &launch.job);
    } else if world > 1 && environment.get("SYNCLINE_RENDEZVOUS").is_none() {
        return Err(missing("MASTER_ADDR with MASTER_PORT, PET_RDZV_ENDPOINT or SYNCLINE_RENDEZVOUS (the headless service of index 0)"));
    }
    Ok(launch)
}

/// `4`, or `4:4`; a range cannot be a world size.
fn fixed_size(nodes: &str) -> Result<u32, BootstrapError> {
    let (least, most) = nodes.trim().split_once(':').unwrap_or((nodes.trim(), nodes.trim()));
    match (least.parse::<u32>(), most.parse::<u32>()) {
        (Ok(least), Ok(most)) if least == most => Ok(most),
        _ => Err(BootstrapError::NotUnderstood {
            variable: "PET_NNODES".into(),
            value: nodes.to_owned(),
            expected: "a fixed number of nodes (for an elastic range, set SYNCLINE_WORLD_SIZE)",
        }),
    }
}

/// Where torch's store would be, by any of the names that Kubeflow uses.
fn master(environment: &Environment) -> Result<Option<Meeting>, BootstrapError> {
    for (address, port) in [("MASTER_ADDR", "MASTER_PORT"), ("PET_MASTER_ADDR", "PET_MASTER_PORT")] {
        if let Some(host) = environment.filled(address) {
            let number = environment.number(port)?.and_then(|port| u16::try_from(port).ok()).unwrap_or(29_500);
            return Ok(Some(Meeting::Tcp { host: host.trim().to_owned(), port: number, spare_ports: Vec::new() }));
        }
    }
    let Some(endpoint) = environment.filled("PET_RDZV_ENDPOINT") else {
        return Ok(None);
    };
    let (host, port) = split_endpoint(endpoint.trim()).map_err(|_| BootstrapError::NotUnderstood {
        variable: "PET_RDZV_ENDPOINT".into(),
        value: endpoint.to_owned(),
        expected: "host:port",
    })?;
    Ok(Some(Meeting::Tcp { host, port, spare_ports: Vec::new() }))
}
