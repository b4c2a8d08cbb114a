//! What a worker does over and over when tables are measured: add a delta, fetch the values, look at them.
//!
//! Every number of every delta is 1, so a table counts its own adds and what it holds can be checked to the last value.
//! Where workers wait for each other's rounds they must stop together: worker 0 looks at its watch, and raises a flag
//! that travels inside the table, as an enormous number added to the first value. Nothing else is sent, so the loop
//! stays as lean as an application's.

use std::time::{Duration, Instant};

use syncline::{AddOptions, Consistency, DType, Deadline, Error, Session, Spec, Table};

use super::consistency::Mode;
use super::samples::Samples;

/// What is moved.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Load {
    /// All of an array of so many bytes.
    Dense {
        /// Its size.
        bytes: usize,
    },
    /// So many random rows of a matrix.
    Rows {
        /// Rows of the matrix.
        rows: usize,
        /// Values of a row.
        cols: usize,
        /// Rows moved at a time.
        batch: usize,
    },
}

/// Loops before the first one that counts.
const WARM_UP: usize = 2;
/// Loops that are measured however long they take.
const LEAST: usize = 5;
/// What raises the flag: sums of ones never come near it.
const FLAG: f32 = (1u64 << 40) as f32;
/// Where counting by ones ends in an f32.
const MOST: f32 = (1 << 24) as f32;
/// Rows fetched at a time when the whole matrix is looked at.
const BLOCK_ROWS: usize = 8192;

/// A worker with its table.
pub(crate) struct Worker<'s> {
    session: &'s Session,
    table: Table,
    /// How many adds each worker has made, in a table of its own that nobody's clock holds back.
    tally: Table,
    load: Load,
    mode: Mode,
    delta: Vec<u8>,
    fetched: Vec<u8>,
    ids: Option<RandomRows>,
    adds: u64,
    tallied: u64,
    /// How often the flag was raised.
    stops: u32,
    wrong: u64,
}

/// The loops of one run.
pub(crate) struct Measured {
    /// Their times.
    pub(crate) samples: Samples,
    /// From the first to the last.
    pub(crate) elapsed: Duration,
}

impl<'s> Worker<'s> {
    /// Makes the tables; every worker of the session does this at the same time.
    pub(crate) fn new(session: &'s Session, load: Load, mode: Mode) -> Result<Worker<'s>, Error> {
        let (spec, moved) = match load {
            Load::Dense { bytes } => (Spec::array((bytes / 4) as u64), bytes / 4),
            Load::Rows { rows, cols, batch } => (Spec::matrix(rows as u64, cols as u64), batch * cols),
        };
        let table = session.create_table(spec.with_consistency(mode.0), None)?;
        let tally = session.create_table(Spec::array(session.num_workers().into()).with_dtype(DType::I64), None)?;
        let ids = match load {
            Load::Dense { .. } => None,
            Load::Rows { rows, batch, .. } => Some(RandomRows::new(session.rank(), rows, batch, mode.couples_workers())),
        };
        let delta = std::iter::repeat_n(1f32.to_ne_bytes(), moved).flatten().collect();
        // Written, not only reserved: the first get should not pay for the pages.
        let fetched = vec![1; moved * 4];
        let worker = Worker { session, table, tally, load, mode, delta, fetched, ids, adds: 0, tallied: 0, stops: 0, wrong: 0 };
        if let (Load::Rows { rows, cols, .. }, Some(0)) = (load, session.worker_id()) {
            // A matrix that was in use for a while has all its pages; a few random rows would not have fetched them.
            worker.each_block(rows, cols, Deadline::after(session.timeout()), |_, _| ())?;
        }
        Ok(worker)
    }

    /// Loops for `secs` after a short warm-up, together with the others.
    pub(crate) fn measure(&mut self, secs: f64) -> Result<Measured, Error> {
        self.session.barrier()?;
        let long_enough = Duration::from_secs_f64(secs);
        let deadline = Deadline::after(long_enough + self.session.timeout()); // One for all: reading the clock would be measured too.
        let coupled = self.mode.couples_workers();
        let leads = self.session.worker_id() == Some(0);
        for _ in 0..WARM_UP {
            self.step(deadline)?;
        }
        let mut samples = Samples::with_room(1 << 16);
        let mut elapsed = Duration::ZERO;
        let mut flagged = false;
        let start = Instant::now();
        while !flagged {
            let enough = elapsed >= long_enough && samples.len() >= LEAST;
            if enough && !coupled {
                break;
            }
            if enough && leads {
                self.delta[..4].copy_from_slice(&FLAG.to_ne_bytes());
            }
            let (before, after) = self.step(deadline)?;
            samples.push(after - before);
            elapsed = after - start;
            flagged = coupled && (self.value(0) / FLAG).round() > self.stops as f32;
        }
        if coupled {
            self.stops += 1;
            self.delta[..4].copy_from_slice(&1f32.to_ne_bytes());
            self.draw_level(deadline)?;
        }
        Ok(Measured { samples, elapsed })
    }

    /// One add and one get; when they began and ended.
    fn step(&mut self, deadline: Deadline) -> Result<(Instant, Instant), Error> {
        if let Some(ids) = &mut self.ids {
            ids.draw();
        }
        let rows = self.ids.as_ref().map(|ids| &ids.drawn[..]);
        let before = Instant::now();
        self.table.add(&self.delta, rows, &AddOptions::default(), false, deadline)?;
        self.table.get(&mut self.fetched, rows, deadline)?;
        let after = Instant::now();
        self.adds += 1;
        self.glance();
        Ok((before, after))
    }

    /// A look at the last value fetched: this worker's adds are in it, and in sync mode exactly the others' too.
    fn glance(&mut self) {
        let last = self.value(self.fetched.len() / 4 - 1);
        let sound = match (self.load, self.mode.0) {
            (Load::Rows { .. }, _) => last >= 1.0,
            (Load::Dense { .. }, _) if self.fetched.len() == 4 && self.mode.couples_workers() => true, // The flag lives there.
            (Load::Dense { .. }, Consistency::Sync) => last == capped(self.adds * u64::from(self.session.num_workers())),
            (Load::Dense { .. }, _) => last >= capped(self.adds),
        };
        self.wrong += u64::from(!sound);
    }

    fn value(&self, index: usize) -> f32 {
        let bytes = &self.fetched[index * 4..][..4];
        f32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    }

    /// Adds until every worker has made the same number: those ahead wait for nobody any more.
    fn draw_level(&mut self, deadline: Deadline) -> Result<(), Error> {
        if let Consistency::Bounded(bound) = self.mode.0 {
            // Somebody behind may be waiting for this worker's next round before it can see the flag.
            for _ in 0..=bound {
                self.add_only(deadline)?;
            }
        }
        let most = self.tallies(deadline)?.into_iter().max().unwrap_or(0);
        while self.adds < most {
            self.add_only(deadline)?;
        }
        self.session.barrier()
    }

    fn add_only(&mut self, deadline: Deadline) -> Result<(), Error> {
        let rows = self.ids.as_ref().map(|ids| &ids.drawn[..]);
        self.table.add(&self.delta, rows, &AddOptions::default(), false, deadline)?;
        self.adds += 1;
        Ok(())
    }

    /// How many adds each worker has made.
    fn tallies(&mut self, deadline: Deadline) -> Result<Vec<u64>, Error> {
        let mut slots = vec![0i64; self.session.num_workers() as usize];
        let own = self.session.worker_id().expect("only workers measure") as usize;
        slots[own] = (self.adds - self.tallied) as i64;
        self.tallied = self.adds;
        let mut bytes: Vec<u8> = slots.iter().flat_map(|count| count.to_ne_bytes()).collect();
        self.tally.add(&bytes, None, &AddOptions::default(), true, deadline)?;
        self.session.barrier()?;
        self.tally.get(&mut bytes, None, deadline)?;
        let read = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().expect("eight bytes")) as u64;
        Ok(bytes.chunks_exact(8).map(read).collect())
    }

    /// Compares the table, value by value, with the adds that all workers made; how many values or glances were wrong.
    pub(crate) fn check(&mut self) -> Result<u64, Error> {
        self.session.barrier()?; // Every add of everybody is applied.
        let deadline = Deadline::after(self.session.timeout());
        let total = self.tallies(deadline)?.into_iter().sum();
        self.wrong += match self.load {
            Load::Dense { .. } => self.check_array(total, deadline)?,
            Load::Rows { rows, cols, batch } if self.session.worker_id() == Some(0) => {
                self.check_matrix(rows, cols, total * batch as u64, deadline)?
            }
            Load::Rows { .. } => 0,
        };
        self.session.barrier()?;
        Ok(self.wrong)
    }

    fn check_array(&mut self, total: u64, deadline: Deadline) -> Result<u64, Error> {
        self.table.get(&mut self.fetched, None, deadline)?;
        let (expected, flags) = (capped(total).to_ne_bytes(), usize::from(self.mode.couples_workers()));
        Ok(self.fetched.chunks_exact(4).skip(flags).filter(|value| **value != expected).count() as u64)
    }

    /// A row's values count the same adds, and all rows together those that were made.
    fn check_matrix(&self, rows: usize, cols: usize, total: u64, deadline: Deadline) -> Result<u64, Error> {
        let flags = usize::from(self.mode.couples_workers());
        let (mut wrong, mut sum) = (0, 0.0);
        self.each_block(rows, cols, deadline, |first, block| {
            for (index, row) in block.chunks_exact(cols * 4).enumerate() {
                let last = &row[row.len() - 4..];
                let skipped = if first + index == 0 { flags } else { 0 };
                wrong += row.chunks_exact(4).skip(skipped).filter(|value| *value != last).count() as u64;
                sum += f64::from(f32::from_ne_bytes(last.try_into().expect("four bytes")));
            }
        })?;
        // The row that carries the flag is in every batch, and f32 stops counting it at some point.
        let beyond_counting = flags == 1 && self.adds * u64::from(self.session.num_workers()) >= MOST as u64;
        Ok(wrong + u64::from(sum != total as f64 && !beyond_counting))
    }

    /// Fetches the whole matrix, some rows at a time; `look` gets the number of the first.
    fn each_block(&self, rows: usize, cols: usize, deadline: Deadline, mut look: impl FnMut(usize, &[u8])) -> Result<(), Error> {
        let mut block = vec![0; BLOCK_ROWS.min(rows) * cols * 4];
        for first in (0..rows).step_by(BLOCK_ROWS) {
            let ids: Vec<i64> = (first..rows.min(first + BLOCK_ROWS)).map(|row| row as i64).collect();
            let block = &mut block[..ids.len() * cols * 4];
            self.table.get(block, Some(&ids), deadline)?;
            look(first, block);
        }
        Ok(())
    }
}

/// What so many ones add up to in an f32.
fn capped(count: u64) -> f32 {
    (count as f32).min(MOST)
}

/// Random rows as the peers' harness draws them, so that all measure the same pattern.
pub(crate) struct RandomRows {
    state: u32,
    rows: u32,
    pub(crate) drawn: Vec<i64>,
    /// Whether the first is always row 0, which carries the flag.
    with_flag: bool,
}

impl RandomRows {
    pub(crate) fn new(rank: u32, rows: usize, batch: usize, with_flag: bool) -> RandomRows {
        RandomRows { state: 12345 + rank, rows: rows as u32, drawn: vec![0; batch], with_flag }
    }

    pub(crate) fn draw(&mut self) {
        for id in &mut self.drawn {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 17;
            self.state ^= self.state << 5;
            *id = (self.state % self.rows).into();
        }
        if self.with_flag {
            self.drawn[0] = 0;
        }
    }
}
