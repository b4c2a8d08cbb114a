//! One setting of `bench table`: its processes, what they do, and what they hand back.

use std::fmt;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use clap::Args;

use super::row::Row;
use crate::bench::consistency::Mode;
use crate::bench::limits;
use crate::bench::setting::{self, COLS, Looping, Setting, What};
use crate::bench::worker::{Measured, Worker};

/// One line of the table before it is measured.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) setting: Setting,
    pub(super) mode: Mode,
}

impl Point {
    /// Starts the processes and puts their figures together.
    pub(super) fn measure(&self) -> Result<Row, String> {
        let Setting { what, size, rows, transport, secs, runs, .. } = &self.setting;
        let words = [
            "table".to_owned(),
            what.to_string(),
            size.to_string(),
            rows.to_string(),
            self.mode.to_string(),
            transport.clone(),
            secs.to_string(),
            runs.to_string(),
        ];
        Ok(Row::of(self, &self.setting.measure(&self.to_string(), &words)?))
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.setting, self.mode)
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

impl Looping for Worker<'_> {
    fn measure(&mut self, secs: f64) -> Result<Measured, syncline::Error> {
        Worker::measure(self, secs)
    }

    fn check(&mut self) -> Result<u64, syncline::Error> {
        Worker::check(self)
    }
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let load = options.what.load(options.size, options.rows);
    let mut plain = None;
    setting::run_rank(
        options.secs,
        options.runs,
        |session| Ok(Box::new(Worker::new(session, load, options.mode)?)),
        |session| {
            let plain = match &mut plain {
                Some(plain) => plain,
                none => none.insert(plain_loop(options, session.num_workers() as usize)?),
            };
            // Turn about, so that a noisy neighbour disturbs both alike; all at once, as they share the machine's memory.
            session.barrier().map_err(|error| error.to_string())?;
            let rate = limits::loops_per_second(options.secs, plain)?;
            session.barrier().map_err(|error| error.to_string())?;
            Ok(rate)
        },
    )
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
