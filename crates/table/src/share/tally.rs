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
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use syncline_cluster::{Deadline, Error};
use syncline_shm::mortality;
use syncline_tensor::DType;

use super::emit::IntoArray;
use super::{LocalShare, Place, Selection};
use crate::gradient::Resolved;
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
    /// How often one was begun: a get that read the table meanwhile may have seen more than the base.
    begun: AtomicU64,
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

impl State {
    fn begin(&mut self, now: Instant) {
        (self.since, self.calls, self.adds) = (now, 0, 0);
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
            begun: AtomicU64::new(0),
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
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner) // The base is read anew with the next tally.
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
        mortality::is_crowded() || self.hand().was_followed(&self.store) && self.turns.hurries(sequence, self.bytes())
    }

    fn join_tally(
        &self,
        tally: &Tally,
        (worker, sequence): (u32, u64),
        delta: &[u8],
        step: Option<&Resolved>,
        by: Deadline,
    ) -> Result<bool, Error> {
        self.enter("add")?;
        let mut post = self.post(worker)?;
        let mut state = tally.lock();
        if !self.has_unapplied(worker) {
            self.begin_tally(tally, &mut state, step, by)?;
        } else if self.outboxes[worker as usize].tally().is_none() {
            return Ok(false); // An earlier add could not be applied and stands by itself.
        } else if state.calls >= state.allowance || !state.goes_by(step) || self.is_half_applied(worker) {
            let goes_on = state.goes_by(step) && (mortality::is_crowded() || self.hand().was_followed(&self.store));
            self.merge(tally, &mut state, worker, by)?;
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

    fn begin_tally(&self, tally: &Tally, state: &mut State, step: Option<&Resolved>, by: Deadline) -> Result<(), Error> {
        tally.begun.fetch_add(1, SeqCst); // Before the base is read: pairs with the looks in `get_beside_tally`.
        state.begin(Instant::now());
        state.step = step.cloned();
        state.base.resize(self.bytes(), 0);
        self.read_elements(0, 0..self.store.layout().elements, &mut state.base, by)
    }

    /// Brings the tally to the table, which becomes the base of the next.
    fn merge(&self, tally: &Tally, state: &mut State, worker: u32, by: Deadline) -> Result<(), Error> {
        tally.begun.fetch_add(1, SeqCst); // As in `begin_tally`.
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
        if merged.is_err() {
            state.base.clear(); // Some of the tally may be in it, so it is nothing to put the tally on: the next get merges.
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
            if self.has_unapplied(worker) {
                self.get_with_tally(tally, worker, out, by)?;
                return Ok(true);
            }
            let begun = tally.begun.load(SeqCst);
            self.read_elements(0, 0..self.store.layout().elements, out, by)?;
            // Another thread has begun a tally meanwhile, on an older base perhaps: what this one saw must not be gone at its next look.
            if tally.begun.load(SeqCst) == begun {
                return Ok(true);
            }
        }
    }

    fn get_with_tally(&self, tally: &Tally, worker: u32, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        let outbox = &self.outboxes[worker as usize];
        let mut state = tally.lock();
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
                self.merge(tally, &mut state, worker, by)?;
                out.copy_from_slice(&state.base);
            }
        }
        Ok(())
    }

    fn put_together(&self, updater: Updater, old: &[u8], delta: &[u8], new: &mut [u8]) {
        let block = Block { old, delta, new, states_old: [&[], &[]], states_new: [&mut [], &mut []] };
        apply(updater, self.dtype, &AddOptions::default(), block);
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use syncline_cluster::bootstrap::{Arguments, Environment, find};
    use syncline_cluster::{Job, Settings};
    use syncline_testkit::ranks::threads;

    use super::*;
    use crate::way::Way;
    use crate::{Spec, Tables};

    /// Two stripes of bytes and a bit.
    const SIZE: usize = 150_000;

    fn soon() -> Deadline {
        Deadline::after(Duration::from_secs(20))
    }

    #[test]
    fn a_merge_that_came_to_its_deadline_halfway_is_finished_before_anything_is_added() {
        mortality::pretend_a_crowd();
        let rendezvous = format!("unix:@half-a-merge-{}", std::process::id());
        threads(2, |rank| {
            let rank = rank.to_string();
            let environment = Environment::from_variables([
                ("SYNCLINE_RANK", rank.as_str()),
                ("SYNCLINE_WORLD_SIZE", "2"),
                ("SYNCLINE_RENDEZVOUS", rendezvous.as_str()),
                ("SYNCLINE_TOKEN", "t"),
            ]);
            let launch = find(&environment, &Arguments::default()).expect("a sound environment");
            let job = Arc::new(Job::join(&launch, &Settings::default(), soon()).expect("both come"));
            let tables = Tables::new(Arc::clone(&job));
            let table = tables.create(Spec::array(SIZE as u64).with_dtype(DType::U8), None, "here", soon()).expect("made");
            let Way::Here(share) = &table.inner.way else { panic!("both share memory") };
            let add = |by: Deadline, wait: bool| table.add(&[1; SIZE], None, &AddOptions::default(), wait, by);
            let together = || job.barrier(soon()).expect("both live");
            let get = || {
                let mut out = vec![0; SIZE];
                table.get(&mut out, None, soon()).expect("fetched");
                assert!(out.iter().all(|value| *value == out[0]), "each add is everywhere or nowhere, and once");
                out[0]
            };
            if job.rank() == 0 {
                add(soon(), false).expect("added");
                together();
                together();
                let late = add(Deadline::after(Duration::from_millis(100)), true);
                assert!(late.is_err(), "the second stripe is in another's hand");
                assert!(share.is_half_applied(0), "and the first is done");
                together();
                add(soon(), false).expect("added");
                assert_eq!(get(), 3);
            } else {
                together();
                let mut hand = share.hand();
                share.store.take(1, &hand).expect("free");
                let hold = hand.hold(&share.store, 1);
                together();
                together();
                drop(hold);
            }
            together();
            tables.finish(soon()).expect("finished");
            job.leave(soon()).expect("a polite end");
        });
    }
}
