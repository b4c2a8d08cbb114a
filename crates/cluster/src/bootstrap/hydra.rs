//! MPICH's and Intel MPI's `mpiexec` (Hydra), and other launchers that speak PMI-1.
//!
//! Hydra tells no job id. On one host all ranks descend from one `hydra_pmi_proxy`, so its pid and start time name the job; a shell
//! between it and the rank changes nothing. PMI is left untouched then: whoever speaks it must also end it, and a
//! program that calls `MPI_Init` later would find it ended. Several hosts have nothing else in common and meet through PMI.

use super::derive::unix_meeting;
use super::{BootstrapError, Environment, HostSpan, Launch, Launcher, Meeting, slurm};

const NAME: &str = "hydra";

/// Its name in MPICH and recent Intel MPI, and in older ones; the kernel keeps 15 bytes.
const PROXIES: [&str; 2] = ["hydra_pmi_proxy", "pmi_proxy"];

/// Knows a job by `PMI_RANK`, unless it is a Slurm step (`srun --mpi=pmi2` sets the same variables).
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    let rank = environment.get("PMI_RANK");
    rank.or(environment.get("PMI_SIZE"))?;
    let by_slurm = environment.get("MPI_LOCALRANKID").is_none() && rank.is_some_and(|rank| slurm::is_step_with_rank(environment, rank));
    (!by_slurm).then(|| read(environment))
}

fn read(environment: &Environment) -> Result<Launch, BootstrapError> {
    let (rank, world) = environment.rank_and_size("PMI_RANK", "PMI_SIZE")?.unwrap_or((0, 1));
    let because = format!("mpiexec set PMI_RANK={rank} of {world}");
    let mut launch = Launch::new(Launcher::Hydra, rank, world, because);
    launch.local_rank = environment.number("MPI_LOCALRANKID")?;
    launch.local_size = environment.number("MPI_LOCALNRANKS")?;
    launch.hosts = match launch.local_size {
        Some(size) if size == world => HostSpan::One,
        Some(_) => HostSpan::Several,
        None => HostSpan::Unknown,
    };
    let proxy = environment.ancestors().iter().find(|ancestor| PROXIES.contains(&ancestor.name.as_str()));
    if let (HostSpan::One, Some(proxy)) = (launch.hosts, proxy) {
        launch.job = format!("proxy {} started {}", proxy.pid, proxy.started);
        launch.because.push(format!("all ranks descend from {} (pid {})", proxy.name, proxy.pid));
        launch.meeting = unix_meeting(environment, NAME, &launch.job);
        return Ok(launch);
    }
    // The job's name comes from PMI at the meeting; no name is needed before, for the token travels there too.
    launch.job = "pmi".into();
    match pmi_descriptor(environment)? {
        Some(fd) => launch.meeting = Meeting::Pmi { fd },
        None if world == 1 || environment.get("SYNCLINE_RENDEZVOUS").is_some() => {}
        None => {
            return Err(BootstrapError::NoMeeting {
                launcher: NAME,
                rank,
                world,
                missing: "PMI_FD is not set and no hydra_pmi_proxy is among this process's ancestors",
                hint: "set SYNCLINE_RENDEZVOUS to tcp://host:port or file:/shared/path",
            });
        }
    }
    Ok(launch)
}

/// The number of the inherited PMI descriptor.
pub(super) fn pmi_descriptor(environment: &Environment) -> Result<Option<i32>, BootstrapError> {
    let Some(fd) = environment.number("PMI_FD")? else {
        return Ok(None);
    };
    i32::try_from(fd).map(Some).map_err(|_| BootstrapError::NotUnderstood {
        variable: "PMI_FD".into(),
        value: fd.to_string(),
        expected: "the number of a descriptor",
    })
}
