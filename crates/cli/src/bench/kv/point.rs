//! One setting of `bench kv`: its processes, what they do, and what they hand back.

use std::fmt;

use clap::Args;
use syncline::kvstore::{Compression, Kind};
use syncline::{Config, Session};

use super::row::{Row, Run};
use super::work::{KeyWorker, Scene};
use crate::bench::fleet::{Crew, Fleet};
use crate::bench::table::What;
use crate::bench::worker::Load;
use crate::print;

/// Values of a row.
const COLS: usize = 64;

/// One line of the table before it is measured.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) what: What,
    pub(super) kind: String,
    pub(super) code: String,
    pub(super) optimizer: String,
    pub(super) size: usize,
    pub(super) workers: u32,
    pub(super) servers: u32,
    pub(super) transport: String,
    pub(super) rows: usize,
    pub(super) secs: f64,
    pub(super) runs: usize,
}

impl Point {
    /// Refuses what cannot be measured, before anything is.
    pub(super) fn checked(self) -> Result<Point, String> {
        let row = COLS * 4;
        if self.size < 4 || !self.size.is_multiple_of(4) {
            return Err(format!("{} bytes are no number of floats", self.size));
        }
        if self.what == What::Rows && !self.size.is_multiple_of(row) {
            return Err(format!("{} bytes are no number of rows; a row has {row}", self.size));
        }
        if !(self.secs.is_finite() && self.secs >= 0.0) {
            return Err(format!("--secs {} is no time", self.secs));
        }
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
        let (transport, encrypt) = match self.transport.as_str() {
            "noise" => ("tcp", "on"),
            other => (other, "off"),
        };
        let variables = [("SYNCLINE_TRANSPORT", transport.to_owned()), ("SYNCLINE_ENCRYPT", encrypt.to_owned())];
        let words = [
            "__bench".to_owned(),
            "kv".to_owned(),
            self.what.to_string(),
            self.kind.clone(),
            self.code.clone(),
            self.optimizer.clone(),
            self.size.to_string(),
            self.rows.to_string(),
            self.secs.to_string(),
            self.runs.to_string(),
        ];
        let crew = Crew { workers: self.workers, servers: self.servers };
        let said = Fleet::start(crew, &words, &variables)?.finish().map_err(|error| format!("{self}: {error}"))?;
        let read = |line: &String| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"));
        let of_worker = |lines: &Vec<String>| lines.iter().map(read).collect::<Result<Vec<Run>, _>>();
        let runs: Vec<Vec<Run>> = said.iter().take(self.workers as usize).map(of_worker).collect::<Result<_, _>>()?;
        match runs.iter().all(|worker| worker.len() == self.runs) {
            true => Ok(Row::of(self, "syncline", self.servers, &runs)),
            false => Err(format!("{self}: a worker reported {:?} of {} runs", runs.iter().map(Vec::len).min(), self.runs)),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { what, size, workers, servers, kind, code, transport, .. } = self;
        write!(f, "{what} of {size} bytes, {workers} workers, {servers} servers, {kind}, {code}, {transport}")
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

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let session = Config::from_env().and_then(Session::open).map_err(|error| error.to_string())?;
    let failed = |error: syncline::Error| error.to_string();
    let load = match options.what {
        What::Dense => Load::Dense { bytes: options.size },
        What::Rows => Load::Rows { rows: options.rows, cols: COLS, batch: options.size / (COLS * 4) },
    };
    let scene = Scene { kind: options.kind.clone(), load, code: options.code.clone(), optimizer: options.optimizer.clone() };
    let mut worker = KeyWorker::new(&session, scene).map_err(failed)?;
    let mut runs = Vec::with_capacity(options.runs);
    for _ in 0..options.runs {
        let mut measured = worker.measure(options.secs).map_err(failed)?;
        runs.push(Run {
            loops_per_s: measured.samples.len() as f64 / measured.elapsed.as_secs_f64(),
            p50: measured.samples.quantile(0.5),
            p99: measured.samples.quantile(0.99),
            wrong: 0,
        });
    }
    if let Some(last) = runs.last_mut() {
        last.wrong = worker.check().map_err(failed)?;
    }
    for run in &runs {
        print::line(serde_json::to_string(run).expect("plain data has a JSON form"));
    }
    session.shutdown().map_err(failed)
}
