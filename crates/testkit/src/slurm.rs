//! The real Slurm for the time of a test: a controller and as many nodes as wanted, in an [`Enclosure`].
//!
//! Nodes are either all on one host, which Slurm takes for several machines although they share memory, or each is a host of its own
//! with its own network and name. Nothing of it is reachable from outside, so it needs no authentication, and nothing of it
//! outlives the test.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::enclosure::{Enclosure, find_program};

/// A cluster that is up.
#[derive(Debug)]
pub struct Slurm {
    enclosure: Enclosure,
}

impl Slurm {
    /// Nodes n1, n2, … on one host, each with room for two tasks.
    ///
    /// # Errors
    /// The reason why there can be none: for a test to say `skipped: reason`.
    pub fn on_one_host(nodes: usize) -> Result<Slurm, String> {
        Self::start(nodes, 0)
    }

    /// Nodes h1, h2, … that share neither network nor memory, each with room for two tasks.
    ///
    /// # Errors
    /// The reason why there can be none: for a test to say `skipped: reason`.
    pub fn on_hosts(nodes: usize) -> Result<Slurm, String> {
        Self::start(nodes, nodes)
    }

    fn start(nodes: usize, hosts: usize) -> Result<Slurm, String> {
        for program in ["slurmctld", "slurmd", "srun", "sinfo"] {
            find_program(program).ok_or_else(|| format!("{program} is not installed"))?;
        }
        let slurm = Slurm { enclosure: Enclosure::new(hosts)? };
        let folder = slurm.enclosure.folder().display().to_string();
        let name = |node: usize| if hosts == 0 { format!("n{node}") } else { format!("h{node}") };
        let mut text = CONFIGURATION.replace("FOLDER", &folder);
        let (controller, address) = if hosts == 0 { ("enclosure", "127.0.0.1") } else { ("enclosure", "10.77.0.254") };
        let _ = writeln!(text, "SlurmctldHost={controller}({address})");
        // A daemon that keeps the caller's pipe would keep the caller waiting for its end.
        let detached = "</dev/null >/dev/null 2>&1";
        let mut start = format!("slurmctld -f $SLURM_CONF {detached}\n");
        for node in 1..=nodes {
            let name = name(node);
            let _ = if hosts == 0 {
                writeln!(text, "NodeName={name} NodeHostname=enclosure NodeAddr=127.0.0.1 Port={} CPUs=2", 17010 + node)
            } else {
                writeln!(text, "NodeName={name} NodeHostname={name} NodeAddr=10.77.0.{node} Port=17010 CPUs=2")
            };
            let words = ["slurmd", "-f", "$SLURM_CONF", "-N", &name].map(str::to_owned);
            let line = if hosts == 0 {
                words.join(" ")
            } else {
                // `ip netns exec` does not do: it mounts another /sys, in which slurmd finds no cgroups.
                format!("nsenter --net=/run/netns/{name} unshare --uts sh -c 'hostname {name}; exec {}'", words.join(" "))
            };
            let _ = writeln!(start, "mkdir {folder}/spool-{name} {folder}/tmp-{name}\n{line} {detached}");
        }
        let _ = writeln!(text, "PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES");
        std::fs::write(slurm.enclosure.from_outside(&slurm.configuration()), text).map_err(|error| error.to_string())?;
        let wait = format!(
            "mkdir {folder}/state\nfor try in $(seq 1000); do\n  [ \"$(sinfo -h -N -o %T 2>/dev/null | grep -c '^idle$')\" = {nodes} ] && exit 0\n  sleep 0.02\ndone\nsinfo; cat {folder}/*.log; exit 1"
        );
        let (folders, wait) = wait.split_once('\n').expect("two parts");
        slurm.shell(&format!("{folders}\n{start}{wait}"));
        Ok(slurm)
    }

    fn configuration(&self) -> PathBuf {
        self.enclosure.folder().join("slurm.conf")
    }

    /// Where it runs.
    pub fn enclosure(&self) -> &Enclosure {
        &self.enclosure
    }

    /// The home folder that all nodes share, as the inside names it.
    pub fn home(&self) -> PathBuf {
        self.enclosure.folder().join("home")
    }

    /// A command inside: `srun`, `sbatch` and the like find the cluster. Give `srun` the option `--immediate`, or it may queue for ever.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = self.enclosure.command(words);
        self.configure(&mut command);
        command
    }

    /// Runs a shell script inside and returns what it said; panics with everything if it fails.
    pub fn shell(&self, script: &str) -> String {
        self.enclosure.shell(&format!("export SLURM_CONF={} PATH=$PATH:/usr/sbin:/sbin\n{script}", self.configuration().display()))
    }

    fn configure(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["SLURM", "SBATCH_", "SALLOC_", "PMI", "OMPI_COMM", "SYNCLINE_"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.env("SLURM_CONF", self.configuration());
    }
}

/// Without accounting, authentication or limits: what is tested is what a task sees.
const CONFIGURATION: &str = "\
ClusterName=testkit
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/spool-%n
TmpFS=FOLDER/tmp-%n
SlurmctldPidFile=FOLDER/slurmctld.pid
SlurmdPidFile=FOLDER/slurmd-%n.pid
SlurmctldLogFile=FOLDER/slurmctld.log
SlurmdLogFile=FOLDER/slurmd-%n.log
SlurmctldPort=6817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
SlurmdTimeout=30
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
";
