//! `syncline bench kv`: push and pull through the key-value store, of whole arrays and of random rows, beside MXNet's own.

mod peer;
mod point;
mod row;
mod work;

use std::path::PathBuf;

use clap::Args;

use super::setting::{Setting, What};
use super::sizes;
use crate::print;
use peer::Peer;
use point::Point;
pub(crate) use point::{RankOptions, run_rank};
use row::Row;
pub(crate) use work::{KeyWorker, Scene};

const COLUMNS: &str = "\
Columns:
  who       syncline, or with --peers mxnet: the real one, with a scheduler and one server or more
  what      dense: the whole array; rows: random rows of 64 floats of a matrix
  type      of the store; in dist_sync the pushes of all workers are one round
  code      how pushes are made smaller (none, 2bit, 1bit, fp16, bf16, int8, topk)
  update    what a push does: add, or an optimizer
  n, srv    workers, and processes that only hold values (0: every worker holds its part)
  size      bytes that one push and one pull move, each, before they are made smaller
  time, p99 of one loop (a push and a pull) as a worker sees it
  loops/s   all workers together; the median of the runs, and between which they were
  algbw     2 x size / time: what one worker sees
  busbw     2 x size x loops/s: what all move together
  #wrong    values that are not the sum of the pushes that were made

Examples:
  syncline bench kv --sizes 1M,16M,64M -n 1,2,4 --peers
  syncline bench kv --what dense --code none,2bit --transport tcp --servers 1
  syncline bench kv --what dense --update add,adam --sizes 64M --json";

/// Measure the key-value store.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub(crate) struct Options {
    /// What to move: dense, rows
    #[arg(long, value_delimiter = ',', default_value = "dense,rows", hide_possible_values = true)]
    what: Vec<What>,
    /// Which stores: dist_sync, dist_async
    #[arg(long = "type", value_delimiter = ',', default_value = "dist_sync,dist_async")]
    kind: Vec<String>,
    /// How pushes are made smaller: none, 2bit, 1bit, fp16, bf16, int8, topk; whole arrays only
    #[arg(long, value_delimiter = ',', default_value = "none")]
    code: Vec<String>,
    /// What a push does: add, or an optimizer by its name
    #[arg(long, value_delimiter = ',', default_value = "add")]
    update: Vec<String>,
    /// Bytes moved by one push and by one pull
    #[arg(long, value_delimiter = ',', value_parser = sizes::bytes, default_value = "64K,1M,16M")]
    sizes: Vec<usize>,
    /// Numbers of workers
    #[arg(short = 'n', long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..), default_value = "1,2")]
    workers: Vec<u32>,
    /// Numbers of processes beside them that only hold values; 0 is none
    #[arg(long, value_delimiter = ',', default_value = "0")]
    servers: Vec<u32>,
    /// Which transports: shm, unix, tcp, noise (TCP, encrypted)
    #[arg(long, value_delimiter = ',', default_value = "shm")]
    transport: Vec<String>,
    /// Rows of the matrix from which random rows are taken
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    rows: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 0.3)]
    secs: f64,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// One JSON object per row instead of columns
    #[arg(long)]
    json: bool,
    /// The same on the real MXNet, if a Python has it
    #[arg(long)]
    peers: bool,
    /// The Python that has MXNet, for --peers; else SYNCLINE_ORACLE_PYTHON, else python3
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let points = points(options)?;
    let python = options.python.clone().or_else(|| std::env::var_os("SYNCLINE_ORACLE_PYTHON").map(PathBuf::from));
    let peer = options.peers.then(|| Peer::find(python.unwrap_or_else(|| "python3".into()))).transpose();
    let peer = peer.unwrap_or_else(|reason| {
        eprintln!("skipped: {reason}");
        None
    });
    if !options.json {
        print::line(format!("# push and pull on this host, {} runs of {} s each; see --help", options.runs, options.secs));
        Row::head().iter().for_each(print::line);
    }
    let (mut wrong, mut told) = (0, Vec::new());
    for point in points {
        let mut tell = |row: Row| {
            print::line(row.printed(options.json));
            wrong += row.figures.wrong;
        };
        tell(point.measure()?);
        // MXNet knows none of our transports: once beside the first of ours is enough.
        if let Some(peer) = &peer
            && point.setting.transport == options.transport[0]
        {
            match peer.measure(&point) {
                Ok(row) => tell(row),
                Err(reason) if told.contains(&reason) => {}
                Err(reason) => {
                    eprintln!("skipped: {reason}");
                    told.push(reason);
                }
            }
        }
    }
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} wrong values")) }
}

/// All settings, in the order in which they are compared: sizes change fastest.
fn points(options: &Options) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for transport in &options.transport {
        for (what, kind, code) in options
            .what
            .iter()
            .flat_map(|what| options.kind.iter().flat_map(move |kind| options.code.iter().map(move |code| (*what, kind, code))))
        {
            if what == What::Rows && code != "none" {
                continue;
            }
            for (optimizer, servers, workers) in options.update.iter().flat_map(|update| {
                options.servers.iter().flat_map(move |servers| options.workers.iter().map(move |workers| (update, *servers, *workers)))
            }) {
                for &size in &options.sizes {
                    let (rows, transport) = (options.rows as usize, transport.clone());
                    let (secs, runs) = (options.secs, options.runs.max(1));
                    let setting = Setting { what, size, workers, servers, transport, rows, secs, runs };
                    let point = Point { setting, kind: kind.clone(), code: code.clone(), optimizer: optimizer.clone() };
                    points.push(point.checked()?);
                }
            }
        }
    }
    Ok(points)
}
