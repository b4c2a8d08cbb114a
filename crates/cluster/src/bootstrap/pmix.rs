//! PMIx launchers that are not Open MPI: PRRTE's `prun`, or `srun --mpi=pmix`.
//!
//! PMIx tells rank and namespace in variables, and everything else only through its library, which Syncline does not load.
//! Under `srun --mpi=pmix` (often the site's default, so also for programs that know nothing of MPI) Slurm's own variables
//! say the rest: that job is Slurm's. A program that calls Open MPI's `MPI_Init` without `mpirun` finds `PMIX_RANK` in its
//! own environment afterwards (a "singleton"): that is no job at all. Elsewhere `SYNCLINE_WORLD_SIZE` has to say the size, and ranks meet through a file.

use super::derive::file_meeting;
use super::{BootstrapError, Environment, HostSpan, Launch, Launcher, slurm};

const NAME: &str = "pmix";

/// Knows a job by `PMIX_RANK`, unless a Slurm step tells the same rank or Open MPI set it for itself alone.
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    let rank = environment.get("PMIX_RANK")?;
    let singleton = environment.get("OMPI_MCA_ess") == Some("singleton");
    (!singleton && !slurm::is_step_with_rank(environment, rank)).then(|| read(environment))
}

fn read(environment: &Environment) -> Result<Launch, BootstrapError> {
    let (rank, world) = environment.rank_and_size("PMIX_RANK", "SYNCLINE_WORLD_SIZE")?.unwrap_or((0, 1));
    let because = format!("PMIx set PMIX_RANK={rank}, SYNCLINE_WORLD_SIZE says {world}");
    let mut launch = Launch::new(Launcher::Pmix, rank, world, because);
    launch.hosts = HostSpan::Unknown;
    let Some(namespace) = environment.get("PMIX_NAMESPACE") else {
        return Err(BootstrapError::HalfSet { variable: "PMIX_RANK".into(), value: rank.to_string(), missing: "PMIX_NAMESPACE" });
    };
    launch.job = namespace.to_owned();
    if let Some(meeting) = file_meeting(environment, NAME, namespace, namespace) {
        launch.meeting = meeting;
    } else if world > 1 && environment.get("SYNCLINE_RENDEZVOUS").is_none() {
        return Err(BootstrapError::NoMeeting {
            launcher: NAME,
            rank,
            world,
            missing: "HOME names no folder to meet in",
            hint: "set HOME to a folder that all hosts share, or SYNCLINE_RENDEZVOUS to tcp://host:port or file:/shared/path",
        });
    }
    Ok(launch)
}
