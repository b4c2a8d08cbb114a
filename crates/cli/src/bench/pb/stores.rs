//! The same work through the key-value store: whole arrays, random rows, small pulls.

use std::time::{Duration, Instant};

use syncline::{Consistency, Deadline, Error, Session};

use super::{RankOptions, report};
use crate::bench::kv::{KeyWorker, Scene};
use crate::bench::samples::Samples;
use crate::bench::worker::Load;
use crate::print;

/// w2: push and pull of the whole array.
pub(super) fn dense(session: &Session, options: &RankOptions) -> Result<(), Error> {
    worker(session, "w2", Load::Dense { bytes: options.size }, options)
}

/// w3: 1,000 random rows of a million.
pub(super) fn rows(session: &Session, options: &RankOptions) -> Result<(), Error> {
    worker(session, "w3", Load::Rows { rows: 1_000_000, cols: 64, batch: 1000 }, options)
}

fn scene(kind: &str, load: Load) -> Scene {
    Scene { kind: kind.into(), load, code: "none".into(), optimizer: "add".into() }
}

fn worker(session: &Session, workload: &str, load: Load, options: &RankOptions) -> Result<(), Error> {
    let kind = if options.mode.0 == Consistency::Async { "dist_async" } else { "dist_sync" };
    let mut worker = KeyWorker::new(session, scene(kind, load))?;
    let measured = worker.measure(options.secs)?;
    report(workload, session.rank(), measured.samples, measured.elapsed);
    match worker.check()? {
        0 => {}
        wrong => print::line(format!("PB error {wrong} wrong values")),
    }
    Ok(())
}

/// w4: worker 0 pulls 16 floats again and again; the others wait for it.
pub(super) fn pull(session: &Session, secs: f64) -> Result<(), Error> {
    let mut worker = KeyWorker::new(session, scene("dist_async", Load::Dense { bytes: 64 }))?;
    let deadline = Deadline::after(Duration::from_secs_f64(secs) + session.timeout());
    if session.worker_id() == Some(0) {
        for _ in 0..1000 {
            worker.pull(deadline)?;
        }
        let mut samples = Samples::with_room(1 << 20);
        let long_enough = Duration::from_secs_f64(secs);
        let start = Instant::now();
        let mut after = start;
        while after - start < long_enough {
            let before = after;
            worker.pull(deadline)?;
            after = Instant::now();
            samples.push(after - before);
        }
        report("w4pull", session.rank(), samples, after - start);
    }
    session.barrier_by(deadline)
}
