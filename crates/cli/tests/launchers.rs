//! Jobs that no `syncline run` started: variables by hand, torchrun's, a parameter server's roles, and the real
//! launchers of Open MPI and MPICH. In each, all ranks meet, pass a barrier and leave nothing.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use syncline::{Config, Error, ErrorKind, Session};
use syncline_testkit::ranks::{Ending, Process};

const LIMIT: Duration = Duration::from_secs(30);

/// Not a test of its own: the body of each rank, when this binary is started again.
#[test]
fn as_a_rank() {
    if std::env::var_os("LAUNCHER_TEST_RANK").is_none() {
        return;
    }
    match meet() {
        Ok(facts) => println!("\nMET {facts}"),
        Err(error) => {
            println!("\nFAILED {:?} {error}", error.kind());
            std::process::exit(3);
        }
    }
}

fn meet() -> Result<String, Error> {
    let session = Session::open(Config::from_env()?)?;
    for _ in 0..3 {
        match session.worker_id() {
            Some(_) => session.barrier()?,
            None => assert_eq!(session.barrier().map_err(|error| error.kind()), Err(ErrorKind::Configuration)),
        }
    }
    let id = |id: Option<u32>| id.map_or("-".into(), |id| id.to_string());
    let facts = format!(
        "rank={} size={} launcher={} worker={} server={} workers={} local={}/{}",
        session.rank(),
        session.size(),
        session.launcher(),
        id(session.worker_id()),
        id(session.server_id()),
        session.num_workers(),
        session.local_rank(),
        session.local_size()
    );
    session.shutdown()?;
    Ok(facts)
}

/// This binary as a rank, with nothing of an outer job in its environment.
fn rank(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    as_rank(&mut command);
    command.args(["--exact", "as_a_rank", "--nocapture"]).envs(variables.iter().copied());
    command
}

fn as_rank(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["SYNCLINE_", "OMPI_", "PMI", "SLURM_", "DMLC_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env("LAUNCHER_TEST_RANK", "1").env("SYNCLINE_TIMEOUT", "15");
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port().to_string()
}

/// What each process said, sorted; panics with everything when one failed.
fn met(endings: &[Ending]) -> Vec<String> {
    let mut facts = Vec::new();
    for ending in endings {
        assert!(ending.status.success(), "{:?}\n{}\n{}", ending.status, ending.stdout, ending.stderr);
        facts.extend(ending.stdout.lines().filter_map(|line| line.split_once("MET ").map(|(_, facts)| facts.to_owned())));
    }
    facts.sort();
    facts
}

fn run_all(commands: impl IntoIterator<Item = Command>) -> Vec<Ending> {
    let processes: Vec<Process> = commands.into_iter().map(|mut command| Process::start("a rank", &mut command)).collect();
    processes.into_iter().map(|process| process.finish_within(LIMIT)).collect()
}

#[test]
fn a_process_that_nobody_started_is_a_world_of_one() {
    assert_eq!(met(&run_all([rank(&[])])), ["rank=0 size=1 launcher=solo worker=0 server=0 workers=1 local=0/1"]);
}

#[test]
fn ranks_with_explicit_variables_meet_over_tcp_and_over_a_unix_name() {
    let tcp = format!("tcp://127.0.0.1:{}", free_port());
    let unix = format!("unix:@launchers-test-{}", std::process::id());
    for rendezvous in [tcp, unix] {
        let ranks = ["0", "1", "2"].map(|number| {
            rank(&[("SYNCLINE_RANK", number), ("SYNCLINE_WORLD_SIZE", "3"), ("SYNCLINE_RENDEZVOUS", &rendezvous), ("SYNCLINE_TOKEN", "t")])
        });
        let facts = met(&run_all(ranks));
        assert_eq!(facts.len(), 3, "{rendezvous}");
        assert_eq!(facts[2], "rank=2 size=3 launcher=explicit worker=2 server=2 workers=3 local=2/3", "{rendezvous}");
    }
}

#[test]
fn ranks_with_a_rendezvous_file_meet_and_remove_it() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("meeting");
    let rendezvous = format!("file:{}", path.display());
    let ranks =
        ["0", "1"].map(|number| rank(&[("SYNCLINE_RANK", number), ("SYNCLINE_WORLD_SIZE", "2"), ("SYNCLINE_RENDEZVOUS", &rendezvous)]));
    assert_eq!(met(&run_all(ranks)).len(), 2);
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "the rendezvous file is gone");
}

#[test]
fn ranks_with_torchruns_variables_meet_beside_its_store() {
    // torchrun's own store holds the port; Syncline must not need it.
    let store = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = store.local_addr().expect("an address").port().to_string();
    let ranks = ["0", "1"].map(|number| {
        rank(&[
            ("RANK", number),
            ("LOCAL_RANK", number),
            ("WORLD_SIZE", "2"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", &port),
            ("TORCHELASTIC_RUN_ID", "launchers-test"),
            ("SYNCLINE_TOKEN", "t"),
        ])
    });
    let facts = met(&run_all(ranks));
    assert_eq!(facts[1], "rank=1 size=2 launcher=torchrun worker=1 server=1 workers=2 local=1/2");
}

#[test]
fn a_parameter_servers_roles_get_their_ranks_from_the_scheduler_workers_first() {
    let port = free_port();
    let job = |role: &str| {
        [
            ("DMLC_ROLE", role.to_owned()),
            ("DMLC_PS_ROOT_URI", "127.0.0.1".to_owned()),
            ("DMLC_PS_ROOT_PORT", port.clone()),
            ("DMLC_NUM_WORKER", "2".to_owned()),
            ("DMLC_NUM_SERVER", "1".to_owned()),
            ("SYNCLINE_TOKEN", "t".to_owned()),
        ]
    };
    let mut scheduler = Command::new(env!("CARGO_BIN_EXE_syncline"));
    as_rank(&mut scheduler);
    scheduler.arg("server").envs(job("scheduler"));
    let ranks = ["worker", "server", "worker"].map(|role| {
        let mut command = rank(&[]);
        command.envs(job(role));
        command
    });
    let scheduler = Process::start("the scheduler", &mut scheduler);
    let facts = met(&run_all(ranks));
    assert_eq!(facts.len(), 3);
    assert!(facts[0].contains("worker=0 server=- workers=2") && facts[1].contains("worker=1 server=- workers=2"), "{facts:?}");
    assert!(facts[2].starts_with("rank=2 size=3 launcher=dmlc worker=- server=0"), "{facts:?}");
    let ending = scheduler.finish_within(LIMIT);
    assert!(ending.status.success(), "the scheduler leaves when all have left: {}", ending.stderr);
}

#[test]
fn the_real_mpirun_of_open_mpi_and_of_mpich_start_a_job() {
    for (launcher, options) in
        [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe", "--mca", "oob_tcp_if_include", "lo"][..]), ("mpirun.mpich", &[])]
    {
        if Command::new(launcher).arg("--version").output().is_err() {
            println!("skipped: {launcher} is not installed");
            continue;
        }
        let scratch = tempfile::tempdir().expect("a scratch folder");
        let mut command = Command::new(launcher);
        as_rank(&mut command);
        // Open MPI keeps a folder per user and host; two of its jobs that start at once trip over it.
        command.env("TMPDIR", scratch.path());
        command.args(options).args(["-np", "4"]).arg(std::env::current_exe().expect("this binary")).args([
            "--exact",
            "as_a_rank",
            "--nocapture",
        ]);
        let ending = Process::start(launcher, &mut command).finish_within(LIMIT);
        let facts = met(&[ending]);
        assert_eq!(facts.len(), 4, "{launcher}: {facts:?}");
        assert!(facts[3].starts_with("rank=3 size=4") && facts[3].ends_with("workers=4 local=3/4"), "{launcher}: {facts:?}");
    }
}

#[test]
fn a_rank_that_never_starts_is_named_with_how_it_was_expected_to_start() {
    let rendezvous = format!("unix:@launchers-missing-{}", std::process::id());
    let started = Instant::now();
    let ranks = ["0", "2"].map(|number| {
        rank(&[
            ("SYNCLINE_RANK", number),
            ("SYNCLINE_WORLD_SIZE", "4"),
            ("SYNCLINE_RENDEZVOUS", &rendezvous),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_TIMEOUT", "2"),
        ])
    });
    for ending in run_all(ranks) {
        assert_eq!(ending.status.code(), Some(3));
        let text = ending.stdout;
        for needed in
            ["Timeout", "2 of 4 ranks are here", "missing: rank 1, rank 3", "SYNCLINE_RANK=1 SYNCLINE_WORLD_SIZE=4", "SYNCLINE_RANK=3"]
        {
            assert!(text.contains(needed), "{needed:?} is missing in:\n{text}");
        }
    }
    assert!(started.elapsed() < Duration::from_secs(12), "the timeout is two seconds");
}

#[test]
fn under_run_a_missing_rank_is_named_after_the_time_that_the_program_gives_it() {
    let this_binary = std::env::current_exe().expect("this binary");
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    as_rank(&mut command);
    // The launcher, which hosts the coordinator, would wait for longer than the program.
    let late = r#"[ $SYNCLINE_RANK = 1 ] && exec sleep 60; SYNCLINE_TIMEOUT=2 exec "$@""#;
    command.args(["run", "-n", "2", "--timeout", "50", "--grace", "0", "sh", "-c", late, "sh"]).arg(this_binary);
    let ending = Process::start("run", command.args(["--exact", "as_a_rank", "--nocapture"])).finish_within(LIMIT);
    assert_eq!(ending.status.code(), Some(3), "{}", ending.stderr);
    for needed in ["Timeout start: after 2.", "1 of 2 ranks are here", "missing: rank 1", "starts it with SYNCLINE_RANK=1"] {
        assert!(ending.stdout.contains(needed), "{needed:?} is missing in:\n{}", ending.stdout);
    }
}

#[test]
fn a_wrong_token_is_refused_with_the_reason() {
    let rendezvous = format!("unix:@launchers-token-{}", std::process::id());
    let member = |number: &str, token: &str| {
        rank(&[
            ("SYNCLINE_RANK", number),
            ("SYNCLINE_WORLD_SIZE", "2"),
            ("SYNCLINE_RENDEZVOUS", &rendezvous),
            ("SYNCLINE_TOKEN", token),
            ("SYNCLINE_TIMEOUT", "3"),
        ])
    };
    let endings = run_all([member("0", "right"), member("1", "wrong")]);
    assert!(endings[1].stdout.contains("FAILED Auth") && endings[1].stdout.contains("SYNCLINE_TOKEN"), "{}", endings[1].stdout);
    assert!(endings[0].stdout.contains("missing: rank 1"), "{}", endings[0].stdout);
}
