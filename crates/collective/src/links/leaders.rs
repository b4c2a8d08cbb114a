//! The chain over the leaders of hosts: each folds the contributions of its host onto the prefix that comes, one after the other.
//!
//! ```text
//!  prefix ══▶ fold a4, a5, a6 ══▶ prefix        a thread goes up the chain,
//!  result ◀══════════════════════ result        another one comes down
//! ```
//! Contributions are supplied and results taken segment by segment while the chain runs, so that what happens inside the hosts
//! overlaps with what happens between them. Every link carries the array once in each direction.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

use syncline_cluster::Deadline;
use syncline_tensor::DType;
use syncline_tensor::kernels::{cast, reduce_into, reduce_many_into};

use super::Mesh;
use super::run::Numbers;
use super::wire::{Incoming, NAP, Outgoing, Talk, Trouble};
use crate::call::{Call, Failure};

/// What an all-reduce over leaders is about.
pub(crate) struct Relay<'a> {
    pub(crate) numbers: Numbers,
    /// Bytes of each segment.
    pub(crate) segments: &'a [usize],
    /// Members of the hosts before this one, of this one, and of all.
    pub(crate) before: usize,
    pub(crate) here: usize,
    pub(crate) all: usize,
}

/// The leader's side of a relay that runs: contributions of a segment go in, in order, and its result comes out.
pub(crate) struct Desk {
    supply: Sender<Vec<Vec<u8>>>,
    results: Receiver<Vec<u8>>,
}

impl Desk {
    /// Hands over the contributions of this host's members to the next segment.
    pub(crate) fn supply(&self, contributions: Vec<Vec<u8>>) {
        let _ = self.supply.send(contributions); // a relay that failed says so itself
    }

    /// Waits for the next result; none when the relay failed.
    pub(crate) fn result(&self) -> Option<Vec<u8>> {
        self.results.recv().ok()
    }
}

impl Mesh {
    /// Runs a relay among the leaders, and meanwhile `local`, which must supply all segments and take all results.
    ///
    /// All of them have agreed on the call, and a roll call of this mesh went before.
    pub(crate) fn relay<T>(
        &mut self,
        call: &Call<'_>,
        relay: &Relay<'_>,
        local: impl FnOnce(&Desk) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let me = self.position();
        let (prev, next) = (me.checked_sub(1), Some(me + 1).filter(|next| *next < self.ranks()));
        self.open(prev.into_iter().chain(next), call)?;
        let stop = AtomicBool::new(false);
        let by = call.by.instant().map_or(Deadline::never(), Deadline::at);
        let talk = Talk { company: &self.company, sequence: self.calls, fingerprint: call.fingerprint(), by, stop: &stop };
        let (senders, receivers) = (&mut self.senders, &mut self.receivers);
        let mut out = senders.iter_mut().flatten();
        let mut inward = receivers.iter_mut().flatten();
        let at = |position: Option<usize>| move |place: usize| position == Some(place);
        // Positions are in order, so the one before comes first.
        let to_prev = prev.and_then(|_| out.find(|way| at(prev)(way.position)));
        let to_next = next.and_then(|_| out.find(|way| at(next)(way.position)));
        let from_prev = prev.and_then(|_| inward.find(|way| at(prev)(way.position)));
        let from_next = next.and_then(|_| inward.find(|way| at(next)(way.position)));
        let (supply, supplied) = channel();
        let (deliver, results) = channel();
        let (turn, turned) = channel();
        let cause: Mutex<Option<Trouble>> = Mutex::default();
        let fail = |trouble: Trouble| {
            let mut first = cause.lock().expect("no panic while held");
            if first.is_none() && !matches!(trouble, Trouble::Stopped) {
                if !trouble.is_late() {
                    self.severers.iter().for_each(|severer| severer.sever());
                }
                *first = Some(trouble);
            }
            stop.store(true, Release);
        };
        let (fail, talk) = (&fail, &talk);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(move || relay.up(talk, from_prev, to_next, &supplied, &turn).unwrap_or_else(fail));
            scope.spawn(move || relay.down(talk, from_next, to_prev, &turned, &deliver).unwrap_or_else(fail));
            let outcome = local(&Desk { supply, results });
            if outcome.is_err() {
                // Nobody supplies or takes any more: this ends both threads, now or when they look.
                stop.store(true, Release);
                self.severers.iter().for_each(|severer| severer.sever());
            }
            outcome
        });
        match (cause.into_inner().expect("no panic while held"), outcome) {
            (None, outcome) => {
                if outcome.is_err() {
                    self.close();
                }
                outcome
            }
            (Some(trouble), _) => Err(self.failed(call, trouble)),
        }
    }
}

impl Relay<'_> {
    fn up(
        &self,
        talk: &Talk<'_>,
        mut from: Option<&mut Incoming>,
        mut to: Option<&mut Outgoing>,
        supplied: &Receiver<Vec<Vec<u8>>>,
        turn: &Sender<Vec<u8>>,
    ) -> Result<(), Trouble> {
        let after = self.before + self.here;
        for (index, len) in self.segments.iter().enumerate() {
            let contributions = take(supplied, talk)?;
            let mut prefix = None;
            if let Some(from) = &mut from {
                let mut bytes = vec![0; self.travelling(self.before, *len)];
                if index == 0 || !from.streams {
                    from.head_of(talk, if from.streams { self.total(self.before) } else { bytes.len() as u64 })?;
                }
                from.fill(talk, &mut bytes)?;
                prefix = Some(bytes);
            }
            let folded = self.fold(prefix, contributions, *len);
            match &mut to {
                Some(to) => send(to, talk, index, self.total(after), &folded)?,
                None => drop(turn.send(folded)),
            }
        }
        Ok(())
    }

    fn down(
        &self,
        talk: &Talk<'_>,
        mut from: Option<&mut Incoming>,
        mut to: Option<&mut Outgoing>,
        turned: &Receiver<Vec<u8>>,
        deliver: &Sender<Vec<u8>>,
    ) -> Result<(), Trouble> {
        for (index, len) in self.segments.iter().enumerate() {
            let result = match &mut from {
                Some(from) => {
                    let mut bytes = vec![0; *len];
                    if index == 0 || !from.streams {
                        from.head_of(talk, if from.streams { self.total(self.all) } else { *len as u64 })?;
                    }
                    from.fill(talk, &mut bytes)?;
                    bytes
                }
                None => take(turned, talk)?,
            };
            if let Some(to) = &mut to {
                send(to, talk, index, self.total(self.all), &result)?;
            }
            let _ = deliver.send(result); // nobody takes it when the leader failed
        }
        Ok(())
    }

    /// prefix ∘ contribution ∘ contribution …; complete sums of half types are rounded, others stay wide.
    fn fold(&self, prefix: Option<Vec<u8>>, contributions: Vec<Vec<u8>>, len: usize) -> Vec<u8> {
        let Numbers { dtype, op } = self.numbers;
        let after = self.before + self.here;
        let sound = "whole numbers of one length, as the members agreed";
        if !self.numbers.is_half() || (after == self.all && prefix.is_none()) {
            let mut parts = prefix.into_iter().chain(contributions);
            let mut sum = parts.next().expect("a host has members");
            parts.for_each(|part| reduce_into(op, dtype, &mut sum, &part).expect(sound));
            return sum;
        }
        let count = len / dtype.size();
        let widened = |narrow: &[u8]| {
            let mut wide = vec![0; count * size_of::<f32>()];
            cast(dtype, narrow, DType::F32, &mut wide).expect(sound);
            wide
        };
        let prefix = prefix.map(|prefix| if self.numbers.travels_wide(self.before, self.all) { prefix } else { widened(&prefix) });
        let parts: Vec<Vec<u8>> = prefix.into_iter().chain(contributions.iter().map(|part| widened(part))).collect();
        let sources: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut sum = vec![0; count * size_of::<f32>()];
        reduce_many_into(op, DType::F32, &mut sum, &sources).expect(sound);
        if self.numbers.travels_wide(after, self.all) {
            return sum;
        }
        let mut narrow = vec![0; len];
        cast(DType::F32, &sum, dtype, &mut narrow).expect(sound);
        narrow
    }

    fn travelling(&self, brings: usize, len: usize) -> usize {
        if self.numbers.travels_wide(brings, self.all) { len / self.numbers.dtype.size() * size_of::<f32>() } else { len }
    }

    fn total(&self, brings: usize) -> u64 {
        self.segments.iter().map(|len| self.travelling(brings, *len) as u64).sum()
    }
}

fn send(to: &mut Outgoing, talk: &Talk<'_>, index: usize, total: u64, bytes: &[u8]) -> Result<(), Trouble> {
    match (to.streams, index) {
        (false, _) => to.send(talk, &[], &[bytes]),
        (true, 0) => to.begin(talk, total, bytes),
        (true, _) => to.more(talk, bytes),
    }
}

/// Waits for another thread of this process, which stops when it fails.
fn take<T>(from: &Receiver<T>, talk: &Talk<'_>) -> Result<T, Trouble> {
    loop {
        match from.recv_timeout(NAP) {
            Ok(taken) => return Ok(taken),
            Err(RecvTimeoutError::Timeout) if !talk.stop.load(Acquire) => {}
            Err(_) => return Err(Trouble::Stopped),
        }
    }
}
