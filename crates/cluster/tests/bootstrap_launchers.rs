//! The real `mpirun.openmpi` and `mpirun.mpich`, with this very test program as the ranks.
//!
//! A launcher that is not installed is a `skipped: reason` on standard error. Ranks report through files, because launchers mix the
//! output of their children.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use syncline_cluster::bootstrap::pmi::Pmi;
use syncline_cluster::bootstrap::{Arguments, Environment, Invitation, Meeting, Token, TokenOrigin, find};
use syncline_shm::wait::Deadline;

const OPENMPI: &[&str] = &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include", "lo"];
const MPICH: &[&str] = &["mpirun.mpich"];
const MPICH_TWO_HOSTS: &[&str] = &["mpirun.mpich", "-launcher", "fork", "-hosts", "a:2,b:2"];

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(30))
}

/// Not a test of its own: what a rank does when a launcher of the tests below started it.
#[test]
fn as_a_rank() {
    let Some(folder) = std::env::var_os("BOOTSTRAP_TEST_FOLDER").map(PathBuf::from) else { return };
    let task = std::env::var("BOOTSTRAP_TEST_TASK").unwrap();
    let launch = find(&Environment::current(), &Arguments::default()).unwrap();
    let rank = launch.rank.unwrap();
    let mut report = format!(
        "{} {rank}/{} local {}/{} {} {}",
        launch.launcher,
        launch.world,
        launch.local_rank.unwrap(),
        launch.local_size.unwrap(),
        launch.hosts,
        launch.meeting
    );
    if task == "whoami" {
        if let Some(token) = launch.token.resolve().unwrap() {
            report += &format!(" token {}", token.reveal());
        }
        fs::write(folder.join(rank.to_string()), report).unwrap();
        return;
    }
    let Meeting::Pmi { fd } = launch.meeting else { panic!("{report}") };
    assert_eq!(launch.token, TokenOrigin::Exchanged);
    let invitation = Invitation {
        job: launch.job.clone(),
        epoch: launch.epoch,
        addresses: (1..40).map(|port| ([10, 0, 0, 7], port).into()).collect(),
        local: None,
        token: Some(Token::random().unwrap()),
    };
    let mut pmi = Pmi::open(fd, soon()).unwrap();
    let nodes = pmi.process_mapping(soon()).unwrap();
    let name = pmi.kvsname().to_owned();
    let met = pmi.exchange((rank == 0).then_some(&invitation), soon()).unwrap();
    assert!(met.is_for(&launch.job, launch.epoch));
    report += &format!(" nodes {nodes:?} {name} {} addresses, token {}", met.addresses.len(), met.token.unwrap().reveal());
    if task == "exchange beside MPI" {
        // The MPI library is loaded, so PMI must still answer, as `MPI_Init` would need it. Nobody leaves before all have reported.
        let mut again = Pmi::open(fd, soon()).unwrap();
        again.barrier(soon()).unwrap();
        fs::write(folder.join(rank.to_string()), report).unwrap();
        return again.barrier(soon()).unwrap();
    }
    fs::write(folder.join(format!("pid-{rank}")), std::process::id().to_string()).unwrap();
    if rank == 0 {
        // Outlive the others: had they left PMI open, Hydra would take their exit for a crash and kill this rank.
        for other in 1..launch.world {
            wait_until(|| fs::read_to_string(folder.join(format!("pid-{other}"))).is_ok_and(|pid| !pid.is_empty() && !is_alive(&pid)));
        }
    }
    fs::write(folder.join(rank.to_string()), report).unwrap();
}

fn is_alive(pid: &str) -> bool {
    // A child that nobody has waited for yet is dead as well.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = soon();
    while !done() {
        assert!(!deadline.expired(), "waited 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs `ranks` ranks of this program and returns their reports; `None` with a word on standard error when the launcher is missing.
fn launch(launcher: &[&str], ranks: u32, task: &str, before: &[&str], preload: Option<&Path>) -> Option<Vec<String>> {
    if !is_installed(launcher[0]) {
        eprintln!("skipped: {} is not installed", launcher[0]);
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let mut command = Command::new("timeout");
    command.arg("60").args(launcher).args(["-np", &ranks.to_string()]);
    if let Some(library) = preload {
        command.args(["-genv", "LD_PRELOAD"]).arg(library);
    }
    command.args(before).arg(std::env::current_exe().unwrap()).args(["--exact", "as_a_rank"]);
    // This test may itself run under a launcher, whose variables would leak into its ranks.
    let foreign =
        |name: &str| ["SYNCLINE_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "DMLC_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars().filter(|(name, _)| foreign(name)) {
        command.env_remove(name);
    }
    command.env("BOOTSTRAP_TEST_FOLDER", folder.path()).env("BOOTSTRAP_TEST_TASK", task);
    // Open MPI keeps a folder for all jobs of a user there, and two jobs that start and end at one moment race for it.
    command.env("TMPDIR", folder.path());
    command.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
    // An input that stays open: given one that has ended, Hydra 4.0.2 now and then dies of SIGPIPE when a rank ends at once (`true` is enough).
    let (input, _open_until_the_end) = std::io::pipe().unwrap();
    let output = command.stdin(input).output().unwrap();
    let said = || format!("{}\n{}\n{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let read = |rank: u32| {
        fs::read_to_string(folder.path().join(rank.to_string())).unwrap_or_else(|_| panic!("rank {rank} did not report:\n{}", said()))
    };
    let reports = (0..ranks).map(read).collect();
    assert!(output.status.success() || preload.is_some(), "{}", said());
    Some(reports)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The words of each report that follow its rank and local rank: what all ranks must agree on.
fn shared(reports: &[String]) -> String {
    let mut all: BTreeMap<String, u32> = BTreeMap::new();
    for report in reports {
        let words: Vec<&str> = report.split(' ').collect();
        *all.entry(words[4..].join(" ")).or_default() += 1;
    }
    assert_eq!(all.len(), 1, "the ranks disagree: {all:#?}");
    all.into_keys().next().unwrap()
}

#[test]
fn four_ranks_of_open_mpi_agree_where_to_meet_and_on_a_token() {
    let Some(reports) = launch(OPENMPI, 4, "whoami", &[], None) else { return };
    for (rank, report) in reports.iter().enumerate() {
        assert!(report.starts_with(&format!("openmpi {rank}/4 local {rank}/4 one host unix:@syncline-")), "{report}");
    }
    let first = shared(&reports);
    let second = shared(&launch(OPENMPI, 4, "whoami", &[], None).unwrap());
    assert!(first.contains(" token ") && first != second, "two jobs share nothing: {first}");
}

#[test]
fn four_ranks_of_mpich_agree_where_to_meet_and_on_a_token_even_behind_a_shell() {
    // The shell stays between the proxy and the rank, because it has something to do afterwards.
    let behind_a_shell: &[&str] = &["sh", "-c", "\"$@\"; true", "sh"];
    for before in [&[][..], behind_a_shell] {
        let Some(reports) = launch(MPICH, 4, "whoami", before, None) else { return };
        for (rank, report) in reports.iter().enumerate() {
            assert!(report.starts_with(&format!("hydra {rank}/4 local {rank}/4 one host unix:@syncline-")), "{report}");
        }
        let first = shared(&reports);
        let second = shared(&launch(MPICH, 4, "whoami", before, None).unwrap());
        assert!(first.contains(" token ") && first != second, "two jobs share nothing: {first}");
    }
}

#[test]
fn one_rank_needs_nobody() {
    if let Some(reports) = launch(OPENMPI, 1, "whoami", &[], None) {
        assert_eq!(reports, ["openmpi 0/1 local 0/1 one host alone"]);
    }
    if let Some(reports) = launch(MPICH, 1, "whoami", &[], None) {
        assert_eq!(reports, ["hydra 0/1 local 0/1 one host alone"]);
    }
}

#[test]
fn two_hosts_of_mpich_meet_through_pmi_and_may_leave_one_by_one() {
    let Some(reports) = launch(MPICH_TWO_HOSTS, 4, "exchange", &[], None) else { return };
    let tails: Vec<&str> = reports.iter().map(|report| report.split_once(" nodes ").unwrap().1).collect();
    assert!(tails[0].starts_with("Some([0, 0, 1, 1]) kvs_") && tails[0].contains(" 39 addresses, token "), "{}", tails[0]);
    assert!(tails.iter().all(|tail| *tail == tails[0]), "{reports:#?}");
    for (rank, report) in reports.iter().enumerate() {
        assert!(report.starts_with(&format!("hydra {rank}/4 local {}/2 several hosts pmi:", rank % 2)), "{report}");
    }
}

#[test]
fn pmi_is_left_open_for_a_program_that_uses_mpi_too() {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let Some(library) = folders.iter().map(|folder| Path::new(folder).join("libmpich.so.12")).find(|path| path.is_file()) else {
        return eprintln!("skipped: libmpich.so.12 is not installed");
    };
    let Some(reports) = launch(MPICH_TWO_HOSTS, 4, "exchange beside MPI", &[], Some(&library)) else { return };
    assert_eq!(reports.len(), 4);
}
