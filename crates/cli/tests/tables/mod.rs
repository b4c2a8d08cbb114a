//! Jobs whose workers add to tables and keep a diary, so that a test can say afterwards what the tables must hold.
//!
//! The rank program is the test binary itself, started again for its test `as_a_rank` with an [`Order`] in its
//! environment. It writes to files in the order's folder: what a process wrote before it was killed is still there.
//!
//! Every add of worker w adds 1 at the w-th group of bits of whole numbers, so each number of a table tells how many
//! adds of each worker it has seen, and a torn add shows wherever it was torn.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod late;
pub(crate) mod slow;
pub(crate) mod verdict;
pub(crate) mod worker;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use syncline_testkit::sim::Chance;

/// The environment variable that holds the order.
pub(crate) const ORDER: &str = "TABLES_ORDER";

/// Where this is set the tables are gradient tables made by name, whose optimizer adds.
pub(crate) const GRADIENTS: &str = "TABLES_GRADIENTS";

/// Where this is set there is a table of keys too. Keys live in the memory of their servers, which therefore must not be the victims.
pub(crate) const KEYS: &str = "TABLES_KEYS";

/// Elements of the array that every worker adds to as a whole: many stripes, so that an add has a middle.
pub(crate) const ARRAY: usize = 700_000;
/// Rows and columns of the matrix that workers add to by row.
pub(crate) const ROWS: usize = 256;
pub(crate) const COLS: usize = 1501;
/// Bits for the count of each worker.
const BITS: u32 = 14;

/// How far the workers' views may drift apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Async,
    Sync,
    Bounded,
}

/// What a job's workers do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) mode: Mode,
    /// Steps of each worker; each adds once to the array, to the matrix and, where there are some, to the keys.
    pub(crate) steps: u64,
    /// Who dies, if anybody.
    pub(crate) victim: Option<Victim>,
    /// Whether the workers go on until an error ends them.
    pub(crate) endless: bool,
    /// Where the diaries and results go.
    pub(crate) folder: PathBuf,
}

/// The worker that kills itself, and when: aimed at an add, whose length it knows from those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) worker: u32,
    /// Not the first, which has none before it.
    pub(crate) step: u64,
    /// Which of the step's adds it is: 0 that to the array, 1 to the matrix, 2 to the keys.
    pub(crate) target: usize,
    /// How much of the usual length of such an add has passed, in thousandths.
    pub(crate) thousandths: u64,
}

impl Victim {
    /// One of `workers`, somewhere in the steps; early moments of an add are likelier, for much happens there.
    pub(crate) fn by_chance(chance: &mut Chance, workers: std::ops::Range<u32>, steps: u64) -> Victim {
        let (one, other) = (chance.below(1100), chance.below(1000));
        Victim {
            worker: workers.start + chance.below(u64::from(workers.end - workers.start)) as u32,
            step: 2 + chance.below(steps - 2),
            target: [0, 0, 0, 0, 1, 2][chance.below(6) as usize],
            thousandths: if chance.below(2) == 0 { one } else { other * other / 1000 },
        }
    }
}

impl Mode {
    pub(crate) const ALL: [Mode; 3] = [Mode::Async, Mode::Sync, Mode::Bounded];
}

/// What one add of `worker` adds to each number it touches.
pub(crate) fn unit(worker: u32) -> i64 {
    1 << (BITS * worker)
}

/// How many adds of `worker` a number has seen.
pub(crate) fn count(number: i64, worker: u32) -> u64 {
    (number >> (BITS * worker)) as u64 & ((1 << BITS) - 1)
}

/// The rows that `worker` adds to in this step: in no order, and one of them twice.
pub(crate) fn rows_of(worker: u32, step: u64) -> Vec<i64> {
    let first = (step * 37 + u64::from(worker) * 11) % ROWS as u64;
    let mut rows: Vec<i64> = (0..24).map(|place| ((first + place * 83) % ROWS as u64) as i64).collect();
    rows.push(rows[3]);
    rows
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Async => "async",
            Mode::Sync => "sync",
            Mode::Bounded => "bounded",
        })
    }
}

/// One line, which goes through an environment variable.
impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nobody = Victim { worker: u32::MAX, step: 0, target: 0, thousandths: 0 };
        let Victim { worker, step, target, thousandths } = self.victim.unwrap_or(nobody);
        let Order { mode, steps, endless, folder, .. } = self;
        write!(f, "{mode} {steps} {worker} {step} {target} {thousandths} {endless} {}", folder.display())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Order, String> {
        let wrong = || format!("not an order: {text}");
        let words: Vec<&str> = text.splitn(8, ' ').collect();
        let [mode, steps, worker, step, target, thousandths, endless, folder] = words[..] else { return Err(wrong()) };
        let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
        let worker = worker.parse::<u32>().map_err(|_| wrong())?;
        let victim = Victim { worker, step: number(step)?, target: number(target)? as usize, thousandths: number(thousandths)? };
        Ok(Order {
            mode: Mode::ALL.into_iter().find(|known| known.to_string() == mode).ok_or_else(wrong)?,
            steps: number(steps)?,
            victim: (worker != u32::MAX).then_some(victim),
            endless: endless == "true",
            folder: folder.into(),
        })
    }
}
