//! The tasks of a Slurm step as nodes of a tree: torch-ipc's SlurmTree, right also when nodes have different numbers of tasks.

use std::path::Path;

use super::super::{BootstrapError, Environment, Launch, Launcher, Meeting, derive};
use super::super::{explicit::Wishes, find_launcher};
use super::settled;

/// A task of a step: how it joins, and which GPU is its own.
#[derive(Debug, Clone)]
pub struct SlurmNode {
    /// How it joins the others.
    pub launch: Launch,
    /// Which of its host's GPUs this task uses, from 1: `tasks_per_gpu` tasks share each.
    pub gpu: u32,
}

/// This task of the step that the environment describes.
///
/// They meet through PMI where Slurm offers it (`--mpi=pmi2`), else through a file in `folder`, by default `~/.syncline`, which all hosts
/// must see. A given folder is always used. A process in no step is a tree of one, and under `mpirun` inside Slurm the ranks are MPI's.
///
/// # Errors
/// Variables that make no sense, no folder to meet in, or zero tasks for each GPU.
pub fn slurm(environment: &Environment, folder: Option<&Path>, tasks_per_gpu: u32) -> Result<SlurmNode, BootstrapError> {
    if tasks_per_gpu == 0 {
        let (variable, value) = ("tasks_per_gpu".to_owned(), "0".to_owned());
        return Err(BootstrapError::NotUnderstood { variable, value, expected: "a number from 1" });
    }
    let mut launch = find_launcher(environment)?;
    let given = Wishes::read(environment)?.meeting;
    if let Some(meeting) = folder.is_none().then_some(given).flatten() {
        launch.meet_at(meeting);
    } else if let Some(folder) = folder {
        launch.meeting = derive::file_in(folder, launch.launcher.name(), &id(&launch), &tree_of(&launch));
    } else if launch.launcher == Launcher::Slurm && !matches!(launch.meeting, Meeting::Pmi { .. }) {
        // A session of the same step may use the name that the step itself is known by, so a tree has one of its own. A file can be
        // used for one tree after another, a name only while nobody else listens there.
        let file = derive::file_meeting(environment, "slurm", &id(&launch), &tree_of(&launch));
        launch.meeting = file.unwrap_or_else(|| derive::unix_meeting(environment, "slurm", &tree_of(&launch)));
    }
    launch.job = tree_of(&launch);
    let launch = settled(launch, environment)?;
    let Some(local) = launch.local_rank else {
        return Err(BootstrapError::HalfSet {
            variable: "SLURM_PROCID".into(),
            value: launch.rank.unwrap_or_default().to_string(),
            missing: "SLURM_LOCALID",
        });
    };
    Ok(SlurmNode { launch, gpu: local / tasks_per_gpu + 1 })
}

/// What all tasks of the step share, told apart from the session of the same step.
fn tree_of(launch: &Launch) -> String {
    format!("tree of {}", launch.job)
}

/// The readable part of the file's name.
fn id(launch: &Launch) -> String {
    let id = launch.job.split_whitespace().last().unwrap_or("job");
    format!("tree-{id}")
}
