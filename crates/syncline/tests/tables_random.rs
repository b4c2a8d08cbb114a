//! Random programs of adds and gets, run by real processes, against a model that anybody can check by eye.
//!
//! Every worker derives all workers' adds from the seed, runs its own, and compares each get with what the table's
//! consistency promises: in sync mode the exact bytes of its round, otherwise at least what must be there and nothing
//! that was never added; and what a worker has seen is never gone again. In every other program workers pretend that others are always at the
//! table, in a hurry. A failing seed is printed: `RANDOM_SEED=17 cargo test -p syncline --test tables_random`.

use std::process::Command;
use std::time::Duration;

use syncline::{AddOptions, Config, Consistency, DType, Deadline, Role, Session, Spec, Table};
use syncline_testkit::ranks::Process;
use syncline_testkit::sim::Chance;

const LIMIT: Duration = Duration::from_secs(60);
const PROGRAMS: u64 = 24;

fn by() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// One add: rows (none for all of them) and a value for each element.
#[derive(Clone)]
struct Add {
    rows: Option<Vec<i64>>,
    values: Vec<f32>,
}

/// What a seed stands for; the same in every process.
struct Program {
    rows: u64,
    cols: u64,
    consistency: Consistency,
    workers: u32,
    servers: u32,
    transport: &'static str,
    /// Every worker's adds, in order.
    adds: Vec<Vec<Add>>,
}

impl Program {
    fn new(seed: u64) -> Program {
        let mut chance = Chance::new(seed);
        let mut up_to = |most: u64| chance.below(most + 1);
        let (rows, cols) = match up_to(2) {
            0 => (1 + up_to(20), 1 + up_to(5)),
            1 => (1 + up_to(400), 1 + up_to(70)),
            _ => (1 + up_to(3), 1 + up_to(60_000)), // rows wider than a stripe
        };
        let consistency =
            [Consistency::Async, Consistency::Sync, Consistency::Sync, Consistency::Bounded(1 + up_to(2) as u32)][up_to(3) as usize];
        let workers = 1 + up_to(3) as u32;
        let (servers, transport) = [(0, "auto"), (0, "auto"), (1, "auto"), (0, "tcp"), (2, "unix")][up_to(4) as usize];
        // Workers may end early by leaving; those that still meet in a barrier must make as many adds as a bound asks for.
        let even = matches!(consistency, Consistency::Bounded(_)).then(|| 5 + up_to(20));
        let adds = (0..workers)
            .map(|_| {
                (0..even.unwrap_or_else(|| 5 + up_to(20)))
                    .map(|_| {
                        let ids = (up_to(2) > 0).then(|| (0..up_to(6)).map(|_| up_to(rows - 1) as i64).collect::<Vec<_>>());
                        let count = ids.as_ref().map_or(rows, |ids| ids.len() as u64) * cols;
                        // Sums of thirds are not exact: the order of additions shows in the bits. Async needs exact ones.
                        let part = if consistency == Consistency::Sync { 3.0 } else { 1.0 };
                        let first = up_to(9);
                        Add { rows: ids, values: (0..count).map(|index| ((first + index) % 10) as f32 / part).collect() }
                    })
                    .collect()
            })
            .collect();
        Program { rows, cols, consistency, workers, servers, transport, adds }
    }

    fn world(&self) -> u32 {
        self.workers + self.servers
    }

    /// The table with the first `counts[w]` adds of every worker: round by round, in order of worker.
    fn model(&self, counts: &[usize]) -> Vec<f32> {
        let mut table = vec![0_f32; (self.rows * self.cols) as usize];
        for round in 0..counts.iter().copied().max().unwrap_or(0) {
            for (adds, count) in self.adds.iter().zip(counts) {
                let Some(add) = adds.get(round).filter(|_| round < *count) else { continue };
                let cols = self.cols as usize;
                for (at, value) in add.values.iter().enumerate() {
                    let row = add.rows.as_ref().map_or(at / cols, |rows| rows[at / cols] as usize);
                    table[row * cols + at % cols] += value;
                }
            }
        }
        table
    }

    fn spec(&self) -> Spec {
        Spec::matrix(self.rows, self.cols).with_dtype(DType::F32).with_consistency(self.consistency)
    }
}

struct Worker<'a> {
    program: &'a Program,
    table: Table,
    me: usize,
    made: usize,
    /// The most that any get has found, of every number. Nothing is ever subtracted.
    seen: Vec<f32>,
}

impl Worker<'_> {
    fn add(&mut self, wait: bool) {
        let add = &self.program.adds[self.me][self.made];
        self.table.add(bytemuck::cast_slice(&add.values), add.rows.as_deref(), &AddOptions::default(), wait, by()).expect("added");
        self.made += 1;
    }

    fn get(&mut self, rows: Option<&[i64]>, in_background: bool) {
        let cols = self.program.cols as usize;
        let count = rows.map_or(self.program.rows as usize, <[i64]>::len) * cols;
        let mut out = vec![-1_f32; count];
        if in_background {
            let bytes = self.table.get_async(rows.map(<[i64]>::to_vec)).expect("begun").wait(None, by()).expect("fetched");
            bytemuck::cast_slice_mut::<f32, u8>(&mut out).copy_from_slice(&bytes);
        } else {
            self.table.get(bytemuck::cast_slice_mut(&mut out), rows, by()).expect("fetched");
        }
        self.judge(rows, &out);
    }

    /// Compares with what this worker may see after its adds so far.
    fn judge(&mut self, rows: Option<&[i64]>, out: &[f32]) {
        let made = self.made;
        let counts = |others: usize| -> Vec<usize> {
            let of = |(worker, adds): (usize, &Vec<Add>)| if worker == self.me { made } else { others.min(adds.len()) };
            self.program.adds.iter().enumerate().map(of).collect()
        };
        let (least, most) = match self.program.consistency {
            Consistency::Sync => (counts(made), counts(made)),
            Consistency::Bounded(bound) => (counts(made.saturating_sub(bound as usize)), counts(usize::MAX)),
            Consistency::Async => (counts(0), counts(usize::MAX)),
        };
        let (least, most) = (self.program.model(&least), self.program.model(&most));
        let cols = self.program.cols as usize;
        for (at, value) in out.iter().enumerate() {
            let row = rows.map_or(at / cols, |rows| rows[at / cols] as usize);
            let seen = &mut self.seen[row * cols + at % cols];
            assert!(*seen <= *value, "worker {} after {made} adds: row {row}: {seen} was there before, and now {value}", self.me);
            *seen = *value;
            let (least, most) = (least[row * cols + at % cols], most[row * cols + at % cols]);
            assert!(
                least <= *value && *value <= most,
                "worker {} after {made} adds: row {row}, column {}: {value} is not in {least}..={most}",
                self.me,
                at % cols
            );
        }
    }
}

/// Not a test: what every process of a program runs. Without its variable it does nothing.
#[test]
fn member() {
    let Ok(seed) = std::env::var("RANDOM_PROGRAM") else { return };
    let seed: u64 = seed.parse().expect("a number");
    let program = Program::new(seed);
    let session = Session::open(Config::from_env().expect("a sound environment")).expect("everybody comes");
    if session.role() == Role::Server {
        session.stay_for_workers(Deadline::after(LIMIT)).expect("the workers leave");
        session.shutdown().expect("a polite end");
        return;
    }
    let me = session.worker_id().expect("a worker") as usize;
    #[cfg(debug_assertions)]
    if seed % 2 == 1 {
        syncline_shm::mortality::pretend_a_crowd();
    }
    let table = session.create_table(program.spec(), None).expect("made");
    let mut worker = Worker { program: &program, table, me, made: 0, seen: vec![0.0; (program.rows * program.cols) as usize] };
    let mut chance = Chance::new(seed ^ (me as u64 + 1) << 32);
    while worker.made < program.adds[me].len() {
        match chance.below(6) {
            0 => worker.get(None, false),
            1 => worker.get(Some(&[chance.below(program.rows) as i64, 0, chance.below(program.rows) as i64]), false),
            2 => worker.get(None, true),
            // In sync mode an add that is waited for waits for others, who may be done: they need not come.
            3 if program.consistency != Consistency::Sync => worker.add(true),
            _ => worker.add(false),
        }
    }
    worker.get(None, false);
    if program.consistency != Consistency::Sync {
        session.barrier().expect("everybody comes");
        let all: Vec<usize> = program.adds.iter().map(Vec::len).collect();
        let mut out = vec![0_f32; (program.rows * program.cols) as usize];
        worker.table.get(bytemuck::cast_slice_mut(&mut out), None, by()).expect("fetched");
        assert!(out == program.model(&all), "after the barrier every add is in the table once");
        session.barrier().expect("everybody comes");
    }
    session.shutdown().expect("a polite end");
}

fn run(seed: u64) {
    let program = Program::new(seed);
    let rendezvous = format!("unix:@random-{}-{seed}", std::process::id());
    let members: Vec<Process> = (0..program.world())
        .map(|rank| {
            let role = match program.servers {
                0 => "both",
                _ if rank >= program.workers => "server",
                _ => "worker",
            };
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command
                .args(["--exact", "member", "--nocapture"])
                .env("RANDOM_PROGRAM", seed.to_string())
                .env("SYNCLINE_RANK", rank.to_string())
                .env("SYNCLINE_WORLD_SIZE", program.world().to_string())
                .env("SYNCLINE_RENDEZVOUS", &rendezvous)
                .env("SYNCLINE_TOKEN", "t")
                .env("SYNCLINE_TIMEOUT", "20")
                .env("SYNCLINE_ROLE", role)
                .env("SYNCLINE_TRANSPORT", program.transport);
            Process::start(format!("seed {seed}, rank {rank}"), &mut command)
        })
        .collect();
    for (rank, member) in members.into_iter().enumerate() {
        let ending = member.finish_within(LIMIT);
        assert!(
            ending.status.success(),
            "RANDOM_SEED={seed}: rank {rank} of {} workers and {} servers over {}, {:?}, {} x {}\n{}\n{}",
            program.workers,
            program.servers,
            program.transport,
            program.consistency,
            program.rows,
            program.cols,
            ending.stdout,
            ending.stderr
        );
    }
}

#[test]
fn random_programs_keep_every_promise() {
    match std::env::var("RANDOM_SEED") {
        Ok(seed) => run(seed.parse().expect("a number")),
        Err(_) => {
            let runs = std::env::var("SOAK_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(PROGRAMS);
            (0..runs).for_each(run);
        }
    }
}
