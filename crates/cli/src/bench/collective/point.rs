//! One setting of `bench allreduce`: its processes, and what they hand back.

use clap::Args;
use syncline::collective::How;
use syncline::{Config, DType, Deadline, ReduceOp, Session};

use super::row::{Measured, Row};
use super::work::{Array, Operation, Work, by_name};
use crate::bench::fleet::{Crew, Fleet};
use crate::print;

/// Everything but the size.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) operation: Operation,
    pub(super) ranks: u32,
    pub(super) transport: String,
    pub(super) plan: String,
    pub(super) dtype: DType,
    pub(super) redop: ReduceOp,
    pub(super) shared: bool,
    pub(super) secs: f64,
    pub(super) runs: usize,
    pub(super) sizes: Vec<usize>,
}

/// The plan that is forced, if one is.
pub(super) fn plan_word(plan: &str) -> Option<&str> {
    (plan != "auto").then_some(plan)
}

impl Point {
    /// Starts the processes and puts their figures together: a row for each size.
    pub(super) fn measure(&self) -> Result<Vec<Row>, String> {
        let (kind, encrypt) = match self.transport.as_str() {
            "noise" => ("tcp", "on"),
            "shm" => ("auto", "off"),
            other => (other, "off"),
        };
        let mut variables = vec![("SYNCLINE_TRANSPORT", kind.to_owned()), ("SYNCLINE_ENCRYPT", encrypt.to_owned())];
        if let Some(plan) = plan_word(&self.plan) {
            variables.push(("SYNCLINE_PLAN", plan.to_owned()));
        }
        let sizes: Vec<String> = self.sizes.iter().map(usize::to_string).collect();
        let words = [
            "__bench".to_owned(),
            "collective".to_owned(),
            self.operation.to_string(),
            sizes.join(","),
            self.dtype.name().to_owned(),
            self.redop.name().to_owned(),
            self.shared.to_string(),
            self.secs.to_string(),
            self.runs.to_string(),
        ];
        let said = Fleet::start(Crew::of(self.ranks), &words, &variables)?.finish()?;
        let read = |line: &String| serde_json::from_str::<Measured>(line).map_err(|error| format!("{line}: {error}"));
        let of_ranks = said.iter().map(|lines| lines.iter().map(read).collect()).collect::<Result<Vec<Vec<Measured>>, _>>()?;
        let slowest = |index: usize| {
            let of_size: Vec<Measured> = of_ranks.iter().filter_map(|of_rank| of_rank.get(index).copied()).collect();
            if of_size.len() != of_ranks.len() {
                return Err(format!("{} of {} ranks reported {} bytes", of_size.len(), of_ranks.len(), self.sizes[index]));
            }
            let most = |value: fn(&Measured) -> f64| of_size.iter().map(value).fold(0.0, f64::max);
            let wrong = of_size.iter().map(|measured| measured.wrong).sum();
            Ok(Measured { size: self.sizes[index], time: most(|one| one.time), p99: most(|one| one.p99), wrong })
        };
        (0..self.sizes.len()).map(|index| Ok(Row::of(self, "syncline", slowest(index)?))).collect()
    }
}

/// The same for one process.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    operation: Operation,
    /// With commas between them.
    sizes: String,
    dtype: String,
    redop: String,
    #[arg(action = clap::ArgAction::Set)]
    shared: bool,
    secs: f64,
    runs: usize,
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let session = Config::from_env().and_then(Session::open).map_err(|error| error.to_string())?;
    let failed = |error: syncline::Error| error.to_string();
    let dtype = DType::from_name(&options.dtype).map_err(|error| error.to_string())?;
    let redop = by_name(&options.redop)?;
    let collectives = session.collectives().map_err(failed)?;
    for size in options.sizes.split(',') {
        let size: usize = size.parse().map_err(|_| format!("{size} is no number of bytes"))?;
        let array = match options.shared {
            true => Array::Shared(session.empty_shared(size.max(1)).map_err(failed)?),
            false => Array::Private(vec![1; size]), // Written, not only reserved: the first round should not pay for pages.
        };
        let mut work = Work::new(options.operation, &collectives, array, size, dtype, redop);
        let measured = work.measure(options.secs, options.runs, &session).map_err(failed)?;
        print::line(serde_json::to_string(&measured).expect("plain data has a JSON form"));
    }
    collectives.barrier(How { site: "the end", by: Deadline::after(session.timeout()) }).map_err(|error| error.to_string())?;
    session.shutdown().map_err(failed)
}
