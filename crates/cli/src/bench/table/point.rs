//! One setting of `bench table`: its processes, what they do, and what they hand back.

use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use syncline::{Config, Session};

use super::row::Row;
use crate::bench::consistency::Mode;
use crate::bench::fleet::{Crew, Fleet};
use crate::bench::limits;
use crate::bench::worker::{Load, Worker};
use crate::print;

/// Values of a row.
const COLS: usize = 64;

/// What an add and a get move: the whole array, or random rows of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    Dense,
    Rows,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            What::Dense => "dense",
            What::Rows => "rows",
        })
    }
}

/// One line of the table before it is measured.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) what: What,
    pub(super) size: usize,
    pub(super) workers: u32,
    pub(super) servers: u32,
    pub(super) mode: Mode,
    pub(super) transport: String,
    pub(super) rows: usize,
    pub(super) secs: f64,
    pub(super) runs: usize,
}

impl Point {
    /// Refuses what cannot be measured, before anything is.
    pub(super) fn checked(self) -> Result<Point, String> {
        if self.size < 4 || !self.size.is_multiple_of(4) {
            return Err(format!("{} bytes are no number of floats", self.size));
        }
        if self.what == What::Rows && !self.size.is_multiple_of(COLS * 4) {
            return Err(format!("{} bytes are no number of rows; a row has {}", self.size, COLS * 4));
        }
        if !(self.secs.is_finite() && self.secs >= 0.0) {
            return Err(format!("--secs {} is no time", self.secs));
        }
        Ok(self)
    }

    /// Starts the processes and puts their figures together.
    pub(super) fn measure(&self) -> Result<Row, String> {
        let (kind, encrypt) = match self.transport.as_str() {
            "noise" => ("tcp", "on"),
            other => (other, "off"),
        };
        let variables = [("SYNCLINE_TRANSPORT", kind.to_owned()), ("SYNCLINE_ENCRYPT", encrypt.to_owned())];
        let words = [
            "__bench".to_owned(),
            "table".to_owned(),
            self.what.to_string(),
            self.size.to_string(),
            self.rows.to_string(),
            self.mode.to_string(),
            self.transport.clone(),
            self.secs.to_string(),
            self.runs.to_string(),
        ];
        let crew = Crew { workers: self.workers, servers: self.servers };
        let said = Fleet::start(crew, &words, &variables)?.finish().map_err(|error| format!("{self}: {error}"))?;
        let read = |line: &String| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"));
        let of_worker = |lines: &Vec<String>| lines.iter().map(read).collect::<Result<Vec<Run>, _>>();
        let runs: Vec<Vec<Run>> = said.iter().take(self.workers as usize).map(of_worker).collect::<Result<_, _>>()?;
        match runs.iter().all(|worker| worker.len() == self.runs) {
            true => Ok(Row::of(self, &runs)),
            false => Err(format!("{self}: a worker reported {:?} of {} runs", runs.iter().map(Vec::len).min(), self.runs)),
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { what, size, workers, servers, mode, transport, .. } = self;
        write!(f, "{what} of {size} bytes, {workers} workers, {servers} servers, {mode}, {transport}")
    }
}

/// The same for one process.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    what: What,
    size: usize,
    rows: usize,
    mode: Mode,
    transport: String,
    secs: f64,
    runs: usize,
    /// Where a plain socket is answered (`__bench echo`) whose bytes go the same way as the table's; else this process answers itself
    #[arg(long)]
    echo: Option<SocketAddr>,
}

/// One worker's figures of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) loops_per_s: f64,
    pub(super) limit_loops_per_s: f64,
    /// Seconds of one loop.
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) wrong: u64,
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let session = Config::from_env().and_then(Session::open).map_err(|error| error.to_string())?;
    let failed = |error: syncline::Error| error.to_string();
    let batch = options.size / (COLS * 4);
    let load = match options.what {
        What::Dense => Load::Dense { bytes: options.size },
        What::Rows => Load::Rows { rows: options.rows, cols: COLS, batch },
    };
    let mut plain = plain_loop(options, session.num_workers() as usize)?;
    let mut worker = Worker::new(&session, load, options.mode).map_err(failed)?;
    let mut runs = Vec::with_capacity(options.runs);
    for _ in 0..options.runs {
        let mut measured = worker.measure(options.secs).map_err(failed)?;
        session.barrier().map_err(failed)?;
        // Turn about, so that a noisy neighbour disturbs both alike; all at once, as they share the machine's memory.
        let limit_loops_per_s = limits::loops_per_second(options.secs, &mut plain)?;
        session.barrier().map_err(failed)?;
        runs.push(Run {
            loops_per_s: measured.samples.len() as f64 / measured.elapsed.as_secs_f64(),
            limit_loops_per_s,
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

/// One loop of the same bytes without a table. Workers share one matrix in a job; here each has its part of one.
fn plain_loop(options: &RankOptions, workers: usize) -> Result<Box<dyn FnMut() -> Result<(), String>>, String> {
    let size = options.size;
    let failed = |error: std::io::Error| format!("a plain {} socket: {error}", options.transport);
    Ok(match (options.transport.as_str(), options.what) {
        ("shm", What::Dense) => Box::new(limits::dense(size)),
        ("shm", What::Rows) => Box::new(limits::rows((options.rows / workers).max(1), COLS, size / (COLS * 4))?),
        ("unix", _) => {
            let (mut near, far) = UnixStream::pair().map_err(failed)?;
            std::thread::spawn(move || limits::answer_echo(far, size));
            let mut bytes = vec![1; size];
            Box::new(move || limits::echo(&mut near, &mut bytes))
        }
        _ => {
            let mut near = match options.echo {
                Some(address) => TcpStream::connect(address).map_err(failed)?,
                None => {
                    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
                    let near = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
                    let (far, _) = listener.accept().map_err(failed)?;
                    far.set_nodelay(true).map_err(failed)?;
                    std::thread::spawn(move || limits::answer_echo(far, size));
                    near
                }
            };
            near.set_nodelay(true).map_err(failed)?;
            let mut bytes = vec![1; size];
            Box::new(move || limits::echo(&mut near, &mut bytes))
        }
    })
}
