//! Runs collectives over links: what ranks that share no memory do.
//!
//! A [`Mesh`] opens links when a call needs them, keeps them, and runs one call at a time. Every call begins with a
//! [roll call](roll): all learn what all are about to do, so that a difference is the same error everywhere, and small arrays
//! travel with it. Large ones follow by a plan, see [`run`] and [`exchange`]; where there is a choice of plans the links are
//! [measured](measure) once.
//!
//! A call that fails in the middle closes all links of the mesh: whoever waits for this rank wakes up and looks for the culprit.

#[cfg(test)]
mod suite;

mod exchange;
mod fold;
mod gather;
mod leaders;
mod measure;
#[cfg(test)]
mod measured;
mod reduce;
mod roll;
mod run;
mod wire;

use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use syncline_cluster::{Error, Group, Lane, Vigil};
use syncline_metrics::LinkStats;
use syncline_transport::{Link, Severer, TransportKind};
use syncline_wire::Fingerprint;

use crate::LinkReport;
use crate::call::{Call, Failure};
use crate::plan::PlanSettings;
use crate::plan::cost::Figures;
pub(crate) use leaders::Relay;
pub(crate) use reduce::finish;
pub(crate) use roll::Refusal;
pub(crate) use run::Numbers;
use wire::{Clock, Company, Incoming, Outgoing, Trouble};

/// The links of a group, or of the leaders of its hosts.
pub(crate) struct Mesh {
    company: Company,
    settings: PlanSettings,
    lane: Lane,
    /// Directions by position; none before a call needed them.
    senders: Vec<Option<Outgoing>>,
    receivers: Vec<Option<Incoming>>,
    severers: Vec<Severer>,
    /// Calls that began.
    calls: u64,
    ledger: Arc<Ledger>,
}

/// What went over the links of a mesh; may be read while a call runs.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    links: Mutex<Vec<Line>>,
    /// What the slowest link costs, the same on all members; none before they measured.
    figures: OnceLock<Figures>,
}

/// One link, as it is counted.
#[derive(Debug)]
struct Line {
    peer: u32,
    stats: Arc<LinkStats>,
    clock: Arc<Clock>,
}

impl Ledger {
    /// What the members agreed that their links cost, once they measured them.
    pub(crate) fn figures(&self) -> Option<Figures> {
        self.figures.get().copied()
    }

    /// One report per peer, by rank.
    pub(crate) fn reports(&self) -> Vec<LinkReport> {
        let links = self.links.lock().expect("no panic while held");
        let mut reports: Vec<LinkReport> = links.iter().map(Line::report).collect();
        reports.sort_by_key(|report| report.peer);
        reports
    }
}

/// The reports of several meshes of one rank as one: a peer that is reached in two ways has one report.
pub(crate) fn joined(reports: impl IntoIterator<Item = LinkReport>) -> Vec<LinkReport> {
    let mut all: Vec<LinkReport> = Vec::new();
    for report in reports {
        let Some(known) = all.iter_mut().find(|known| known.peer == report.peer) else {
            all.push(report);
            continue;
        };
        known.bytes_sent += report.bytes_sent;
        known.bytes_received += report.bytes_received;
        known.calls_sent += report.calls_sent;
        known.calls_received += report.calls_received;
        known.sending += report.sending;
        known.receiving += report.receiving;
    }
    all.sort_by_key(|report| report.peer);
    all
}

impl Line {
    fn report(&self) -> LinkReport {
        LinkReport {
            peer: self.peer,
            bytes_sent: self.stats.bytes_sent.get(),
            bytes_received: self.stats.bytes_received.get(),
            calls_sent: self.stats.frames_sent.get(),
            calls_received: self.stats.frames_received.get(),
            sending: Duration::from_nanos(self.clock.sending.load(Relaxed)),
            receiving: Duration::from_nanos(self.clock.receiving.load(Relaxed)),
        }
    }
}

impl Mesh {
    /// The links of `group` for one `purpose`: meshes of different purposes never meet. Nothing is opened yet.
    pub(crate) fn new(vigil: Vigil, group: Group, purpose: &str, settings: PlanSettings) -> Mesh {
        let name = Fingerprint::of("collective").name(purpose).numbers("ranks", group.ranks().iter().map(|rank| u64::from(*rank))).finish();
        let none = || (0..group.len()).map(|_| None);
        Mesh {
            senders: none().collect(),
            receivers: (0..group.len()).map(|_| None).collect(),
            lane: Lane::of(name),
            settings,
            severers: Vec::new(),
            calls: 0,
            ledger: Arc::default(),
            company: Company { vigil, needs: group.ranks().to_vec(), group },
        }
    }

    /// Its members speak for all these ranks: who waits for a member waits in vain if one of them is dead.
    pub(crate) fn speaking_for(mut self, ranks: &[u32]) -> Mesh {
        self.company.needs = ranks.to_vec();
        self
    }

    /// Where its traffic is counted.
    pub(crate) fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// Returns when every member has called it.
    pub(crate) fn barrier(&mut self, call: &Call<'_>) -> Result<(), Failure> {
        self.roll_call(call).map(drop)
    }

    pub(crate) fn position(&self) -> usize {
        self.company.group.position()
    }

    fn ranks(&self) -> usize {
        self.company.group.len()
    }

    /// Opens the links to these positions that are not open yet.
    ///
    /// The higher rank dials, the lower one waits for the call. All dial before they wait, also when a dial failed: so nobody
    /// waits for a call that will not come, whatever the order.
    fn open(&mut self, positions: impl IntoIterator<Item = usize>, call: &Call<'_>) -> Result<(), Failure> {
        let mut missing: Vec<usize> = positions.into_iter().filter(|position| self.senders[*position].is_none()).collect();
        missing.sort_by_key(|position| self.company.group.ranks()[*position]);
        missing.dedup();
        let mut failure = None;
        for position in missing {
            let rank = self.company.group.ranks()[position];
            if failure.is_some() && rank > self.company.vigil.me() {
                break;
            }
            match self.company.vigil.link_among(&self.company.needs, rank, self.lane, call.by) {
                Ok(link) => self.keep(position, link),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            None => Ok(()),
            Some(error) => {
                self.close();
                Err(Failure::Astray(call.renamed(error)))
            }
        }
    }

    fn keep(&mut self, position: usize, link: Link) {
        let streams = matches!(link.info().transport, TransportKind::Tcp | TransportKind::Unix);
        let clock: Arc<Clock> = Arc::default();
        let line = Line { peer: self.company.group.ranks()[position], stats: link.stats(), clock: Arc::clone(&clock) };
        self.ledger.links.lock().expect("no panic while held").push(line);
        self.severers.push(link.severer());
        let (sender, receiver) = link.split();
        self.senders[position] = Some(Outgoing { position, half: sender, streams, clock: Arc::clone(&clock) });
        self.receivers[position] = Some(Incoming { position, half: receiver, streams, clock });
    }

    /// Says what went wrong with a transfer, and leaves the links in a state that tells the others.
    fn failed(&mut self, call: &Call<'_>, trouble: Trouble) -> Failure {
        // Everybody's time is over at about the same moment; closing links would only make this rank look guilty.
        if !trouble.is_late() {
            self.close();
        }
        let operation = call.operation();
        let rank = |position: usize| self.company.group.ranks()[position];
        Failure::Astray(match trouble {
            Trouble::Link(position, error) => {
                self.company.vigil.link_failed_among(&self.company.needs, &operation, rank(position), call.started, &error)
            }
            Trouble::Vain(position) => {
                let rank = self.company.vigil.first_down(&self.company.needs).unwrap_or(rank(position));
                self.company.vigil.explain(&operation, &[rank], call.started, "it did not come")
            }
            Trouble::Garbled(position, detail) => {
                Error::ContractMismatch { operation, detail: format!("rank {} sent {detail}", rank(position)) }
            }
            Trouble::Interrupted | Trouble::Stopped => Error::Interrupted { operation, waited: call.started.elapsed() },
            Trouble::Memory(bytes) => Error::System { operation, detail: format!("there is no memory for the {bytes} bytes that come") },
        })
    }

    /// Gives all links up: whoever waits for this rank wakes up.
    pub(crate) fn close(&mut self) {
        self.severers.drain(..).for_each(|severer| severer.sever());
        self.senders.iter_mut().for_each(|sender| *sender = None);
        self.receivers.iter_mut().for_each(|receiver| *receiver = None);
    }
}
