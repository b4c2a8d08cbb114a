//! `syncline bench allreduce`: collective operations in the columns of nccl-tests, beside other libraries.
//!
//! One job per line of settings does all sizes. Every number is computed anew and compared with what it should be, before
//! and after the loop that is timed.

mod peers;
mod plot;
mod point;
mod row;
mod work;

use std::path::PathBuf;

use clap::Args;
use syncline::DType;
use syncline::collective::PlanName;

use super::sizes;
use crate::print;
use point::{Point, plan_word};
pub(crate) use point::{RankOptions, run_rank};
use row::Row;
use work::{Operation, by_name};

const COLUMNS: &str = "\
Columns, as nccl-tests has them:
  who       syncline, or with --peers another library: openmpi, gloo
  size      bytes of the whole: what each rank brings (allreduce, reduce, reduce_scatter), has in
            the end (all_gather) or sends (all_to_all), or the root has (broadcast, scatter, gather)
  count     the same in numbers
  time      of one operation: the slowest rank's, the median of the runs
  algbw     size / time
  busbw     algbw x 2(n-1)/n (allreduce), x (n-1)/n (gathers, scatters, all_to_all) or
            x 1 (reduce, broadcast): what the hardware moved, comparable over n
  #wrong    numbers that are not what they should be, over all ranks

With unix, tcp and noise every process counts as a host of its own.

Examples:
  syncline bench allreduce -n 2,4 --sizes 4K,1M,16M,256M --peers
  syncline bench allreduce --transport tcp,noise --plan ring,chain,halving --plot plans.svg
  syncline bench allreduce --op broadcast --dtype bfloat16 --shared --json";

/// Measure collective operations.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub(crate) struct Options {
    /// Which: allreduce, reduce, broadcast, scatter, gather, all_gather, reduce_scatter, all_to_all, barrier
    #[arg(long, value_delimiter = ',', default_value = "allreduce", hide_possible_values = true)]
    op: Vec<Operation>,
    /// Bytes of the whole
    #[arg(long, value_delimiter = ',', value_parser = sizes::bytes, default_value = "4K,64K,1M,16M")]
    sizes: Vec<usize>,
    /// Numbers of processes
    #[arg(short = 'n', long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..), default_value = "2")]
    ranks: Vec<u32>,
    /// Which transports: shm, unix, tcp, noise (TCP, encrypted)
    #[arg(long, value_delimiter = ',', default_value = "shm")]
    transport: Vec<String>,
    /// Which plans, as SYNCLINE_PLAN has them; auto is the cheapest
    #[arg(long, value_delimiter = ',', default_value = "auto")]
    plan: Vec<String>,
    /// Of which numbers: float32, bfloat16, int64, …
    #[arg(long, default_value = "float32")]
    dtype: String,
    /// How they are combined: sum, prod, min, max, mean, and, or
    #[arg(long, default_value = "sum")]
    redop: String,
    /// Arrays in memory that the ranks share (from empty_shared)
    #[arg(long)]
    shared: bool,
    /// Seconds of each run
    #[arg(long, default_value_t = 0.3)]
    secs: f64,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// One JSON object per row instead of columns
    #[arg(long)]
    json: bool,
    /// Also draw the bandwidths into an SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The same sizes on what is installed of Open MPI and torch.distributed with Gloo
    #[arg(long)]
    peers: bool,
    /// The Python that has PyTorch, for --peers
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let points = points(options)?;
    if !options.json {
        print::line(format!("# collective operations on this host, {} runs of {} s each; see --help", options.runs, options.secs));
        Row::head().iter().for_each(print::line);
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut told = Vec::new();
    for point in points {
        let mut measured = point.measure()?;
        // The others know neither our transports nor our plans: once beside the first of ours is enough.
        let first = point.transport == options.transport[0] && point.plan == options.plan[0];
        if options.peers && first {
            for peer in peers::ALL {
                match peer.measure(&point, &options.python) {
                    Ok(theirs) => measured.extend(theirs),
                    Err(reason) if told.contains(&reason) => {}
                    Err(reason) => {
                        eprintln!("skipped: {reason}");
                        told.push(reason);
                    }
                }
            }
        }
        measured.iter().for_each(|row| print::line(row.printed(options.json)));
        rows.extend(measured);
    }
    if let Some(file) = &options.plot {
        std::fs::write(file, plot::draw(&rows)).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    match rows.iter().map(|row| row.wrong).sum() {
        0u64 => Ok(()),
        wrong => Err(format!("{wrong} wrong numbers")),
    }
}

/// All settings, in the order in which they are compared; each does all sizes.
fn points(options: &Options) -> Result<Vec<Point>, String> {
    let dtype = DType::from_name(&options.dtype).map_err(|error| error.to_string())?;
    let redop = by_name(&options.redop)?;
    if options.redop == "mean" && !dtype.is_float() {
        return Err(format!("the mean of {dtype} is no {dtype}"));
    }
    if let Some(size) = options.sizes.iter().find(|size| !size.is_multiple_of(dtype.size())) {
        return Err(format!("{size} bytes are no number of {dtype}"));
    }
    if !(options.secs.is_finite() && options.secs >= 0.0) {
        return Err(format!("--secs {} is no time", options.secs));
    }
    let mut points = Vec::new();
    for transport in &options.transport {
        if !["shm", "unix", "tcp", "noise"].contains(&transport.as_str()) {
            return Err(format!("there is no transport {transport}; choose among shm, unix, tcp, noise"));
        }
        for plan in &options.plan {
            plan_word(plan).map(PlanName::parse).transpose().map_err(|error| error.to_string())?;
            for &operation in &options.op {
                for &ranks in &options.ranks {
                    points.push(Point {
                        operation,
                        ranks,
                        transport: transport.clone(),
                        plan: plan.clone(),
                        dtype,
                        redop,
                        shared: options.shared,
                        secs: options.secs,
                        runs: options.runs as usize,
                        sizes: if operation == Operation::Barrier { vec![0] } else { options.sizes.clone() },
                    });
                }
            }
        }
    }
    Ok(points)
}
