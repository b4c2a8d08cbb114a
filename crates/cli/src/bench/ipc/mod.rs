//! `syncline bench ipc`: messages per second and round trips through channels, between threads and between processes.

mod peers;
pub(crate) mod pipe;

use clap::Args;
use serde::Serialize;

use pipe::{Pipe, measure, round_trips};
pub(crate) use pipe::{RankOptions, run_rank};

use super::sizes;
use crate::print;

const COLUMNS: &str = "\
  who       syncline, or with --peers and --peer another library
  where     threads of one process, or processes
  p x c     producers and consumers
  msg/s     messages that all consumers received together; the median of the runs, and its spread
  MB/s      the same in bytes
  p50 p99   round trip of one message between two of them, microseconds (syncline, 1x1)

Example:
  syncline bench ipc --sizes 64,1M --pairs 1x1,4x4 --peers
  syncline bench ipc --peer crossbeam='rust-bench w5 kind=crossbeam'";

/// Measure channels.
#[derive(Debug, Args)]
#[command(after_help = COLUMNS)]
pub(crate) struct Options {
    /// One JSON object per row instead of columns
    #[arg(long)]
    json: bool,
    /// Message sizes
    #[arg(long, value_delimiter = ',', value_parser = sizes::bytes, default_value = "64,1K,16K,256K,1M,4M")]
    sizes: Vec<usize>,
    /// Producers x consumers
    #[arg(long, value_delimiter = ',', value_parser = pair, default_value = "1x1,4x4")]
    pairs: Vec<(usize, usize)>,
    /// Where they run: threads, processes
    #[arg(long = "where", value_delimiter = ',', default_value = "threads,processes")]
    places: Vec<String>,
    /// Seconds per run
    #[arg(long, default_value_t = 0.5)]
    secs: f64,
    /// Runs of each; the median counts
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Beside it, between processes what --python has of multiprocessing.Queue, faster-fifo and ZeroMQ (pyzmq), between threads the channel of
    /// Rust's standard library, which is crossbeam's
    #[arg(long)]
    peers: bool,
    /// Beside it, a program that speaks the harness's protocol: NAME=COMMAND
    #[arg(long = "peer")]
    programs: Vec<String>,
    /// The Python of --peers
    #[arg(long, default_value = "python3")]
    python: String,
}

fn pair(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('x').and_then(|(p, c)| Some((p.parse().ok()?, c.parse().ok()?)));
    parts.filter(|(p, c)| *p > 0 && *c > 0).ok_or_else(|| format!("{text} is no pair; write 1x1, 4x4"))
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    who: String,
    place: String,
    producers: usize,
    consumers: usize,
    size: usize,
    per_s: f64,
    slowest: f64,
    fastest: f64,
    rtt_us: Option<f64>,
    rtt_p99_us: Option<f64>,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    if !options.json {
        print::line(format!("# {} runs of {} s each; see --help for the columns", options.runs, options.secs));
        print::line(format!(
            "{:>12} {:>10} {:>6} {:>8} {:>12} {:>25} {:>9} {:>9} {:>9}",
            "who", "where", "p x c", "size", "msg/s", "spread", "MB/s", "p50 (us)", "p99 (us)"
        ));
    }
    for place in &options.places {
        let processes = match place.as_str() {
            "threads" => false,
            "processes" => true,
            other => return Err(format!("--where {other}: threads or processes")),
        };
        for &(producers, consumers) in &options.pairs {
            for &size in &options.sizes {
                let pipe = Pipe { producers, consumers, size, secs: options.secs, processes };
                rows(options, place, pipe)?;
            }
        }
    }
    Ok(())
}

fn rows(options: &Options, place: &str, pipe: Pipe) -> Result<(), String> {
    let round_trip = if (pipe.producers, pipe.consumers) == (1, 1) { Some(round_trips(pipe)?) } else { None };
    show(options, place, pipe, "syncline", round_trip, || measure(pipe))?;
    if options.peers && pipe.processes {
        for (name, module, make) in peers::PYTHON {
            show(options, place, pipe, name, None, || peers::python(&options.python, module, make, pipe))?;
        }
    } else if options.peers {
        show(options, place, pipe, "std", None, || peers::standard(pipe))?;
    }
    for named in &options.programs {
        let (name, command) = named.split_once('=').ok_or_else(|| format!("--peer {named}: write NAME=COMMAND"))?;
        show(options, place, pipe, name, None, || peers::program(command, pipe))?;
    }
    Ok(())
}

fn show(
    options: &Options,
    place: &str,
    pipe: Pipe,
    who: &str,
    round_trip: Option<(f64, f64)>,
    once: impl Fn() -> Result<pipe::Measured, String>,
) -> Result<(), String> {
    let mut rates = Vec::new();
    for _ in 0..options.runs.max(1) {
        match once() {
            Ok(measured) => rates.push(measured.messages as f64 / measured.elapsed),
            // Another library that is not there is no failure of this measurement.
            Err(why) if who != "syncline" => {
                eprintln!("syncline bench: {who} is skipped at {}x{}: {why}", pipe.producers, pipe.consumers);
                return Ok(());
            }
            Err(why) => return Err(why),
        }
    }
    rates.sort_by(f64::total_cmp);
    let row = Row {
        who: who.to_owned(),
        place: place.to_owned(),
        producers: pipe.producers,
        consumers: pipe.consumers,
        size: pipe.size,
        per_s: rates[rates.len() / 2],
        slowest: rates[0],
        fastest: rates[rates.len() - 1],
        rtt_us: round_trip.map(|times| times.0),
        rtt_p99_us: round_trip.map(|times| times.1),
    };
    if options.json {
        print::line(serde_json::to_string(&row).expect("plain data has a JSON form"));
        return Ok(());
    }
    let time = |us: Option<f64>| us.map_or_else(String::new, |us| format!("{us:.2}"));
    print::line(format!(
        "{:>12} {:>10} {:>6} {:>8} {:>12.0} {:>25} {:>9.1} {:>9} {:>9}",
        row.who,
        row.place,
        format!("{}x{}", row.producers, row.consumers),
        sizes::text(row.size),
        row.per_s,
        format!("{:.0}..{:.0}", row.slowest, row.fastest),
        row.per_s * row.size as f64 / 1e6,
        time(row.rtt_us),
        time(row.rtt_p99_us)
    ));
    Ok(())
}
