//! What the links of a mesh cost, measured once: the figures by which plans are chosen.
//!
//! Neighbours measure the link between them, pair by pair; the first of a pair leads and the other sends everything back:
//! ```text
//!  5 ranks:   0–1 2–3   ·   1–2 3–4   ·   4–0          no rank is in two pairs at once
//!  a pair:    a few empty frames: α is half of the quickest round trip
//!             32 KB twice, 128 KB three times: β is what a byte adds to it
//! ```
//! Then all exchange what they found by doubling, as the roll call does, and the slowest link wins: so all ranks hold the very
//! same figures and choose the same plan. Cost: 10 round trips and 0.4 MB each way per link, two or three links one after the
//! other, and ⌈log₂ n⌉ small frames. A thin link carries less.
//!
//! It happens inside the first call that has a choice, after its roll call: everybody is there and about to do the same.

use std::time::{Duration, Instant};

use super::Mesh;
use super::wire::Trouble;
use crate::call::{Call, Failure};
use crate::plan::cost::Figures;
use crate::plan::grades::Grades;

/// Round trips of empty frames.
const PINGS: usize = 5;
/// What goes there and back for the bandwidth, and how often: one that is held up by chance must not count. The small ones open
/// a stream's window and tell whether more is affordable.
const LOADS: [(usize, usize); 2] = [(32 << 10, 2), (MOST, 3)];
const MOST: usize = 128 << 10;
/// Where a load adds so much to a round trip no larger one follows.
const LONG: Duration = Duration::from_millis(20);

/// The first byte of a frame's meta: whether it goes back, or was the last.
const BACK: u8 = 0;
const LAST: u8 = 1;

impl Mesh {
    /// What the links cost; measures them when nobody did.
    pub(super) fn figures(&mut self, call: &Call<'_>) -> Result<Figures, Failure> {
        if let Some(figures) = self.ledger.figures.get() {
            return Ok(*figures);
        }
        let mut grades = Grades::default();
        for pair in pairs(self.position(), self.ranks()) {
            match pair {
                Pair::Lead(peer) => grades = grades.slower(self.lead(peer, call)?),
                Pair::Follow(peer) => self.follow(peer, call)?,
            }
        }
        let mine = grades.to_bytes();
        let all = self.doubled(&mine, &vec![mine.len() as u64; self.ranks()], call)?;
        for (position, theirs) in all.iter().enumerate() {
            let theirs = Grades::from_bytes(theirs)
                .ok_or_else(|| Trouble::Garbled(position, "figures of a link that cannot be".into()))
                .map_err(|trouble| self.failed(call, trouble))?;
            grades = grades.slower(theirs);
        }
        Ok(*self.ledger.figures.get_or_init(|| grades.figures()))
    }

    /// Measures the link to `peer`, who follows.
    fn lead(&mut self, peer: usize, call: &Call<'_>) -> Result<Grades, Failure> {
        self.open([peer], call)?;
        let mut quickest = Duration::MAX;
        for _ in 0..PINGS {
            quickest = quickest.min(self.there_and_back(peer, &mut [], call)?);
        }
        let mut bytes = vec![0; MOST];
        let mut beta = 0.0;
        for (load, times) in LOADS {
            let mut took = Duration::MAX;
            for _ in 0..times {
                took = took.min(self.there_and_back(peer, &mut bytes[..load], call)?);
            }
            let added = took.saturating_sub(quickest);
            beta = added.as_secs_f64() / (2 * load) as f64;
            if added > LONG {
                break;
            }
        }
        self.tell_with(peer, &[LAST], &[], call)?;
        Ok(Grades::of(Figures { alpha: quickest.as_secs_f64() / 2.0, beta }))
    }

    fn there_and_back(&mut self, peer: usize, bytes: &mut [u8], call: &Call<'_>) -> Result<Duration, Failure> {
        let since = Instant::now();
        // The peer takes all of it before it answers, so nobody waits for room while the other does.
        self.tell_with(peer, &[BACK], &[bytes], call)?;
        self.exchange(call, None, None, peer, |incoming, talk| {
            incoming.head_of(talk, bytes.len() as u64)?;
            incoming.fill(talk, bytes)
        })?;
        Ok(since.elapsed())
    }

    /// Sends back what `peer` sends until it has enough.
    fn follow(&mut self, peer: usize, call: &Call<'_>) -> Result<(), Failure> {
        self.open([peer], call)?;
        let mut bytes = vec![0; MOST];
        loop {
            let came = self.exchange(call, None, None, peer, |incoming, talk| match incoming.head(talk)? {
                (meta, 0) if meta == [LAST] => Ok(None),
                (meta, len) if meta == [BACK] && len <= bytes.len() as u64 => {
                    incoming.fill(talk, &mut bytes[..len as usize])?;
                    Ok(Some(len as usize))
                }
                _ => Err(Trouble::Garbled(peer, "something else than what measures a link".into())),
            })?;
            match came {
                Some(len) => self.tell_with(peer, &[BACK], &[&bytes[..len]], call)?,
                None => return Ok(()),
            }
        }
    }
}

/// One part in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    Lead(usize),
    Follow(usize),
}

/// Whom a position measures with, one after the other. All links between neighbours have their turn, those from even
/// positions first, and a last one that finds no place among the others at the end: so nobody waits in a circle.
fn pairs(position: usize, ranks: usize) -> Vec<Pair> {
    let turn = |first: usize| if ranks % 2 == 1 && first == ranks - 1 { 2 } else { first % 2 };
    let (next, previous) = ((position + 1) % ranks, (position + ranks - 1) % ranks);
    let mut pairs = match (ranks, position) {
        (1, _) => Vec::new(),
        // Both neighbours are the same.
        (2, 0) => vec![(0, Pair::Lead(next))],
        (2, _) => vec![(0, Pair::Follow(previous))],
        _ => vec![(turn(position), Pair::Lead(next)), (turn(previous), Pair::Follow(previous))],
    };
    pairs.sort_by_key(|(turn, _)| *turn);
    pairs.into_iter().map(|(_, pair)| pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_between_neighbours_has_its_turn_and_nobody_waits_in_a_circle() {
        for ranks in 1..=33 {
            let mut waiting: Vec<Vec<Pair>> = (0..ranks).map(|position| pairs(position, ranks)).collect();
            let mut measured = 0;
            // A pair measures as soon as it is the next of both.
            while let Some((leader, peer)) = (0..ranks).find_map(|position| match waiting[position].first() {
                Some(Pair::Lead(peer)) if waiting[*peer].first() == Some(&Pair::Follow(position)) => Some((position, *peer)),
                _ => None,
            }) {
                waiting[leader].remove(0);
                waiting[peer].remove(0);
                measured += 1;
            }
            assert!(waiting.iter().all(Vec::is_empty), "{ranks} ranks: {waiting:?}");
            assert_eq!(measured, [0, 0, 1].get(ranks).copied().unwrap_or(ranks));
        }
    }
}
