//! One setting of `bench kv`: its processes, what they do, and what they hand back.

use std::fmt;

use clap::Args;
use syncline::kvstore::{Compression, Kind};

use super::row::Row;
use super::work::{KeyWorker, Scene};
use crate::bench::setting::{self, Looping, Setting, What};
use crate::bench::worker::Measured;

/// One line of the table before it is measured.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) setting: Setting,
    pub(super) kind: String,
    pub(super) code: String,
    pub(super) optimizer: String,
}

impl Point {
    /// Refuses what cannot be measured, before anything is.
    pub(super) fn checked(self) -> Result<Point, String> {
        self.setting.check("stores")?;
        let kind = Kind::from_name(&self.kind).map_err(|error| error.to_string())?;
        if !kind.is_distributed() {
            return Err(format!("{} is no store of several workers; choose dist_sync or dist_async", self.kind));
        }
        if self.code != "none" {
            Compression::from_words(&[("type", &self.code)]).map_err(|error| error.to_string())?;
        }
        Ok(self)
    }

    /// Starts the processes and puts their figures together.
    pub(super) fn measure(&self) -> Result<Row, String> {
        let Setting { what, size, rows, servers, secs, runs, .. } = &self.setting;
        let words = [
            "kv".to_owned(),
            what.to_string(),
            self.kind.clone(),
            self.code.clone(),
            self.optimizer.clone(),
            size.to_string(),
            rows.to_string(),
            secs.to_string(),
            runs.to_string(),
        ];
        Ok(Row::of(self, "syncline", *servers, &self.setting.measure(&self.to_string(), &words)?))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.setting, self.kind, self.code)
    }
}

/// The same for one process.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    what: What,
    kind: String,
    code: String,
    optimizer: String,
    size: usize,
    rows: usize,
    secs: f64,
    runs: usize,
}

impl Looping for KeyWorker<'_> {
    fn measure(&mut self, secs: f64) -> Result<Measured, syncline::Error> {
        KeyWorker::measure(self, secs)
    }

    fn check(&mut self) -> Result<u64, syncline::Error> {
        KeyWorker::check(self)
    }
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let load = options.what.load(options.size, options.rows);
    let scene = Scene { kind: options.kind.clone(), load, code: options.code.clone(), optimizer: options.optimizer.clone() };
    setting::run_rank(options.secs, options.runs, |session| Ok(Box::new(KeyWorker::new(session, scene)?)), |_| Ok(0.0))
}
