//! `syncline bench table`: add and get, of whole arrays and of random rows, in every setting that was asked for.
//!
//! Each line is a job of its own: workers loop for a while, all at once, several times, and in between they do the
//! same work by plain loops, on private memory or through plain sockets. The quotient of the two is what counts.

mod plot;
mod point;
mod row;

use std::path::PathBuf;

use clap::Args;

use super::consistency::Mode;
use super::setting::{Setting, What};
use super::sizes;
use crate::print;
use point::Point;
pub(crate) use point::{RankOptions, run_rank};
use row::Row;

const COLUMNS: &str = "\
Columns:
  what      dense: the whole array; rows: random rows of 64 floats of a matrix
  n, srv    workers, and processes that only hold tables (0: every worker holds its part)
  size      bytes that one add and one get move, each
  time, p99 of one loop (an add and a get) as a worker sees it
  loops/s   all workers together; the median of the runs, and between which they were
  algbw     2 x size / time: what one worker sees
  busbw     2 x size x loops/s: what all move together
  limit     the same by plain loops of all workers at once: `a += b` and a copy on private
            memory (shm), the bytes there and back through one plain socket (unix, tcp, noise):
            one blocking write and one blocking read of the size on each side, not encrypted
  #wrong    values that are not the sum of the adds that were made

With unix, tcp and noise every process counts as a host of its own: without servers, each of
n workers keeps a part of the table in its own process, and 1/n of the bytes never travels.

Examples:
  syncline bench table --sizes 4K,1M,16M -n 1,2,4
  syncline bench table --what dense --mode async,sync,staleness=2 --plot modes.svg
  syncline bench table --transport tcp,noise --servers 1 --sizes 16M --json";

/// Measure tables.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub(crate) struct Options {
    /// What to move: dense, rows
    #[arg(long, value_delimiter = ',', default_value = "dense,rows", hide_possible_values = true)]
    what: Vec<What>,
    /// Bytes moved by one add and by one get
    #[arg(long, value_delimiter = ',', value_parser = sizes::bytes, default_value = "4K,64K,1M,16M")]
    sizes: Vec<usize>,
    /// Numbers of workers
    #[arg(short = 'n', long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..), default_value = "1,2,4")]
    workers: Vec<u32>,
    /// Numbers of processes beside them that only hold tables; 0 is none
    #[arg(long, value_delimiter = ',', default_value = "0")]
    servers: Vec<u32>,
    /// How far workers may drift apart: async, sync, staleness=K
    #[arg(long, value_delimiter = ',', default_value = "async")]
    mode: Vec<Mode>,
    /// Which transports: shm, unix, tcp, noise (TCP, encrypted)
    #[arg(long, value_delimiter = ',', default_value = "shm")]
    transport: Vec<String>,
    /// Rows of the matrix from which random rows are taken
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
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
    /// Also draw the bandwidths into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let points = points(options)?;
    if !options.json {
        print::line(format!(
            "# add and get on this host, {} runs of {} s each beside a plain loop; see --help",
            options.runs, options.secs
        ));
        Row::head().iter().for_each(print::line);
    }
    let mut rows = Vec::with_capacity(points.len());
    for point in points {
        let row = point.measure()?;
        print::line(if options.json { serde_json::to_string(&row).expect("plain data has a JSON form") } else { row.columns() });
        rows.push(row);
    }
    if let Some(file) = &options.plot {
        std::fs::write(file, plot::draw(&rows)).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    match rows.iter().map(|row| row.figures.wrong).sum() {
        0u64 => Ok(()),
        wrong => Err(format!("{wrong} wrong values")),
    }
}

/// All settings, in the order in which they are compared: sizes change fastest.
fn points(options: &Options) -> Result<Vec<Point>, String> {
    let mut points = Vec::new();
    for transport in &options.transport {
        for &what in &options.what {
            for &mode in &options.mode {
                for &servers in &options.servers {
                    for &workers in &options.workers {
                        for &size in &options.sizes {
                            let rows = options.rows as usize;
                            let (transport, secs, runs) = (transport.clone(), options.secs, options.runs.max(1));
                            let setting = Setting { what, size, workers, servers, transport, rows, secs, runs };
                            setting.check("tables")?;
                            points.push(Point { setting, mode });
                        }
                    }
                }
            }
        }
    }
    Ok(points)
}
