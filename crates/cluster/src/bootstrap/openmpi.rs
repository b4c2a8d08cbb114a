//! Open MPI's `mpirun`, without an MPI library.
//!
//! It gives rank and size but no meeting point. Ranks of one host meet at an abstract socket named after the job id; ranks of several
//! hosts through a rendezvous file. Inside Slurm both sets of variables are present and those of Slurm describe
//! Open MPI's own daemons, so this launcher is asked first.

use super::derive::{file_meeting, unix_meeting};
use super::{BootstrapError, Environment, HostSpan, Launch, Launcher};

const NAME: &str = "openmpi";

/// Knows a job by `OMPI_COMM_WORLD_RANK`.
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    let there = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"];
    there.iter().any(|name| environment.get(name).is_some()).then(|| read(environment))
}

fn read(environment: &Environment) -> Result<Launch, BootstrapError> {
    let (rank, world) = environment.rank_and_size("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?.unwrap_or((0, 1));
    let because = format!("mpirun set OMPI_COMM_WORLD_RANK={rank} of {world}");
    let mut launch = Launch::new(Launcher::OpenMpi, rank, world, because);
    if environment.get("SLURM_JOB_ID").is_some() {
        launch.because.push("Slurm's variables describe mpirun's daemons, so Open MPI's are used".into());
    }
    launch.local_rank = environment.number("OMPI_COMM_WORLD_LOCAL_RANK")?;
    launch.local_size = environment.number("OMPI_COMM_WORLD_LOCAL_SIZE")?;
    launch.hosts = match launch.local_size {
        Some(size) if size == world => HostSpan::One,
        Some(_) => HostSpan::Several,
        None => HostSpan::Unknown,
    };
    let id = environment.get("PMIX_NAMESPACE").or(environment.get("OMPI_MCA_ess_base_jobid"));
    let Some(id) = id else {
        if world == 1 {
            return Ok(launch);
        }
        return Err(BootstrapError::NoMeeting {
            launcher: NAME,
            rank,
            world,
            missing: "neither PMIX_NAMESPACE nor OMPI_MCA_ess_base_jobid names the job",
            hint: "pass them on, or set SYNCLINE_RENDEZVOUS (mpirun -x SYNCLINE_RENDEZVOUS=tcp://host:port)",
        });
    };
    // A job id comes back once pids wrap around. The launcher's address and its random transport key are the same on
    // every host and do not come back, so a file that an earlier job left is recognised as stale.
    let launcher_address = environment.get("OMPI_MCA_orte_hnp_uri").unwrap_or_default();
    let random = environment.get("OMPI_MCA_orte_precondition_transports").unwrap_or_default();
    launch.job = format!("{id} {launcher_address} {random}").trim_end().to_owned();
    if launch.hosts == HostSpan::One {
        launch.meeting = unix_meeting(environment, NAME, &launch.job);
    } else if let Some(meeting) = file_meeting(environment, NAME, id, &launch.job) {
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
