//! How ranks come together: the start of a job, and barriers.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use syncline::Session;
use syncline_transport::Link;

use super::report;
use crate::bench::samples::Samples;
use crate::print;

/// Rounds of a fixed number decided by a first look at the speed, so that all ranks make the same number of calls.
pub(super) fn barrier(session: &Session, secs: f64) -> Result<(), syncline::Error> {
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

/// The moment when everybody is there.
pub(super) fn start(session: &Session) -> Result<(), syncline::Error> {
    session.barrier()?;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    print::line(format!("PB w6 rank={} wall={wall:.6}", session.rank()));
    Ok(())
}
