//! w1: an all-reduce in place, the sum of f32 over all ranks.

use std::time::{Duration, Instant};

use syncline::collective::{Collectives, How};
use syncline::{DType, Deadline, Error, ReduceOp, Session};

use super::{RankOptions, report};
use crate::bench::samples::Samples;
use crate::print;

/// Calls that are measured however long they take, and however short.
const LEAST: f64 = 4.0;
const MOST: f64 = 20_000.0;

/// Measures arrays of this process's own, or with `shared` arrays that lie in shared memory.
pub(super) fn all_reduce(session: &Session, options: &RankOptions, shared: bool) -> Result<(), Error> {
    let bytes = options.size / 4 * 4;
    if shared {
        let mut array = session.empty_shared(bytes)?;
        return measure(session, options, array.bytes_mut());
    }
    let mut array = vec![0; bytes];
    measure(session, options, &mut array)
}

fn measure(session: &Session, options: &RankOptions, array: &mut [u8]) -> Result<(), Error> {
    let group = session.collectives()?;
    let sum = |array: &mut [u8]| -> Result<(), Error> {
        // A deadline of its own for each call, as a caller has it.
        let how = How { site: "", by: Deadline::after(session.timeout()) };
        group.all_reduce(array, DType::F32, ReduceOp::Sum, true, how)?;
        Ok(())
    };
    fill(array, 1.0);
    sum(array)?;
    let mut wrong = count_other_than(array, session.num_workers() as f32);
    // Zeros stay zeros however often they are added up.
    fill(array, 0.0);
    let mut each = Duration::ZERO;
    for _ in 0..if array.len() > 32 << 20 { 1 } else { 3 } {
        let before = Instant::now();
        sum(array)?;
        each = before.elapsed();
    }
    let rounds = agree(&group, session, (options.secs / each.as_secs_f64().max(1e-9)).clamp(LEAST, MOST))?;
    let mut samples = Samples::with_room(rounds);
    let start = Instant::now();
    for _ in 0..rounds {
        let before = Instant::now();
        sum(array)?;
        samples.push(before.elapsed());
    }
    report("w1", session.rank(), samples, start.elapsed());
    wrong += count_other_than(array, 0.0);
    fill(array, session.rank() as f32);
    sum(array)?;
    wrong += count_other_than(array, (0..session.num_workers()).map(|rank| rank as f32).sum());
    if wrong > 0 {
        print::line(format!("PB error {wrong} wrong values"));
    }
    Ok(())
}

/// Rank 0's number of rounds, known to all.
fn agree(group: &Collectives, session: &Session, mine: f64) -> Result<usize, Error> {
    let mut rounds = (mine as u64).to_ne_bytes();
    group.broadcast(&mut rounds, DType::I64, 0, How { site: "", by: Deadline::after(session.timeout()) })?;
    Ok(u64::from_ne_bytes(rounds) as usize)
}

fn fill(array: &mut [u8], value: f32) {
    array.as_chunks_mut::<4>().0.fill(value.to_ne_bytes());
}

fn count_other_than(array: &[u8], value: f32) -> usize {
    array.as_chunks::<4>().0.iter().filter(|found| **found != value.to_ne_bytes()).count()
}
