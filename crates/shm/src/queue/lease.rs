//! Items that stay in the queue until their taker is done, and come back when it dies.

use super::words::{At, State};
use super::{Hand, Pushed, Queue, QueueError, Record};
use crate::corrupt::Corrupt;
use crate::mortality::moment;
use crate::sync::Ordering;
use crate::wait::{Patience, wait_for};

/// An item that was taken on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased {
    /// The cell it stands at: what finishes it or gives it back.
    pub cell: u32,
    /// How often it was taken before and came back.
    pub returns: u32,
}

impl Queue {
    /// Takes the oldest item that nobody has taken, on a lease. `claim` sees it before it is taken.
    pub fn lease(&self, into: &mut Record, claim: &dyn Fn(&Record), hand: Hand<'_>) -> Result<Option<Leased>, QueueError> {
        if !self.may_have_items() {
            return Ok(None);
        }
        self.take_read(hand)?;
        let leased = self.lease_held(into, claim, hand.me);
        self.words.read.latch.let_go_quietly();
        leased
    }

    fn lease_held(&self, into: &mut Record, claim: &dyn Fn(&Record), me: u32) -> Result<Option<Leased>, QueueError> {
        let (read, mask) = (&*self.words.read, self.mask()?);
        let head = At::load(&read.head, Ordering::Relaxed);
        let tail = At::load(&self.words.write.tail, Ordering::Acquire);
        let (items, cells) = Self::check_span(head, tail, mask)?;
        let mut at = At::load(&read.next, Ordering::Relaxed);
        let (passed_items, passed_cells) = at.since(head);
        if passed_items > items || passed_cells > cells {
            at = head; // The hint is stale: the head has passed it.
        }
        while at != tail {
            let state = State(self.ring.word(Self::place(at.cells, mask)).load(Ordering::Relaxed));
            let left = tail.since(at).1;
            if state.stage() == State::READY {
                let need = self.fetch(at, left, mask, into)?;
                claim(into);
                moment();
                // The count first: should we die in between, it is counted anew by whoever inherits the latch.
                read.taken.fetch_add(1, Ordering::Relaxed);
                let taken = State::new(State::TAKEN, state.returns(), me);
                self.ring.word(Self::place(at.cells, mask)).store(taken.0, Ordering::Release);
                moment();
                read.next.store(at.after(1, need).word(), Ordering::Relaxed);
                return Ok(Some(Leased { cell: at.cells, returns: state.returns() }));
            }
            at = at.after(1, self.cells_at(at, left, mask)?);
        }
        read.next.store(at.word(), Ordering::Relaxed);
        Ok(None)
    }

    /// How many cells the record at `at` has; at most `left`.
    fn cells_at(&self, at: At, left: u32, mask: u32) -> Result<u32, Corrupt> {
        let form = self.ring.word(Self::place(at.cells, mask) + 8).load(Ordering::Relaxed);
        let cells = Self::cells_for((form & 0xffff_ffff) as usize);
        Ok(Corrupt::check("cells of a record", cells.into(), 1, left.into())? as u32)
    }

    /// Says that the item leased to the caller at `cell` is finished.
    pub fn finish(&self, cell: u32, hand: Hand<'_>) -> Result<(), QueueError> {
        self.finish_at(cell, Some(hand.me), hand)
    }

    /// The same for the lease of `holder`, or of anybody.
    pub(super) fn finish_at(&self, cell: u32, holder: Option<u32>, hand: Hand<'_>) -> Result<(), QueueError> {
        self.take_read(hand)?;
        let finished = self.finish_held(cell, holder);
        self.let_go_of_finished();
        finished
    }

    /// Finishes the item leased to the caller at `cell` if `publish` says that its answer was written. Both under the latch: what was
    /// published cannot fail to be finished because somebody else does not move.
    pub(super) fn finish_with(
        &self,
        cell: u32,
        publish: impl FnOnce() -> Result<Pushed, QueueError>,
        hand: Hand<'_>,
    ) -> Result<Pushed, QueueError> {
        self.take_read(hand)?;
        let published = (|| {
            let state = self.state_at(cell, self.mask()?);
            if !state.is_some_and(|state| state.stage() == State::TAKEN && state.holder() == hand.me) {
                return Err(QueueError::LeaseOver);
            }
            let pushed = publish()?;
            if pushed == Pushed::Some(1) {
                self.finish_held(cell, Some(hand.me))?;
            }
            Ok(pushed)
        })();
        self.let_go_of_finished();
        published
    }

    /// Lets go of the readers' latch, and wakes whoever waits for items to be finished.
    fn let_go_of_finished(&self) {
        self.words.read.latch.let_go();
        self.words.room.ring_if_waiting_for_published();
        self.words.done.ring_if_waiting_for_published();
        if self.is_closed() {
            self.words.items.ring_if_waiting_for_published();
        }
    }

    fn finish_held(&self, cell: u32, holder: Option<u32>) -> Result<(), QueueError> {
        let mask = self.mask()?;
        let state = self.state_at(cell, mask).ok_or(QueueError::LeaseOver)?;
        if state.stage() != State::TAKEN || holder.is_some_and(|holder| holder != state.holder()) {
            return Err(QueueError::LeaseOver);
        }
        self.ring.word(Self::place(cell, mask)).store(State::new(State::DONE, state.returns(), state.holder()).0, Ordering::Release);
        moment();
        self.move_head(mask)
    }

    /// Moves the head over finished records.
    fn move_head(&self, mask: u32) -> Result<(), QueueError> {
        let read = &*self.words.read;
        let mut head = At::load(&read.head, Ordering::Relaxed);
        let tail = At::load(&self.words.write.tail, Ordering::Acquire);
        Self::check_span(head, tail, mask)?;
        let mut over = 0;
        while head != tail && State(self.ring.word(Self::place(head.cells, mask)).load(Ordering::Relaxed)).stage() == State::DONE {
            head = head.after(1, self.cells_at(head, tail.since(head).1, mask)?);
            over += 1;
        }
        if over > 0 {
            // The count before the head, which releases it: a look without the latch may see an item too many for a moment
            // and ask under the latch, but never one too few, over which a reader would fall asleep.
            let taken = read.taken.load(Ordering::Relaxed);
            read.taken.store(taken.saturating_sub(over), Ordering::Relaxed);
            moment();
            read.head.store(head.word(), Ordering::Release);
            moment();
        }
        Ok(())
    }

    /// Gives the item leased to the caller at `cell` to whoever comes next; with another block, if one is given.
    pub fn give_back(&self, cell: u32, block: Option<u64>, hand: Hand<'_>) -> Result<(), QueueError> {
        self.take_read(hand)?;
        let given = (|| {
            let mask = self.mask()?;
            let state = self.state_at(cell, mask).ok_or(QueueError::LeaseOver)?;
            if state.stage() != State::TAKEN || state.holder() != hand.me {
                return Err(QueueError::LeaseOver);
            }
            if let Some(block) = block {
                // The name of a record's block is its first word behind the head.
                self.ring.word(Self::place(cell, mask) + 16).store(block, Ordering::Relaxed);
            }
            self.free_at(cell, state, mask);
            Ok(())
        })();
        self.words.read.latch.let_go();
        self.words.items.ring_some_if_waiting_for_published(1);
        given
    }

    fn free_at(&self, cell: u32, state: State, mask: u32) {
        let free = State::new(State::READY, state.returns() + 1, 0);
        self.ring.word(Self::place(cell, mask)).store(free.0, Ordering::Release);
        moment();
        let read = &*self.words.read;
        read.taken.store(read.taken.load(Ordering::Relaxed).saturating_sub(1), Ordering::Release);
        // The search begins at the head again: the item that came back is older than those behind it.
        read.next.store(read.head.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Gives everything that a dead member had leased to whoever comes next; returns how much that was.
    pub fn recover(&self, dead: u32, hand: Hand<'_>) -> Result<usize, QueueError> {
        self.take_read(hand)?;
        let recovered = (|| {
            let mask = self.mask()?;
            let mut count = 0;
            for (at, state) in self.records(mask)? {
                if state.stage() == State::TAKEN && state.holder() == dead {
                    self.free_at(at.cells, state, mask);
                    count += 1;
                }
            }
            self.move_head(mask)?;
            Ok(count)
        })();
        self.words.read.latch.let_go();
        for bell in [&*self.words.items, &*self.words.done, &*self.words.room] {
            bell.ring_if_waiting_for_published();
        }
        recovered
    }

    /// Looks through everything between head and tail, under the latch.
    fn records(&self, mask: u32) -> Result<Vec<(At, State)>, QueueError> {
        let head = At::load(&self.words.read.head, Ordering::Relaxed);
        let tail = At::load(&self.words.write.tail, Ordering::Acquire);
        Self::check_span(head, tail, mask)?;
        let (mut at, mut found) = (head, Vec::new());
        while at != tail {
            found.push((at, State(self.ring.word(Self::place(at.cells, mask)).load(Ordering::Relaxed))));
            at = at.after(1, self.cells_at(at, tail.since(at).1, mask)?);
        }
        Ok(found)
    }

    /// Counts taken records anew, under the latch that was inherited.
    #[cold]
    pub(super) fn recount(&self) -> Result<(), QueueError> {
        if self.is_leased() {
            let mask = self.mask()?;
            let taken = self.records(mask)?.iter().filter(|(_, state)| state.stage() != State::READY).count();
            self.words.read.taken.store(taken as u64, Ordering::Release);
            self.words.read.next.store(self.words.read.head.load(Ordering::Relaxed), Ordering::Relaxed);
            self.move_head(mask)?;
        }
        Ok(())
    }

    /// Looks at every record that is not finished, under the latch, until `each` says false.
    pub(crate) fn look_through(&self, each: &mut dyn FnMut(&Record) -> bool, hand: Hand<'_>) -> Result<(), QueueError> {
        self.take_read(hand)?;
        let looked = (|| {
            let mask = self.mask()?;
            let tail = At::load(&self.words.write.tail, Ordering::Acquire);
            let mut record = Record::default();
            for (at, state) in self.records(mask)? {
                self.fetch(at, tail.since(at).1, mask, &mut record)?;
                if state.stage() != State::DONE && !each(&record) {
                    break;
                }
            }
            Ok(())
        })();
        self.words.read.latch.let_go_quietly();
        looked
    }

    /// Takes everything out, for whoever ends the queue. `claim` sees each record that is not finished while it is still there, `each` when it
    /// is gone: should the caller die in between, whoever goes on after it meets no record twice.
    pub(crate) fn empty_out(&self, claim: &dyn Fn(&Record), each: &mut dyn FnMut(&Record), hand: Hand<'_>) -> Result<(), QueueError> {
        self.take_read(hand)?;
        let emptied = (|| {
            let mask = self.mask()?;
            let tail = At::load(&self.words.write.tail, Ordering::Acquire);
            let mut record = Record::default();
            for (at, state) in self.records(mask)? {
                let need = self.fetch(at, tail.since(at).1, mask, &mut record)?;
                let unfinished = state.stage() != State::DONE;
                if unfinished {
                    claim(&record);
                }
                moment();
                self.words.read.head.store(at.after(1, need).word(), Ordering::Release);
                moment();
                if unfinished {
                    each(&record);
                }
            }
            Ok(())
        })();
        self.words.read.latch.let_go_quietly();
        emptied
    }

    /// The state of the record at `cell`, if a record begins there; under the latch.
    fn state_at(&self, cell: u32, mask: u32) -> Option<State> {
        let head = At::load(&self.words.read.head, Ordering::Relaxed);
        let tail = At::load(&self.words.write.tail, Ordering::Acquire);
        let inside = cell.wrapping_sub(head.cells) < tail.cells.wrapping_sub(head.cells);
        inside.then(|| State(self.ring.word(Self::place(cell, mask)).load(Ordering::Relaxed)))
    }

    /// Whether somebody other than the caller still works on an item, which may come back; `mine` knows the cells of what the caller has itself.
    pub fn others_work(&self, mine: &dyn Fn(u32) -> bool, hand: Hand<'_>) -> Result<bool, QueueError> {
        self.take_read(hand)?;
        let records = self.mask().map_err(QueueError::from).and_then(|mask| self.records(mask));
        self.words.read.latch.let_go_quietly();
        let taken = |state: &State| state.stage() == State::TAKEN;
        Ok(records?.iter().any(|(at, state)| taken(state) && (state.holder() != hand.me || !mine(at.cells))))
    }

    /// Waits until every item that was written before the call is finished.
    pub fn wait_until_finished(&self, hand: Hand<'_>, between: &dyn Fn() -> bool) -> Result<(), QueueError> {
        let until = At::load(&self.words.write.tail, Ordering::Acquire).items;
        let reached = || {
            let head = At::load(&self.words.read.head, Ordering::Acquire);
            ((head.items.wrapping_sub(until) as i32) >= 0).then_some(())
        };
        Ok(wait_for(reached, &self.words.done, Patience::unknown(), hand.by, between)?)
    }
}
