//! What becomes of a worker's adds when it is gone.
//!
//! A worker that left politely is finished; nothing of it is open. One that died may leave an add that some shares hold and
//! others already count, so the servers hold an inquest: one server per share reports to the one that speaks for share 0, which
//! answers each with the verdict. Everybody learns of the death from the job, so everybody comes.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error};
use syncline_transport::{Link, LinkError, OutFrame};
use syncline_wire::Kind;

use super::counting::publish;
use super::messages::Hold;
use super::protocol::{Inquest, Report};
use super::reach::{Fate, Places, Reach};
use super::server::Service;
use crate::share::Share;

/// How often a fate is asked for while news of it is on its way.
const NAP: Duration = Duration::from_millis(20);
/// How long such news takes at most, as a rule.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How often a server looks whether a neighbour is gone.
const LOOK: Duration = Duration::from_millis(100);

/// Settles what a remote worker leaves when its link has ended; `held` is what waits for a verdict here.
pub(crate) fn settle(service: &Service, held: Option<(u64, Hold)>, goodbye: bool) {
    if goodbye && held.is_none() {
        service.share.finish(service.worker); // it closed the table and will not add any more
        return;
    }
    let rank = service.places.workers[service.worker as usize];
    // A worker may outlive its link by far. Whenever it goes somebody has to finish or bury it, or the others would wait for it for ever.
    let since = Instant::now();
    let fate = loop {
        let fate = service.reach.fate(rank);
        if fate != Fate::Present || service.reach.is_closing() {
            break fate;
        }
        std::thread::park_timeout(if since.elapsed() < AT_ONCE { NAP } else { LOOK });
    };
    let share = &*service.share;
    match fate {
        Fate::Present => {
            if let Some((sequence, _)) = held {
                tracing::warn!("{}: worker {} closed its link and left add {sequence} undecided", service.places.name, service.worker);
            }
        }
        Fate::Left => {
            if let Some((sequence, _)) = held {
                share.discard(service.worker, sequence);
            }
            share.finish(service.worker);
        }
        Fate::Lost => bury(&service.places, service.index, share, service.worker, held, &*service.reach),
    }
}

/// Decides about what a dead worker left at this share, together with the other shares.
fn bury(places: &Places, index: usize, share: &dyn Share, worker: u32, held: Option<(u64, Hold)>, reach: &dyn Reach) {
    let report = Report { share: index as u32, published: share.published(worker), held: held.map(|(_, hold)| hold) };
    let counts = if places.servers.len() == 1 { Ok(false) } else { verdict(places, worker, report, reach) };
    match (held, counts) {
        (Some((sequence, _)), Ok(true)) => {
            if let Err(error) = publish(share, worker, sequence) {
                tracing::warn!("{}: add {sequence} of dead worker {worker} counts elsewhere but not here: {error}", places.name);
            }
        }
        (Some((sequence, _)), Ok(false)) => share.discard(worker, sequence),
        // A server is gone too, and a part of the table with it; whoever uses the table is told. A job that does not go on ends for everybody, and has one
        // cause: what could not be decided any more is no news.
        (_, Err(error)) if !reach.survives_losses() => tracing::debug!("{}: no verdict on worker {worker}: {error}", places.name),
        (_, Err(error)) => tracing::warn!("{}: no verdict on the last add of worker {worker}: {error}", places.name),
        (None, Ok(_)) => {}
    }
    if reach.survives_losses() {
        share.finish(worker);
    }
}

/// Whether the add that this share holds counts.
fn verdict(places: &Places, worker: u32, report: Report, reach: &dyn Reach) -> Result<bool, Error> {
    const OPERATION: &str = "inquest";
    let by = Deadline::after(reach.timeout());
    let started = Instant::now();
    let failed = |peer: u32, error: &LinkError| reach.link_failed(OPERATION, peer, started, error);
    if report.share != 0 {
        let judge = places.speaker(0, worker, reach);
        let mut link = reach.link(judge, places.inquest_lane(report.share as usize, worker), by)?;
        let meta = report.encode();
        link.send(&OutFrame { meta: &meta, ..OutFrame::new(Kind::TABLE_REPORT) }, by).map_err(|error| failed(judge, &error))?;
        let head = link.head(by).map_err(|error| failed(judge, &error))?;
        return Ok(head.meta == [1]);
    }
    let mut inquest = Inquest::new(places.servers.len());
    inquest.hear(report);
    let mut others: Vec<(usize, u32, Link)> = Vec::new();
    for other in 1..places.servers.len() {
        let peer = places.speaker(other, worker, reach);
        let mut link = reach.link(peer, places.inquest_lane(other, worker), by)?;
        let head = link.head(by).map_err(|error| failed(peer, &error))?;
        let report = Report::decode(&head.meta).map_err(|error| failed(peer, &LinkError::Corrupt(error)))?;
        inquest.hear(Report { share: other as u32, ..report });
        others.push((other, peer, link));
    }
    for (other, peer, link) in &mut others {
        let word = [u8::from(inquest.counts(*other))];
        link.send(&OutFrame { meta: &word, ..OutFrame::new(Kind::TABLE_REPORT) }, by).map_err(|error| failed(*peer, &error))?;
    }
    Ok(inquest.counts(0))
}

/// Returns when no dead worker's estate is open at this share: what it left then counts everywhere or nowhere. Whoever
/// asks may know of deaths (`lost`, by worker) that this process has not heard of yet. If the asker itself is dead, nobody
/// needs the answer, and its own estate waits for this very thread.
pub(crate) fn wait_for_verdicts(
    asker: u32,
    workers: &[u32],
    lost: &[u32],
    share: &dyn Share,
    reach: &dyn Reach,
    by: Deadline,
) -> Result<(), Error> {
    const LOOK: Duration = Duration::from_millis(1);
    let started = Instant::now();
    while reach.survives_losses() {
        let is_lost = |worker: &u32| lost.contains(worker) || reach.fate(workers[*worker as usize]) == Fate::Lost;
        let open: Vec<u32> = share.unfinished().into_iter().filter(is_lost).map(|worker| workers[worker as usize]).collect();
        if open.is_empty() || reach.is_closing() || reach.fate(workers[asker as usize]) == Fate::Lost {
            break;
        }
        if by.interrupted() {
            return Err(Error::Interrupted { operation: "flush".into(), waited: started.elapsed() });
        }
        if by.expired() {
            return Err(reach.late("flush", &open, started));
        }
        std::thread::park_timeout(LOOK);
    }
    Ok(())
}

/// Watches the workers that use a share in their own memory, for tables with several shares: somebody must report for them.
pub(crate) struct Watch {
    /// Who holds and who uses the table.
    pub(crate) places: Arc<Places>,
    /// The share's number.
    pub(crate) index: usize,
    /// The share.
    pub(crate) share: Arc<dyn Share>,
    /// Ids of the workers that have it in memory, without this process's own.
    pub(crate) neighbours: Vec<u32>,
    /// This process's rank.
    pub(crate) me: u32,
    /// The job.
    pub(crate) reach: Arc<dyn Reach>,
}

impl Watch {
    /// Starts the thread. It ends when this process leaves the job or nobody is left to watch.
    pub(crate) fn start(mut self) -> Result<JoinHandle<()>, Error> {
        let thread = std::thread::Builder::new().name("syncline-watch".into()).spawn(move || {
            while !self.neighbours.is_empty() && !self.reach.is_closing() {
                self.look();
                std::thread::park_timeout(LOOK);
            }
        });
        thread.map_err(|error| Error::System { operation: "serving a table".into(), detail: error.to_string() })
    }

    /// Looks once and settles what is to be settled.
    pub(crate) fn look(&mut self) {
        let (places, reach) = (Arc::clone(&self.places), Arc::clone(&self.reach));
        self.neighbours.retain(|worker| {
            let rank = places.workers[*worker as usize];
            match reach.fate(rank) {
                Fate::Present => true,
                Fate::Left => false,
                Fate::Lost if !reach.has_ended(rank) => true, // it may still publish
                Fate::Lost => {
                    if places.speaker(self.index, *worker, &*reach) == self.me {
                        bury(&places, self.index, &*self.share, *worker, None, &*reach);
                    }
                    false
                }
            }
        });
    }
}
