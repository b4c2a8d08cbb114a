//! Tables of jobs on several hosts: the same numbers as on one, whole adds, and servers that sit elsewhere.
//!
//! Hosts are network namespaces that only a bridge joins. Needs root; elsewhere each test says `skipped`.

mod field;
mod tables;

use std::path::Path;

use field::LIMIT;
use field::hosts::{Addresses, Field, ready};
use field::program::{Program, command, rank_words};
use field::training;
use syncline_testkit::ranks::eventually;
use syncline_testkit::sim::Chance;
use tables::slow::PARAMETERS;
use tables::verdict::{assert_exact, assert_told};
use tables::{GRADIENTS, Mode, ORDER, Order, Victim};

const STEPS: u64 = 10;

#[test]
fn as_a_rank() {
    tables::worker::work_if_asked();
    #[cfg(debug_assertions)]
    tables::late::die_if_asked();
    tables::slow::measure_if_asked();
    training::train_if_asked();
}

/// Where the workers sit, and after them the servers; hosts are numbered from 1.
struct Layout {
    workers: &'static [usize],
    servers: &'static [usize],
}

const ONE_HOST: Layout = Layout { workers: &[1, 1, 1, 1], servers: &[] };
const TWO_HOSTS: Layout = Layout { workers: &[1, 1, 2, 2], servers: &[] };
const THREE_HOSTS: Layout = Layout { workers: &[1, 2, 3, 3], servers: &[] };
const SERVERS_ELSEWHERE: Layout = Layout { workers: &[1, 1, 1, 2], servers: &[2, 1] };

impl Layout {
    fn workers(&self) -> u32 {
        self.workers.len() as u32
    }

    /// Starts every rank where it belongs, and returns the workers, then the servers.
    fn start(&self, field: &Field, env: &[(&str, &str)]) -> (Vec<Program>, Vec<Program>) {
        self.start_as(field, &rank_words(), env)
    }

    /// The same with another program for the workers.
    fn start_as(&self, field: &Field, worker: &[String], env: &[(&str, &str)]) -> (Vec<Program>, Vec<Program>) {
        let world = (self.workers.len() + self.servers.len()).to_string();
        let meeting = field.rendezvous(self.workers[0]);
        let start = |rank: usize, host: usize, words: &[String], role: Option<&str>| {
            let number = rank.to_string();
            let mut all = vec![("SYNCLINE_WORLD_SIZE", world.as_str()), ("SYNCLINE_RENDEZVOUS", &meeting), ("SYNCLINE_RANK", &number)];
            all.extend([("SYNCLINE_TOKEN", "token of these tests"), ("SYNCLINE_TIMEOUT", "20")]);
            all.extend(role.map(|role| ("SYNCLINE_ROLE", role)));
            all.extend(env);
            Program::start(format!("rank {rank} on h{host}"), command(&field.on(host, words), "", &all))
        };
        let role = (!self.servers.is_empty()).then_some("worker");
        let serve = [env!("CARGO_BIN_EXE_syncline"), "server"].map(str::to_owned);
        let workers = self.workers.iter().enumerate().map(|(rank, host)| start(rank, *host, worker, role));
        let workers: Vec<Program> = workers.collect();
        let servers = self.servers.iter().enumerate().map(|(place, host)| start(self.workers.len() + place, *host, &serve, Some("server")));
        (workers, servers.collect())
    }
}

#[test]
fn a_sync_training_ends_with_the_same_bits_on_one_host_and_on_two() {
    if !ready() {
        return;
    }
    let mut sums: Vec<String> = Vec::new();
    for layout in [&ONE_HOST, &TWO_HOSTS, &TWO_HOSTS, &SERVERS_ELSEWHERE] {
        let field = Field::new(2, Addresses::V4);
        let (mut workers, mut servers) = layout.start(&field, &[(training::TRAIN, "60")]);
        for program in workers.iter_mut() {
            sums.push(program.wait_for("trained", LIMIT).text);
        }
        workers.iter_mut().chain(&mut servers).for_each(|program| program.succeed(LIMIT));
    }
    assert_eq!(sums.len(), 16);
    assert!(sums.iter().all(|sum| *sum == sums[0]), "four workers each on one host, on two, again, and with servers: {sums:#?}");
}

#[test]
fn every_add_counts_once_in_every_mode() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    for mode in Mode::ALL {
        for (name, layout) in [("two hosts", &TWO_HOSTS), ("servers elsewhere", &SERVERS_ELSEWHERE)] {
            let folder = tempfile::tempdir().expect("a scratch folder");
            let order = Order { mode, steps: STEPS, victim: None, endless: false, folder: folder.path().to_owned() };
            let (mut workers, mut servers) = layout.start(&field, &[(ORDER, &order.to_string())]);
            workers.iter_mut().chain(&mut servers).for_each(|program| _ = program.end(LIMIT));
            let words: String = workers.iter().chain(&servers).map(Program::transcript).collect();
            assert_exact(&order, layout.workers(), &format!("{mode}, {name}{words}\n"));
            workers.iter_mut().chain(&mut servers).for_each(|program| program.succeed(LIMIT));
        }
    }
}

#[test]
fn a_killed_worker_leaves_whole_adds_on_servers_elsewhere() {
    if !ready() {
        return;
    }
    // Where every process keeps a part of the table for other hosts, that part goes with it: only servers of their own
    // let workers between hosts go on.
    let (layout, first_seed) = (&SERVERS_ELSEWHERE, 100);
    let field = Field::new(2, Addresses::V4);
    let runs = Mode::ALL.into_iter().flat_map(|mode| [(mode, 1), (mode, 3)]);
    // Not the first, which hosts the coordinator: without it nobody can go on.
    for (seed, (mode, victim)) in (first_seed..).zip(runs) {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let order = order_to_kill(mode, victim, seed, false, folder.path());
        let env = [(ORDER, order.to_string()), ("SYNCLINE_ON_PEER_LOSS", "continue".into())];
        let (mut workers, _servers) = layout.start(&field, &env.each_ref().map(|(name, value)| (*name, value.as_str())));
        workers.iter_mut().for_each(|program| _ = program.end(LIMIT));
        let words: String = workers.iter().map(Program::transcript).collect();
        assert_exact(&order, layout.workers(), &format!("{order}{words}\n"));
    }
}

#[cfg(debug_assertions)]
#[test]
fn an_add_that_counts_is_in_every_part_though_nobody_comes_to_look() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    let mut counted = 0;
    for moment in [1, 2, 3, 5, 40] {
        let moment = moment.to_string();
        let env = [(tables::late::MOMENT, moment.as_str()), ("SYNCLINE_ON_PEER_LOSS", "continue")];
        let (mut workers, _servers) = SERVERS_ELSEWHERE.start(&field, &env);
        workers.iter_mut().for_each(|program| _ = program.end(LIMIT));
        let words: String = workers.iter().map(Program::transcript).collect();
        let said = |program: &Program| program.transcript().lines().find(|line| line.starts_with("found")).map(str::to_owned);
        let found: Vec<Option<String>> = workers[..3].iter().map(said).collect();
        let whole = [0, 1].iter().any(|adds| found.iter().all(|line| line.as_ref() == Some(&format!("found {adds} to {adds}"))));
        assert!(whole, "moment {moment}: half an add: {found:?}{words}");
        counted += u32::from(found[0].as_deref() == Some("found 1 to 1"));
    }
    assert!(counted > 1, "it died each time before its add counted");
}

#[test]
fn a_worker_killed_on_another_host_is_named_by_the_others() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    for (seed, mode) in Mode::ALL.into_iter().enumerate() {
        for (name, layout) in [("two hosts", &TWO_HOSTS), ("servers elsewhere", &SERVERS_ELSEWHERE)] {
            let folder = tempfile::tempdir().expect("a scratch folder");
            let order = order_to_kill(mode, 3, 100 + seed as u64, true, folder.path());
            let (mut workers, _servers) = layout.start(&field, &[(ORDER, &order.to_string())]);
            workers.iter_mut().for_each(|program| _ = program.end(LIMIT));
            let words: String = workers.iter().map(Program::transcript).collect();
            // Between hosts it is a broken connection that tells, and it has to be passed on.
            assert_told(&order, layout.workers(), std::time::Duration::from_secs(2), &format!("{mode}, {name}{words}\n"));
        }
    }
}

#[test]
fn every_gradient_steps_once_wherever_tables_live() {
    if !ready() {
        return;
    }
    let field = Field::new(3, Addresses::V4);
    for mode in Mode::ALL {
        for (name, layout) in [("two hosts", &TWO_HOSTS), ("servers elsewhere", &SERVERS_ELSEWHERE), ("three hosts", &THREE_HOSTS)] {
            let folder = tempfile::tempdir().expect("a scratch folder");
            let order = Order { mode, steps: STEPS, victim: None, endless: false, folder: folder.path().to_owned() };
            let (mut workers, mut servers) = layout.start(&field, &[(ORDER, &order.to_string()), (GRADIENTS, "1")]);
            workers.iter_mut().chain(&mut servers).for_each(|program| _ = program.end(LIMIT));
            let words: String = workers.iter().chain(&servers).map(Program::transcript).collect();
            assert_exact(&order, layout.workers(), &format!("{mode}, {name}{words}\n"));
            workers.iter_mut().chain(&mut servers).for_each(|program| program.succeed(LIMIT));
        }
    }
}

#[test]
fn a_worker_killed_in_a_push_leaves_whole_steps_on_servers_elsewhere() {
    if !ready() {
        return;
    }
    let (layout, field) = (&SERVERS_ELSEWHERE, Field::new(2, Addresses::V4));
    let runs = std::env::var("SYNCLINE_KILL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(6);
    for (seed, (mode, victim)) in (500..500 + runs).zip(Mode::ALL.into_iter().flat_map(|mode| [(mode, 1), (mode, 3)]).cycle()) {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let order = order_to_kill(mode, victim, seed, false, folder.path());
        let env = [(ORDER, order.to_string()), (GRADIENTS, "1".into()), ("SYNCLINE_ON_PEER_LOSS", "continue".into())];
        let (mut workers, _servers) = layout.start(&field, &env.each_ref().map(|(name, value)| (*name, value.as_str())));
        workers.iter_mut().for_each(|program| _ = program.end(LIMIT));
        let words: String = workers.iter().map(Program::transcript).collect();
        assert_exact(&order, layout.workers(), &format!("{order}{words}\n"));
    }
}

/// Steps of a model with ten million parameters whose server is behind a link of 100 Mbit/s. Run alone and by hand:
/// `cargo test --release -p syncline-cli --test tables_netns few_bits -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn few_bits_on_a_slow_link_are_worth_four_times_the_steps() {
    if !ready() {
        return;
    }
    let field = Field::new(2, Addresses::V4);
    (1..=2).for_each(|host| field.slow_down(host, "100mbit"));
    let layout = Layout { workers: &[1], servers: &[2] };
    let (mut workers, mut servers) = layout.start(&field, &[(PARAMETERS, "10000000"), ("SYNCLINE_TIMEOUT", "60")]);
    workers.iter_mut().chain(&mut servers).for_each(|program| program.succeed(LIMIT * 4));
    let transcript = workers[0].transcript();
    let rate = |what: &str| -> f64 {
        let line = transcript.lines().find_map(|line| line.strip_prefix(what)).unwrap_or_else(|| panic!("{what}: {transcript}"));
        line.trim().parse().expect("steps per second")
    };
    transcript.lines().filter(|line| line.starts_with("push")).for_each(|line| println!("{line}"));
    assert!(rate("push 2bit pull - ") >= 4.0 * rate("push none pull - "), "pushes: {transcript}");
    assert!(rate("push 2bit pull int8 ") >= 4.0 * rate("push none pull none "), "pushes and pulls: {transcript}");
}

/// Adds and gets of one worker with a server on another host, beside the same bytes through a plain socket: between the same
/// two hosts, and on the loopback of one. Run alone and by hand:
/// `cargo test --release -p syncline-cli --test tables_netns throughput -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn throughput_between_two_hosts() {
    if !ready() {
        return;
    }
    const SECONDS: &str = "0.5";
    const RUNS: &str = "3";
    let layout = Layout { workers: &[1], servers: &[2] };
    let bench = |words: &[&str]| -> Vec<String> {
        [&[env!("CARGO_BIN_EXE_syncline"), "__bench"], words].concat().into_iter().map(str::to_owned).collect()
    };
    for megabytes in [16, 64] {
        let size = (megabytes << 20).to_string();
        for (transport, encrypt) in [("tcp", "off"), ("noise", "on")] {
            for raw in ["between the hosts", "on loopback"] {
                let field = Field::new(2, Addresses::V4);
                let address = format!("{}:6006", field.address(2));
                let echo = Program::start("echo on h2", command(&field.on(2, &bench(&["echo", &address, &size])), "", &[]));
                eventually("the echo", LIMIT, || echo.transcript().contains("listening"));
                let mut words = bench(&["table", "dense", &size, "1", "async", transport, SECONDS, RUNS]);
                if raw == "between the hosts" {
                    words.extend(["--echo".to_owned(), address.clone()]);
                }
                let (mut workers, mut servers) = layout.start_as(&field, &words, &[("SYNCLINE_ENCRYPT", encrypt)]);
                workers.iter_mut().chain(&mut servers).for_each(|program| program.succeed(LIMIT));
                let transcript = workers[0].transcript();
                for run in transcript.lines().filter(|line| line.starts_with('{')) {
                    let run: serde_json::Value = serde_json::from_str(run).expect("a run's figures");
                    let rate = |name: &str| run[name].as_f64().expect("a number");
                    let (table, plain) = (rate("loops_per_s"), rate("limit_loops_per_s"));
                    let speed = |loops: f64| loops * 2.0 * f64::from(megabytes << 20) / 1e9;
                    println!("{megabytes} MB {transport:5} {:.2} GB/s, raw {raw} {:.2}: {:.2}", speed(table), speed(plain), table / plain);
                    assert_eq!(run["wrong"], 0);
                }
            }
        }
    }
}

fn order_to_kill(mode: Mode, victim: u32, seed: u64, endless: bool, folder: &Path) -> Order {
    let victim = Victim::by_chance(&mut Chance::new(seed), victim..victim + 1, STEPS);
    Order { mode, steps: STEPS, victim: Some(victim), endless, folder: folder.to_owned() }
}
