//! Getting at stripes that others hold, and waiting for workers that are behind; both name whom they wait for.

use std::ops::Range;
use std::time::{Duration, Instant};

use syncline_cluster::{Deadline, Error, WaitGuard, waits};
use syncline_shm::store::{Busy, Hand, Hold};
use syncline_shm::wait::{WaitError, wait_for};

use super::{Emit, LocalShare, Share};
use crate::Consistency;

/// Patience with a stripe that somebody holds: it is held for microseconds unless its holder lost its core, or its life.
pub(crate) struct Backoff {
    turns: u32,
    since: Option<Instant>,
    by: Deadline,
}

const SPINS: u32 = 100;

impl Backoff {
    pub(crate) fn new(by: Deadline) -> Backoff {
        Backoff { turns: 0, since: None, by }
    }

    /// Waits a little. True now and then, when it is time to ask whether the holder lives.
    #[inline]
    fn pause(&mut self) -> bool {
        self.turns += 1;
        if self.turns < SPINS {
            std::hint::spin_loop();
            return false;
        }
        self.slow_pause()
    }

    #[cold]
    fn slow_pause(&mut self) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        if since.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
            return self.turns.is_multiple_of(64);
        }
        std::thread::sleep(Duration::from_micros(100));
        true
    }
}

/// How often a wait for other workers looks whether they wait for this one.
const LOOK: Duration = Duration::from_millis(250);
/// Workers that wait for each other this long do so for ever, unless another thread of theirs comes to help.
const PERSISTENT: Duration = Duration::from_secs(1);

impl LocalShare {
    /// Takes a stripe, waiting for whoever holds it and inheriting from the dead.
    #[inline(always)] // Returned through memory, a stripe costs as much again as taking it.
    pub(crate) fn take<'a>(&'a self, hand: &'a mut Hand, index: usize, by: Deadline) -> Result<Hold<'a>, Error> {
        if self.store.take(index, hand).is_err() {
            self.take_slowly(hand, index, by)?;
        }
        Ok(hand.hold(&self.store, index))
    }

    #[cold]
    fn take_slowly(&self, hand: &Hand, index: usize, by: Deadline) -> Result<(), Error> {
        let mut backoff = Backoff::new(by);
        loop {
            match self.store.take(index, hand) {
                Ok(()) => return Ok(()),
                Err(busy) => {
                    if backoff.pause() && self.look_after(busy, &backoff)? && self.inherit(busy, index, hand) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes a stripe unless somebody who lives holds it.
    pub(crate) fn take_if_free<'a>(&'a self, hand: &'a mut Hand, index: usize) -> Option<Hold<'a>> {
        match self.store.take(index, hand) {
            Ok(()) => {}
            Err(busy) if self.is_dead(busy.hand) && self.inherit(busy, index, hand) => {}
            Err(_) => return None,
        }
        Some(hand.hold(&self.store, index))
    }

    /// Whether the holder of a stripe is dead; an error when waiting for it makes no sense any more.
    fn look_after(&self, busy: Busy, backoff: &Backoff) -> Result<bool, Error> {
        if self.is_dead(busy.hand) {
            return Ok(true);
        }
        let holder = self.place.hands[busy.hand as usize];
        let started = backoff.since.unwrap_or_else(Instant::now);
        let operation = || self.operation("waiting for rows that another process changes");
        if backoff.by.interrupted() {
            return Err(Error::Interrupted { operation: operation(), waited: started.elapsed() });
        }
        if backoff.by.expired() {
            return Err(self.place.vigil.late(&operation(), &[holder], started, " to let go of a part of the table"));
        }
        if self.place.vigil.is_over(holder) && started.elapsed() > Duration::from_secs(1) {
            return Err(self.place.vigil.explain(&operation(), &[holder], started, "it held a part of the table"));
        }
        Ok(false)
    }

    pub(crate) fn is_dead(&self, hand: u32) -> bool {
        self.place.hands.get(hand as usize).is_some_and(|rank| self.place.vigil.has_ended(*rank))
    }

    pub(crate) fn inherit(&self, busy: Busy, index: usize, hand: &Hand) -> bool {
        let progress = |of: u64, value: u64| {
            if let Some(outbox) = self.outboxes.get(of as usize - 1) {
                outbox.progress_word().set(value);
            }
        };
        let inherited = self.store.inherit(index, busy.hand, hand, &|hand| self.is_dead(hand), &progress);
        if inherited {
            self.stamp_all_of(index);
        }
        inherited
    }

    /// Elements of one lane as they are, each stripe in one state.
    pub(crate) fn read_elements(&self, lane: usize, elements: Range<u64>, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let width = self.store.layout().lanes[lane];
        let (mut at, mut done) = (elements.start, 0);
        while at < elements.end {
            let end = (at / self.store.layout().stripe + 1) * self.store.layout().stripe;
            let piece = at..end.min(elements.end);
            let bytes = (piece.end - piece.start) as usize * width;
            self.read_piece(lane, piece.clone(), &mut out[done..done + bytes], by)?;
            at = piece.end;
            done += bytes;
        }
        Ok(())
    }

    /// Elements of one stripe.
    #[inline]
    pub(crate) fn read_piece(&self, lane: usize, elements: Range<u64>, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        match self.store.try_read(lane, elements.clone(), out) {
            Ok(()) => Ok(()),
            Err(_) => self.read_slowly(lane, elements, out, by),
        }
    }

    #[cold]
    fn read_slowly(&self, lane: usize, elements: Range<u64>, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        if lane == 0 && self.read_in_turn(elements.clone(), out, by)? {
            return Ok(());
        }
        let index = self.store.stripe_of(elements.start);
        let mut backoff = Backoff::new(by);
        loop {
            match self.store.try_read(lane, elements.clone(), out) {
                Ok(()) => return Ok(()),
                Err(busy) => {
                    if backoff.pause() && self.look_after(busy, &backoff)? {
                        drop(self.take(&mut *self.hand(by)?, index, by)?);
                    }
                }
            }
        }
    }

    /// Overwrites elements of one lane, stripe by stripe.
    pub(crate) fn write_elements(&self, lane: usize, elements: Range<u64>, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        let width = self.store.layout().lanes[lane];
        let (mut at, mut done) = (elements.start, 0);
        while at < elements.end {
            let index = self.store.stripe_of(at);
            let end = self.store.elements_of(index).end.min(elements.end);
            let len = (end - at) as usize * width;
            let mut hand = self.hand(by)?;
            let mut taken = self.take(&mut hand, index, by)?;
            taken.contents_mut(lane, at..end).copy_from_slice(&bytes[done..done + len]);
            if lane == 0 {
                self.stamp_for_all(at..end); // a load is nobody's add: every worker has to see it
            }
            drop(taken);
            at = end;
            done += len;
        }
        self.store.header().rewrites().advance();
        Ok(())
    }

    /// Everything, in order, for a worker.
    pub(crate) fn read_all(&self, worker: u32, emit: &mut dyn Emit, by: Deadline) -> Result<(), Error> {
        let backup = self.place.spec.updater.backup_lane(worker, self.place.workers.len() as u32).map(|lane| lane + 1);
        let mut buffer = Vec::new();
        for index in 0..self.store.layout().stripes() {
            let elements = self.store.elements_of(index);
            match backup {
                Some(backup) => self.read_and_keep(elements.clone(), backup, by, &mut |values| emit.block(elements.start, values))?,
                None => self.read_stripe(elements, emit, &mut buffer, by)?,
            }
            emit.stripe_done()?;
        }
        Ok(())
    }

    /// One whole stripe: straight to where it belongs, or by way of `buffer`.
    pub(crate) fn read_stripe(&self, elements: Range<u64>, emit: &mut dyn Emit, buffer: &mut Vec<u8>, by: Deadline) -> Result<(), Error> {
        let bytes = (elements.end - elements.start) as usize * self.dtype.size();
        let past_cache = emit.past_cache();
        if let Some(place) = emit.place(elements.start, bytes) {
            if past_cache && self.store.try_read_past_cache(0, elements.clone(), place).is_ok() {
                return Ok(());
            }
            return self.read_piece(0, elements, place, by);
        }
        buffer.resize(bytes, 0);
        self.read_piece(0, elements.clone(), buffer, by)?;
        emit.block(elements.start, buffer);
        Ok(())
    }

    /// Rows by id, in the order asked.
    pub(crate) fn read_rows(&self, worker: u32, ids: &[i64], out: &mut [u8], by: Deadline) -> Result<(), Error> {
        const AHEAD: usize = 8;
        let backup = self.place.spec.updater.backup_lane(worker, self.place.workers.len() as u32).map(|lane| lane + 1);
        let row_bytes = self.cols as usize * self.dtype.size();
        let whole_rows = self.store.layout().stripe.is_multiple_of(self.cols.max(1));
        for (index, id) in ids.iter().enumerate() {
            if let Some(ahead) = ids.get(index + AHEAD) {
                let first = (*ahead as u64 - self.place.rows.start) * self.cols;
                self.store.prefetch(0, first..first + self.cols, false);
            }
            let first = (*id as u64 - self.place.rows.start) * self.cols;
            let out = &mut out[index * row_bytes..(index + 1) * row_bytes];
            match backup {
                Some(backup) => {
                    let mut done = 0;
                    self.read_and_keep(first..first + self.cols, backup, by, &mut |values| {
                        out[done..done + values.len()].copy_from_slice(values);
                        done += values.len();
                    })?;
                }
                None if whole_rows => self.read_piece(0, first..first + self.cols, out, by)?,
                None => self.read_elements(0, first..first + self.cols, out, by)?,
            }
        }
        Ok(())
    }

    /// Reads values and keeps a copy of them in a worker's backup lane, for updaters that compare.
    fn read_and_keep(&self, elements: Range<u64>, backup: usize, by: Deadline, emit: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
        let mut at = elements.start;
        while at < elements.end {
            let index = self.store.stripe_of(at);
            let end = self.store.elements_of(index).end.min(elements.end);
            let mut hand = self.hand(by)?;
            let mut hold = self.take(&mut hand, index, by)?;
            let values = hold.contents(0, at..end).to_vec();
            hold.contents_mut(backup, at..end).copy_from_slice(&values);
            drop(hold);
            emit(&values);
            at = end;
        }
        Ok(())
    }

    /// Waits until every unfinished worker has published its add number `round`.
    pub(crate) fn wait_for_round(&self, what: &str, worker: u32, round: u64, by: Deadline) -> Result<(), Error> {
        self.wait_for_clocks(what, worker, round, by, |share, worker| share.outboxes[worker].published())
    }

    /// Waits until every unfinished worker has applied `adds` adds.
    pub(crate) fn wait_for_others(&self, worker: u32, adds: u64, by: Deadline) -> Result<(), Error> {
        self.wait_for_clocks("get", worker, adds, by, |share, worker| share.outboxes[worker].applied())
    }

    fn wait_for_clocks(
        &self,
        what: &str,
        me: u32,
        goal: u64,
        by: Deadline,
        clock: impl Fn(&LocalShare, usize) -> u64,
    ) -> Result<(), Error> {
        let behind = |worker: &usize| clock(self, *worker) < goal && !self.outboxes[*worker].is_finished();
        let workers = 0..self.outboxes.len();
        if !workers.clone().any(|worker| behind(&worker)) {
            return Ok(());
        }
        let vigil = &self.place.vigil;
        let started = Instant::now();
        let bell = vigil.my_bell();
        let ahead = if let Consistency::Bounded(bound) = self.place.spec.consistency { bound.into() } else { 0 };
        let mut told: Option<(u32, WaitGuard)> = None;
        // A worker of another host that is served here waits there: this process would speak for itself, and see circles that are none.
        let waits_itself = self.place.workers[me as usize] == vigil.me();
        loop {
            // Looked at before the dead are looked after, so that nobody dies unnoticed between the two.
            let deaths = vigil.deaths();
            if deaths != self.deaths_seen.load(std::sync::atomic::Ordering::Acquire) {
                self.after_deaths(what, deaths, by)?;
            }
            let poll = || (!workers.clone().any(|worker| behind(&worker))).then_some(());
            let still_there = || vigil.deaths() == deaths && !vigil.orphaned_or_leaving();
            let operation = || self.operation(&format!("{what} after {} adds", goal + ahead));
            let missing = || {
                workers
                    .clone()
                    .filter(|worker| *worker as u32 != me && behind(worker))
                    .map(|worker| self.place.workers[worker])
                    .collect::<Vec<_>>()
            };
            let slow = started.elapsed() > LOOK;
            if slow {
                // Who left without ever opening the table has not said here that it is done.
                let left = |worker: &usize| vigil.has_left(self.place.workers[*worker]) && behind(worker);
                workers.clone().filter(left).for_each(|worker| Share::finish(self, worker as u32));
            }
            // Told once and kept: a circle is one of waits that stand.
            if let Some(first) =
                missing().first().copied().filter(|first| slow && waits_itself && told.as_ref().is_none_or(|(rank, _)| rank != first))
            {
                drop(told.take());
                told = Some((first, vigil.waiting(first, waits::GET)));
            }
            match wait_for(poll, &bell, vigil.patience(), by.within(LOOK), &still_there) {
                Ok(()) => return Ok(()),
                Err(WaitError::Timeout) if !by.expired() => {
                    let missing = missing();
                    let Some(first) = missing.first().filter(|_| slow && waits_itself && started.elapsed() > PERSISTENT) else { continue };
                    if let Some(circle) = vigil.circle_in_words(*first, waits::GET) {
                        let detail = format!(
                            "waits for rank {first} to make add {goal} too{circle}\nhint: in sync mode every worker makes the same calls on a table in the same order"
                        );
                        return Err(Error::ContractMismatch { operation: operation(), detail });
                    }
                }
                Err(WaitError::Timeout) => return Err(vigil.late(&operation(), &missing(), started, &format!(" to make add {goal} too"))),
                Err(WaitError::Interrupted) => return Err(Error::Interrupted { operation: operation(), waited: started.elapsed() }),
                Err(WaitError::Gone) => {
                    if vigil.orphaned_or_leaving() {
                        return Err(vigil.explain(&operation(), &missing(), started, "it did not come"));
                    }
                }
            }
        }
    }
}
