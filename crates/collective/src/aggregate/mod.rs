//! One array combined over all workers, in place; the README beside this file has the plan and what it costs.

mod head;
mod meeting;
mod speakers;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, ErrorKind, Job, Vigil};
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, divide, reduce_many_into};

use crate::call::Failure;
use head::{Head, mismatch};
use meeting::{CHUNK, Desk, Neighbour, Neighbours};
use speakers::Speakers;

/// Up to this size everybody reads everybody: a second meeting would cost more than the work it spares.
const SMALL: usize = 8 << 10;

/// What two workers exchange at a time: it stays in the cache, and they need few meetings anyway.
const CHUNK_OF_TWO: usize = 256 << 10;

/// The aggregates of a job: sums over all its workers that go on without their dead where the job does. One runs at a time.
#[derive(Default)]
pub struct Aggregates {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    desk: Option<Desk>,
    places: Option<Places>,
    /// Calls that began.
    calls: u32,
    /// What left this worker out of step with the others.
    astray: Option<Error>,
}

/// Who takes part and where.
struct Places {
    /// This process's worker number.
    worker: u32,
    /// Ranks by worker.
    ranks: Vec<u32>,
    neighbours: Neighbours,
    /// The first worker of this neighbourhood, if there are several.
    speaker: Option<u32>,
    /// The other speakers, if this process is one.
    speakers: Option<Speakers>,
}

/// What a call is about.
struct Call {
    head: Head,
    dtype: DType,
    op: ReduceOp,
    /// Workers that brought their part of the first chunk.
    began: Option<Vec<u32>>,
    by: Deadline,
    started: Instant,
}

impl Aggregates {
    /// Combines `array` over all workers, in place and in order of worker, without servers: the same bits on every worker.
    ///
    /// Workers that bring different sizes, dtypes or operations all get `ContractMismatch`, with their arrays unchanged.
    /// After any other error the array is a mixture; after a timeout or an interrupt this worker is out of step with the
    /// others, and its later calls fail with the same error. Threads of one process take turns.
    pub fn run(&self, job: &Job, array: &mut [u8], dtype: DType, op: ReduceOp, by: Deadline) -> Result<(), Error> {
        let vigil = job.vigil();
        vigil.usable("aggregate")?;
        if !job.role().works() {
            return Err(Error::Configuration { detail: "a dedicated server takes no part in an aggregate; its workers do".into() });
        }
        if !array.len().is_multiple_of(dtype.size()) {
            let detail = format!("{} bytes are no whole number of {}", array.len(), dtype.name());
            return Err(Error::ShapeMismatch { operation: "aggregate".into(), detail });
        }
        if job.world() == 1 {
            return Ok(());
        }
        let mut state = self.lock(by)?;
        let State { desk, places, calls, astray } = &mut *state;
        if let Some(error) = astray {
            return Err(error.clone());
        }
        let (desk, places) = match (desk, places) {
            (Some(desk), Some(places)) => (desk, places),
            (desk, places) => {
                let ranks = job.topology().workers();
                let worker = ranks.iter().position(|rank| *rank == job.rank()).expect("who works is a worker") as u32;
                if ranks.len() == 1 {
                    return Ok(());
                }
                // A claim is for ever, so it is kept when the others cannot be found yet.
                let desk = match desk {
                    Some(desk) => desk,
                    None => desk.insert(Desk::claim(job, worker)?),
                };
                (desk, places.insert(Places::find(job, worker, ranks, by)?))
            }
        };
        *calls = calls.wrapping_add(1);
        let head = Head::new(*calls, dtype, op, array.len());
        let call = Call { head, dtype, op, began: None, by, started: Instant::now() };
        match call.run(array, desk, places) {
            Ok(()) => Ok(()),
            Err(Failure::Agreed(error)) => Err(error),
            Err(Failure::Astray(error)) => {
                *astray = Some(error.clone());
                if error.kind() == ErrorKind::PeerLost {
                    state.places = None; // Who is linked with this process waits for it, perhaps in the middle of a frame, and learns that nothing comes.
                }
                Err(error)
            }
        }
    }

    /// Other threads of this process take turns.
    fn lock(&self, by: Deadline) -> Result<MutexGuard<'_, State>, Error> {
        let started = Instant::now();
        loop {
            match self.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            let operation = || "aggregate, behind another one of this process".to_owned();
            if by.interrupted() {
                return Err(Error::Interrupted { operation: operation(), waited: started.elapsed() });
            }
            if by.expired() {
                let hint = "the other thread's call waits for other workers".into();
                return Err(Error::Timeout {
                    operation: operation(),
                    missing: vec![],
                    detail: String::new(),
                    waited: started.elapsed(),
                    hint,
                });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl std::fmt::Debug for Aggregates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Aggregates")
    }
}

impl Places {
    fn find(job: &Job, worker: u32, ranks: Vec<u32>, by: Deadline) -> Result<Places, Error> {
        let number = |rank: u32| ranks.iter().position(|other| *other == rank).map(|worker| (worker as u32, rank));
        let workers = |rank_list: Vec<u32>| rank_list.into_iter().filter_map(number).collect::<Vec<_>>();
        let all: Vec<Vec<(u32, u32)>> = job.neighbourhoods().into_iter().map(workers).filter(|workers| !workers.is_empty()).collect();
        let mine = all.iter().position(|workers| workers.contains(&(worker, job.rank()))).expect("this worker has a neighbourhood");
        let neighbours = Neighbours::find(job, &all[mine], by)?;
        let speaker = (all.len() > 1).then_some(all[mine][0].0);
        let speakers = match speaker == Some(worker) {
            true => Some(Speakers::find(&all, mine, &job.vigil(), by)?),
            false => None,
        };
        Ok(Places { worker, ranks, neighbours, speaker, speakers })
    }

    /// Bytes of a chunk, the same for all workers.
    fn chunk(&self) -> usize {
        if self.neighbours.all.len() == 2 && self.speaker.is_none() { CHUNK_OF_TWO } else { CHUNK }
    }
}

impl Call {
    fn run(mut self, array: &mut [u8], desk: &mut Desk, places: &mut Places) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            // An empty array has one chunk too: all must agree that it is empty.
            let end = (at + places.chunk()).min(array.len());
            let part = &mut array[at..end];
            match places.speaker {
                None => self.among_neighbours(part, desk, places)?,
                Some(speaker) => self.among_neighbourhoods(part, desk, places, speaker)?,
            }
            at = end;
            if at == array.len() {
                return self.mean(array);
            }
        }
    }

    /// What is left to do for a mean: those who brought a part are known.
    fn mean(&self, array: &mut [u8]) -> Result<(), Failure> {
        let contributors = self.began.as_ref().map_or(0, Vec::len) as u32;
        match self.op {
            ReduceOp::Mean => Ok(divide(self.dtype, array, contributors).map_err(|_| garbled())?),
            _ => Ok(()),
        }
    }

    /// One chunk, when all workers share memory.
    fn among_neighbours(&mut self, part: &mut [u8], desk: &mut Desk, places: &Places) -> Result<(), Failure> {
        let neighbours = &places.neighbours;
        let meeting = desk.publish(self.head, part.len(), |room| copy(room, part), neighbours)?;
        let present = neighbours.wait(self.head, meeting, self.by)?;
        let mut heads = Vec::with_capacity(present.len());
        let mut sources = Vec::with_capacity(present.len());
        for neighbour in &present {
            let (head, bytes) = neighbour.left(meeting)?;
            heads.push((neighbour.worker, head));
            sources.push(bytes);
        }
        self.check(&heads, &places.ranks, &neighbours.vigil)?;
        if part.len() <= SMALL || neighbours.all.len() == 2 {
            return Ok(self.reduce(part, &sources, 0..part.len())?);
        }
        let cuts = cut(part.len(), present.len());
        let mine = present.iter().position(|neighbour| neighbour.worker == places.worker).expect("this worker came");
        let my_cut = cuts[mine].clone();
        let result = desk.publish(self.head, my_cut.len(), |room| self.reduce(room, &sources, my_cut), neighbours)?;
        let delivered = neighbours.wait(self.head, result, self.by)?;
        let mut orphaned = false;
        for (neighbour, cut) in present.iter().zip(cuts) {
            if delivered.iter().any(|other| other.worker == neighbour.worker) {
                copy(&mut part[cut], neighbour.left(result)?.1)?;
            } else {
                orphaned = true;
                self.reduce(&mut part[cut.clone()], &sources, cut)?;
            }
        }
        if orphaned {
            // Somebody may still be reading what was brought to the first meeting; all survivors know, and hold this one.
            let rest = desk.publish(self.head, 0, |_| Ok(()), neighbours)?;
            neighbours.wait(self.head, rest, self.by)?;
        }
        Ok(())
    }

    /// One chunk, when this neighbourhood is one of several.
    fn among_neighbourhoods(&mut self, part: &mut [u8], desk: &mut Desk, places: &mut Places, speaker: u32) -> Result<(), Failure> {
        let neighbours = &places.neighbours;
        let meeting = desk.publish(self.head, part.len(), |room| copy(room, part), neighbours)?;
        let Some(speakers) = &mut places.speakers else {
            let result = desk.publish(self.head, 0, |_| Ok(()), neighbours)?;
            let present = neighbours.wait(self.head, result, self.by)?;
            let Some(speaker) = present.iter().find(|neighbour| neighbour.worker == speaker) else {
                let rank = places.ranks[speaker as usize];
                return Err(neighbours.vigil.explain(&self.head.to_string(), &[rank], self.started, "it spoke for this host").into());
            };
            let (words, bytes) = speaker.left(result)?;
            return self.told(Verdict::from_words(words), bytes, part, &neighbours.vigil);
        };
        let present = neighbours.wait(self.head, meeting, self.by)?;
        let combined = self.combine(part, meeting, &present, speakers, &places.ranks, &neighbours.vigil);
        let (verdict, text) = match &combined {
            Ok(()) => (Some(Verdict::Result), ""),
            Err(Failure::Agreed(Error::ContractMismatch { detail, .. })) => (Some(Verdict::Mismatch), detail.as_str()),
            Err(Failure::Agreed(error)) => (error.who().map(|who| Verdict::LostInTheMiddle(who.rank)), ""),
            Err(Failure::Astray(error @ Error::PeerLost { .. })) => (error.who().map(|who| Verdict::Lost(who.rank)), ""),
            Err(Failure::Astray(_)) => (None, ""), // Time is up for the neighbours too.
        };
        if let Some(verdict) = verdict {
            let bytes: &[u8] = if verdict == Verdict::Result { part } else { text.as_bytes() };
            let result = desk.publish(verdict.to_words(), bytes.len(), |room| copy(room, bytes), neighbours)?;
            if !matches!(verdict, Verdict::Lost(_)) {
                neighbours.wait(self.head, result, self.by)?;
            }
        }
        combined
    }

    /// What a speaker does: hears of all contributions and combines them in order of worker.
    fn combine(
        &mut self,
        part: &mut [u8],
        meeting: meeting::Meeting,
        present: &[&Neighbour],
        speakers: &mut Speakers,
        ranks: &[u32],
        vigil: &Vigil,
    ) -> Result<(), Failure> {
        let mut mine = Vec::with_capacity(present.len());
        for neighbour in present {
            let (head, bytes) = neighbour.left(meeting)?;
            mine.push((neighbour.worker, head, bytes));
        }
        let brought = speakers.exchange(&mine, part.len(), vigil, self.by)?;
        let mut all: Vec<(u32, Head, &[u8])> = mine;
        for others in &brought {
            let mut contributions = others.bytes.chunks_exact(part.len().max(1));
            all.extend(others.heads.iter().map(|(worker, head)| (*worker, *head, contributions.next().unwrap_or_default())));
        }
        all.sort_by_key(|(worker, ..)| *worker);
        let heads: Vec<(u32, Head)> = all.iter().map(|(worker, head, _)| (*worker, *head)).collect();
        self.check(&heads, ranks, vigil)?;
        let sources: Vec<&[u8]> = all.iter().map(|(_, _, bytes)| *bytes).collect();
        Ok(self.reduce(part, &sources, 0..part.len())?)
    }

    /// What a neighbour of the speaker does with its verdict.
    fn told(&self, verdict: Option<Verdict>, bytes: &[u8], part: &mut [u8], vigil: &Vigil) -> Result<(), Failure> {
        let lost = |rank| vigil.explain(&self.head.to_string(), &[rank], self.started, "it ended in the middle");
        match verdict {
            Some(Verdict::Result) => Ok(copy(part, bytes)?),
            Some(Verdict::Mismatch) => Err(Failure::Agreed(self.mismatch(String::from_utf8_lossy(bytes).into_owned()))),
            Some(Verdict::LostInTheMiddle(rank)) => Err(Failure::Agreed(lost(rank))),
            Some(Verdict::Lost(rank)) => Err(Failure::Astray(lost(rank))),
            None => Err(Failure::Astray(garbled())),
        }
    }

    /// Whether all were called for the same, and nobody died since the first chunk.
    fn check(&mut self, heads: &[(u32, Head)], ranks: &[u32], vigil: &Vigil) -> Result<(), Failure> {
        if let Some(detail) = mismatch(heads, ranks) {
            return Err(Failure::Agreed(self.mismatch(detail)));
        }
        let began = self.began.get_or_insert_with(|| heads.iter().map(|(worker, _)| *worker).collect());
        let gone = began.iter().find(|worker| heads.iter().all(|(came, _)| came != *worker));
        match gone {
            None => Ok(()),
            Some(worker) => {
                let rank = ranks[*worker as usize];
                Err(Failure::Agreed(vigil.explain(&self.head.to_string(), &[rank], self.started, "it ended in the middle")))
            }
        }
    }

    fn mismatch(&self, detail: String) -> Error {
        Error::ContractMismatch { operation: "aggregate".into(), detail }
    }

    /// Combines the same piece of all sources.
    fn reduce(&self, out: &mut [u8], sources: &[&[u8]], piece: Range<usize>) -> Result<(), Error> {
        let pieces: Option<Vec<&[u8]>> = sources.iter().map(|source| source.get(piece.clone())).collect();
        let reduced = pieces.and_then(|pieces| reduce_many_into(self.op, self.dtype, out, &pieces).ok());
        reduced.ok_or_else(garbled)
    }
}

/// What a speaker tells its neighbours in the second meeting.
#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Result,
    Mismatch,
    LostInTheMiddle(u32),
    Lost(u32),
}

impl Verdict {
    fn to_words(self) -> Head {
        Head(match self {
            Verdict::Result => [1, 0, 0, 0],
            Verdict::Mismatch => [2, 0, 0, 0],
            Verdict::LostInTheMiddle(rank) => [3, rank, 0, 0],
            Verdict::Lost(rank) => [4, rank, 0, 0],
        })
    }

    fn from_words(words: Head) -> Option<Verdict> {
        Some(match words.0 {
            [1, ..] => Verdict::Result,
            [2, ..] => Verdict::Mismatch,
            [3, rank, ..] => Verdict::LostInTheMiddle(rank),
            [4, rank, ..] => Verdict::Lost(rank),
            _ => return None,
        })
    }
}

/// Copies what must be just as long.
fn copy(to: &mut [u8], from: &[u8]) -> Result<(), Error> {
    if to.len() != from.len() {
        return Err(garbled());
    }
    to.copy_from_slice(from);
    Ok(())
}

fn garbled() -> Error {
    Error::System {
        operation: "aggregate".into(),
        detail: "the parts of the workers do not fit together\nhint: do all processes run the same version of Syncline?".into(),
    }
}

/// Cuts `bytes` into `parts` ranges of about one size, each beginning on a cache line.
fn cut(bytes: usize, parts: usize) -> Vec<Range<usize>> {
    let size = bytes.div_ceil(parts).next_multiple_of(64);
    (0..parts).map(|part| (part * size).min(bytes)..((part + 1) * size).min(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_everything_once_on_whole_lines() {
        for (bytes, parts) in [(0, 3), (8, 4), (64, 2), (1000, 3), (CHUNK, 7), (CHUNK - 8, 256)] {
            let cuts = cut(bytes, parts);
            assert_eq!((cuts.len(), cuts[0].start, cuts[parts - 1].end), (parts, 0, bytes));
            assert!(cuts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(cuts.iter().all(|cut| cut.start % 64 == 0 || cut.start == bytes));
        }
    }
}
