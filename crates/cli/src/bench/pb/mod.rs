//! The protocol of the harness that measures Syncline beside its peers: `PB <workload> key=value …` lines.

mod meeting;
mod quantize;
mod reduce;
mod stores;
mod tables;

use std::time::Duration;

use clap::Args;
use syncline::{Config, Session};

use super::consistency::Mode;
use super::fleet::{Crew, Fleet};
use super::ipc::pipe::{self, Pipe};
use super::samples::Samples;
use super::sizes;
use crate::print;

const SETTINGS: &str = "\
Workloads and their settings:
  w1    all-reduce in place, the sum of f32      n= size= secs= zc=
  w2    add and get of a whole array             n= size= secs= mode= servers= face=
  w3    add and get of 1,000 random rows of 1,000,000 x 64
                                                 n= secs= mode= servers= face=
  w4    what=pull (16 floats, one worker) or what=barrier
                                                 n= secs= what= servers= face=
  w5    messages through a channel                p= c= where=threads|processes size= secs=
  w6    start to the first barrier, then memory with a 64 MB array
                                                 n=
  w7    2-bit quantisation with residual, and back, on one core
                                                 size= secs=

  n        workers                            (w2, w3, pull: 1; else 2)
  size     bytes, or 4K, 1M                   (4K)
  secs     how long to measure                (1)
  mode     async, sync or staleness=K         (async)
  face     table, or kv: w2, w3 and pull through the key-value store  (table)
  zc       1: the arrays lie in shared memory (0)
  servers  processes that only hold tables    (0: the workers do)";

/// `w4 n=2 what=barrier secs=1`
#[derive(Debug, Args)]
#[command(after_help = SETTINGS)]
pub(crate) struct Options {
    /// Which workload: w1, w2, w3, w4, w5, w6 or w7
    workload: String,
    /// What is measured where nothing else is said: table, kv
    #[arg(long, default_value = "table")]
    face: String,
    /// key=value, as below; those of other workloads are accepted and not used
    settings: Vec<String>,
}

/// The same, for one process.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    workload: String,
    secs: f64,
    size: usize,
    mode: Mode,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let setting = |name: &str| options.settings.iter().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, default: f64| -> Result<f64, String> {
        setting(name).map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name}={text} is no number")))
    };
    if options.workload == "w5" {
        let count = |name: &str| number(name, 1.0).map(|count| count.max(1.0) as usize);
        let size = sizes::bytes(setting("size").unwrap_or("64"))?;
        let processes = setting("where") != Some("threads");
        let pipe = Pipe { producers: count("p")?, consumers: count("c")?, size, secs: number("secs", 1.0)?, processes };
        let measured = pipe::measure(pipe)?;
        print::line(format!("PB w5 iters={} elapsed={:.6}", measured.messages, measured.elapsed));
        return Ok(());
    }
    let size = sizes::bytes(setting("size").unwrap_or("4K"))?;
    let secs = number("secs", 1.0)?;
    if options.workload == "w7" {
        quantize::two_bits(size, secs);
        return Ok(());
    }
    let through_store = match setting("face").unwrap_or(&options.face) {
        "table" => false,
        "kv" => true,
        other => return Err(format!("face={other} is neither table nor kv")),
    };
    let (workload, workers) = match (options.workload.as_str(), setting("what")) {
        ("w1", _) if setting("zc") == Some("1") => ("w1shared", 2.0),
        ("w1", _) => ("w1", 2.0),
        ("w2", _) if through_store => ("w2kv", 1.0),
        ("w2", _) => ("w2", 1.0),
        ("w3", _) if through_store => ("w3kv", 1.0),
        ("w3", _) => ("w3", 1.0),
        ("w4", Some("pull")) if through_store => ("w4pullkv", 1.0),
        ("w4", Some("pull")) => ("w4pull", 1.0),
        ("w4", Some("barrier") | None) => ("w4barrier", 2.0),
        ("w6", _) => ("w6", 2.0),
        (other, what) => {
            print::line(format!("PB error {other} {} is not offered", what.unwrap_or_default()));
            return Ok(());
        }
    };
    let crew = Crew { workers: number("n", workers)? as u32, servers: number("servers", 0.0)? as u32 };
    let mode: Mode = setting("mode").unwrap_or("async").parse()?;
    let arguments = ["__bench", "pb", workload, &secs.to_string(), &size.to_string(), &mode.to_string()].map(str::to_owned);
    for lines in Fleet::start(crew, &arguments, &[])?.finish()? {
        lines.iter().for_each(print::line);
    }
    Ok(())
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let session = Config::from_env().and_then(Session::open).map_err(|error| error.to_string())?;
    let measured = match options.workload.as_str() {
        "w1" => reduce::all_reduce(&session, options, false),
        "w1shared" => reduce::all_reduce(&session, options, true),
        "w2" => tables::dense(&session, options),
        "w3" => tables::rows(&session, options),
        "w4pull" => tables::pull(&session, options.secs),
        "w2kv" => stores::dense(&session, options),
        "w3kv" => stores::rows(&session, options),
        "w4pullkv" => stores::pull(&session, options.secs),
        "w4barrier" => meeting::barrier(&session, options.secs),
        _ => meeting::start(&session).and_then(|()| tables::memory(&session)),
    };
    measured.map_err(|error| error.to_string())?;
    session.shutdown().map_err(|error| error.to_string())
}

fn report(workload: &str, rank: u32, mut samples: Samples, elapsed: Duration) {
    print::line(format!(
        "PB {workload} rank={rank} iters={} elapsed={:.9} p50={:.9} p99={:.9} min={:.9} max={:.9}",
        samples.len(),
        elapsed.as_secs_f64(),
        samples.quantile(0.5),
        samples.quantile(0.99),
        samples.quantile(0.0),
        samples.quantile(1.0)
    ));
}
