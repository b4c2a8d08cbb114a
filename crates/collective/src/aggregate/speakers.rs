//! How neighbourhoods that share no memory learn each other's contributions: one worker of each speaks for it.

use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, Lane, Vigil};
use syncline_transport::{Link, LinkError, OutFrame};
use syncline_wire::{Fingerprint, Kind};

use super::head::Head;

/// What certainly fits into the buffers between two speakers, twice: it is sent to all before anything is received.
const SENT_AT_ONCE: usize = 16 << 10;
/// How long a wait for a frame lasts before it looks whether somebody died whom the other speaker waits for.
const NAP: Duration = Duration::from_millis(100);
/// Bytes that tell of one worker: its number and its head.
const WORKER_BYTES: usize = 4 + Head::BYTES;

/// The other speakers, in order of neighbourhood.
pub(super) struct Speakers {
    /// How many neighbourhoods come before this one.
    before: usize,
    peers: Vec<Peer>,
    frames: u64,
}

struct Peer {
    rank: u32,
    workers: Vec<u32>,
    link: Link,
}

/// What one neighbourhood brought.
pub(super) struct Brought {
    pub(super) heads: Vec<(u32, Head)>,
    /// The contributions one after the other; none when they are for another call than ours.
    pub(super) bytes: Vec<u8>,
}

impl Speakers {
    /// Links this process with the first worker of every other neighbourhood; `all` lists the workers of each, as
    /// worker and rank, and `mine` is the number of this one.
    pub(super) fn find(all: &[Vec<(u32, u32)>], mine: usize, vigil: &Vigil, by: Deadline) -> Result<Speakers, Error> {
        let lane = Lane::of(purpose());
        let others = || all.iter().enumerate().filter(|(index, _)| *index != mine).map(|(_, workers)| workers);
        let ranks: Vec<u32> = others().map(|workers| workers[0].1).collect();
        let peers = others().map(|workers| {
            let rank = workers[0].1;
            let link = vigil.link_among(&ranks, rank, lane, by)?;
            Ok(Peer { rank, workers: workers.iter().map(|(worker, _)| *worker).collect(), link })
        });
        Ok(Speakers { before: mine, peers: peers.collect::<Result<_, Error>>()?, frames: 0 })
    }

    /// Tells every other speaker what the workers here brought for one chunk of `len` bytes, and hears the same of them.
    pub(super) fn exchange(&mut self, mine: &[(u32, Head, &[u8])], len: usize, vigil: &Vigil, by: Deadline) -> Result<Vec<Brought>, Error> {
        let meta: Vec<u8> = mine.iter().flat_map(|(worker, head, _)| worker.to_le_bytes().into_iter().chain(head.to_bytes())).collect();
        let alike = mine.iter().all(|(_, head, bytes)| *head == mine[0].1 && bytes.len() == len);
        let payload: Vec<&[u8]> = if alike { mine.iter().map(|(_, _, bytes)| *bytes).collect() } else { Vec::new() };
        let frame = OutFrame { sequence: self.frames, fingerprint: purpose(), meta: &meta, payload: &payload, ..OutFrame::new(Kind::DATA) };
        self.frames += 1;
        let speakers = self.peers.iter().map(|peer| peer.rank).collect();
        let talk = Talk { head: mine[0].1, len, sequence: frame.sequence, speakers, vigil, by, started: Instant::now() };
        let at_once = payload.iter().map(|piece| piece.len()).sum::<usize>() <= SENT_AT_ONCE;
        if at_once {
            self.peers.iter_mut().try_for_each(|peer| talk.send(peer, &frame))?;
        }
        let before = self.before;
        let turns = self.peers.iter_mut().enumerate();
        let heard = turns.map(|(index, peer)| match (at_once, index < before) {
            (true, _) => talk.receive(peer),
            (false, true) => {
                let brought = talk.receive(peer)?;
                talk.send(peer, &frame)?;
                Ok(brought)
            }
            (false, false) => {
                talk.send(peer, &frame)?;
                talk.receive(peer)
            }
        });
        heard.collect()
    }
}

fn purpose() -> Fingerprint {
    Fingerprint::of("aggregate").finish()
}

/// One exchange.
struct Talk<'a> {
    /// What the workers here were called for.
    head: Head,
    len: usize,
    sequence: u64,
    /// Ranks of all others who speak.
    speakers: Vec<u32>,
    vigil: &'a Vigil,
    by: Deadline,
    started: Instant,
}

impl Talk<'_> {
    fn send(&self, peer: &mut Peer, frame: &OutFrame<'_>) -> Result<(), Error> {
        peer.link.send(frame, self.by).map_err(|error| self.failed(peer.rank, &error))
    }

    fn receive(&self, peer: &mut Peer) -> Result<Brought, Error> {
        let head = loop {
            match peer.link.head(self.by.within(NAP)) {
                Ok(head) => break head,
                Err(LinkError::Timeout { half_written: false, .. }) if !self.by.expired() => {
                    let down = self.vigil.first_down(&self.speakers);
                    if down.is_some() || self.vigil.hopeless() || self.vigil.is_over(peer.rank) {
                        let rank = down.unwrap_or(peer.rank);
                        return Err(self.vigil.explain(&self.head.to_string(), &[rank], self.started, "it did not come"));
                    }
                }
                Err(error) => return Err(self.failed(peer.rank, &error)),
            }
        };
        let ours = head.header.kind == Kind::DATA && head.header.sequence == self.sequence && head.header.fingerprint == purpose();
        let heads = workers_in(&head.meta).filter(|heads| ours && peer.speaks_for(heads)).ok_or_else(|| Error::ContractMismatch {
            operation: self.head.to_string(),
            detail: format!("rank {} sent something that is no part {} of an aggregate", peer.rank, self.sequence),
        })?;
        let mut bytes = Vec::new();
        if heads.iter().all(|(_, head)| *head == self.head) && peer.link.receiver().body_left() == (heads.len() * self.len) as u64 {
            bytes.resize(heads.len() * self.len, 0);
            peer.link.body_into(&mut bytes, self.by).map_err(|error| self.failed(peer.rank, &error))?;
        } else {
            peer.link.receiver().skip_body(self.by).map_err(|error| self.failed(peer.rank, &error))?;
        }
        Ok(Brought { heads, bytes })
    }

    fn failed(&self, rank: u32, error: &LinkError) -> Error {
        self.vigil.link_failed_among(&self.speakers, &self.head.to_string(), rank, self.started, error)
    }
}

impl Peer {
    fn speaks_for(&self, heads: &[(u32, Head)]) -> bool {
        heads.is_sorted_by(|(one, _), (next, _)| one < next) && heads.iter().all(|(worker, _)| self.workers.contains(worker))
    }
}

fn workers_in(meta: &[u8]) -> Option<Vec<(u32, Head)>> {
    let (workers, rest) = meta.as_chunks::<WORKER_BYTES>();
    rest.is_empty().then(|| {
        let worker = |bytes: &[u8; WORKER_BYTES]| {
            let (number, head) = bytes.split_first_chunk::<4>().expect("a number comes first");
            (u32::from_le_bytes(*number), Head::from_bytes(*head.first_chunk().expect("and a head after it")))
        };
        workers.iter().map(worker).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_workers_that_is_cut_short_is_not_believed() {
        let bytes: Vec<u8> = (0..2 * WORKER_BYTES as u8).collect();
        assert_eq!(workers_in(&bytes).map(|workers| workers.len()), Some(2));
        assert_eq!(workers_in(&bytes[1..]), None);
        assert_eq!(workers_in(&[]), Some(Vec::new()));
    }
}
