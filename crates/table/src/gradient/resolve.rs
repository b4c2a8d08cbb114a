//! From an entry's stamp to the step it makes: which rule, which number of update, which rate.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use syncline_cluster::Error;
use syncline_optimizer::{Block, KeyState, Optimizer, Progress, Step};
use syncline_shm::bulletin::Number;
use syncline_shm::store::AtomicWord;
use syncline_tensor::DType;

use super::counts::{Count, Counter, Notes, Stamp};
use super::{Gradient, Rule};
use crate::AddOptions;
use crate::share::Selection;

/// What an add or a round does to every block it meets.
#[derive(Clone)]
pub(crate) struct Resolved {
    pub(crate) rule: Arc<Rule>,
    /// None: the gradient becomes the value.
    pub(crate) step: Option<Step>,
}

/// Steps that need not be worked out anew for each small add.
pub(crate) struct Steady {
    number: Number,
    whole: Resolved,
    rows: Resolved,
    /// Several whole gradients may be added up first.
    adds_up: bool,
}

impl Steady {
    fn new(resolved: &Resolved) -> Option<Steady> {
        let rule = &resolved.rule;
        let adds_up = rule.touched.len() == 1 && rule.optimizer.as_ref().is_some_and(Optimizer::adds_up);
        let steady = || Steady { number: rule.number, whole: resolved.clone(), rows: resolved.clone().of_rows(), adds_up };
        rule.is_steady().then(steady)
    }

    /// The step of a sum of whole gradients, if that is as good as a step by each.
    #[inline]
    pub(super) fn of_sums(&self) -> Option<&Resolved> {
        self.adds_up.then_some(&self.whole)
    }
}

impl Resolved {
    /// What an entry says whose gradient is the sum of so many.
    pub(crate) fn stamp_of_sum(&self, gradients: u64) -> AddOptions {
        Stamp { page: self.rule.number.page, count: gradients, updates: gradients }.to_options()
    }

    /// Makes `new` of `old` by a gradient of the same numbers, from element `at` of the table on. For rules without states.
    pub(crate) fn step_beside(&self, dtype: DType, at: u64, old: &[u8], grad: &[u8], new: &mut [u8]) {
        let Some(step) = &self.step else { return };
        let block = Block { dtype, at, weight: new, grad_dtype: dtype, grad, states: &mut [] };
        let done = step.apply_from(old, block, None);
        assert!(done.is_ok(), "a step on {dtype}: {done:?}");
    }

    /// Whether a gradient of rows leaves the other rows as they are.
    pub(crate) fn is_lazy(&self) -> bool {
        self.step.as_ref().is_some_and(Step::is_lazy)
    }

    /// As it is for a gradient that has rows only.
    pub(crate) fn of_rows(mut self) -> Resolved {
        self.step = self.step.map(|step| step.of_rows());
        self
    }
}

impl Gradient {
    /// The stamp of an add that is staged now: by the newest rule, and in async mode with its number from `count`.
    pub(crate) fn stamp(&self, count: Option<&AtomicWord>) -> Result<Stamp, Error> {
        loop {
            let rule = self.newest()?;
            let (page, generation) = (rule.number.page, rule.generation());
            let Some(optimizer) = &rule.optimizer else { return Ok(Stamp { page, count: 0, updates: 0 }) };
            let Some(count) = count else {
                return Ok(Stamp { page, count: 0, updates: Count(self.board.count()).get(generation) });
            };
            // None: another process has heard of a newer generation and begun to count it.
            let Some(count) = Count(count).next(generation) else { continue };
            return Ok(Stamp { page, count, updates: self.note_update(&rule, optimizer.settings.begin_num_update + count) });
        }
    }

    /// Counts an async add of these rows and calls `make` with its step. False, and not counted, if it cannot do without an entry: where norms are to be
    /// measured, or rows to be changed that it does not have.
    ///
    /// A step that is the same every time is kept in `steady` and lent from there: small adds are quicker than working it out.
    #[inline]
    pub(super) fn with_step_now(
        &self,
        steady: &mut Option<Steady>,
        count: Counter<'_>,
        rows: Selection<'_>,
        make: impl FnOnce(&Resolved) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let whole = matches!(rows, Selection::All);
        let newest = self.board.newest();
        if let Some(kept) = steady
            && kept.number == newest
        {
            let resolved = if whole { &kept.whole } else { &kept.rows };
            if !whole && !resolved.is_lazy() {
                return Ok(false);
            }
            if resolved.step.is_none() || count.next(newest.chapter) {
                return make(resolved).map(|()| true);
            }
        }
        match self.resolve_anew(steady, count, whole)? {
            Some(resolved) => make(&resolved).map(|()| true),
            None => Ok(false),
        }
    }

    #[cold]
    fn resolve_anew(&self, steady: &mut Option<Steady>, count: Counter<'_>, whole: bool) -> Result<Option<Resolved>, Error> {
        let rule = self.newest()?;
        let lazy = rule.optimizer.as_ref().is_some_and(|optimizer| optimizer.method.is_lazy());
        if rule.needs_norms() || !whole && !lazy {
            return Ok(None);
        }
        let stamp = self.stamp(Some(count.word))?;
        let resolved = self.resolve_add(stamp)?;
        *steady = Steady::new(&resolved);
        Ok(Some(if whole { resolved } else { resolved.of_rows() }))
    }

    /// Whether there is a newer rule than `last`, which becomes the newest.
    #[inline]
    pub(super) fn has_changed(&self, last: &mut Number) -> bool {
        let newest = self.board.newest();
        std::mem::replace(last, newest) != newest
    }

    /// Works out the step of the newest rule, if it is always the same.
    #[cold]
    pub(super) fn look_at_newest(&self, steady: &mut Option<Steady>) -> Result<(), Error> {
        let rule = self.newest()?;
        *steady = match rule.is_steady() && rule.optimizer.is_some() {
            true => Steady::new(&self.step_of(rule, 1, 1, None)?),
            false => None,
        };
        Ok(())
    }

    /// Counts the gradients of a sum that has been stepped by.
    pub(crate) fn count_sum(&self, count: &AtomicWord, options: &AddOptions) {
        let Some(stamp) = Stamp::of_options(options) else { return };
        if let Ok(rule) = self.rule(stamp.page) {
            Count(count).advance(rule.generation(), stamp.count);
        }
    }

    /// Tells the family of update `count`, and hears of the largest; of interest only to schedules.
    fn note_update(&self, rule: &Rule, count: u64) -> u64 {
        match &rule.optimizer {
            Some(optimizer) if optimizer.settings.schedule.is_some() => Count(self.board.count()).raise(rule.generation(), count),
            _ => count,
        }
    }

    /// The step of an async add.
    pub(crate) fn resolve_add(&self, stamp: Stamp) -> Result<Resolved, Error> {
        self.step_of(self.rule(stamp.page)?, stamp.count, stamp.updates, None)
    }

    /// The same after an update at this rate; and its own rate, both before multipliers. Only LARS asks.
    pub(crate) fn resolve_add_after(&self, stamp: Stamp, last_rate: Option<f64>) -> Result<(Resolved, f64), Error> {
        let rule = self.rule(stamp.page)?;
        let rate = rule.optimizer.as_ref().map_or(0.0, |optimizer| optimizer.learning_rate(stamp.updates));
        Ok((self.step_of(rule, stamp.count, stamp.updates, last_rate)?, rate))
    }

    /// The step of an async add that meets a stripe where a newer generation has begun: the first of that rule.
    pub(crate) fn resolve_late(&self, page: u64) -> Result<Resolved, Error> {
        let mut late = self.step_of(self.rule(page)?, 1, 1, None)?;
        // Its norms were not measured by this rule: it steps in no proportion to them.
        late.step = late.step.map(|step| if step.needs_norms() { step.with_norm_values([0.0; 2]) } else { step });
        Ok(late)
    }

    fn step_of(&self, rule: Arc<Rule>, count: u64, updates: u64, last_rate: Option<f64>) -> Result<Resolved, Error> {
        let Some(optimizer) = self.optimizer(&rule)? else { return Ok(Resolved { rule, step: None }) };
        let before = count.max(1) - 1;
        let keeps = matches!(optimizer.method, syncline_optimizer::Method::Nadam { .. });
        let earlier = if keeps { self.last_state(rule.generation()) } else { KeyState::default() };
        let mut state = optimizer.state_after(before, earlier);
        state.last_rate = last_rate.or(state.last_rate);
        let step = optimizer.begin(&self.key, &mut Progress { num_update: updates }, &mut state);
        if keeps {
            *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = (rule.generation(), state);
        }
        Ok(Resolved { rule, step: Some(step) })
    }

    fn last_state(&self, generation: u32) -> KeyState {
        let last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.0 == generation { last.1 } else { KeyState::default() }
    }

    /// The step of a round whose lowest worker's entry has this stamp, after what the round before left; and what it leaves itself.
    pub(super) fn resolve_round(&self, stamp: Stamp, before: Notes) -> Result<(Resolved, Notes), Error> {
        let mut rule = self.rule(stamp.page)?;
        if before.page != 0 && (before.generation, before.page) > (rule.generation(), rule.number.page) {
            rule = self.rule(before.page)?; // An entry from before the last change of the rule: that one stands.
        }
        let mut notes =
            Notes { round: before.round + 1, generation: rule.generation(), page: rule.number.page, state: KeyState::default() };
        let Some(optimizer) = self.optimizer(&rule)? else { return Ok((Resolved { rule, step: None }, notes)) };
        if before.generation == rule.generation() {
            notes.state = before.state;
        }
        let step = optimizer.begin(&self.key, &mut Progress { num_update: stamp.updates }, &mut notes.state);
        Ok((Resolved { step: Some(step), rule }, notes))
    }

    /// Tells the family what a round left.
    pub(super) fn note_round(&self, rule: &Rule, notes: &Notes) {
        self.note_update(rule, notes.state.count.unwrap_or(0));
    }

    /// The rule's optimizer, if it has one and this table has numbers for it.
    fn optimizer<'a>(&self, rule: &'a Rule) -> Result<Option<&'a Optimizer>, Error> {
        match &rule.optimizer {
            Some(optimizer) if super::wide(self.dtype).is_none() => Err(Error::Configuration {
                detail: format!("optimizer `{}` needs a floating-point dtype, not {}", optimizer.method.name(), self.dtype.name()),
            }),
            optimizer => Ok(optimizer.as_ref()),
        }
    }

    /// Why a rule that follows norms of the whole array does not work here.
    #[cold]
    fn split_norms(&self, optimizer: &str) -> Error {
        let hosts = self.hosts;
        Error::Configuration {
            detail: format!(
                "optimizer `{optimizer}` follows norms of the whole array, and key {} is split over {hosts} servers\nhint: set the optimizer before the key is made, or let larger arrays live whole (MXNET_KVSTORE_BIGARRAY_BOUND)",
                self.key
            ),
        }
    }

    /// Refuses an optimizer that this table could not follow.
    pub(crate) fn check_optimizer(&self, optimizer: &Optimizer) -> Result<(), Error> {
        if optimizer.needs_norms() && self.hosts > 1 { Err(self.split_norms(optimizer.method.name())) } else { Ok(()) }
    }

    /// Refuses an add that nothing could be done with, at its caller.
    pub(crate) fn check(&self, sync: bool) -> Result<(), Error> {
        let newest = self.board.newest().to_word();
        if newest != 0 && self.agreed.load(Relaxed) == newest {
            return Ok(()); // Every small add comes here.
        }
        let rule = self.newest()?;
        if self.optimizer(&rule)?.is_none() && !sync {
            return Err(Error::Configuration {
                detail: "an asynchronous gradient needs an optimizer, and none was set\nhint: set the optimizer before the first push, or use a synchronous store".into(),
            });
        }
        if rule.needs_norms() && self.hosts > 1 {
            return Err(self.split_norms(rule.optimizer.as_ref().map_or("", |optimizer| optimizer.method.name())));
        }
        self.agreed.store(rule.number.to_word(), Relaxed);
        Ok(())
    }
}
