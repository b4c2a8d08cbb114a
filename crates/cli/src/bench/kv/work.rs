//! What a worker does over and over when stores are measured: push a gradient, pull the value, look at it.
//!
//! Every number of every gradient is 1 and the optimizer adds it, so a key counts its own pushes and what it holds can be checked to the last value.

use std::time::{Duration, Instant};

use syncline::kvstore::{Dense, DenseMut, Key, KvStore, Optimizer, Output, Pull, Push, RowSparse, Tensor, Value};
use syncline::{DType, Deadline, Error, ReduceOp, Session};

use crate::bench::samples::Samples;
use crate::bench::worker::{Load, Measured, RandomRows};

/// Rounds before the first one that counts, and by which workers agree on how many there will be.
const LOOK: u32 = 5;
/// Where counting by ones ends in an f32.
const MOST: u64 = 1 << 24;
/// Rows looked at together in the end.
const BLOCK_ROWS: usize = 65_536;

/// What is pushed where.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    /// The type of the store.
    pub(crate) kind: String,
    /// What is moved.
    pub(crate) load: Load,
    /// How gradients are made smaller; `none` is not at all.
    pub(crate) code: String,
    /// `add`, or an optimizer by its name.
    pub(crate) optimizer: String,
}

/// A worker with its key.
pub(crate) struct KeyWorker<'s> {
    session: &'s Session,
    store: KvStore,
    key: Key,
    scene: Scene,
    shape: Vec<usize>,
    gradient: Vec<f32>,
    fetched: Vec<f32>,
    /// Which rows.
    rows: Option<RandomRows>,
    pushes: u64,
}

impl<'s> KeyWorker<'s> {
    /// Makes the store and its key; every worker of the session does this at the same time.
    pub(crate) fn new(session: &'s Session, scene: Scene) -> Result<KeyWorker<'s>, Error> {
        let store = session.kvstore(&scene.kind)?;
        if scene.code != "none" {
            // With this threshold a gradient of ones is said exactly.
            store.set_gradient_compression(&[("type", &scene.code), ("threshold", "1")])?;
        }
        let key = Key::from("values");
        let (shape, moved, rows) = match scene.load {
            Load::Dense { bytes } => (vec![bytes / 4], bytes / 4, None),
            Load::Rows { rows, cols, batch } => (vec![rows, cols], batch * cols, Some(RandomRows::new(session.rank(), rows, batch, false))),
        };
        match &rows {
            None => {
                store.init("values", &Tensor::zeros(DType::F32, syncline::kvstore::Shape::new(&shape).expect("a size that was checked")))?
            }
            Some(_) => store.init("values", &RowSparse::empty(DType::F32, &shape)?)?,
        }
        let optimizer = match scene.optimizer.as_str() {
            "add" => Optimizer::create("sgd", &[("learning_rate", (-1.0).into())]),
            name => Optimizer::create(name, &[]),
        };
        let optimizer = optimizer.map_err(|error| Error::of_function("bench kv", error.to_string()))?;
        if session.worker_id() == Some(0) {
            store.set_optimizer(optimizer)?;
        }
        session.barrier()?;
        let fetched = vec![1.0; moved];
        let worker = KeyWorker { session, store, key, scene, shape, gradient: vec![1.0; moved], fetched, rows, pushes: 0 };
        if let (Load::Rows { rows, .. }, Some(0)) = (worker.scene.load, session.worker_id()) {
            // As for a table: what was in use for a while has all its pages, and a few random rows would not have fetched them.
            worker.each_block(rows, |_| ())?;
        }
        Ok(worker)
    }

    /// Pulls all rows, some at a time.
    fn each_block(&self, rows: usize, mut look: impl FnMut(&RowSparse)) -> Result<(), Error> {
        for first in (0..rows).step_by(BLOCK_ROWS) {
            let ids: Vec<i64> = (first..rows.min(first + BLOCK_ROWS)).map(|row| row as i64).collect();
            look(&self.store.row_sparse_pull("values", &ids)?);
        }
        Ok(())
    }

    /// Loops for `secs`; where workers wait for each other they make the same number of rounds.
    pub(crate) fn measure(&mut self, secs: f64) -> Result<Measured, Error> {
        let long_enough = Duration::from_secs_f64(secs);
        let by = Deadline::after(long_enough * 4 + self.session.timeout()); // One for all: reading the clock would be measured too.
        self.session.barrier()?;
        let look = Instant::now();
        for _ in 0..LOOK {
            self.step(by)?;
        }
        let each = look.elapsed().as_secs_f64() / f64::from(LOOK);
        let rounds = if self.store.kind().is_sync() {
            let mut rounds = ((secs / each) as i64).clamp(i64::from(LOOK), 10_000_000).to_ne_bytes();
            self.session.aggregate_bytes(&mut rounds, DType::I64, ReduceOp::Min, by)?;
            Some(i64::from_ne_bytes(rounds) as usize)
        } else {
            self.session.barrier()?;
            None
        };
        let mut samples = Samples::with_room(1 << 16);
        let start = Instant::now();
        let mut elapsed = Duration::ZERO;
        while rounds.map_or(elapsed < long_enough || samples.len() < LOOK as usize, |rounds| samples.len() < rounds) {
            let (before, after) = self.step(by)?;
            samples.push(after - before);
            elapsed = after - start;
        }
        Ok(Measured { samples, elapsed })
    }

    /// One push and one pull; when they began and ended.
    fn step(&mut self, by: Deadline) -> Result<(Instant, Instant), Error> {
        let store = self.store.raw();
        self.pushes += 1;
        match &mut self.rows {
            None => {
                let before = Instant::now();
                let value = Value::Dense(Dense::of(&self.shape, &self.gradient)?);
                store.push(&[Push { key: &self.key, values: &[value] }], by)?;
                let output = Output::Dense(DenseMut::of(&self.shape, &mut self.fetched)?);
                store.pull(&mut [Pull { key: &self.key, outputs: &mut [output] }], true, by)?;
                Ok((before, Instant::now()))
            }
            Some(random) => {
                random.draw();
                let before = Instant::now();
                let shape = [random.drawn.len(), self.shape[1]];
                store.push_rows(&self.key, &random.drawn, Dense::of(&shape, &self.gradient)?, by)?;
                store.pull_rows(&self.key, &random.drawn, DenseMut::of(&shape, &mut self.fetched)?, by)?;
                Ok((before, Instant::now()))
            }
        }
    }

    /// Compares the key, value by value, with the pushes that all workers made; how many are wrong.
    pub(crate) fn check(&mut self) -> Result<u64, Error> {
        self.store.barrier()?;
        let by = Deadline::after(self.session.timeout());
        let mut total = (self.pushes as i64).to_ne_bytes();
        self.session.aggregate_bytes(&mut total, DType::I64, ReduceOp::Sum, by)?;
        let total = i64::from_ne_bytes(total) as u64;
        let exact = self.scene.optimizer == "add" && ["none", "2bit", "1bit", "fp16", "bf16"].contains(&self.scene.code.as_str());
        let wrong = match (self.scene.load, exact && total < MOST) {
            (_, false) => 0,
            (Load::Dense { .. }, true) => {
                self.store.pull_into("values", DenseMut::of(&self.shape, &mut self.fetched)?)?;
                self.fetched.iter().filter(|value| **value != total as f32).count() as u64
            }
            (Load::Rows { rows, batch, .. }, true) if self.session.worker_id() == Some(0) => {
                let mut sum = 0.0;
                let first_of = |row: &[u8]| f64::from(f32::from_ne_bytes([row[0], row[1], row[2], row[3]]));
                self.each_block(rows, |found| sum += found.values().chunks_exact(found.row_bytes()).map(first_of).sum::<f64>())?;
                u64::from(sum != (total * batch as u64) as f64)
            }
            (Load::Rows { .. }, true) => 0,
        };
        self.session.barrier()?;
        Ok(wrong)
    }

    /// Pulls the value once.
    pub(crate) fn pull(&mut self, by: Deadline) -> Result<(), Error> {
        let output = Output::Dense(DenseMut::of(&self.shape, &mut self.fetched)?);
        Ok(self.store.raw().pull(&mut [Pull { key: &self.key, outputs: &mut [output] }], true, by)?)
    }
}
