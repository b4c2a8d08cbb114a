//! What is moved by whom: the part of a setting that measurements of tables and of stores have in common, and how its processes are started.

use std::fmt;

use clap::ValueEnum;
use syncline::{Config, Session};

use super::fleet::{Crew, Fleet};
use super::loops::Run;
use super::worker::{Load, Measured};
use crate::print;

/// Values of a row.
pub(crate) const COLS: usize = 64;

/// What one call moves: the whole array, or random rows of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    Dense,
    Rows,
}

impl What {
    /// The load of one worker: `size` bytes a call, of a matrix of so many rows.
    pub(crate) fn load(self, size: usize, rows: usize) -> Load {
        match self {
            What::Dense => Load::Dense { bytes: size },
            What::Rows => Load::Rows { rows, cols: COLS, batch: size / (COLS * 4) },
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Dense => "dense",
            What::Rows => "rows",
        })
    }
}

/// One line before it is measured.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) what: What,
    pub(crate) size: usize,
    pub(crate) workers: u32,
    pub(crate) servers: u32,
    /// `shm`, `unix`, `tcp` or `noise`.
    pub(crate) transport: String,
    pub(crate) rows: usize,
    pub(crate) secs: f64,
    pub(crate) runs: usize,
}

impl Setting {
    /// Refuses what cannot be measured, before anything is; `who` are tables or stores.
    pub(crate) fn check(&self, who: &str) -> Result<(), String> {
        let row = COLS * 4;
        if !["shm", "unix", "tcp", "noise"].contains(&self.transport.as_str()) {
            return Err(format!("there is no transport {} for {who}; choose among shm, unix, tcp, noise", self.transport));
        }
        if self.size < 4 || !self.size.is_multiple_of(4) {
            return Err(format!("{} bytes are no number of floats", self.size));
        }
        if self.what == What::Rows && !self.size.is_multiple_of(row) {
            return Err(format!("{} bytes are no number of rows; a row has {row}", self.size));
        }
        if !(self.secs.is_finite() && self.secs >= 0.0) {
            return Err(format!("--secs {} is no time", self.secs));
        }
        Ok(())
    }

    /// Starts the processes with these words behind `__bench`; what each worker measured, run by run. `title` is for errors.
    pub(crate) fn measure(&self, title: &str, words: &[String]) -> Result<Vec<Vec<Run>>, String> {
        let (kind, encrypt) = match self.transport.as_str() {
            "noise" => ("tcp", "on"),
            other => (other, "off"),
        };
        let variables = [("SYNCLINE_TRANSPORT", kind.to_owned()), ("SYNCLINE_ENCRYPT", encrypt.to_owned())];
        let words: Vec<String> = std::iter::once("__bench".to_owned()).chain(words.iter().cloned()).collect();
        let crew = Crew { workers: self.workers, servers: self.servers };
        let said = Fleet::start(crew, &words, &variables)?.finish().map_err(|error| format!("{title}: {error}"))?;
        let runs: Vec<Vec<Run>> = said.iter().take(self.workers as usize).map(|lines| Run::read_all(lines)).collect::<Result<_, _>>()?;
        match runs.iter().all(|worker| worker.len() == self.runs) {
            true => Ok(runs),
            false => Err(format!("{title}: a worker reported {:?} of {} runs", runs.iter().map(Vec::len).min(), self.runs)),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { what, size, workers, servers, transport, .. } = self;
        write!(f, "{what} of {size} bytes, {workers} workers, {servers} servers, {transport}")
    }
}

/// Somebody who moves a load over and over.
pub(crate) trait Looping {
    /// Loops for so many seconds, together with the others.
    fn measure(&mut self, secs: f64) -> Result<Measured, syncline::Error>;
    /// How many values are not what they should be by now.
    fn check(&mut self) -> Result<u64, syncline::Error>;
}

/// One process of a measurement: `make` its worker, run it so often, and say what came of it. After each run `beside` may measure what it is compared with.
pub(crate) fn run_rank(
    secs: f64,
    runs: usize,
    make: impl for<'s> FnOnce(&'s Session) -> Result<Box<dyn Looping + 's>, syncline::Error>,
    mut beside: impl FnMut(&Session) -> Result<f64, String>,
) -> Result<(), String> {
    let failed = |error: syncline::Error| error.to_string();
    let session = Config::from_env().and_then(Session::open).map_err(failed)?;
    let mut worker = make(&session).map_err(failed)?;
    let mut figures = Vec::with_capacity(runs);
    for _ in 0..runs {
        let measured = worker.measure(secs).map_err(failed)?;
        figures.push(Run::of(measured, beside(&session)?));
    }
    if let Some(last) = figures.last_mut() {
        last.wrong = worker.check().map_err(failed)?;
    }
    drop(worker);
    figures.iter().for_each(|run| print::line(run.to_json()));
    session.shutdown().map_err(failed)
}
