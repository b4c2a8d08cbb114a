//! The protocol of the harness that measures Syncline beside its peers: `PB <workload> key=value …` lines.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use syncline::{Config, Session};
use syncline_transport::Link;

use super::fleet::Fleet;
use super::samples::Samples;
use crate::print;

/// `w4 n=2 what=barrier secs=1`
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Which workload: w4 (barrier) or w6 (start); the others follow with the parts they measure
    workload: String,
    /// key=value: n, size, secs, what, p, c, where
    settings: Vec<String>,
}

/// The same, for one process.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    workload: String,
    secs: f64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let setting = |name: &str| options.settings.iter().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let number = |name: &str, default: f64| -> Result<f64, String> {
        setting(name).map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name}={text} is no number")))
    };
    let (world, secs) = (number("n", 2.0)? as u32, number("secs", 1.0)?);
    let workload = match (options.workload.as_str(), setting("what")) {
        ("w4", Some("barrier") | None) => "w4barrier",
        ("w6", _) => "w6",
        (other, what) => {
            print::line(format!("PB error {other} {} is not offered", what.unwrap_or_default()));
            return Ok(());
        }
    };
    let arguments = ["__bench", "pb", workload, &secs.to_string()].map(str::to_owned);
    for lines in Fleet::start(world, &arguments, &[])?.finish()? {
        lines.iter().for_each(print::line);
    }
    Ok(())
}

pub(crate) fn run_rank(options: &RankOptions) -> Result<(), String> {
    let session = Config::from_env().and_then(Session::open).map_err(|error| error.to_string())?;
    let measured = match options.workload.as_str() {
        "w4barrier" => barrier(&session, options.secs),
        _ => start(&session),
    };
    measured.map_err(|error| error.to_string())?;
    session.shutdown().map_err(|error| error.to_string())
}

/// Rounds of a fixed number decided by a first look at the speed, so that all ranks make the same number of calls.
fn barrier(session: &Session, secs: f64) -> Result<(), syncline::Error> {
    const LOOK: u32 = 200;
    session.barrier()?;
    let look = Instant::now();
    for _ in 0..LOOK {
        session.barrier()?;
    }
    // Ranks see slightly different speeds; a power of two makes them agree, and a last barrier keeps stragglers in step.
    let each = look.elapsed().as_secs_f64() / f64::from(LOOK);
    let (rounds, _links) = agree(session, ((secs / each) as u64).clamp(LOOK.into(), 2_000_000))?;
    let mut samples = Samples::with_room(rounds as usize);
    session.barrier()?;
    let start = Instant::now();
    let mut before = start;
    for _ in 0..rounds {
        session.barrier()?;
        let now = Instant::now();
        samples.push(now - before);
        before = now;
    }
    report("w4barrier", session.rank(), samples, start.elapsed());
    Ok(())
}

/// Rank 0's number, known to all: it passes it over links.
fn agree(session: &Session, mine: u64) -> Result<(u64, Vec<Link>), syncline::Error> {
    use syncline::{Deadline, Lane};
    use syncline_transport::OutFrame;
    use syncline_wire::Kind;
    let deadline = Deadline::after(Duration::from_secs(30));
    let started = Instant::now();
    let broken = |error: syncline_transport::LinkError| session.link_failed("agreeing on the number of rounds", 0, started, &error);
    if session.rank() != 0 {
        let mut link = session.link(0, Lane::BENCH, deadline)?;
        let theirs = link.head(deadline).map_err(broken)?.header.sequence;
        return Ok((theirs, vec![link]));
    }
    let mut links = Vec::new();
    for peer in 1..session.size() {
        let mut link = session.link(peer, Lane::BENCH, deadline)?;
        link.send(&OutFrame { sequence: mine, ..OutFrame::new(Kind::DATA) }, deadline).map_err(broken)?;
        links.push(link); // Open until the other side has read, which its next barrier tells.
    }
    Ok((mine, links))
}

fn start(session: &Session) -> Result<(), syncline::Error> {
    session.barrier()?;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    print::line(format!("PB w6 rank={} wall={wall:.6}", session.rank()));
    print::line(format!("PB w6rss role=rank rank={} kb={}", session.rank(), peak_kilobytes()));
    Ok(())
}

fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
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
