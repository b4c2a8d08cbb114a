//! How the nodes of a tree of their own find each other: torch-ipc's constructors.
//!
//! Each makes a job without a launcher, in which this process is node `node` of `nodes`, and returns when all have come.
//! A tree of one needs nobody and joins nobody.

use std::path::Path;
use std::time::Duration;

use syncline_cluster::Deadline;
use syncline_cluster::bootstrap::{BootstrapError, Environment, Launch, tree};
use syncline_collective::PlanSettings;

use super::Tree;
use crate::{Config, Error, Session};

/// What all constructors take: the shape of the tree, and how long to wait.
#[derive(Debug, Clone, Default)]
pub struct TreeOptions {
    /// Which plan the calls go by, and with how many children a node.
    pub plan: PlanSettings,
    /// How long to wait for somebody who neither comes nor dies; what `SYNCLINE_TIMEOUT` says by default.
    pub timeout: Option<Duration>,
    /// Asked now and then while the nodes meet; `true` gives up. For interpreters, whose users press Ctrl-C.
    pub interrupted: Option<fn() -> bool>,
}

impl Tree {
    /// Nodes of one host that know a process id in common, by default that of their parent: torch-ipc's LocalhostTree.
    ///
    /// ```
    /// use syncline::{ReduceOp, Tree, TreeOptions};
    ///
    /// let key = std::process::id(); // any number the nodes share
    /// std::thread::scope(|scope| {
    ///     let nodes: Vec<_> = (1..=2)
    ///         .map(|node| {
    ///             scope.spawn(move || {
    ///                 let tree = Tree::localhost(node, 2, Some(key), &TreeOptions::default())?;
    ///                 let mut numbers = [node as f32; 3];
    ///                 tree.all_reduce(&mut numbers, ReduceOp::Sum)?;
    ///                 Ok::<_, syncline::Error>(numbers)
    ///             })
    ///         })
    ///         .collect();
    ///     for node in nodes {
    ///         assert_eq!(node.join().expect("no panic")?, [3.0; 3]);
    ///     }
    ///     Ok::<(), syncline::Error>(())
    /// })?;
    /// # Ok::<(), syncline::Error>(())
    /// ```
    pub fn localhost(node: u32, nodes: u32, key: Option<u32>, options: &TreeOptions) -> Result<Tree, Error> {
        join(options, |environment, _| tree::localhost(environment, node, nodes, key))
    }

    /// Nodes that were all told where node 1 listens: torch-ipc's StaticTree. The others reach this node at `own`.
    pub fn fixed(node: u32, nodes: u32, own: (&str, u16), root: (&str, u16), options: &TreeOptions) -> Result<Tree, Error> {
        join(options, |environment, _| tree::fixed(environment, node, nodes, own.0, own.1, root.0, root.1))
    }

    /// Nodes whose program has a place to leave an address: node 1 takes a port at `own` and calls `publish(host, port)`,
    /// the others call `query()` until it answers: torch-ipc's DiscoveredTree. What `publish` fails with ends the call, since nobody would come.
    pub fn discovered(
        node: u32,
        nodes: u32,
        own: (&str, u16),
        publish: impl FnOnce(&str, u16) -> Result<(), String>,
        query: impl FnMut() -> Option<(String, u16)>,
        options: &TreeOptions,
    ) -> Result<Tree, Error> {
        join(options, |environment, by| tree::discovered(environment, node, nodes, own.0, own.1, publish, query, by))
    }

    /// The tasks of this Slurm step: torch-ipc's SlurmTree. They meet through PMI, or through a file in `folder`.
    ///
    /// [`gpu`](Tree::gpu) tells which GPU of its host is this task's when `tasks_per_gpu` tasks share each.
    pub fn slurm(folder: Option<&Path>, tasks_per_gpu: u32, options: &TreeOptions) -> Result<Tree, Error> {
        let mut gpu = None;
        let mut tree = join(options, |environment, _| {
            let node = tree::slurm(environment, folder, tasks_per_gpu)?;
            gpu = Some(node.gpu);
            Ok(node.launch)
        })?;
        tree.gpu = gpu;
        Ok(tree)
    }
}

fn join(options: &TreeOptions, describe: impl FnOnce(&Environment, Deadline) -> Result<Launch, BootstrapError>) -> Result<Tree, Error> {
    let environment = Environment::current();
    let mut config = Config::free_standing(&environment)?;
    config.plan.base = options.plan.base;
    config.plan.forced = options.plan.forced.or(config.plan.forced);
    if let Some(timeout) = options.timeout {
        config.settings.timeout = timeout;
    }
    let mut by = Deadline::after(config.settings.timeout);
    if let Some(interrupted) = options.interrupted {
        by = by.with_interrupt(interrupted);
    }
    config.launch = describe(&environment, by).map_err(|error| Error::configuration(error.to_string()))?;
    if config.launch.world == 1 {
        return Ok(Tree::null());
    }
    Tree::over(Session::open_by(config, by)?)
}
