//! Tables: whole arrays, random rows, small pulls, and what a large array costs.

use std::time::{Duration, Instant};

use syncline::{AddOptions, Deadline, Error, Session, Spec};

use super::{RankOptions, report};
use crate::bench::samples::Samples;
use crate::bench::worker::{Load, Worker};
use crate::print;

/// w2: add and get of the whole array.
pub(super) fn dense(session: &Session, options: &RankOptions) -> Result<(), Error> {
    worker(session, "w2", Load::Dense { bytes: options.size }, options)
}

/// w3: 1,000 random rows of a million.
pub(super) fn rows(session: &Session, options: &RankOptions) -> Result<(), Error> {
    worker(session, "w3", Load::Rows { rows: 1_000_000, cols: 64, batch: 1000 }, options)
}

fn worker(session: &Session, workload: &str, load: Load, options: &RankOptions) -> Result<(), Error> {
    let mut worker = Worker::new(session, load, options.mode)?;
    let measured = worker.measure(options.secs)?;
    report(workload, session.rank(), measured.samples, measured.elapsed);
    match worker.check()? {
        0 => {}
        wrong => print::line(format!("PB error {wrong} wrong values")),
    }
    Ok(())
}

/// w4: worker 0 fetches 16 floats again and again; the others wait for it.
pub(super) fn pull(session: &Session, secs: f64) -> Result<(), Error> {
    const VALUES: usize = 16;
    let stored: Vec<u8> = (0..VALUES).flat_map(|index| (index as f32).to_ne_bytes()).collect();
    let table = session.create_table(Spec::array(VALUES as u64), Some(&stored))?;
    session.barrier()?;
    let deadline = Deadline::after(Duration::from_secs_f64(secs) + session.timeout());
    if session.worker_id() == Some(0) {
        let mut fetched = vec![0; VALUES * 4];
        for _ in 0..1000 {
            table.get(&mut fetched, None, deadline)?;
        }
        let mut samples = Samples::with_room(1 << 20);
        let long_enough = Duration::from_secs_f64(secs);
        let start = Instant::now();
        let mut after = start;
        while after - start < long_enough {
            let before = after;
            table.get(&mut fetched, None, deadline)?;
            after = Instant::now();
            samples.push(after - before);
        }
        report("w4pull", session.rank(), samples, after - start);
        if fetched != stored {
            print::line("PB error wrong values");
        }
    }
    session.barrier_by(deadline)
}

/// w6: the peak memory of each process after one add and one get of 64 MB.
pub(super) fn memory(session: &Session) -> Result<(), Error> {
    const BYTES: usize = 64 << 20;
    let table = session.create_table(Spec::array(BYTES as u64 / 4), None)?;
    session.barrier()?;
    let deadline = Deadline::after(session.timeout());
    let delta: Vec<u8> = std::iter::repeat_n(1f32.to_ne_bytes(), BYTES / 4).flatten().collect();
    let mut fetched = vec![0; BYTES];
    table.add(&delta, None, &AddOptions::default(), false, deadline)?;
    table.get(&mut fetched, None, deadline)?;
    if fetched.chunks_exact(4).any(|value| value == [0; 4]) {
        print::line("PB error no add");
    }
    session.barrier()?;
    print::line(format!("PB w6rss role=rank rank={} kb={}", session.rank(), peak_kilobytes()));
    Ok(())
}

fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
