//! Workers that add to the same small table in tight loops keep a tally each and bring it to the table now and then.
//!
//! They would otherwise hand the cache lines of the table to and fro with every add, which costs far more than the adds. So who finds that another hand has been at
//! the table since its last add, and has been adding without pause itself, copies the table, its *base*, and from then on adds up its deltas in its outbox. Its gets
//! are base and tally together, without a look at the table. After some tens of microseconds the tally goes to the table like any add, and a new base is taken.
//! ```text
//!   worker 0   add add │ base  tally tally tally … │ merge  tally tally …      all workers add at the same time,
//!   worker 1   base  tally tally tally … │ merge  tally tally tally …         and the table is idle most of the time
//! ```
//! Every add counts as soon as it is in the tally (`Post::add_to_tally`): if its worker dies, a survivor applies the tally as the one add that it is. Whoever
//! waits for its adds, or calls for anything else than the whole table, has it merged first; the caretaker merges what a worker has left for milliseconds.
//!
//! A gradient table does the same while its rule is one that makes the same of a sum as of its parts, which plain descent does.
//!
//! Floats are added up in another order than one by one, as they are between workers anyway. A tally of f16 could overflow where the table does not, so there is none.
//!
//! Cost of an add: one pass over delta and tally; of a get: one pass over base and tally. Every [`turn`]: a merge, which leaves the next base.
//! Memory: three times the table for each worker that does this.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use syncline_cluster::{Deadline, Error};
use syncline_shm::mortality;
use syncline_tensor::DType;

use super::emit::IntoArray;
use super::{LocalShare, Place, Selection};
use crate::gradient::Resolved;
use crate::locking::lock_by;
use crate::updater::{Block, apply};
use crate::{AddOptions, Consistency, Updater};

/// Larger tables do not stay in a core's own cache together with tally, base and result.
const LARGEST: usize = 256 << 10;
/// Adds and gets of the first tally; later ones have as many as took a turn.
const FIRST: u64 = 16;
/// The most of them. Progress knows its add by sixteen bits of its number, so a merge must come before they repeat.
const MOST: u64 = 4096;

/// How long a tally is kept, in nanoseconds: long beside a merge, most of which is fetching lines that another core has written.
fn turn(bytes: usize) -> u64 {
    40_000 + 5 * bytes as u64
}

/// The tally of this process's worker.
pub(crate) struct Tally {
    state: Mutex<State>,
    /// Odd while one is begun or merged, until its next add counts: a get that reads the table meanwhile may see more than the base.
    pub(super) moves: AtomicU64,
    /// Whether adds go there at all in a crowd: of a gradient table, by its rule.
    in_use: AtomicBool,
}

pub(super) struct State {
    /// What the table said when the tally was begun.
    base: Vec<u8>,
    /// When that was.
    since: Instant,
    /// Adds and gets since then.
    calls: u64,
    /// Adds alone.
    adds: u64,
    /// Of a gradient table, the step that the tally will make.
    step: Option<Resolved>,
    /// How many there may be.
    allowance: u64,
}

/// Says that the tally moves, as long as it is there.
struct Moving<'a>(&'a AtomicU64);

impl Moving<'_> {
    /// For who has the lock.
    fn begin(tally: &Tally) -> Moving<'_> {
        tally.moves.fetch_add(1, SeqCst); // Before the base is read: pairs with the looks in `get_beside_tally`.
        Moving(&tally.moves)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst); // After the next add counts, if one did.
    }
}

impl State {
    fn begin(&mut self, now: Instant) {
        (self.since, self.calls) = (now, 0);
    }

    /// Whether the tally was begun by the rule of `step`.
    #[inline]
    fn goes_by(&self, step: Option<&Resolved>) -> bool {
        self.step.as_ref().map(|step| step.rule.number) == step.map(|step| step.rule.number)
    }
}

impl Tally {
    /// For shares whose adds are sums of small whole arrays, by several workers of this host.
    pub(super) fn for_share(place: &Place, bytes: usize) -> Option<Tally> {
        let spec = &place.spec;
        let small = bytes > 0 && bytes <= LARGEST && place.hands.len() > 1 && place.workers.len() > 1;
        let sums = match spec.updater {
            Updater::Add | Updater::Sgd => spec.dtype() != DType::F16,
            Updater::Gradient => matches!(spec.dtype(), DType::F32 | DType::F64),
            _ => false,
        };
        let state = State { base: Vec::new(), since: Instant::now(), calls: 0, adds: 0, step: None, allowance: FIRST };
        let in_use = AtomicBool::new(spec.updater != Updater::Gradient);
        (small && sums && spec.consistency == Consistency::Async).then(|| Tally {
            state: Mutex::new(state),
            moves: AtomicU64::new(0),
            in_use,
        })
    }

    /// Whether adds go there in a crowd.
    pub(super) fn is_in_use(&self) -> bool {
        self.in_use.load(Relaxed)
    }

    /// Says whether they do.
    pub(crate) fn set_in_use(&self, in_use: bool) {
        self.in_use.store(in_use, Relaxed);
    }

    /// What is held while a tally grows and while it is applied. In the order of everyone who adds: first the post, then this, then the hand.
    ///
    /// Another thread may have it in hand while it waits for somebody who holds the table: this one has a deadline and a Ctrl-C of its own.
    #[inline]
    pub(super) fn lock(&self, operation: impl Fn() -> String, by: Deadline) -> Result<MutexGuard<'_, State>, Error> {
        lock_by(&self.state, operation, "is bringing its adds to the table", by) // Of one that panicked, the base is read anew with the next tally.
    }
}

impl LocalShare {
    /// Adds to the tally if there is one, or if it is time to begin one. False, and nothing done, if not.
    ///
    /// Of a gradient table, `step` is what its rule makes of a sum of gradients.
    #[inline]
    pub(crate) fn add_to_tally(
        &self,
        (worker, sequence): (u32, u64),
        rows: Selection<'_>,
        delta: &[u8],
        step: Option<&Resolved>,
        by: Deadline,
    ) -> Result<bool, Error> {
        match (&self.tally, rows) {
            (Some(tally), Selection::All) if self.has_unapplied(worker) || self.is_crowded(sequence) => {
                self.join_tally(tally, (worker, sequence), delta, step, by)
            }
            _ => Ok(false),
        }
    }

    /// Whether others add to the table without pause, as this worker does.
    fn is_crowded(&self, sequence: u64) -> bool {
        mortality::is_crowded() || self.was_followed() && self.turns.hurries(sequence, self.bytes())
    }

    /// Whether another process has been at the table since this one's last change. Who cannot tell, because another thread has the hand, is told no.
    fn was_followed(&self) -> bool {
        self.hand.try_lock().is_ok_and(|hand| hand.was_followed(&self.store))
    }

    fn join_tally(
        &self,
        tally: &Tally,
        (worker, sequence): (u32, u64),
        delta: &[u8],
        step: Option<&Resolved>,
        by: Deadline,
    ) -> Result<bool, Error> {
        self.enter("add", by)?;
        let mut post = self.post(worker, by)?;
        let mut state = tally.lock(|| self.operation("add"), by)?;
        let mut _moving = None;
        if !self.has_unapplied(worker) {
            _moving = Some(Moving::begin(tally));
            self.begin_tally(&mut state, step, by)?;
        } else if self.outboxes[worker as usize].tally().is_none() {
            return Ok(false); // An earlier add could not be applied and stands by itself.
        } else if state.calls >= state.allowance || !state.goes_by(step) || self.is_half_applied(worker) {
            let goes_on = state.goes_by(step) && (mortality::is_crowded() || self.was_followed());
            _moving = Some(Moving::begin(tally));
            self.merge(&mut state, worker, by)?;
            if !goes_on {
                return Ok(false);
            }
        }
        state.calls += 1;
        state.adds += 1;
        let options = step.map_or(AddOptions::default(), |step| step.stamp_of_sum(state.adds));
        post.add_to_tally(sequence, options.to_bits(), |sum, new| match sum {
            Some(sum) => self.put_together(Updater::Add, sum, delta, new),
            None => new.copy_from_slice(delta),
        });
        Ok(true)
    }

    fn begin_tally(&self, state: &mut State, step: Option<&Resolved>, by: Deadline) -> Result<(), Error> {
        state.begin(Instant::now());
        state.adds = 0;
        state.step = step.cloned();
        state.base.resize(self.bytes(), 0);
        self.read_elements(0, 0..self.store.layout().elements, &mut state.base, by)
    }

    /// Brings the tally, which moves, to the table, which becomes the base of the next.
    fn merge(&self, state: &mut State, worker: u32, by: Deadline) -> Result<(), Error> {
        let now = Instant::now();
        let each = (now.duration_since(state.since).as_nanos() as u64 / state.calls.max(1)).max(1);
        state.allowance = (turn(self.bytes()) / each).clamp(FIRST / 2, MOST);
        state.begin(now);
        state.base.resize(self.bytes(), 0);
        let mut emit = IntoArray { out: &mut state.base, element: self.dtype.size(), past_cache: false };
        let merged = match self.apply_all_published(worker, Some(&mut emit), by) {
            Ok(true) => Ok(()),
            Ok(false) => self.read_elements(0, 0..self.store.layout().elements, &mut state.base, by),
            Err(error) => Err(error),
        };
        match &merged {
            Ok(()) => state.adds = 0,
            Err(_) => state.base.clear(), // Some of the tally may be in it, so it is nothing to put the tally on: the next get merges.
        }
        merged
    }

    /// Whether some of the tally is in the table already, because a merge came to its deadline. It must be finished before anything is added: a larger
    /// tally would be applied from its beginning.
    fn is_half_applied(&self, worker: u32) -> bool {
        let outbox = &self.outboxes[worker as usize];
        outbox.progress(outbox.published()) > 0
    }

    /// Fetches everything where this worker may keep a tally. False where it never does.
    #[inline]
    pub(super) fn get_beside_tally(&self, worker: u32, out: &mut [u8], by: Deadline) -> Result<bool, Error> {
        let Some(tally) = &self.tally else { return Ok(false) };
        loop {
            let moves = tally.moves.load(SeqCst);
            if !moves.is_multiple_of(2) || self.has_unapplied(worker) {
                self.get_with_tally(tally, worker, out, by)?;
                return Ok(true);
            }
            self.read_elements(0, 0..self.store.layout().elements, out, by)?;
            // Another thread has begun a tally meanwhile, on an older base perhaps: what this one saw must not be gone at its next look.
            if tally.moves.load(SeqCst) == moves {
                return Ok(true);
            }
        }
    }

    fn get_with_tally(&self, tally: &Tally, worker: u32, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let outbox = &self.outboxes[worker as usize];
        let mut state = tally.lock(|| self.operation("get"), by)?;
        state.calls += 1;
        match outbox.tally() {
            // Who goes on adding merges with an add, and begins anew in the same go.
            Some(entry) if state.calls < 2 * state.allowance && entry.delta.len() == state.base.len() => {
                let sum = outbox.delta(entry.delta);
                match &state.step {
                    Some(step) => step.step_beside(self.dtype, self.place.rows.start * self.cols, &state.base, sum, out),
                    None => self.put_together(self.place.spec.updater, &state.base, sum, out),
                }
            }
            _ => {
                let _moving = Moving::begin(tally);
                self.merge(&mut state, worker, by)?;
                out.copy_from_slice(&state.base);
            }
        }
        Ok(())
    }

    /// Brings the share up to date for reading some of it. Where there are tallies none is begun until the caller lets go of the answer: it would be on an
    /// older base than what the caller reads.
    pub(super) fn catch_up_for_rows(&self, worker: u32, own_adds: u64, by: Deadline) -> Result<Option<MutexGuard<'_, State>>, Error> {
        let Some(tally) = &self.tally else { return self.catch_up(worker, own_adds, None, by).map(|()| None) };
        let state = tally.lock(|| self.operation("get"), by)?;
        if self.has_unapplied(worker) {
            self.apply_all_published(worker, None, by)?;
        }
        Ok(Some(state))
    }

    fn put_together(&self, updater: Updater, old: &[u8], delta: &[u8], new: &mut [u8]) {
        let block = Block { old, delta, new, states_old: [&[], &[]], states_new: [&mut [], &mut []] };
        apply(updater, self.dtype, &AddOptions::default(), block);
    }
}
