//! Workers and servers that are killed: the survivors name them, and nothing hangs. (K14: MXNet's workers see no death but the scheduler's.)

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use syncline::kvstore::{KvStore, Optimizer};
use syncline::{Config, Error, ErrorKind, Session};
use syncline_testkit::ranks::{Ending, Process};

use crate::filled;

const LIMIT: Duration = Duration::from_secs(60);
const SHAPE: [usize; 2] = [70, 60];

/// Not a test: what the processes run. Without its variables it does nothing.
#[test]
fn member() {
    let Ok(kind) = std::env::var("MORTAL_STORE") else { return };
    let victim: u32 = std::env::var("MORTAL_VICTIM").expect("told").parse().expect("a rank");
    let session = Session::open(Config::from_env().expect("a sound environment")).expect("everybody comes");
    if session.worker_id().is_none() {
        if session.rank() == victim {
            std::thread::sleep(Duration::from_millis(300));
            die();
        }
        let _ = session.stay_for_workers(syncline::Deadline::after(LIMIT));
        let _ = session.shutdown();
        return;
    }
    let mut out = std::io::stdout();
    let error = train(&session, &kind, victim).expect_err("somebody dies");
    let dead = error.who().map(|who| who.rank);
    writeln!(out, "survivor {} kind {:?} names {dead:?}: {error}", session.rank(), error.kind() == ErrorKind::PeerLost).expect("a pipe");
}

fn train(session: &Session, kind: &str, victim: u32) -> Result<(), Error> {
    let store: KvStore = session.kvstore(kind)?;
    store.set_optimizer(Optimizer::create("adam", &[]).expect("known"))?;
    store.init("w", &filled(&SHAPE, 0.0f32))?;
    for round in 0.. {
        store.push("w", &filled(&SHAPE, 1.0f32))?;
        if session.rank() == victim && round == 3 {
            die();
        }
        store.pull("w")?;
        if kind == "dist_async" {
            store.barrier()?;
        }
    }
    Ok(())
}

fn die() -> ! {
    let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
    loop {
        std::thread::park();
    }
}

/// Runs a job of real processes and returns how they ended, by rank.
fn run(kind: &str, workers: u32, servers: u32, transport: &str, victim: u32) -> Vec<Ending> {
    let rendezvous = format!("unix:@kv-mortal-{}-{kind}-{workers}-{servers}-{transport}-{victim}", std::process::id());
    let start = |rank: u32| {
        let role = match servers {
            0 => "both",
            _ if rank >= workers => "server",
            _ => "worker",
        };
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "mortal::member", "--nocapture"])
            .env("MORTAL_STORE", kind)
            .env("MORTAL_VICTIM", victim.to_string())
            .env("SYNCLINE_RANK", rank.to_string())
            .env("SYNCLINE_WORLD_SIZE", (workers + servers).to_string())
            .env("SYNCLINE_RENDEZVOUS", &rendezvous)
            .env("SYNCLINE_TOKEN", "t")
            .env("SYNCLINE_TIMEOUT", "20")
            .env("SYNCLINE_ROLE", role)
            .env("SYNCLINE_TRANSPORT", transport);
        Process::start(format!("{kind} rank {rank}"), &mut command)
    };
    let processes: Vec<Process> = (0..workers + servers).map(start).collect();
    processes.into_iter().map(|process| process.finish_within(LIMIT)).collect()
}

fn survivors_name(kind: &str, workers: u32, servers: u32, transport: &str, victim: u32) {
    let started = Instant::now();
    let endings = run(kind, workers, servers, transport, victim);
    assert!(started.elapsed() < Duration::from_secs(15), "the death was noticed, not waited out");
    for (rank, ending) in (0..workers).zip(&endings) {
        let context = format!("{kind} {workers}+{servers} {transport}, rank {rank}\n{}{}", ending.stdout, ending.stderr);
        if rank == victim {
            assert!(!ending.status.success(), "{context}");
            continue;
        }
        assert!(ending.stdout.contains(&format!("survivor {rank} kind true names Some({victim})")), "{context}");
    }
}

#[test]
fn k14_a_worker_killed_in_a_round_is_named_by_all_survivors() {
    for (kind, workers, servers, transport, victim) in
        [("dist_sync", 3, 0, "auto", 1), ("dist_sync", 2, 1, "tcp", 1), ("dist_async", 3, 0, "auto", 2), ("dist_sync", 3, 0, "tcp", 2)]
    {
        survivors_name(kind, workers, servers, transport, victim);
    }
}

#[test]
fn a_killed_server_is_named_too() {
    survivors_name("dist_sync", 2, 1, "tcp", 2);
}
