//! A small table of a sync job as each worker keeps it for itself, so that a round is one exchange and not two.
//!
//! Where a round is applied in the store, one worker fetches everybody's deltas, and then everybody fetches the result: twice the way between two
//! cores. A worker with a copy of the last state fetches the others' deltas itself, adds them up in order of worker, as whoever applies a round does, and has the
//! same bits without asking anybody. The store follows some rounds behind, by one copy of such a state; rounds that it has not seen stand in the outboxes,
//! so whoever needs it up to date (a save, a worker of another host, a get of rows) applies them as ever.
//!
//! A round is one pass over the copy, block by block: the others' deltas are fetched into the nearest cache, and the sum goes to the copy and to the caller at once.
//! A worker's own delta is kept aside when it is added, because reading it in the outbox while the others fetch it there takes its lines back from them.
//!
//! Cost of an add and a get with n workers: the delta into a slot of the outbox and aside, n − 1 deltas out of slots, one pass over the copy. Memory: twice the table
//! for each worker, and a megabyte of slots.

use std::sync::{Mutex, MutexGuard, TryLockError};

use syncline_cluster::{Deadline, Error};
use syncline_shm::outbox::slots;
use syncline_shm::store::Progress;

use super::place::STRIPE;
use super::rounds::steps_done;
use super::{LocalShare, Place};
use crate::updater::{Block, apply, apply_in_place, apply_into_both};
use crate::{AddOptions, Consistency, Updater};

/// Bytes of the others' deltas of a round that each worker may fetch: beyond it the ways between the cores are busier than one more exchange costs, and where workers
/// share cores they do each other's work again. Four workers on two cores with 32 KB each make half as many rounds by replicas as by the store.
const FETCHED: usize = 64 << 10;
/// Bytes that are added up at a time, so that they stay in the nearest cache.
const BLOCK: usize = 4 << 10;

/// So many rounds the store may be behind before worker 0 brings it up, and twice as many before anybody does: outboxes have room for more.
fn behind(bytes: usize) -> u64 {
    (slots(bytes) / 3).min(8)
}

/// The state of a table after a round.
pub(super) struct Replica(Mutex<State>);

pub(super) struct State {
    /// After which round; none when the values mean nothing.
    round: Option<u64>,
    /// What the store's count of rewrites said when they were read there.
    rewrites: u64,
    values: Vec<u8>,
    /// This worker's last delta, and which add it was.
    own: Vec<u8>,
    own_round: u64,
}

impl Replica {
    /// For shares whose rounds are sums of small whole arrays, of which there are several.
    pub(super) fn for_share(place: &Place, bytes: usize) -> Option<Replica> {
        let spec = &place.spec;
        // The store is brought up by one change, which a stripe is the most of.
        let others = place.workers.len().saturating_sub(1);
        let small = bytes > 0 && bytes <= STRIPE && bytes.checked_mul(others).is_some_and(|fetched| fetched <= FETCHED);
        let sums = matches!(spec.updater, Updater::Add | Updater::Sgd) && spec.consistency == Consistency::Sync;
        let state = || State { round: None, rewrites: 0, values: vec![0; bytes], own: vec![0; bytes], own_round: 0 };
        (small && sums && others > 0).then(|| Replica(Mutex::new(state())))
    }

    /// Keeps this worker's add aside. One that another thread keeps from it is read where it stands.
    pub(super) fn keep(&self, sequence: u64, delta: &[u8]) {
        if let Some(mut state) = self.state() {
            state.own_round = sequence;
            state.own.copy_from_slice(delta);
        }
    }

    /// The state, unless another thread is at it: that one may be waiting for somebody, and a second wait has a deadline and a Ctrl-C of its own.
    pub(super) fn state(&self) -> Option<MutexGuard<'_, State>> {
        match self.0.try_lock() {
            Ok(state) => Some(state),
            // Who panicked in the middle of a round left the state without one.
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl LocalShare {
    /// Fetches the state after `round`, this worker's last, by way of its replica. False where there is none, or it must not be used now.
    #[inline]
    pub(super) fn get_by_replica(&self, worker: u32, round: u64, out: &mut [u8], by: Deadline) -> Result<bool, Error> {
        match &self.replica {
            // Rows of which somebody asks for the changed ones are stamped, which only an apply does.
            Some(replica) if round > 0 && self.store.header().epoch().get_ordered() == 0 => self.follow(replica, worker, round, out, by),
            _ => Ok(false),
        }
    }

    fn follow(&self, replica: &Replica, worker: u32, round: u64, out: &mut [u8], by: Deadline) -> Result<bool, Error> {
        let Some(mut state) = replica.state() else { return Ok(false) };
        let state = &mut *state;
        let rewrites = self.store.header().rewrites().get();
        let before = state.round.take().filter(|_| state.rewrites == rewrites);
        let follows = match before {
            Some(before) if before == round => true,
            Some(before) if before + 1 == round => {
                self.bring_up_store(worker, before, &state.values, by)?;
                self.wait_for_round("get", worker, round, by)?;
                self.add_up(worker, round, state, out)
            }
            _ => false,
        };
        if !follows {
            self.finish_rounds(worker, round, "get", None, by)?;
            self.read_elements(0, 0..self.store.layout().elements, &mut state.values, by)?;
        }
        if !follows || before == Some(round) {
            out.copy_from_slice(&state.values);
        }
        // Another thread of this worker may have made its next add: what was just read is then of a later round perhaps, and nothing to build on.
        let exact =
            follows || (self.store.header().rounds().get() == round && steps_done(self.store.stripe(0).progress.get(), round + 1) == 0);
        (state.round, state.rewrites) = (exact.then_some(round), rewrites);
        Ok(true)
    }

    /// Adds the deltas of a round, in order of worker, to the values, which go to `out` too. False when one of them does not stand in its slot (any more): the
    /// values are worth nothing then.
    fn add_up(&self, me: u32, round: u64, state: &mut State, out: &mut [u8]) -> bool {
        let (updater, options) = (self.place.spec.updater, AddOptions::default());
        let there = || (0..).zip(&self.outboxes).filter(|(_, outbox)| outbox.published() >= round);
        let Some((last, _)) = there().last() else { return false };
        let bytes = state.values.len();
        let (mut sum, mut fetched) = ([0; BLOCK], [0; BLOCK]);
        for (block, (values, out)) in state.values.chunks_mut(BLOCK).zip(out.chunks_mut(BLOCK)).enumerate() {
            let (first, len) = (block * BLOCK, values.len());
            let (sum, fetched) = (&mut sum[..len], &mut fetched[..len]);
            let mut begun = false;
            for (worker, outbox) in there() {
                let delta = if worker == me && state.own_round == round {
                    &state.own[first..first + len]
                } else if outbox.copy_slot(round, bytes, first, fetched) {
                    &*fetched
                } else {
                    return false;
                };
                let block = |old, new| Block { old, delta, new, states_old: [&[], &[]], states_new: [&mut [], &mut []] };
                match (begun, worker == last) {
                    (false, false) => apply(updater, self.dtype, &options, block(values, sum)),
                    (true, false) => apply_in_place(updater, self.dtype, sum, delta),
                    (true, true) => apply_into_both(updater, self.dtype, &options, block(sum, values), out, false),
                    (false, true) => {
                        apply_in_place(updater, self.dtype, values, delta);
                        out.copy_from_slice(values);
                    }
                }
                begun = true;
            }
        }
        true
    }

    /// Makes `values` the store's, if they are those of a later round and it is this worker's turn to.
    fn bring_up_store(&self, worker: u32, round: u64, values: &[u8], by: Deadline) -> Result<(), Error> {
        let rounds = self.store.header().rounds();
        let patience = behind(values.len()) * if worker == 0 { 1 } else { 2 };
        if round < rounds.get() + patience {
            return Ok(());
        }
        let mut hand = self.hand(by)?;
        let mut hold = self.take(&mut hand, 0, by)?;
        // Looked at with the stripe in hand, as in `rounds`: from here on nobody applies an earlier round, and who begins to ask for changed rows sees this one.
        if rounds.get() < round && self.store.header().epoch().get_ordered() == 0 {
            let all = 0..self.store.layout().elements;
            hold.change_values(all, Progress::Rounds(round), |_, new| new.copy_from_slice(values));
        }
        Ok(())
    }
}
