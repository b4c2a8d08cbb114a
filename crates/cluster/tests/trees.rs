//! The constructors of trees, each with nodes that really join: they meet, they name who is missing, and they leave nothing.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline_cluster::bootstrap::tree::{discovered, fixed, localhost, slurm};
use syncline_cluster::bootstrap::{BootstrapError, Environment, Invitation, Launch, LocalDoor, Meeting, Token, TokenOrigin, address, file};
use syncline_cluster::{Deadline, Error, ErrorKind, Job, Settings};
use syncline_testkit::ranks::{eventually, threads};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

fn settings() -> Settings {
    Settings { timeout: Duration::from_secs(20), ..Settings::default() }
}

/// Joins, passes a barrier, leaves; returns rank and size.
fn take_part(launch: &Launch) -> Result<(u32, u32), Error> {
    let job = Job::join(launch, &settings(), soon())?;
    job.barrier(soon())?;
    job.leave(soon())?;
    Ok((job.rank(), job.world()))
}

/// An environment with a key file in `home` and nothing else.
fn at_home(home: &Path) -> Environment {
    Environment::from_variables([("HOME", home.to_str().unwrap()), ("XDG_RUNTIME_DIR", home.to_str().unwrap())])
        .with_user(rustix::process::geteuid().as_raw())
}

/// A number that no other test uses as a process id: those end at 2²².
fn key() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    std::process::id() + (COUNT.fetch_add(1, Ordering::Relaxed) << 22)
}

fn path_of(launch: &Launch) -> PathBuf {
    match &launch.meeting {
        Meeting::File { path } => path.clone(),
        other => panic!("{other}"),
    }
}

fn files_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".config");
    names
}

#[test]
fn localhost_nodes_meet_by_a_common_process_and_leave_no_file() {
    let home = tempfile::tempdir().unwrap();
    let environment = Environment::current();
    let key = key();
    for nodes in [2, 5] {
        let met = threads(nodes, |index| {
            let launch = localhost(&at_home(home.path()), index as u32 + 1, nodes as u32, Some(key)).unwrap();
            assert_eq!(launch.token, TokenOrigin::Exchanged);
            take_part(&launch).unwrap()
        });
        assert_eq!(met, (0..nodes as u32).map(|rank| (rank, nodes as u32)).collect::<Vec<_>>());
        assert_eq!(files_in(home.path()), [""; 0]);
    }
    // By default the parent is what they have in common.
    let parent = environment.ancestors()[0].pid;
    let launch = localhost(&environment, 2, 3, None).unwrap();
    assert!(path_of(&launch).to_str().unwrap().ends_with(&format!("-{parent}")), "{:?}", launch.meeting);
}

#[test]
fn localhost_trees_with_one_key_may_follow_each_other_while_the_first_lives() {
    let home = tempfile::tempdir().unwrap();
    let key = key();
    threads(3, |index| {
        let launch = || localhost(&at_home(home.path()), index as u32 + 1, 3, Some(key)).unwrap();
        // Whoever is in the first may begin the second at once, before the others know that they are in.
        let first = Job::join(&launch(), &settings(), soon()).unwrap();
        let second = Job::join(&launch(), &settings(), soon()).unwrap();
        for job in [&second, &first] {
            job.barrier(soon()).unwrap();
        }
        first.leave(soon()).unwrap();
        // Some are still leaving the first one when others come to the third.
        let third = Job::join(&launch(), &settings(), soon()).unwrap();
        third.barrier(soon()).unwrap();
        third.leave(soon()).unwrap();
        second.leave(soon()).unwrap();
    });
    assert_eq!(files_in(home.path()), [""; 0]);
}

#[test]
fn a_file_of_localhost_nodes_that_were_killed_holds_nobody_up() {
    let home = tempfile::tempdir().unwrap();
    let key = key();
    let launch = |node| localhost(&at_home(home.path()), node, 2, Some(key)).unwrap();
    let left = Invitation {
        job: launch(1).job,
        epoch: 0,
        addresses: Vec::new(),
        local: Some(LocalDoor { host: address::host_identity(), name: format!("nobody-{key}") }),
        token: Token::from_text("of yesterday"),
    };
    std::mem::forget(file::publish(&path_of(&launch(1)), &left).unwrap());
    thread::scope(|scope| {
        let early = scope.spawn(|| take_part(&launch(2)).unwrap());
        // Node 2 reads the old file before node 1 has replaced it, or it does not: both must end well.
        assert_eq!(take_part(&launch(1)).unwrap(), (0, 2));
        assert_eq!(early.join().unwrap(), (1, 2));
    });
    assert_eq!(files_in(home.path()), [""; 0]);
}

#[test]
fn a_missing_localhost_node_is_named_and_the_file_goes() {
    let home = tempfile::tempdir().unwrap();
    let key = key();
    let short = Settings { timeout: Duration::from_millis(700), ..Settings::default() };
    let try_to_join = |node: u32| {
        let launch = localhost(&at_home(home.path()), node, 3, Some(key)).unwrap();
        Job::join(&launch, &short, Deadline::after(short.timeout)).unwrap_err()
    };
    let errors = threads(2, |index| {
        if index == 0 {
            let path = path_of(&localhost(&at_home(home.path()), 1, 3, Some(key)).unwrap());
            thread::scope(|scope| {
                scope.spawn(|| {
                    eventually("the file of node 1", Duration::from_secs(5), || path.exists());
                    if let Ok(facts) = fs::metadata(&path) {
                        assert_eq!(facts.permissions().mode() & 0o777, 0o600);
                    }
                });
                try_to_join(1)
            })
        } else {
            try_to_join(2)
        }
    });
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        let text = error.to_string();
        assert!(text.contains("missing: rank 2") && text.contains("node 3 of 3"), "{text}");
    }
    assert_eq!(files_in(home.path()), [""; 0]);
    let error = try_to_join(2);
    let text = error.to_string();
    assert_eq!((error.kind(), error.who().map(|who| who.rank)), (ErrorKind::Timeout, Some(0)), "{text}");
    assert!(text.contains("node 1 of 3") && text.contains("published no rendezvous file"), "{text}");
}

#[test]
fn fixed_nodes_meet_where_they_were_told() {
    let home = tempfile::tempdir().unwrap();
    let environment = at_home(home.path());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    // Loopback can be spelled in more than one way.
    let launch = |node: u32| {
        let root = if node == 1 { "127.0.0.1" } else { "localhost" };
        fixed(&environment, node, 3, "127.0.0.1", if node == 1 { port } else { 0 }, root, port).unwrap()
    };
    assert_eq!(threads(3, |index| take_part(&launch(index as u32 + 1)).unwrap()), [(0, 3), (1, 3), (2, 3)]);
    // Nobody at home: node 1 is missed by its address.
    let short = Settings { timeout: Duration::from_millis(300), ..Settings::default() };
    let error = Job::join(&launch(2), &short, Deadline::after(short.timeout)).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{text}");
    assert!(text.contains("missing: rank 0") && text.contains(&format!("localhost:{port}")) && text.contains("node 1 of 3"), "{text}");
}

#[test]
fn a_fixed_node_listens_where_it_was_told_when_the_tree_may_span_hosts() {
    let nothing = Environment::from_variables([("SYNCLINE_TOKEN", "t")]);
    let door = |host: &str, port, node| fixed(&nothing, node, 2, host, port, "node1", 5000).unwrap().door.unwrap().to_string();
    assert_eq!(door("10.0.0.7", 5001, 2), "10.0.0.7:5001");
    assert_eq!(door("node2", 5001, 2), "[::]:5001", "a host's own name may mean 127.0.1.1");
    assert_eq!(door("node1", 5000, 1), "[::]:0", "the root's port is the coordinator's");
    assert_eq!(door("node1", 5001, 1), "[::]:5001");
}

#[test]
fn discovered_nodes_meet_at_a_port_that_the_system_chose() {
    let home = tempfile::tempdir().unwrap();
    let environment = at_home(home.path());
    let board: Mutex<Option<(String, u16)>> = Mutex::new(None);
    let questions = AtomicU32::new(0);
    let node = |node: u32| {
        let publish = |host: &str, port: u16| {
            *board.lock().unwrap() = Some((host.to_owned(), port));
            Ok(())
        };
        let query = || {
            questions.fetch_add(1, Ordering::Relaxed);
            board.lock().unwrap().clone()
        };
        discovered(&environment, node, 3, "127.0.0.1", 0, publish, query, soon()).unwrap()
    };
    let met = threads(3, |index| {
        if index == 0 {
            // The others come first and have to ask more than once.
            eventually("questions", Duration::from_secs(10), || questions.load(Ordering::Relaxed) >= 4);
        }
        take_part(&node(index as u32 + 1)).unwrap()
    });
    assert_eq!(met, [(0, 3), (1, 3), (2, 3)]);
}

#[test]
fn reserved_ports_are_different_and_nobody_else_gets_them() {
    let home = tempfile::tempdir().unwrap();
    let environment = at_home(home.path());
    let launches: Vec<Launch> =
        (0..50).map(|_| discovered(&environment, 1, 2, "127.0.0.1", 0, |_, _| Ok(()), || None, soon()).unwrap()).collect();
    let ports: HashSet<String> = launches.iter().map(|launch| launch.meeting.to_string()).collect();
    assert_eq!(ports.len(), 50);
    let strangers: Vec<_> = (0..200).map(|_| std::net::TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    assert!(strangers.iter().all(|listener| !ports.contains(&format!("tcp://{}", listener.local_addr().unwrap()))));
    let taken = strangers[0].local_addr().unwrap().port();
    let error = discovered(&environment, 1, 2, "127.0.0.1", taken, |_, _| Ok(()), || None, soon()).unwrap_err().to_string();
    assert!(error.contains(&format!("127.0.0.1:{taken}")) && error.contains("node 1"), "{error}");
}

#[test]
fn what_is_never_published_is_missed_by_name_and_in_time() {
    let nothing = Environment::from_variables([("SYNCLINE_TOKEN", "t")]);
    let began = Instant::now();
    let mut asked = 0;
    let query = || {
        asked += 1;
        None
    };
    let error = discovered(&nothing, 2, 3, "h", 0, |_, _| Ok(()), query, Deadline::after(Duration::from_millis(100))).unwrap_err();
    assert!(error.to_string().contains("node 2 of 3 gave up") && error.to_string().contains("node 1"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(2) && asked < 20, "asked {asked} times in {:?}", began.elapsed());
    let interrupted = discovered(&nothing, 2, 3, "h", 0, |_, _| Ok(()), || None, soon().with_interrupt(|| true)).unwrap_err();
    assert!(matches!(interrupted, BootstrapError::NothingPublished { interrupted: true, .. }), "{interrupted}");
}

#[test]
fn a_node_that_cannot_publish_says_so_and_waits_for_nobody() {
    let nothing = Environment::from_variables([("SYNCLINE_TOKEN", "t")]);
    let refused = |_: &str, _: u16| Err("the board is full".to_owned());
    let error = discovered(&nothing, 1, 3, "127.0.0.1", 0, refused, || None, soon()).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:") && error.contains("3 nodes") && error.contains("the board is full"), "{error}");
}

#[test]
fn a_tree_of_one_meets_nobody_and_other_numbers_are_refused() {
    let nothing = Environment::from_variables::<String, String>([]);
    for launch in [
        localhost(&nothing, 1, 1, None),
        fixed(&nothing, 1, 1, "h", 0, "h", 0),
        discovered(&nothing, 1, 1, "h", 0, |_, _| Ok(()), || None, soon()),
        slurm(&nothing, None, 1).map(|node| node.launch),
    ] {
        assert_eq!(launch.unwrap().meeting, Meeting::Alone);
    }
    for (node, nodes) in [(0, 2), (3, 2), (0, 0), (1, 0)] {
        for launch in [
            localhost(&nothing, node, nodes, Some(7)),
            fixed(&nothing, node, nodes, "h", 0, "h", 1),
            discovered(&nothing, node, nodes, "127.0.0.1", 0, |_, _| Ok(()), || Some(("h".into(), 1)), soon()),
        ] {
            assert!(matches!(launch, Err(BootstrapError::NoSuchNode { .. })), "node {node} of {nodes}: {launch:?}");
        }
    }
    let lost = localhost(&nothing, 1, 2, None).unwrap_err().to_string();
    assert!(lost.contains("node 1 of 2") && lost.contains("process id"), "{lost}");
}

/// A task of `srun -N 2` with these numbers of tasks, where they are dealt out in the order of `nodes`.
fn task(home: &Path, rank: u32, nodes: &[u32], more: &[(&str, &str)]) -> Environment {
    let node = nodes[rank as usize];
    let local = nodes[..rank as usize].iter().filter(|other| **other == node).count();
    let counts: Vec<String> =
        (0..=*nodes.iter().max().unwrap()).map(|node| nodes.iter().filter(|other| **other == node).count().to_string()).collect();
    let numbers = [
        ("SLURM_JOB_ID", "11".to_owned()),
        ("SLURM_STEP_ID", "0".to_owned()),
        ("SLURM_PROCID", rank.to_string()),
        ("SLURM_LOCALID", local.to_string()),
        ("SLURM_NODEID", node.to_string()),
        ("SLURM_STEP_NUM_TASKS", nodes.len().to_string()),
        ("SLURM_STEP_NUM_NODES", counts.len().to_string()),
        ("SLURM_STEP_TASKS_PER_NODE", counts.join(",")),
        ("HOME", home.to_str().unwrap().to_owned()),
    ];
    let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
    Environment::from_variables(numbers.into_iter().chain(more)).with_user(rustix::process::geteuid().as_raw())
}

#[test]
fn slurm_tasks_meet_in_the_folder_they_are_given_or_at_home() {
    let (home, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (folder, below) in [(None, home.path().join(".syncline")), (Some(shared.path()), shared.path().to_owned())] {
        let met = threads(3, |index| {
            let node = slurm(&task(home.path(), index as u32, &[0, 0, 1], &[]), folder, 1).unwrap();
            let path = path_of(&node.launch);
            assert_eq!(path.parent(), Some(below.as_path()));
            assert!(path.to_str().unwrap().contains("slurm-tree-11.0-restart0-"), "{path:?}");
            take_part(&node.launch).unwrap()
        });
        assert_eq!(met, [(0, 3), (1, 3), (2, 3)]);
        assert_eq!(files_in(&below), [""; 0]);
    }
}

#[test]
fn gpus_are_counted_by_the_tasks_place_on_its_own_node() {
    let home = Path::new("/h");
    let gpus = |nodes: &[u32], tasks_per_gpu: u32| -> Vec<u32> {
        (0..nodes.len() as u32).map(|rank| slurm(&task(home, rank, nodes, &[]), None, tasks_per_gpu).unwrap().gpu).collect()
    };
    assert_eq!(gpus(&[0, 0, 1], 1), [1, 2, 1]);
    assert_eq!(gpus(&[0, 0, 0, 0, 0, 1, 1], 2), [1, 1, 2, 2, 3, 1, 1]);
    assert_eq!(gpus(&[0, 1, 0, 1, 0], 1), [1, 1, 2, 2, 3], "dealt out in turn");
    let error = slurm(&task(home, 0, &[0, 0], &[]), None, 0).unwrap_err().to_string();
    assert!(error.contains("tasks_per_gpu"), "{error}");
}

#[test]
fn a_slurm_tree_is_told_from_the_session_of_the_same_step_and_from_other_lives() {
    let home = Path::new("/h");
    let tree = |more: &[(&str, &str)]| slurm(&task(home, 1, &[0, 0, 1], more), None, 1).unwrap().launch;
    let session = syncline_cluster::bootstrap::find(&task(home, 1, &[0, 0, 1], &[]), &Default::default()).unwrap();
    assert_ne!(tree(&[]).meeting, session.meeting);
    assert_ne!(tree(&[]).meeting, tree(&[("SLURM_RESTART_COUNT", "1")]).meeting);
    assert_eq!(tree(&[("SLURM_RESTART_COUNT", "1")]).epoch, 1);
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "3"), ("PMI_FD", "9"), ("SLURM_MPI_TYPE", "pmi2")];
    assert_eq!(tree(&pmi).meeting, Meeting::Pmi { fd: 9 });
    let by_file = slurm(&task(home, 1, &[0, 0, 1], &pmi), Some(Path::new("/shared")), 1).unwrap().launch;
    assert!(path_of(&by_file).starts_with("/shared"));
    assert!(matches!(tree(&[("SYNCLINE_TOKEN", "t")]).token, TokenOrigin::Given(_)));
    // Under mpirun Slurm's variables are those of its daemons.
    let mpi = [
        ("OMPI_COMM_WORLD_RANK", "3"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
        ("PMIX_NAMESPACE", "7"),
    ];
    let node = slurm(&task(home, 1, &[0, 0, 1], &mpi), None, 2).unwrap();
    assert_eq!((node.launch.rank, node.launch.world, node.gpu), (Some(3), 4, 2));
}
