//! The roll call: everybody learns what everybody is about to do, in ⌈log₂ n⌉ small frames.
//!
//! ```text
//!  frame:   calls n · (number, fingerprint, words)      each call once, however many ranks make it
//!           (position, call, flags, length, bytes)      one entry per rank, the doubling plan's share of them
//! ```
//! Who differs is seen by all, so all fail alike and the next call finds them in step. Up to [`INLINE`] bytes of each rank's
//! array travel with its entry; when all do, the roll call is the whole collective.

use syncline_cluster::Error;
use syncline_wire::Fingerprint;

use super::Mesh;
use super::wire::Trouble;
use crate::call::{Call, Failure};
use crate::plan::cost::INLINE;
use crate::plan::doubling;
use crate::setback::Setback;

/// What this rank brings to a roll call.
pub(super) struct Bring<'a> {
    /// Bytes that will follow if they do not come along.
    pub(super) announced: u64,
    /// What comes along.
    pub(super) inline: Option<&'a [u8]>,
    /// Why this rank cannot do what it was called for; then nobody does it.
    pub(super) refusal: Option<Refusal>,
}

impl<'a> Bring<'a> {
    pub(super) fn nothing() -> Bring<'a> {
        Bring { announced: 0, inline: Some(&[]), refusal: None }
    }

    /// These bytes, along with the roll call if they are few.
    pub(super) fn bytes(bytes: &'a [u8]) -> Bring<'a> {
        Bring { announced: bytes.len() as u64, inline: Some(bytes).filter(|bytes| bytes.len() <= INLINE), refusal: None }
    }

    /// These bytes, announced only.
    pub(super) fn later(bytes: &'a [u8]) -> Bring<'a> {
        Bring { announced: bytes.len() as u64, inline: Some(bytes).filter(|bytes| bytes.is_empty()), refusal: None }
    }
}

/// What a roll call found.
#[derive(Debug)]
pub(super) struct Roll {
    /// By position.
    pub(super) entries: Vec<Entry>,
    /// How many contribute.
    pub(super) contributors: u32,
}

impl Roll {
    /// Everybody's bytes, if all of them came along.
    pub(super) fn complete(&self) -> Option<Vec<&[u8]>> {
        self.entries.iter().map(|entry| entry.inline.as_deref()).collect()
    }
}

/// One rank's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    call: usize,
    contributes: bool,
    pub(super) announced: u64,
    pub(super) inline: Option<Vec<u8>>,
    refusal: Option<Refusal>,
}

/// Why nobody does what was called for, in the words that all ranks use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Calls differ, as opposed to one of them being impossible.
    differ: bool,
    operation: String,
    detail: String,
}

impl Refusal {
    /// Something is wrong with this rank's call.
    pub(super) fn impossible(detail: String) -> Refusal {
        Refusal { differ: false, operation: String::new(), detail }
    }

    /// What some ranks agreed on, for the others.
    pub(crate) fn of(error: &Error) -> Refusal {
        match error {
            Error::ContractMismatch { operation, detail } => Refusal { differ: true, operation: operation.clone(), detail: detail.clone() },
            Error::ShapeMismatch { operation, detail } => Refusal { differ: false, operation: operation.clone(), detail: detail.clone() },
            other => Refusal::impossible(other.to_string()),
        }
    }

    /// As an error of `operation`, unless it names one itself.
    pub(crate) fn into_error(self, operation: &str) -> Error {
        let operation = if self.operation.is_empty() { operation.to_owned() } else { self.operation };
        match self.differ {
            true => Error::ContractMismatch { operation, detail: self.detail },
            false => Error::ShapeMismatch { operation, detail: self.detail },
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.differ)];
        put(&mut out, self.operation.as_bytes());
        out.extend_from_slice(self.detail.as_bytes());
        out
    }

    /// Whatever came; what cannot be read is told as it is.
    pub(crate) fn decode(bytes: &[u8]) -> Refusal {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut rest = Reader(bytes);
        let differ = rest.take(1).is_some_and(|flag| flag == [1]);
        let operation = text(rest.block().unwrap_or_default());
        Refusal { differ, operation, detail: text(rest.0) }
    }
}

/// A call as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Called {
    number: u64,
    fingerprint: Fingerprint,
    words: String,
}

/// What is known so far.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Book {
    calls: Vec<Called>,
    entries: Vec<Option<Entry>>,
}

impl Mesh {
    /// Calls the roll for whole hosts: each brings its number of contributors, or why its members do not agree. Returns the sum.
    ///
    /// A host whose members did not all come says who is `missing`: then all hosts fail because of these.
    pub(crate) fn agree(&mut self, call: &Call<'_>, contributors: u32, refusal: Option<Refusal>, missing: &[u32]) -> Result<u32, Failure> {
        let said: Vec<u8> = [contributors].iter().chain(missing).flat_map(|number| number.to_le_bytes()).collect();
        let roll = self.roll(call, Bring { refusal, ..Bring::bytes(&said[..said.len().min(INLINE & !3)]) })?;
        let numbers = |entry: &Entry| -> Vec<u32> {
            entry.inline.as_deref().unwrap_or_default().as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number)).collect()
        };
        let all: Vec<Vec<u32>> = roll.entries.iter().map(numbers).collect();
        let missing: Vec<u32> = all.iter().flat_map(|said| said.iter().skip(1).copied()).collect();
        if !missing.is_empty() {
            return Err(Failure::Astray(Setback::late(missing).into_error(&self.company.vigil, call)));
        }
        Ok(all.iter().filter_map(|said| said.first()).sum())
    }

    /// Calls the roll, with nothing to bring. Returns how many contribute.
    pub(crate) fn roll_call(&mut self, call: &Call<'_>) -> Result<u32, Failure> {
        Ok(self.roll(call, Bring::nothing())?.contributors)
    }

    /// Calls the roll. An error is the same on every rank.
    pub(super) fn roll(&mut self, call: &Call<'_>, bring: Bring<'_>) -> Result<Roll, Failure> {
        self.company.vigil.usable(call.what.name())?;
        self.calls += 1;
        let (me, ranks) = (self.position(), self.ranks());
        let mut book = Book::new(ranks, me, call, bring);
        let rounds: Vec<doubling::Round> = doubling::rounds(me, ranks).collect();
        self.open(rounds.iter().flat_map(|round| [round.to, round.from]), call)?;
        for round in rounds {
            let said = book.encode(me, round.count);
            let heard = self.swap(call, Fingerprint::NONE, round.to, &said, round.from)?;
            let learned = book.learn(&heard, round.from, round.count);
            learned
                .ok_or(Trouble::Garbled(round.from, "a roll call that cannot be read".into()))
                .map_err(|trouble| self.failed(call, trouble))?;
        }
        book.verdict(self.company.group.ranks()).map_err(Failure::Agreed)
    }
}

impl Book {
    fn new(ranks: usize, me: usize, call: &Call<'_>, bring: Bring<'_>) -> Book {
        let called = Called { number: call.number, fingerprint: call.fingerprint(), words: call.words() };
        let inline = bring.inline.map(<[u8]>::to_vec);
        let entry = Entry { call: 0, contributes: call.contributes, announced: bring.announced, inline, refusal: bring.refusal };
        let mut entries = vec![None; ranks];
        entries[me] = Some(entry);
        Book { calls: vec![called], entries }
    }

    /// The entries of `count` positions from `first` on.
    fn encode(&self, first: usize, count: usize) -> Vec<u8> {
        let told: Vec<(usize, &Entry)> = (first..first + count)
            .map(|position| position % self.entries.len())
            .map(|position| (position, self.entries[position].as_ref().expect("the plan sends what came before")))
            .collect();
        let mut out = Vec::with_capacity(64 + told.iter().map(|(_, entry)| 32 + entry.inline.as_ref().map_or(0, Vec::len)).sum::<usize>());
        out.extend((self.calls.len() as u32).to_le_bytes());
        for call in &self.calls {
            out.extend(call.number.to_le_bytes());
            out.extend(call.fingerprint.0);
            put(&mut out, call.words.as_bytes());
        }
        for (position, entry) in told {
            out.extend((position as u32).to_le_bytes());
            out.extend((entry.call as u32).to_le_bytes());
            let flags = u8::from(entry.contributes) | u8::from(entry.inline.is_some()) << 1 | u8::from(entry.refusal.is_some()) << 2;
            out.push(flags);
            out.extend(entry.announced.to_le_bytes());
            entry.inline.iter().for_each(|bytes| put(&mut out, bytes));
            entry.refusal.iter().for_each(|refusal| put(&mut out, &refusal.encode()));
        }
        out
    }

    /// Takes in what `first` said about `count` positions; none if it makes no sense.
    fn learn(&mut self, said: &[u8], first: usize, count: usize) -> Option<()> {
        let mut rest = Reader(said);
        let calls = rest.number4()? as usize;
        if calls > self.entries.len() {
            return None;
        }
        let mut known = Vec::with_capacity(calls);
        for _ in 0..calls {
            let number = rest.number8()?;
            let fingerprint = Fingerprint(*rest.take(16)?.first_chunk()?);
            let words = String::from_utf8_lossy(rest.block()?).into_owned();
            let same = self.calls.iter().position(|call| call.number == number && call.fingerprint == fingerprint);
            known.push(same.unwrap_or_else(|| {
                self.calls.push(Called { number, fingerprint, words });
                self.calls.len() - 1
            }));
        }
        let ranks = self.entries.len();
        for position in (first..first + count).map(|position| position % ranks) {
            let named = rest.number4()? as usize;
            let call = *known.get(rest.number4()? as usize)?;
            let flags = *rest.take(1)?.first()?;
            let announced = rest.number8()?;
            let inline = if flags & 2 != 0 { Some(rest.block()?.to_vec()) } else { None };
            let refusal = if flags & 4 != 0 { Some(Refusal::decode(rest.block()?)) } else { None };
            let fits = inline.as_ref().is_none_or(|bytes| bytes.len() as u64 == announced && bytes.len() <= INLINE);
            if named != position || self.entries[position].is_some() || !fits || flags & !7 != 0 {
                return None;
            }
            self.entries[position] = Some(Entry { call, contributes: flags & 1 != 0, announced, inline, refusal });
        }
        rest.0.is_empty().then_some(())
    }

    /// Whether all mean the same.
    fn verdict(self, ranks: &[u32]) -> Result<Roll, Error> {
        let entries: Vec<Entry> = self.entries.into_iter().map(|entry| entry.expect("the plan brings all entries")).collect();
        let words = |position: usize| (ranks[position], self.calls[entries[position].call].words.as_str());
        if let Some(other) = entries.iter().position(|entry| entry.call != entries[0].call) {
            return Err(Call::mismatch(words(0), words(other)));
        }
        if let Some((position, refusal)) = entries.iter().enumerate().find_map(|(at, entry)| entry.refusal.clone().map(|why| (at, why))) {
            if refusal.operation.is_empty() {
                let operation = words(position).1.split(',').next().unwrap_or_default().to_owned();
                let detail = format!("rank {}: {}", ranks[position], refusal.detail);
                return Err(Refusal { operation, detail, ..refusal }.into_error(""));
            }
            return Err(refusal.into_error(""));
        }
        let contributors = entries.iter().filter(|entry| entry.contributes).count() as u32;
        Ok(Roll { entries, contributors })
    }
}

fn put(out: &mut Vec<u8>, block: &[u8]) {
    out.extend((block.len() as u32).to_le_bytes());
    out.extend_from_slice(block);
}

/// Takes checked parts from the front of what came.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn number4(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn number8(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let len = self.number4()? as usize;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use syncline_cluster::Deadline;

    use super::*;
    use crate::call::What;

    fn book(me: usize, bytes: &[u8], refusal: Option<Refusal>) -> Book {
        let what = What::BroadcastMessage { root: 0 };
        let call = Call { number: 3, what, site: "a.py:1", by: Deadline::never(), started: Instant::now(), contributes: me != 1 };
        Book::new(2, me, &call, Bring { refusal, ..Bring::bytes(bytes) })
    }

    #[test]
    fn what_one_rank_says_the_other_learns() {
        let mut mine = book(0, b"abc", None);
        mine.learn(&book(1, b"de", None).encode(1, 1), 1, 1).expect("sound");
        let roll = mine.verdict(&[0, 1]).expect("the same call");
        assert_eq!((roll.complete(), roll.contributors), (Some(vec![&b"abc"[..], b"de"]), 1));
    }

    #[test]
    fn a_refusal_reads_the_same_on_both_ranks() {
        let refused = || book(1, b"", Some(Refusal::impossible("no parts".into())));
        let (mut one, mut other) = (book(0, b"", None), refused());
        one.learn(&refused().encode(1, 1), 1, 1).expect("sound");
        other.learn(&book(0, b"", None).encode(0, 1), 0, 1).expect("sound");
        let words = |book: Book| book.verdict(&[0, 1]).expect_err("refused").to_string();
        assert_eq!(words(one), "broadcast 3: rank 1: no parts");
        assert_eq!(words(other), "broadcast 3: rank 1: no parts");
    }

    #[test]
    fn what_is_cut_short_damaged_or_about_somebody_else_is_not_believed() {
        let sound = book(1, b"de", None).encode(1, 1);
        for end in 0..sound.len() {
            assert_eq!(book(0, b"abc", None).learn(&sound[..end], 1, 1), None, "cut at {end}");
        }
        assert_eq!(book(0, b"abc", None).learn(&[&sound[..], &[0]].concat(), 1, 1), None);
        assert_eq!(book(1, b"abc", None).learn(&sound, 1, 1), None, "it is about the reader");
        for at in 0..sound.len() {
            for bit in 0..8 {
                let mut damaged = sound.clone();
                damaged[at] ^= 1 << bit;
                let _ = book(0, b"abc", None).learn(&damaged, 1, 1); // Whatever it says, nothing panics.
            }
        }
    }
}
