//! Every launcher's variables as they really look, and what is understood from them.
//!
//! The environments were captured under the real launchers and shortened to what is read or might mislead.

use syncline_cluster::bootstrap::{Ancestor, Arguments, Environment, HostSpan, Launch, Launcher, Meeting, Role, Token, TokenOrigin, find};

/// An environment from lines of `NAME=value`.
fn environment(lines: &str) -> Environment {
    let pairs = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    Environment::from_variables(pairs.map(|line| line.split_once('=').unwrap_or_else(|| panic!("no = in {line:?}")))).with_user(1000)
}

/// The launch in one line: `launcher rank/world local a/b role, hosts, meeting, epoch, token`.
fn summary(launch: &Launch) -> String {
    let number = |number: Option<u32>| number.map_or("?".to_owned(), |number| number.to_string());
    let meeting = match &launch.meeting {
        Meeting::Unix { name } => format!("unix:@{}…", &name[..14.min(name.len())]),
        Meeting::Tcp { host, port, spare_ports } if spare_ports.is_empty() => format!("tcp://{host}:{port}"),
        Meeting::Tcp { host, spare_ports, .. } => format!("tcp://{host} on {} derived ports", 1 + spare_ports.len()),
        Meeting::File { path } => {
            let text = path.display().to_string();
            format!("file:{}…", &text[..text.len() - 16])
        }
        other => other.to_string(),
    };
    let token = match &launch.token {
        TokenOrigin::Given(_) => "given",
        TokenOrigin::Derived { key_file: Some(_), .. } => "derived",
        TokenOrigin::Derived { key_file: None, .. } => "homeless",
        TokenOrigin::Exchanged => "exchanged",
        _ => "none",
    };
    format!(
        "{} {}/{} local {}/{} {}, {}, {meeting}, epoch {}, token {token}",
        launch.launcher,
        number(launch.rank),
        launch.world,
        number(launch.local_rank),
        number(launch.local_size),
        launch.role,
        launch.hosts,
        launch.epoch
    )
}

fn found(lines: &str) -> String {
    match find(&environment(lines), &Arguments::default()) {
        Ok(launch) => summary(&launch),
        Err(error) => format!("error: {error}"),
    }
}

/// Checks a list of (what it shows, environment, summary or part of the error), and reports every case that differs.
fn check(cases: &[(&str, &str, &str)]) {
    let wrong: Vec<String> = cases
        .iter()
        .map(|(what, lines, expected)| (what, found(lines), expected))
        .filter(|(_, found, expected)| if expected.starts_with("error") { !holds(found, expected) } else { found != *expected })
        .map(|(what, found, expected)| format!("{what}\n  expected {expected}\n  found    {found}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// `error: a … b` means an error that holds `a` and then `b`.
fn holds(found: &str, expected: &str) -> bool {
    let mut rest = found;
    expected.split(" … ").all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

#[test]
fn alone() {
    check(&[
        ("nothing is set", "HOME=/u\nPATH=/bin", "solo 0/1 local 0/1 both, one host, alone, epoch 0, token none"),
        (
            "a size of one beside nothing",
            "SYNCLINE_WORLD_SIZE=1\nWORLD_SIZE=1",
            "solo 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
        (
            "empty leftovers of a script",
            "RANK=\nWORLD_SIZE=\nMASTER_ADDR=",
            "solo 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
        (
            "a token and a role alone",
            "SYNCLINE_TOKEN=x\nSYNCLINE_ROLE=server",
            "solo 0/1 local 0/1 server, one host, alone, epoch 0, token given",
        ),
    ]);
}

#[test]
fn explicit_variables() {
    check(&[
        (
            "syncline run",
            "SYNCLINE_LAUNCHER=run\nSYNCLINE_RANK=1\nSYNCLINE_WORLD_SIZE=4\nSYNCLINE_LOCAL_RANK=1\nSYNCLINE_RENDEZVOUS=unix:@syncline-7f\nSYNCLINE_TOKEN=x\nSYNCLINE_EPOCH=2",
            "syncline-run 1/4 local 1/4 both, one host, unix:@syncline-7f…, epoch 2, token given",
        ),
        (
            "by hand, on two hosts",
            "HOME=/h\nSYNCLINE_RANK=1\nSYNCLINE_WORLD_SIZE=2\nSYNCLINE_RENDEZVOUS=tcp://node1:5000\nSYNCLINE_ROLE=Worker",
            "explicit 1/2 local ?/? worker, one host or several, tcp://node1:5000, epoch 0, token derived",
        ),
        (
            "by hand, on loopback",
            "HOME=/h\nSYNCLINE_RANK=0\nSYNCLINE_WORLD_SIZE=2\nSYNCLINE_RENDEZVOUS=127.0.0.1:5000",
            "explicit 0/2 local 0/2 both, one host, tcp://127.0.0.1:5000, epoch 0, token derived",
        ),
        (
            "a file carries the token",
            "SYNCLINE_RANK=0\nSYNCLINE_WORLD_SIZE=2\nSYNCLINE_RENDEZVOUS=file:/shared/meeting-0123456789abcdef",
            "explicit 0/2 local ?/? both, one host or several, file:/shared/meeting-…, epoch 0, token exchanged",
        ),
        (
            "local size tells that there are more hosts",
            "HOME=/h\nSYNCLINE_RANK=3\nSYNCLINE_WORLD_SIZE=4\nSYNCLINE_LOCAL_RANK=1\nSYNCLINE_LOCAL_SIZE=2\nSYNCLINE_RENDEZVOUS=[fd00::1]:5000",
            "explicit 3/4 local 1/2 both, several hosts, tcp://fd00::1:5000, epoch 0, token derived",
        ),
        (
            "a world of one needs no meeting point",
            "SYNCLINE_RANK=0\nSYNCLINE_WORLD_SIZE=1",
            "explicit 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
        (
            "explicit wins over torchrun",
            "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=a\nMASTER_PORT=1\nSYNCLINE_RANK=5\nSYNCLINE_WORLD_SIZE=6\nSYNCLINE_RENDEZVOUS=h:1",
            "explicit 5/6 local ?/? both, one host or several, tcp://h:1, epoch 0, token homeless",
        ),
        ("rank without size", "SYNCLINE_RANK=1", "error: SYNCLINE_RANK=1 … SYNCLINE_WORLD_SIZE is not"),
        ("size without rank", "SYNCLINE_WORLD_SIZE=4", "error: SYNCLINE_WORLD_SIZE=4 … SYNCLINE_RANK is not"),
        ("a meeting point without rank", "SYNCLINE_RENDEZVOUS=h:1", "error: SYNCLINE_RENDEZVOUS=h:1 … SYNCLINE_RANK is not"),
        ("no meeting point", "SYNCLINE_RANK=1\nSYNCLINE_WORLD_SIZE=4", "error: SYNCLINE_RANK=1 … SYNCLINE_RENDEZVOUS is not"),
        ("rank beyond size", "SYNCLINE_RANK=4\nSYNCLINE_WORLD_SIZE=4", "error: SYNCLINE_RANK=4 does not fit SYNCLINE_WORLD_SIZE=4"),
        ("a world of none", "SYNCLINE_RANK=0\nSYNCLINE_WORLD_SIZE=0", "error: SYNCLINE_RANK=0 does not fit SYNCLINE_WORLD_SIZE=0"),
        ("not a number", "SYNCLINE_RANK=one\nSYNCLINE_WORLD_SIZE=4", "error: SYNCLINE_RANK=\"one\" is not a whole number"),
        ("nothing in it", "SYNCLINE_RANK=\nSYNCLINE_WORLD_SIZE=4", "error: SYNCLINE_RANK=\"\" is not a whole number"),
        ("negative", "SYNCLINE_RANK=-1\nSYNCLINE_WORLD_SIZE=4", "error: SYNCLINE_RANK=\"-1\""),
        ("a role nobody has", "SYNCLINE_ROLE=boss", "error: SYNCLINE_ROLE=\"boss\" is not one of both, worker, server"),
        ("an empty secret", "SYNCLINE_TOKEN= ", "error: SYNCLINE_TOKEN … is empty"),
        (
            "local rank beyond local size",
            "SYNCLINE_RANK=1\nSYNCLINE_WORLD_SIZE=4\nSYNCLINE_LOCAL_RANK=4\nSYNCLINE_RENDEZVOUS=unix:@x",
            "error: explicit's local rank=4",
        ),
        (
            "local size beyond the world",
            "SYNCLINE_RANK=1\nSYNCLINE_WORLD_SIZE=4\nSYNCLINE_LOCAL_SIZE=8\nSYNCLINE_RENDEZVOUS=h:1",
            "error: the local size of explicit=8 contradicts its world size=4",
        ),
    ]);
}

/// torchrun 2.x with `--nproc-per-node 2` on one node.
const TORCHRUN: &str = "HOME=/h
    RANK=1
    WORLD_SIZE=2
    LOCAL_RANK=1
    LOCAL_WORLD_SIZE=2
    GROUP_RANK=0
    GROUP_WORLD_SIZE=1
    ROLE_RANK=1
    ROLE_NAME=default
    ROLE_WORLD_SIZE=2
    MASTER_ADDR=node1
    MASTER_PORT=29500
    TORCHELASTIC_RESTART_COUNT=0
    TORCHELASTIC_MAX_RESTARTS=3
    TORCHELASTIC_RUN_ID=5e4f
    TORCHELASTIC_USE_AGENT_STORE=True
    OMP_NUM_THREADS=1";

#[test]
fn torchrun() {
    let two_nodes = TORCHRUN.replace("    WORLD_SIZE=2", "    WORLD_SIZE=4");
    check(&[
        ("one node", TORCHRUN, "torchrun 1/2 local 1/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived"),
        ("two nodes", &two_nodes, "torchrun 1/4 local 1/2 both, several hosts, tcp://node1 on 5 derived ports, epoch 0, token derived"),
        (
            "a script without local size",
            "HOME=/h\nRANK=0\nWORLD_SIZE=2\nMASTER_ADDR=node1\nMASTER_PORT=29500",
            "torchrun 0/2 local ?/? both, one host or several, tcp://node1 on 5 derived ports, epoch 0, token derived",
        ),
        (
            "a script on one host",
            "HOME=/h\nRANK=0\nWORLD_SIZE=2\nMASTER_ADDR=localhost\nMASTER_PORT=29500",
            "torchrun 0/2 local 0/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived",
        ),
        (
            "a size that a batch script exports for its own use, before mpirun",
            "HOME=/h\nWORLD_SIZE=8\nMASTER_ADDR=node1\nMASTER_PORT=1\nOMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nOMPI_COMM_WORLD_LOCAL_SIZE=2\nPMIX_NAMESPACE=1",
            "openmpi 1/2 local 1/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived",
        ),
        ("size without rank", "WORLD_SIZE=8", "error: WORLD_SIZE=8 is set but RANK is not"),
        ("rank without size", "RANK=3", "error: RANK=3 is set but WORLD_SIZE is not"),
        ("no meeting point", "RANK=3\nWORLD_SIZE=4", "error: RANK=3 is set but MASTER_ADDR is not"),
        ("half a meeting point", "RANK=3\nWORLD_SIZE=4\nMASTER_ADDR=node1", "error: RANK=3 is set but MASTER_PORT is not"),
        ("rank beyond size", "RANK=4\nWORLD_SIZE=4\nMASTER_ADDR=node1\nMASTER_PORT=1", "error: RANK=4 does not fit WORLD_SIZE=4"),
        (
            "torchrun started by mpirun",
            &format!("{TORCHRUN}\nOMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=1"),
            "torchrun 1/2 local 1/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived",
        ),
    ]);
}

#[test]
fn a_restarted_torch_job_meets_elsewhere() {
    let first = find(&environment(TORCHRUN), &Arguments::default()).unwrap();
    let again = find(&environment(&TORCHRUN.replace("RESTART_COUNT=0", "RESTART_COUNT=1")), &Arguments::default()).unwrap();
    assert_eq!((first.epoch, again.epoch), (0, 1));
    assert_ne!(first.meeting, again.meeting);
    assert_ne!(first.job, again.job);
}

/// `mpirun.openmpi -np 2 env`, Open MPI 4.1.4.
const OPENMPI: &str = "HOME=/h
    OMPI_APP_CTX_NUM_PROCS=2
    OMPI_COMMAND=env
    OMPI_COMM_WORLD_LOCAL_RANK=1
    OMPI_COMM_WORLD_LOCAL_SIZE=2
    OMPI_COMM_WORLD_NODE_RANK=1
    OMPI_COMM_WORLD_RANK=1
    OMPI_COMM_WORLD_SIZE=2
    OMPI_FILE_LOCATION=/tmp/ompi.node1.0/pid.6592/0/0
    OMPI_FIRST_RANKS=0
    OMPI_MCA_ess=^singleton
    OMPI_MCA_ess_base_jobid=1966997505
    OMPI_MCA_ess_base_vpid=1
    OMPI_MCA_orte_ess_num_procs=2
    OMPI_MCA_orte_hnp_uri=1966997504.0;tcp://192.0.2.2:53137;tcp6://[fd00::2]:46695
    OMPI_MCA_orte_local_daemon_uri=1966997504.0;tcp://192.0.2.2:53137;tcp6://[fd00::2]:46695
    OMPI_MCA_orte_num_nodes=1
    OMPI_MCA_orte_precondition_transports=387367e6b1d833e9-a6fb938885ea9e71
    OMPI_NUM_APP_CTX=1
    OMPI_UNIVERSE_SIZE=2
    PMIX_HOSTNAME=node1
    PMIX_ID=1966997505.1
    PMIX_NAMESPACE=1966997505
    PMIX_RANK=1
    PMIX_SERVER_URI4=1966997504.0;tcp4://127.0.0.1:59927
    PMIX_VERSION=4.2.2rc2";

#[test]
fn openmpi() {
    let two_hosts = OPENMPI.replace("WORLD_SIZE=2", "WORLD_SIZE=5");
    let homeless = two_hosts.replace("HOME=/h", "HOME=");
    // Open MPI 5 has no orte: PRRTE names the job by host, pid and number.
    let five = "HOME=/h\nOMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=3\nOMPI_COMM_WORLD_LOCAL_RANK=0\nOMPI_COMM_WORLD_LOCAL_SIZE=1\nPMIX_NAMESPACE=prterun-node1-4711@1\nPMIX_RANK=0";
    check(&[
        ("one host", OPENMPI, "openmpi 1/2 local 1/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived"),
        (
            "several hosts",
            &two_hosts,
            "openmpi 1/5 local 1/2 both, several hosts, file:/h/.syncline/openmpi-1966997505-…, epoch 0, token exchanged",
        ),
        (
            "Open MPI 5",
            five,
            "openmpi 0/3 local 0/1 both, several hosts, file:/h/.syncline/openmpi-prterun-node1-4711@1-…, epoch 0, token exchanged",
        ),
        ("no home to meet in", &homeless, "error: openmpi started rank 1 of 5 but HOME … SYNCLINE_RENDEZVOUS"),
        (
            "a meeting point of the user's",
            &format!("{homeless}\nSYNCLINE_RENDEZVOUS=tcp://node1:5000\nSYNCLINE_TOKEN=x"),
            "openmpi 1/5 local 1/2 both, several hosts, tcp://node1:5000, epoch 0, token given",
        ),
        // `salloc -N 2 mpirun -np 4`: Slurm's variables are those of orted.
        (
            "inside a Slurm step of mpirun's daemons",
            &format!("{OPENMPI}\nSLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_PROCID=0\nSLURM_NTASKS=2\nSLURM_STEP_NUM_TASKS=2"),
            "openmpi 1/2 local 1/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived",
        ),
        ("rank without size", "OMPI_COMM_WORLD_RANK=1", "error: OMPI_COMM_WORLD_RANK=1 … OMPI_COMM_WORLD_SIZE is not"),
        ("size without rank", "OMPI_COMM_WORLD_SIZE=2", "error: OMPI_COMM_WORLD_SIZE=2 … OMPI_COMM_WORLD_RANK is not"),
        ("no job id", "OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2", "error: openmpi started rank 1 of 2 but neither PMIX_NAMESPACE"),
        ("-np 1", "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=1", "openmpi 0/1 local 0/1 both, one host, alone, epoch 0, token none"),
        (
            "another size asked for",
            &format!("{OPENMPI}\nSYNCLINE_WORLD_SIZE=4"),
            "error: SYNCLINE_WORLD_SIZE=4 contradicts the world of openmpi=2",
        ),
    ]);
}

#[test]
fn ranks_of_one_job_agree_and_jobs_differ() {
    let launch = |lines: &str, user| find(&environment(lines).with_user(user), &Arguments::default()).unwrap();
    let rank_1 = launch(OPENMPI, 1000);
    let rank_0 = launch(&OPENMPI.replace("_RANK=1", "_RANK=0").replace("vpid=1", "vpid=0").replace("505.1", "505.0"), 1000);
    assert_eq!(rank_0.rank, Some(0));
    assert_eq!((&rank_0.meeting, &rank_0.job, &rank_0.token), (&rank_1.meeting, &rank_1.job, &rank_1.token));
    let other_user = launch(OPENMPI, 1001);
    assert_ne!(rank_1.meeting, other_user.meeting);
    // The same job id again, after pids have wrapped around.
    let later = launch(&OPENMPI.replace("387367e6", "00000000"), 1000);
    assert_ne!(rank_1.job, later.job);
    assert_ne!(rank_1.meeting, later.meeting);
}

#[test]
fn pmix_without_open_mpi() {
    check(&[
        (
            "srun --mpi=pmix is Slurm's",
            "HOME=/h\nPMIX_RANK=1\nPMIX_NAMESPACE=slurm.pmix.11.0\nSLURM_JOB_ID=11\nSLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=4\nSLURM_STEP_NUM_NODES=2\nSLURM_STEP_TASKS_PER_NODE=2(x2)\nSLURM_NODEID=0\nSLURM_LOCALID=1",
            "slurm 1/4 local 1/2 both, several hosts, file:/h/.syncline/slurm-11.0-restart0-…, epoch 0, token exchanged",
        ),
        ("prun tells no size", "PMIX_RANK=1\nPMIX_NAMESPACE=prte@1", "error: PMIX_RANK=1 … SYNCLINE_WORLD_SIZE is not"),
        (
            "prun with a size",
            "HOME=/h\nPMIX_RANK=1\nPMIX_NAMESPACE=prte@1\nSYNCLINE_WORLD_SIZE=3",
            "pmix 1/3 local ?/? both, one host or several, file:/h/.syncline/pmix-prte@1-…, epoch 0, token exchanged",
        ),
        (
            "MPI_Init without mpirun leaves PMIX_RANK in its own environment",
            "OMPI_MCA_ess=singleton\nOMPI_MCA_orte_ess_num_procs=1\nPMIX_NAMESPACE=679542785\nPMIX_RANK=0",
            "solo 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
    ]);
}

/// `mpirun.mpich -np 2 env`, Hydra 4.0.2.
const HYDRA: &str = "HOME=/h
    GFORTRAN_UNBUFFERED_PRECONNECTED=y
    HYDI_CONTROL_FD=7
    MPIR_CVAR_CH3_INTERFACE_HOSTNAME=node1
    MPI_LOCALNRANKS=2
    MPI_LOCALRANKID=1
    PMI_FD=8
    PMI_RANK=1
    PMI_SIZE=2";

fn family(names: &[&str]) -> Vec<Ancestor> {
    names.iter().zip(100..).map(|(name, pid)| Ancestor { pid, name: (*name).to_owned(), started: 123_795 }).collect()
}

#[test]
fn hydra() {
    let two_hosts = HYDRA.replace("PMI_SIZE=2", "PMI_SIZE=4");
    check(&[
        ("one host whose processes are hidden", HYDRA, "hydra 1/2 local 1/2 both, one host, pmi:8, epoch 0, token exchanged"),
        ("two hosts", &two_hosts, "hydra 1/4 local 1/2 both, several hosts, pmi:8, epoch 0, token exchanged"),
        (
            "a launcher that does not tell the local size",
            "PMI_RANK=0\nPMI_SIZE=2\nPMI_FD=5",
            "hydra 0/2 local ?/? both, one host or several, pmi:5, epoch 0, token exchanged",
        ),
        ("nothing to meet at", "PMI_RANK=0\nPMI_SIZE=2", "error: hydra started rank 0 of 2 but PMI_FD is not set"),
        (
            "a meeting point of the user's",
            "PMI_RANK=0\nPMI_SIZE=2\nSYNCLINE_RENDEZVOUS=h:1\nSYNCLINE_TOKEN=x",
            "hydra 0/2 local ?/? both, one host or several, tcp://h:1, epoch 0, token given",
        ),
        ("rank without size", "PMI_RANK=0", "error: PMI_RANK=0 … PMI_SIZE is not"),
        ("no descriptor", "PMI_RANK=0\nPMI_SIZE=2\nPMI_FD=-1", "error: PMI_FD=\"-1\""),
        (
            "inside a Slurm step of hydra's proxies, whose rank happens to be the same",
            &format!("{two_hosts}\nSLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=2"),
            "hydra 1/4 local 1/2 both, several hosts, pmi:8, epoch 0, token exchanged",
        ),
    ]);
}

#[test]
fn ranks_of_one_hydra_host_meet_by_their_common_proxy_and_leave_pmi_alone() {
    let launch = |names: &[&str]| find(&environment(HYDRA).with_ancestors(family(names)), &Arguments::default()).unwrap();
    let direct = launch(&["hydra_pmi_proxy", "mpiexec", "bash"]);
    assert_eq!(summary(&direct), "hydra 1/2 local 1/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived");
    // The same proxy seen through a shell wrapper: pid 100 is the shell's now.
    let mut ancestors = family(&["sh", "hydra_pmi_proxy"]);
    ancestors[1].pid = 100;
    let wrapped = find(&environment(HYDRA).with_ancestors(ancestors), &Arguments::default()).unwrap();
    assert_eq!(direct.meeting, wrapped.meeting);
    assert_ne!(direct.meeting, launch(&["sh", "hydra_pmi_proxy"]).meeting, "another proxy is another job");
}

/// `srun -N 3 -n 5 env`, Slurm 22.05, third task.
const SLURM: &str = "HOME=/h
    SLURM_CLUSTER_NAME=t
    SLURM_GTIDS=2,3
    SLURM_JOBID=11
    SLURM_JOB_ID=11
    SLURM_JOB_NODELIST=n[1-8]
    SLURM_LAUNCH_NODE_IPADDR=192.0.2.2
    SLURM_LOCALID=0
    SLURM_NNODES=3
    SLURM_NODEID=1
    SLURM_NPROCS=5
    SLURM_NTASKS=5
    SLURM_PROCID=2
    SLURM_STEPID=0
    SLURM_STEP_ID=0
    SLURM_STEP_NODELIST=n[1-3]
    SLURM_STEP_NUM_NODES=3
    SLURM_STEP_NUM_TASKS=5
    SLURM_STEP_TASKS_PER_NODE=2(x2),1
    SLURM_TASKS_PER_NODE=4(x8)
    SLURMD_NODENAME=n2";

#[test]
fn slurm() {
    let one_node = "HOME=/h\nSLURM_JOB_ID=11\nSLURM_STEP_ID=3\nSLURM_PROCID=1\nSLURM_NTASKS=8\nSLURM_STEP_NUM_TASKS=2\nSLURM_STEP_NUM_NODES=1\nSLURM_LOCALID=1\nSLURM_NODEID=0\nSLURM_STEP_TASKS_PER_NODE=2";
    check(&[
        (
            "a step on three nodes",
            SLURM,
            "slurm 2/5 local 0/2 both, several hosts, file:/h/.syncline/slurm-11.0-restart0-…, epoch 0, token exchanged",
        ),
        (
            "requeued",
            &format!("{SLURM}\nSLURM_RESTART_COUNT=2"),
            "slurm 2/5 local 0/2 both, several hosts, file:/h/.syncline/slurm-11.0-restart2-…, epoch 2, token exchanged",
        ),
        (
            "--mpi=pmi2",
            &format!("{SLURM}\nPMI_RANK=2\nPMI_SIZE=5\nPMI_FD=20\nPMI_JOBID=11.0\nSLURM_MPI_TYPE=pmi2"),
            "slurm 2/5 local 0/2 both, several hosts, pmi:20, epoch 0, token exchanged",
        ),
        (
            "a small step on one node of a larger job",
            one_node,
            "slurm 1/2 local 1/2 both, one host, unix:@syncline-1000-…, epoch 0, token derived",
        ),
        (
            "a batch script",
            "SLURM_JOB_ID=11\nSLURM_PROCID=0\nSLURM_NTASKS=6\nSLURM_NODEID=0\nSLURM_LOCALID=0\nSLURM_TASKS_PER_NODE=2(x3)",
            "solo 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
        (
            "an salloc shell",
            "SLURM_JOB_ID=11\nSLURM_NTASKS=6\nSLURM_NNODES=3",
            "solo 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
        (
            "the interactive step of salloc",
            "SLURM_JOB_ID=11\nSLURM_STEP_ID=4294967290\nSLURM_PROCID=0\nSLURM_NTASKS=6",
            "solo 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
        ("no home to meet in", &SLURM.replace("HOME=/h", "HOME=h"), "error: slurm started rank 2 of 5 but HOME … SYNCLINE_RENDEZVOUS"),
        ("rank beyond size", &SLURM.replace("PROCID=2", "PROCID=5"), "error: SLURM_PROCID=5 does not fit SLURM_STEP_NUM_TASKS=5"),
        ("no size", "SLURM_JOB_ID=1\nSLURM_STEP_ID=0\nSLURM_PROCID=0", "error: SLURM_PROCID=0 … SLURM_STEP_NUM_TASKS is not"),
        ("a list that is none", &SLURM.replace("2(x2),1", "2(y2)"), "error: SLURM_STEP_TASKS_PER_NODE=\"2(y2)\" is not a Slurm list"),
        (
            "hosts that are none",
            &SLURM.replace("STEP_NODELIST=n[1-3]", "STEP_NODELIST=n[1-"),
            "error: SLURM_STEP_NODELIST=\"n[1-\" … at byte 1",
        ),
    ]);
}

#[test]
fn a_batch_script_says_why_it_is_alone() {
    let launch = find(&environment("SLURM_JOB_ID=11\nSLURM_PROCID=0\nSLURM_NTASKS=6"), &Arguments::default()).unwrap();
    assert!(launch.because[0].contains("job 11") && launch.because[0].contains("srun"), "{:?}", launch.because);
}

#[test]
fn dmlc() {
    let job = "HOME=/h\nDMLC_NUM_WORKER=4\nDMLC_NUM_SERVER=2\nDMLC_PS_ROOT_URI=10.0.0.1\nDMLC_PS_ROOT_PORT=9091";
    let with = |role: &str| format!("{job}\nDMLC_ROLE={role}");
    check(&[
        ("worker", &with("worker"), "dmlc ?/6 local ?/? worker, one host or several, tcp://10.0.0.1:9091, epoch 0, token derived"),
        ("server", &with("server"), "dmlc ?/6 local ?/? server, one host or several, tcp://10.0.0.1:9091, epoch 0, token derived"),
        (
            "scheduler",
            &with("scheduler"),
            "dmlc ?/6 local ?/? coordinator, one host or several, tcp://10.0.0.1:9091, epoch 0, token derived",
        ),
        (
            "ps-lite's local.sh",
            &with("worker").replace("10.0.0.1", "127.0.0.1"),
            "dmlc ?/6 local ?/? worker, one host, tcp://127.0.0.1:9091, epoch 0, token derived",
        ),
        (
            "one worker without servers joins its scheduler all the same",
            "DMLC_ROLE=worker\nDMLC_NUM_WORKER=1\nDMLC_NUM_SERVER=0\nDMLC_PS_ROOT_URI=h\nDMLC_PS_ROOT_PORT=1\nSYNCLINE_TOKEN=x",
            "dmlc ?/1 local ?/? worker, one host or several, tcp://h:1, epoch 0, token given",
        ),
        ("no such role", &with("boss"), "error: DMLC_ROLE=\"boss\" is not one of worker, server, scheduler"),
        ("no port", &with("worker").replace("9091", "0"), "error: DMLC_PS_ROOT_PORT=\"0\" is not a port"),
        ("half set", "DMLC_ROLE=worker\nDMLC_NUM_WORKER=4", "error: DMLC_ROLE=worker … DMLC_NUM_SERVER is not"),
        (
            "nobody",
            "DMLC_ROLE=worker\nDMLC_NUM_WORKER=0\nDMLC_NUM_SERVER=0\nDMLC_PS_ROOT_URI=h\nDMLC_PS_ROOT_PORT=1",
            "error: DMLC_NUM_WORKER=\"0\"",
        ),
    ]);
}

#[test]
fn kubernetes() {
    check(&[
        (
            "an indexed job",
            "HOME=/root\nJOB_COMPLETION_INDEX=2\nSYNCLINE_WORLD_SIZE=4\nSYNCLINE_RENDEZVOUS=job-0.svc:5000\nSYNCLINE_TOKEN=x",
            "kubernetes 2/4 local ?/? both, several hosts, tcp://job-0.svc:5000, epoch 0, token given",
        ),
        (
            "Kubeflow's trainer",
            "HOME=/root\nJOB_COMPLETION_INDEX=1\nPET_NNODES=3\nPET_NPROC_PER_NODE=1\nPET_NODE_RANK=1\nPET_MASTER_ADDR=job-node-0-0.job\nPET_MASTER_PORT=29400",
            "kubernetes 1/3 local ?/? both, several hosts, tcp://job-node-0-0.job on 5 derived ports, epoch 0, token derived",
        ),
        (
            "Kubeflow with an endpoint",
            "HOME=/root\nPET_NODE_RANK=0\nPET_NNODES=2:2\nPET_RDZV_ENDPOINT=job-0:23456",
            "kubernetes 0/2 local ?/? both, several hosts, tcp://job-0 on 5 derived ports, epoch 0, token derived",
        ),
        (
            "pods on their own",
            "JOB_COMPLETION_INDEX=7\nSYNCLINE_WORLD_SIZE=1",
            "kubernetes 0/1 local 0/1 both, one host, alone, epoch 0, token none",
        ),
        ("no size", "JOB_COMPLETION_INDEX=7", "error: JOB_COMPLETION_INDEX=7 … SYNCLINE_WORLD_SIZE"),
        ("an elastic range is no size", "PET_NODE_RANK=0\nPET_NNODES=1:4", "error: PET_NNODES=\"1:4\" is not a fixed number"),
        (
            "index beyond size",
            "JOB_COMPLETION_INDEX=4\nSYNCLINE_WORLD_SIZE=4",
            "error: JOB_COMPLETION_INDEX=4 does not fit SYNCLINE_WORLD_SIZE=4",
        ),
        ("nothing to meet at", "JOB_COMPLETION_INDEX=1\nSYNCLINE_WORLD_SIZE=4", "error: JOB_COMPLETION_INDEX=1 … MASTER_ADDR"),
    ]);
}

#[test]
fn arguments_go_before_every_variable() {
    let leaked = environment(&format!("{OPENMPI}\nSYNCLINE_RENDEZVOUS=h:1\nSYNCLINE_WORLD_SIZE=9\nSYNCLINE_ROLE=server"));
    let arguments = Arguments { rank: Some(1), world: Some(3), token: Token::from_text("x"), ..Arguments::default() };
    let arguments = arguments.rendezvous("tcp://a:2").unwrap();
    let launch = find(&leaked, &arguments).unwrap();
    assert_eq!(summary(&launch), "arguments 1/3 local ?/? both, one host or several, tcp://a:2, epoch 0, token given");
    assert_eq!(summary(&find(&leaked, &Arguments::solo()).unwrap()), "arguments 0/1 local 0/1 both, one host, alone, epoch 0, token none");
    let only_role = Arguments { role: Some(Role::Worker), ..Arguments::default() };
    let launch = find(&environment(OPENMPI), &only_role).unwrap();
    assert_eq!((launch.launcher, launch.role), (Launcher::OpenMpi, Role::Worker));
    for (arguments, expected) in [
        (Arguments { rank: Some(1), ..Arguments::default() }, "the rank argument=1 is set but the world argument is not"),
        (Arguments { rank: Some(1), world: Some(1), ..Arguments::default() }, "the rank argument=1 does not fit"),
        (Arguments { rank: Some(0), world: Some(2), ..Arguments::default() }, "the rendezvous argument is not"),
        (Arguments { world: Some(4), ..Arguments::default() }, "the world argument=4 contradicts the world of openmpi=2"),
    ] {
        let error = find(&environment(OPENMPI), &arguments).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn who_hosts_the_coordinator() {
    let hosts = |lines: &str| find(&environment(lines), &Arguments::default()).unwrap().hosts_coordinator();
    let explicit = "SYNCLINE_WORLD_SIZE=2\nSYNCLINE_RENDEZVOUS=h:1";
    assert!(hosts(""));
    assert!(hosts(&format!("{explicit}\nSYNCLINE_RANK=0")));
    assert!(!hosts(&format!("{explicit}\nSYNCLINE_RANK=1")));
    assert!(!hosts(&format!("{explicit}\nSYNCLINE_RANK=0\nSYNCLINE_LAUNCHER=run")));
    let dmlc = "DMLC_NUM_WORKER=1\nDMLC_NUM_SERVER=1\nDMLC_PS_ROOT_URI=h\nDMLC_PS_ROOT_PORT=1";
    assert!(hosts(&format!("{dmlc}\nDMLC_ROLE=scheduler")));
    assert!(!hosts(&format!("{dmlc}\nDMLC_ROLE=worker")));
}

#[test]
fn a_missing_rank_is_told_how_to_start() {
    let how = |lines: &str| find(&environment(lines), &Arguments::default()).unwrap().how_rank_starts(2);
    assert_eq!(how(&OPENMPI.replace("SIZE=2", "SIZE=4")), "mpirun starts it with OMPI_COMM_WORLD_RANK=2");
    assert_eq!(
        how("SYNCLINE_RANK=0\nSYNCLINE_WORLD_SIZE=4\nSYNCLINE_RENDEZVOUS=[::1]:5000"),
        "start it with SYNCLINE_RANK=2 SYNCLINE_WORLD_SIZE=4 SYNCLINE_RENDEZVOUS=tcp://[::1]:5000 and the same SYNCLINE_TOKEN"
    );
}

#[test]
fn rendezvous_texts() {
    for (text, shown) in [
        ("unix:@syncline-1", "unix:@syncline-1"),
        ("tcp://node1:5000", "tcp://node1:5000"),
        (" node1:5000 ", "tcp://node1:5000"),
        ("[fd00::1]:5000", "tcp://[fd00::1]:5000"),
        ("file:/shared/x", "file:/shared/x"),
        ("file:///shared/x", "file:/shared/x"),
    ] {
        let meeting: Meeting = text.parse().unwrap();
        assert_eq!(meeting.to_string(), shown);
        assert_eq!(shown.parse::<Meeting>().unwrap(), meeting, "what is shown can be given again");
    }
    let long = format!("unix:@{}", "x".repeat(108));
    for wrong in [
        "",
        "node1",
        "node1:",
        ":5000",
        "node1:0",
        "node1:65536",
        "fd00::1:5000",
        "[fd00::1:5000",
        "[node1]:5",
        "unix:/tmp/x",
        "unix:@",
        &long,
        "file:x",
        "http://h:1",
    ] {
        let error = wrong.parse::<Meeting>().unwrap_err().to_string();
        assert!(error.contains("write unix:@name"), "{error}");
    }
}

#[test]
fn one_host_is_never_claimed_for_several() {
    let several = OPENMPI.replace("WORLD_SIZE=2", "WORLD_SIZE=4");
    assert_eq!(find(&environment(&several), &Arguments::default()).unwrap().hosts, HostSpan::Several);
}
