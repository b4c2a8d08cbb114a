//! Gathers and scatters over links: bytes that nobody computes with, of any lengths.

use super::Mesh;
use super::roll::{Bring, Refusal, Roll};
use super::wire::room;
use crate::call::{Call, Failure};
use crate::plan::cost::INLINE;
use crate::plan::doubling;

impl Mesh {
    /// Collects everybody's bytes, by position.
    pub(crate) fn all_gather(&mut self, mine: &[u8], call: &Call<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        let roll = self.roll(call, Bring::bytes(mine))?;
        match roll.complete() {
            Some(all) => Ok(all.into_iter().map(<[u8]>::to_vec).collect()),
            None => self.doubled(mine, &announced(&roll), call),
        }
    }

    /// Collects everybody's bytes at `root`, by position; none elsewhere. What did not come with the roll call goes straight there.
    pub(crate) fn gather(&mut self, mine: &[u8], root: usize, call: &Call<'_>) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let roll = self.roll(call, Bring::bytes(mine))?;
        let me = self.position();
        let late = |position: usize| position != root && roll.entries[position].inline.is_none();
        if me != root {
            if late(me) {
                self.open([root], call)?;
                self.tell(root, &[mine], call)?;
            }
            return Ok(None);
        }
        self.open((0..self.ranks()).filter(|position| late(*position)), call)?;
        let mut all = Vec::with_capacity(self.ranks());
        for (position, entry) in roll.entries.iter().enumerate() {
            all.push(match &entry.inline {
                _ if position == me => mine.to_vec(),
                Some(bytes) => bytes.clone(),
                None => self.exchange(call, None, None, position, |incoming, talk| {
                    let mut bytes = room(entry.announced)?;
                    incoming.head_of(talk, entry.announced)?;
                    incoming.fill(talk, &mut bytes)?;
                    Ok(bytes)
                })?,
            });
        }
        Ok(Some(all))
    }

    /// Gives each member its part of what `root` brings.
    pub(crate) fn scatter(&mut self, parts: Option<&[&[u8]]>, root: usize, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
        let (me, ranks) = (self.position(), self.ranks());
        let packed: Option<Vec<u8>> = parts.filter(|_| me == root).and_then(pack);
        let mut bring = match &packed {
            Some(packed) => Bring::bytes(packed),
            None if me == root => Bring { announced: 0, inline: None, refusal: None },
            None => Bring::nothing(),
        };
        bring.refusal = match parts {
            Some(parts) if me == root && parts.len() != ranks => Some(format!("{} parts for {ranks} ranks", parts.len())),
            Some(_) if me != root => Some(format!("only position {root} brings parts")),
            None if me == root => Some("the root brings no parts".into()),
            _ => None,
        }
        .map(Refusal::impossible);
        let roll = self.roll(call, bring)?;
        if let Some(packed) = &roll.entries[root].inline {
            return unpack(packed, ranks).and_then(|mut parts| parts.get_mut(me).map(std::mem::take)).ok_or_else(|| {
                Failure::Agreed(syncline_cluster::Error::System { operation: call.operation(), detail: "the parts cannot be read".into() })
            });
        }
        if let Some(parts) = parts.filter(|_| me == root) {
            self.open((0..ranks).filter(|position| *position != root), call)?;
            for (position, part) in parts.iter().enumerate().filter(|(position, _)| *position != root) {
                self.tell(position, &[part], call)?;
            }
            return Ok(parts[root].to_vec());
        }
        self.open([root], call)?;
        self.exchange(call, None, None, root, |incoming, talk| {
            incoming.head(talk)?;
            incoming.body(talk)
        })
    }

    /// Sends part p to position p, and returns what each position sent here.
    pub(crate) fn all_to_all(&mut self, parts: &[&[u8]], call: &Call<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        let (me, ranks) = (self.position(), self.ranks());
        let mut bring = Bring::nothing();
        if parts.len() != ranks {
            bring.refusal = Some(Refusal::impossible(format!("{} parts for {ranks} ranks", parts.len())));
        }
        self.roll(call, bring)?;
        self.open((0..ranks).filter(|position| *position != me), call)?;
        let mut all = vec![Vec::new(); ranks];
        all[me] = parts[me].to_vec();
        for away in 1..ranks {
            let (to, from) = ((me + away) % ranks, (me + ranks - away) % ranks);
            all[from] = self.exchange(call, None, Some((to, &[parts[to]])), from, |incoming, talk| {
                incoming.head(talk)?;
                incoming.body(talk)
            })?;
        }
        Ok(all)
    }

    /// Everybody's bytes, of lengths that all know, by the doubling plan.
    pub(super) fn doubled(&mut self, mine: &[u8], lens: &[u64], call: &Call<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        let (me, ranks) = (self.position(), self.ranks());
        let mut all: Vec<Vec<u8>> = vec![Vec::new(); ranks];
        all[me] = mine.to_vec();
        for round in doubling::rounds(me, ranks) {
            self.open([round.to, round.from], call)?;
            let told: Vec<Vec<u8>> = (me..me + round.count).map(|whose| std::mem::take(&mut all[whose % ranks])).collect();
            let payload: Vec<&[u8]> = told.iter().map(Vec::as_slice).collect();
            let whose = || (round.from..round.from + round.count).map(|whose| whose % ranks);
            let heard = self.exchange(call, None, Some((round.to, &payload)), round.from, |incoming, talk| {
                incoming.head_of(talk, whose().map(|whose| lens[whose]).sum())?;
                let mut heard = Vec::with_capacity(round.count);
                for whose in whose() {
                    let mut bytes = room(lens[whose])?;
                    incoming.fill(talk, &mut bytes)?;
                    heard.push(bytes);
                }
                Ok(heard)
            })?;
            (me..me + round.count).zip(told).for_each(|(whose, bytes)| all[whose % ranks] = bytes);
            whose().zip(heard).for_each(|(whose, bytes)| all[whose] = bytes);
        }
        Ok(all)
    }

    /// Sends one frame to an open link.
    pub(super) fn tell(&mut self, to: usize, payload: &[&[u8]], call: &Call<'_>) -> Result<(), Failure> {
        self.tell_with(to, &[], payload, call)
    }
}

fn announced(roll: &Roll) -> Vec<u64> {
    roll.entries.iter().map(|entry| entry.announced).collect()
}

/// Small parts in one piece, each behind its length; none if they are too much to come along.
fn pack(parts: &[&[u8]]) -> Option<Vec<u8>> {
    let total: usize = parts.iter().map(|part| 8 + part.len()).sum();
    let all = parts.iter().flat_map(|part| (part.len() as u64).to_le_bytes().into_iter().chain(part.iter().copied()));
    (total <= INLINE).then(|| all.collect())
}

fn unpack(mut packed: &[u8], ranks: usize) -> Option<Vec<Vec<u8>>> {
    let mut parts = Vec::with_capacity(ranks);
    for _ in 0..ranks {
        let (len, rest) = packed.split_first_chunk::<8>()?;
        let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        parts.push(part.to_vec());
        packed = rest;
    }
    packed.is_empty().then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_parts_come_out_again_and_cut_ones_do_not() {
        let packed = pack(&[b"ab", b"", b"c"]).expect("few bytes");
        assert_eq!(unpack(&packed, 3), Some(vec![b"ab".to_vec(), vec![], b"c".to_vec()]));
        assert_eq!(unpack(&packed[..packed.len() - 1], 3), None);
        assert_eq!(unpack(&packed, 2), None);
        assert_eq!(pack(&[&[0; INLINE]]), None);
    }
}
