//! Ranks that are killed, frozen or orphaned at random moments: nobody hangs, every survivor names the culprit, and
//! nothing of the job is left.
//!
//! Each run is decided by its seed, which a failure prints. `SYNCLINE_KILL_RUNS=200 cargo test -p syncline-cli --test kill`
//! is the long form (`make soak`).

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use syncline::transport::{LinkError, OutFrame};
use syncline::{Config, Deadline, Error, Lane, Session};
use syncline_testkit::ranks::{Ending, Process, eventually};
use syncline_testkit::sim::Chance;
use syncline_wire::Kind;

const WORLD: u32 = 4;

// ---- the program that every rank runs ------------------------------------------------------------------------

/// Not a test of its own: the body of each rank, when this binary is started again by `syncline run`.
#[test]
fn as_a_rank() {
    if std::env::var_os("KILL_TEST_RANK").is_none() {
        return;
    }
    let error = work_until_it_fails().expect_err("the work ends only by an error");
    report(&error);
    std::process::exit(3);
}

/// Barriers and traffic in a ring, for ever.
fn work_until_it_fails() -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let _forever = &session;
    let (rank, size) = (session.rank(), session.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let soon = || Deadline::after(session.timeout());
    let mut out = session.link(next, Lane(100 + rank), soon())?;
    let mut into = session.link(previous, Lane(100 + previous), soon())?;
    let payload = vec![rank as u8; 100_000];
    let mut received = vec![0; payload.len()];
    loop {
        session.barrier()?;
        let started = Instant::now();
        let failed = |peer: u32| move |error: LinkError| (peer, error);
        let sent = out.send(&OutFrame { payload: &[&payload], ..OutFrame::new(Kind::DATA) }, soon()).map_err(failed(next));
        let exchanged = sent.and_then(|()| into.head(soon()).and_then(|_| into.body_into(&mut received, soon())).map_err(failed(previous)));
        if let Err((peer, error)) = exchanged {
            return Err(session.link_failed("ring exchange", peer, started, &error));
        }
        assert!(received.iter().all(|byte| *byte == previous as u8), "the ring passes on what was sent");
    }
}

/// One line for the test that killed somebody: when, what kind, whom it names.
fn report(error: &Error) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_micros();
    let rank = std::env::var("SYNCLINE_RANK").expect("run sets it");
    let who = error.who().map_or("nobody".to_owned(), |who| who.rank.to_string());
    let text = error.to_string().replace('\n', " | ");
    // A line of its own: the test harness may have left half of one.
    let line = format!("\nREPORT rank={rank} kind={:?} who={who} at={now} text={text}\n", error.kind());
    let _ = std::io::stdout().write_all(line.as_bytes());
}

// ---- the tests ------------------------------------------------------------------------------------------------

#[test]
fn a_killed_rank_is_named_by_every_survivor_within_a_second() {
    for seed in 0..runs() {
        let mut chance = Chance::new(seed);
        let victim = chance.below(u64::from(WORLD)) as u32;
        // From before the first instruction of the rank to well inside its traffic.
        let delay = chance.duration(Duration::ZERO, Duration::from_millis(150));
        let job = Job::start(&[]);
        let name = job.name();
        let pid = job.pid_of(victim);
        pause(delay);
        let killed = micros();
        kill_process(pid, Signal::KILL).expect("the victim can be killed");
        let ending = job.end(&name, Duration::from_secs(25), seed);
        assert_eq!(ending.status.code(), Some(128 + 9), "seed {seed}: the launcher returns the first failure's code\n{}", ending.stderr);
        for report in survivors(&ending, victim, seed) {
            assert_eq!((report.kind.as_str(), report.who), ("PeerLost", Some(victim)), "seed {seed}, after {delay:?}: {}", report.text);
            let late = Duration::from_micros(report.at.saturating_sub(killed));
            assert!(late <= Duration::from_secs(1), "seed {seed}: rank {} noticed only after {late:?}: {}", report.rank, report.text);
        }
    }
}

#[test]
fn a_frozen_rank_is_named_by_every_survivor_within_the_timeout() {
    for seed in 0..runs().div_ceil(4) {
        let mut chance = Chance::new(1000 + seed);
        let victim = chance.below(u64::from(WORLD)) as u32;
        let job = Job::start(&["--timeout", "2", "--grace", "1"]);
        let name = job.name();
        let pid = job.pid_of(victim);
        job.until_it_runs();
        pause(chance.duration(Duration::ZERO, Duration::from_millis(100)));
        let stopped = micros();
        kill_process(pid, Signal::STOP).expect("the victim can be stopped");
        let ending = job.end(&name, Duration::from_secs(25), seed);
        assert_ne!(ending.status.code(), Some(0), "seed {seed}");
        for report in survivors(&ending, victim, seed) {
            assert_eq!((report.kind.as_str(), report.who), ("Timeout", Some(victim)), "seed {seed}: {}", report.text);
            let late = Duration::from_micros(report.at.saturating_sub(stopped));
            // Its wait began after the stop and lasts the timeout; a second more is the machine's.
            assert!(late <= Duration::from_secs(3), "seed {seed}: rank {} noticed only after {late:?}", report.rank);
        }
    }
}

#[test]
fn nothing_outlives_a_killed_launcher() {
    for seed in 0..runs().div_ceil(4) {
        let mut chance = Chance::new(2000 + seed);
        let job = Job::start(&[]);
        let name = job.name();
        pause(chance.duration(Duration::ZERO, Duration::from_millis(150)));
        kill_process(Pid::from_raw(job.launcher.pid() as i32).expect("a pid"), Signal::KILL).expect("the launcher can be killed");
        let ending = job.end(&name, Duration::from_secs(10), seed);
        assert_eq!(ending.status.signal(), Some(9), "seed {seed}");
    }
}

// ---- helpers --------------------------------------------------------------------------------------------------

fn runs() -> u64 {
    std::env::var("SYNCLINE_KILL_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// A job of this binary under `syncline run`, recognisable by a marker that all its processes inherit.
struct Job {
    launcher: Process,
    marker: String,
}

impl Job {
    fn start(options: &[&str]) -> Job {
        let marker = format!("KILL_TEST_RANK={}-{}", std::process::id(), micros());
        let (name, value) = marker.split_once('=').expect("a variable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
        command.args(["run", "-n", &WORLD.to_string()]).args(options).arg("--");
        command.arg(std::env::current_exe().expect("this binary")).args(["--exact", "as_a_rank", "--nocapture"]);
        command.env(name, value).env_remove("SYNCLINE_TIMEOUT");
        Job { launcher: Process::start("syncline run", &mut command), marker }
    }

    /// The process of `rank`, as soon as it exists.
    fn pid_of(&self, rank: u32) -> Pid {
        let wanted = format!("SYNCLINE_RANK={rank}");
        let mut found = None;
        eventually("the rank starts", Duration::from_secs(10), || {
            found = processes_with(&self.marker).into_iter().find(|(_, environment)| environment.contains(&wanted));
            found.is_some()
        });
        Pid::from_raw(found.expect("just found").0 as i32).expect("a pid")
    }

    /// The abstract name under which the ranks meet; all sockets of the job begin with it.
    fn name(&self) -> String {
        let prefix = "SYNCLINE_RENDEZVOUS=unix:";
        let mut name = String::new();
        eventually("a rank exists", Duration::from_secs(10), || {
            let variables = processes_with(&self.marker).into_iter().flat_map(|(_, environment)| environment);
            name = variables.into_iter().find_map(|variable| variable.strip_prefix(prefix).map(str::to_owned)).unwrap_or_default();
            !name.is_empty()
        });
        name
    }

    /// Waits until every rank has its threads, that is: has joined.
    fn until_it_runs(&self) {
        eventually("the job runs", Duration::from_secs(10), || {
            let ranks = processes_with(&self.marker)
                .into_iter()
                .filter(|(_, environment)| environment.iter().any(|variable| variable.starts_with("SYNCLINE_RANK=")));
            let watching = |pid: u32| {
                let tasks = fs::read_dir(format!("/proc/{pid}/task")).map(|tasks| tasks.flatten().collect::<Vec<_>>()).unwrap_or_default();
                tasks.iter().any(|task| fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "syncline-watch"))
            };
            ranks.filter(|(pid, _)| watching(*pid)).count() == WORLD as usize
        });
    }

    /// Waits for the launcher, then for every trace of the job to be gone.
    fn end(self, name: &str, limit: Duration, seed: u64) -> Ending {
        let Job { launcher, marker } = self;
        let ending = launcher.finish_within(limit);
        eventually(&format!("seed {seed}: no process of the job is left"), Duration::from_secs(5), || processes_with(&marker).is_empty());
        eventually(&format!("seed {seed}: no socket or file of the job is left"), Duration::from_secs(5), || traces(name).is_empty());
        ending
    }
}

/// Processes whose environment holds `marker`, except this one.
fn processes_with(marker: &str) -> Vec<(u32, Vec<String>)> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).filter(|pid| *pid != std::process::id());
    pids.filter_map(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let variables: Vec<String> = environment.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
        variables.iter().any(|variable| variable == marker).then_some((pid, variables))
    })
    .collect()
}

/// What the job under `name` could leave on this machine: abstract sockets and shared-memory files.
fn traces(name: &str) -> Vec<String> {
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets = sockets.lines().filter(|line| line.contains(name)).map(str::to_owned);
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|entry| entry.path().display().to_string());
    sockets.chain(files.filter(|path| path.contains("syncline"))).collect()
}

struct Report {
    rank: u32,
    kind: String,
    who: Option<u32>,
    at: u64,
    text: String,
}

/// The reports of all ranks but the victim; a missing one fails the test.
fn survivors(ending: &Ending, victim: u32, seed: u64) -> Vec<Report> {
    let reports: Vec<Report> = ending.stdout.lines().filter_map(|line| line.split_once("REPORT ").map(|(_, facts)| parse(facts))).collect();
    for rank in (0..WORLD).filter(|rank| *rank != victim) {
        let count = reports.iter().filter(|report| report.rank == rank).count();
        assert_eq!(
            count, 1,
            "seed {seed}: rank {rank} reported {count} times\n--- stdout\n{}\n--- stderr\n{}",
            ending.stdout, ending.stderr
        );
    }
    reports.into_iter().filter(|report| report.rank != victim).collect()
}

fn parse(facts: &str) -> Report {
    let field =
        |name: &str| facts.split_once(&format!("{name}=")).map(|(_, rest)| rest.split(' ').next().unwrap_or_default()).unwrap_or_default();
    Report {
        rank: field("rank").parse().expect("a rank"),
        kind: field("kind").into(),
        who: field("who").parse().ok(),
        at: field("at").parse().expect("a time"),
        text: facts.split_once("text=").map(|(_, text)| text.to_owned()).unwrap_or_default(),
    }
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is set").as_micros() as u64
}

/// Lets the job go on for a random while: the moment of a fault is the point of these tests, not a hope.
fn pause(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        thread::park_timeout(left);
    }
}
