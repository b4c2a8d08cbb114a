//! Runs a plan on an array: sends and receives at the same time, segment by segment, without a copy.
//!
//! The array is cut into the plan's pieces and these into segments. Each direction of each link has a worker, which does its
//! transfers in the order of the plan. A segment belongs to one worker at a time and is passed on when a transfer of it is done:
//! ```text
//!  from 0: fold ──segment──▶ to 2: send ──▶ from 2: take ──▶ to 0: send        position 1 of a chain of 3
//! ```
//! So everything that the plan allows overlaps, and `&mut [u8]` proves that no two workers touch the same bytes. Small arrays are
//! done by the caller's thread alone, step by step: what it sends fits into the links' buffers.
//!
//! Sums of half types travel as f32 while they are not complete, so that they are rounded once, whoever folds them.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use syncline_cluster::Deadline;
use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, cast, reduce_into};
use syncline_transport::Severer;

use super::Mesh;
use super::wire::{Incoming, NAP, Outgoing, SENT_AT_ONCE, Talk, Trouble};
use crate::call::{Call, Failure};
use crate::plan::cost::SEGMENT;
use crate::plan::{Deed, Load, Plan, Then};

/// How numbers are put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
}

impl Numbers {
    /// Bytes that nobody computes with.
    pub(super) const BYTES: Numbers = Numbers { dtype: DType::U8, op: ReduceOp::Max };

    pub(super) fn is_half(self) -> bool {
        matches!(self.dtype, DType::F16 | DType::BF16)
    }

    /// Whether sums of `brings` of `ranks` contributions travel in f32.
    pub(super) fn travels_wide(self, brings: usize, ranks: usize) -> bool {
        self.is_half() && 1 < brings && brings < ranks
    }
}

/// Part `index` of `count` elements cut into `parts`, as a range of bytes; the first parts take the remainder.
pub(super) fn part(count: usize, parts: usize, index: usize, size: usize) -> Range<usize> {
    let begin = |index: usize| (count / parts * index + index.min(count % parts)) * size;
    begin(index)..begin(index + 1)
}

/// A segment on its way through the workers.
struct Parcel<'a> {
    /// Its number among all segments.
    unit: usize,
    bytes: &'a mut [u8],
    /// The sum so far, of a half type that is not complete.
    wide: Option<Vec<u8>>,
    /// How many contributions are in it.
    count: usize,
    /// How many transfers of it are done.
    stage: usize,
}

/// One transfer of the plan as this position does it.
struct Errand {
    units: Range<usize>,
    brings: usize,
    /// None sends.
    then: Option<Then>,
    peer: usize,
}

/// What all workers know.
struct Work<'a> {
    talk: Talk<'a>,
    numbers: Numbers,
    ranks: usize,
    /// Bytes of each segment.
    sizes: Vec<usize>,
}

impl Mesh {
    /// Does this position's part of `plan` on `array`, whose length and type all ranks share. The plan holds nothing aside.
    pub(super) fn run(&mut self, plan: &Plan, array: &mut [u8], numbers: Numbers, call: &Call<'_>) -> Result<(), Failure> {
        let me = self.position();
        let (parcels, pieces) = cut(array, plan.pieces, numbers.dtype.size());
        let errands: Vec<Vec<Errand>> = plan.steps[me].iter().map(|step| step.iter().map(|deed| errand(deed, &pieces)).collect()).collect();
        self.open(errands.iter().flatten().map(|errand| errand.peer), call)?;
        let stop = AtomicBool::new(false);
        let fingerprint = call.fingerprint();
        let talk = Talk { company: &self.company, sequence: self.calls, fingerprint, by: call.by, stop: &stop };
        let sizes = parcels.iter().map(|parcel| parcel.bytes.len()).collect();
        let work = Work { talk, numbers, ranks: plan.ranks, sizes };
        let total: usize = work.sizes.iter().sum();
        let result = if total <= SENT_AT_ONCE {
            work.alone(&errands, parcels, &mut self.senders, &mut self.receivers)
        } else {
            work.together(&errands, parcels, &mut self.senders, &mut self.receivers, &self.severers)
        };
        result.map_err(|trouble| self.failed(call, trouble))
    }
}

/// Cuts an array into segments, and says which segments are in which piece.
fn cut(array: &mut [u8], pieces: usize, size: usize) -> (Vec<Parcel<'_>>, Vec<Range<usize>>) {
    let count = array.len() / size;
    let (mut parcels, mut ranges) = (Vec::new(), Vec::with_capacity(pieces));
    let mut rest = array;
    for piece in 0..pieces {
        let first = parcels.len();
        let (mut mine, others) = rest.split_at_mut(part(count, pieces, piece, size).len());
        rest = others;
        while !mine.is_empty() {
            let (bytes, more) = mine.split_at_mut(mine.len().min(SEGMENT));
            mine = more;
            parcels.push(Parcel { unit: parcels.len(), bytes, wide: None, count: 1, stage: 0 });
        }
        ranges.push(first..parcels.len());
    }
    (parcels, ranges)
}

fn errand(deed: &Deed, pieces: &[Range<usize>]) -> Errand {
    let (peer, load, then) = match deed {
        Deed::Send { to, load } => (*to, load, None),
        Deed::Receive { from, load, then } => (*from, load, Some(*then)),
        Deed::Fold(_) => unreachable!("this plan holds nothing aside"),
    };
    let Load::Pieces { pieces: moved, brings } = load else { unreachable!("this plan holds nothing aside") };
    let units = if moved.is_empty() { 0..0 } else { pieces[moved.start].start..pieces[moved.end - 1].end };
    Errand { units, brings: *brings, then, peer }
}

/// What a worker owns.
enum Direction<'a> {
    Out(&'a mut Outgoing),
    In(&'a mut Incoming),
}

impl Work<'_> {
    /// All by the caller's thread: in each step it sends, then it receives.
    fn alone(
        &self,
        steps: &[Vec<Errand>],
        mut parcels: Vec<Parcel<'_>>,
        senders: &mut [Option<Outgoing>],
        receivers: &mut [Option<Incoming>],
    ) -> Result<(), Trouble> {
        let mut scratch = Vec::new();
        for step in steps {
            for errand in step.iter().filter(|errand| errand.then.is_none()) {
                let outgoing = senders[errand.peer].as_mut().expect("opened before");
                errand.units.clone().try_for_each(|unit| self.send(errand, unit, &parcels[unit], outgoing))?;
            }
            for errand in step.iter().filter(|errand| errand.then.is_some()) {
                let incoming = receivers[errand.peer].as_mut().expect("opened before");
                errand.units.clone().try_for_each(|unit| self.receive(errand, unit, &mut parcels[unit], incoming, &mut scratch))?;
            }
        }
        Ok(())
    }

    /// A worker per direction and link; the caller's thread is one of them.
    fn together(
        &self,
        steps: &[Vec<Errand>],
        parcels: Vec<Parcel<'_>>,
        senders: &mut [Option<Outgoing>],
        receivers: &mut [Option<Incoming>],
        severers: &[Severer],
    ) -> Result<(), Trouble> {
        let all: Vec<&Errand> = steps.iter().flatten().filter(|errand| !errand.units.is_empty()).collect();
        // Which worker does which errand, in order, and where each segment goes next.
        let ways = || senders.len();
        let way = |errand: &Errand| errand.peer + if errand.then.is_some() { ways() } else { 0 };
        let mut routes: Vec<Vec<usize>> = vec![Vec::new(); parcels.len()];
        for errand in &all {
            errand.units.clone().for_each(|unit| routes[unit].push(way(errand)));
        }
        let mut queues: Vec<Option<Vec<&Errand>>> = (0..2 * ways()).map(|_| None).collect();
        for errand in &all {
            queues[way(errand)].get_or_insert_default().push(errand);
        }
        let (inboxes, mut ends): (Vec<Sender<Parcel<'_>>>, Vec<Option<Receiver<Parcel<'_>>>>) = queues
            .iter()
            .map(|_| {
                let (send, receive) = channel();
                (send, Some(receive))
            })
            .unzip();
        for parcel in parcels {
            if let Some(first) = routes[parcel.unit].first() {
                let _ = inboxes[*first].send(parcel); // its worker has not begun
            }
        }
        let outs = senders.iter_mut().map(|sender| sender.as_mut().map(Direction::Out));
        let ins = receivers.iter_mut().map(|receiver| receiver.as_mut().map(Direction::In));
        let mut workers = Vec::new();
        for (way, direction) in outs.chain(ins).enumerate() {
            if let Some((errands, direction)) = queues[way].take().zip(direction) {
                let inbox = ends[way].take().expect("one worker per way");
                workers.push(Worker { direction, errands, inbox, inboxes: inboxes.clone(), routes: &routes });
            }
        }
        drop(inboxes);
        let Some(mine) = workers.pop() else { return Ok(()) };
        // Only the caller's thread can hear an interrupt; it wakes the others by cutting their links.
        let unheard = Talk { by: self.talk.by.instant().map_or(Deadline::never(), Deadline::at), ..self.talk };
        // The first cause counts, not what it did to the others.
        let cause: Mutex<Option<Trouble>> = Mutex::default();
        let fail = |trouble: Trouble| {
            let mut first = cause.lock().expect("no panic while held");
            if first.is_none() {
                let cut = !trouble.is_late();
                *first = Some(trouble);
                self.talk.stop.store(true, Release);
                if cut {
                    severers.iter().for_each(|severer| severer.sever());
                }
            }
        };
        std::thread::scope(|scope| {
            let (done, finished) = channel::<()>();
            for worker in workers {
                let (done, fail, unheard) = (done.clone(), &fail, &unheard);
                scope.spawn(move || {
                    let _until_it_ends = done;
                    worker.go(self, unheard).unwrap_or_else(fail);
                });
            }
            drop(done);
            mine.go(self, &self.talk).unwrap_or_else(&fail);
            while finished.recv_timeout(NAP) == Err(RecvTimeoutError::Timeout) {
                if self.talk.by.interrupted() {
                    fail(Trouble::Interrupted);
                }
            }
        });
        cause.into_inner().expect("no panic while held").map_or(Ok(()), Err)
    }

    /// Bytes of a segment as it travels in this errand.
    fn travelling(&self, errand: &Errand, unit: usize) -> usize {
        let wide = self.numbers.travels_wide(errand.brings, self.ranks);
        self.sizes[unit] * if wide { size_of::<f32>() / self.numbers.dtype.size() } else { 1 }
    }

    fn total(&self, errand: &Errand) -> u64 {
        errand.units.clone().map(|unit| self.travelling(errand, unit) as u64).sum()
    }

    /// One segment of an errand; where the transport streams, an errand is one frame, otherwise a segment is one.
    fn send(&self, errand: &Errand, unit: usize, parcel: &Parcel<'_>, outgoing: &mut Outgoing) -> Result<(), Trouble> {
        let bytes: &[u8] = parcel.wide.as_deref().unwrap_or(parcel.bytes);
        debug_assert_eq!(bytes.len(), self.travelling(errand, unit));
        match (outgoing.streams, unit == errand.units.start) {
            (false, _) => outgoing.send(&self.talk, &[], &[bytes]),
            (true, true) => outgoing.begin(&self.talk, self.total(errand), bytes),
            (true, false) => outgoing.more(&self.talk, bytes),
        }
    }

    fn receive(
        &self,
        errand: &Errand,
        unit: usize,
        parcel: &mut Parcel<'_>,
        incoming: &mut Incoming,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Trouble> {
        let len = self.travelling(errand, unit);
        match (incoming.streams, unit == errand.units.start) {
            (false, _) => incoming.head_of(&self.talk, len as u64)?,
            (true, true) => incoming.head_of(&self.talk, self.total(errand))?,
            (true, false) => {}
        }
        let then = errand.then.expect("who receives knows why");
        if then == Then::Replace {
            parcel.wide = None;
            parcel.count = errand.brings;
            debug_assert_eq!(len, parcel.bytes.len(), "only complete sums replace");
            return incoming.fill(&self.talk, parcel.bytes);
        }
        if scratch.len() < len {
            scratch.resize(len, 0);
        }
        incoming.fill(&self.talk, &mut scratch[..len])?;
        self.fold(errand, parcel, &mut scratch[..len]);
        Ok(())
    }

    /// Folds what came onto a segment. All built-in operations commute to the last bit, so the side does not matter here.
    fn fold(&self, errand: &Errand, parcel: &mut Parcel<'_>, came: &mut [u8]) {
        let Numbers { dtype, op } = self.numbers;
        parcel.count += errand.brings;
        if !self.numbers.is_half() || self.ranks == 2 {
            reduce_into(op, dtype, parcel.bytes, came).expect("whole numbers of one length");
            return;
        }
        let widened = |narrow: &[u8]| {
            let mut wide = vec![0; narrow.len() / dtype.size() * size_of::<f32>()];
            cast(dtype, narrow, DType::F32, &mut wide).expect("room for as many");
            wide
        };
        let mut sum = parcel.wide.take().unwrap_or_else(|| widened(parcel.bytes));
        if self.numbers.travels_wide(errand.brings, self.ranks) {
            reduce_into(op, DType::F32, &mut sum, came).expect("whole numbers of one length");
        } else {
            reduce_into(op, DType::F32, &mut sum, &widened(came)).expect("whole numbers of one length");
        }
        if parcel.count == self.ranks {
            cast(DType::F32, &sum, dtype, parcel.bytes).expect("room for as many");
        } else {
            parcel.wide = Some(sum);
        }
    }
}

struct Worker<'w, 'a> {
    direction: Direction<'w>,
    errands: Vec<&'w Errand>,
    inbox: Receiver<Parcel<'a>>,
    inboxes: Vec<Sender<Parcel<'a>>>,
    routes: &'w [Vec<usize>],
}

impl<'a> Worker<'_, 'a> {
    fn go(mut self, work: &Work<'_>, talk: &Talk<'_>) -> Result<(), Trouble> {
        let work = Work { talk: *talk, numbers: work.numbers, ranks: work.ranks, sizes: work.sizes.clone() };
        let (mut early, mut scratch) = (Vec::new(), Vec::new());
        for errand in std::mem::take(&mut self.errands) {
            for unit in errand.units.clone() {
                let mut parcel = self.await_parcel(unit, &mut early, talk)?;
                match &mut self.direction {
                    Direction::Out(outgoing) => work.send(errand, unit, &parcel, outgoing)?,
                    Direction::In(incoming) => work.receive(errand, unit, &mut parcel, incoming, &mut scratch)?,
                }
                parcel.stage += 1;
                if let Some(next) = self.routes[unit].get(parcel.stage) {
                    let _ = self.inboxes[*next].send(parcel); // a worker that is gone has failed and says so
                }
            }
        }
        Ok(())
    }

    /// Waits for a segment; others that come before it are kept.
    fn await_parcel(&self, unit: usize, early: &mut Vec<Parcel<'a>>, talk: &Talk<'_>) -> Result<Parcel<'a>, Trouble> {
        if let Some(index) = early.iter().position(|parcel| parcel.unit == unit) {
            return Ok(early.swap_remove(index));
        }
        loop {
            match self.inbox.recv_timeout(NAP) {
                Ok(parcel) if parcel.unit == unit => return Ok(parcel),
                Ok(parcel) => early.push(parcel),
                Err(_) if talk.stop.load(Acquire) => return Err(Trouble::Stopped),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Trouble::Stopped),
            }
            if talk.by.interrupted() {
                return Err(Trouble::Interrupted);
            }
        }
    }
}
