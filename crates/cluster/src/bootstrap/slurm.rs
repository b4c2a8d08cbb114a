//! A Slurm step: what `srun` starts.
//!
//! A batch script and an `salloc` shell have Slurm's variables too, `SLURM_PROCID=0` and `SLURM_NTASKS=6` among them, but they are not
//! one of the six: only a process inside a step is. The step's variables are used, never the job's, because a step
//! may be smaller than its job.

use super::derive::{file_meeting, unix_meeting};
use super::hydra::pmi_descriptor;
use super::{BootstrapError, Environment, HostSpan, Launch, Launcher, Meeting, slurm_list};

const NAME: &str = "slurm";

/// Step ids from here on are Slurm's own: batch script, interactive shell, extern.
const FIRST_SPECIAL_STEP: u32 = 0xffff_fff0;

/// Knows a job by a step id together with `SLURM_PROCID`.
pub(super) fn detect(environment: &Environment) -> Option<Result<Launch, BootstrapError>> {
    step(environment).map(|step| read(environment, step))
}

/// Why a process inside an allocation runs alone: for the line that says so.
pub(super) fn not_a_step(environment: &Environment) -> Option<String> {
    let job = environment.get("SLURM_JOB_ID").or(environment.get("SLURM_JOBID"))?;
    step(environment)
        .is_none()
        .then(|| format!("inside Slurm job {job} but not in a step (a batch script or an salloc shell): use srun to start more than one"))
}

/// Whether this is a step in which Slurm's rank is the one that another set of variables tells.
///
/// Under `salloc … mpirun` Slurm's rank is that of mpirun's daemon, so the two differ as soon as a node runs two ranks.
pub(super) fn is_step_with_rank(environment: &Environment, rank: &str) -> bool {
    step(environment).is_some() && environment.get("SLURM_PROCID").map(str::trim) == Some(rank.trim())
}

fn step(environment: &Environment) -> Option<&str> {
    environment.get("SLURM_PROCID")?;
    let step = environment.get("SLURM_STEP_ID").or(environment.get("SLURM_STEPID"))?;
    let special = step.trim().parse::<u32>().is_ok_and(|id| id >= FIRST_SPECIAL_STEP);
    (!special).then_some(step)
}

fn read(environment: &Environment, step: &str) -> Result<Launch, BootstrapError> {
    let sizes = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];
    let size = sizes.into_iter().find(|name| environment.get(name).is_some()).unwrap_or(sizes[0]);
    let (rank, world) = environment.rank_and_size("SLURM_PROCID", size)?.unwrap_or((0, 1));
    let job_variable = ["SLURM_JOB_ID", "SLURM_JOBID"].into_iter().find_map(|name| environment.get(name));
    let Some(job) = job_variable else {
        return Err(BootstrapError::HalfSet { variable: "SLURM_STEP_ID".into(), value: step.to_owned(), missing: "SLURM_JOB_ID" });
    };
    let because = format!("srun set SLURM_PROCID={rank} of {world} in step {job}.{step}");
    let mut launch = Launch::new(Launcher::Slurm, rank, world, because);
    launch.epoch = environment.number("SLURM_RESTART_COUNT")?.unwrap_or(0);
    launch.local_rank = environment.number("SLURM_LOCALID")?;
    let layout = layout(environment)?;
    let node = environment.number("SLURM_NODEID")?;
    launch.local_size = match (&layout, node) {
        (Some(tasks), Some(node)) => tasks.get(node as usize).copied(),
        _ => None,
    };
    let nodes = match environment.number("SLURM_STEP_NUM_NODES")? {
        Some(nodes) => Some(nodes),
        None => layout.map(|tasks| tasks.len() as u32).or(environment.number("SLURM_NNODES")?),
    };
    launch.hosts = match nodes {
        Some(1) => HostSpan::One,
        Some(_) => HostSpan::Several,
        None => HostSpan::Unknown,
    };
    if let Some(list) = environment.get("SLURM_STEP_NODELIST").or(environment.get("SLURM_JOB_NODELIST")) {
        let hosts = slurm_list::hosts(list).map_err(|fault| fault.of("SLURM_STEP_NODELIST", list))?;
        if let Some(first) = hosts.first() {
            launch.because.push(format!("the step has {} nodes, {first} first", hosts.len()));
        }
    }
    // Job ids start again when a site resets its counter; the cluster's name tells federated clusters apart.
    let cluster = environment.get("SLURM_CLUSTER_NAME").unwrap_or("cluster");
    let id = format!("{job}.{step}-restart{}", launch.epoch);
    launch.job = format!("{cluster} {id}");
    let descriptor = pmi_descriptor(environment)?;
    launch.meeting = if launch.hosts == HostSpan::One {
        unix_meeting(environment, NAME, &launch.job)
    } else if let Some(fd) = descriptor {
        Meeting::Pmi { fd }
    } else if let Some(meeting) = file_meeting(environment, NAME, &id, &launch.job) {
        meeting
    } else if world == 1 || environment.get("SYNCLINE_RENDEZVOUS").is_some() {
        Meeting::Alone
    } else {
        return Err(BootstrapError::NoMeeting {
            launcher: NAME,
            rank,
            world,
            missing: "HOME names no folder to meet in",
            hint: "use srun --mpi=pmi2, or set SYNCLINE_RENDEZVOUS to tcp://host:port or file:/shared/path",
        });
    };
    Ok(launch)
}

/// How many tasks each node of the step has.
fn layout(environment: &Environment) -> Result<Option<Vec<u32>>, BootstrapError> {
    let variables = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
    let Some((variable, value)) = variables.into_iter().find_map(|name| environment.get(name).map(|value| (name, value))) else {
        return Ok(None);
    };
    slurm_list::tasks_per_node(value).map(Some).map_err(|fault| fault.of(variable, value))
}
