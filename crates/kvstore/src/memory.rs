//! Keys in the plain memory of this process, and what a push does to them there.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use syncline_cluster::Error;
use syncline_optimizer::{Block, Key, KeyState, Optimizer, OptimizerError, Progress, Rows, Start};
use syncline_tensor::DType;
use syncline_tensor::kernels::cast;

use crate::gradient::Gradient;
use crate::row_sparse::RowSparse;
use crate::states::{KeyStates, SavedLane};
use crate::value::{Dense, DenseMut, KeySpec, Value};

/// A function of the user's that a local store calls for each push: the user's key, the sum of what was pushed, and the stored numbers to change.
///
/// What it changed before it fails stays changed. It must not call the store.
pub type Updater = Box<dyn FnMut(&Key, Value<'_>, DenseMut<'_>) -> Result<(), Error> + Send>;

/// What a push does, for all keys of the store.
#[derive(Default)]
pub(crate) struct Rule {
    held: Mutex<Held>,
    /// The name of the optimizer, if it is one that decides. Apart from `held`, which an updater has while it runs: who asks waits for nobody's.
    optimizes: Mutex<Option<&'static str>>,
}

#[derive(Default)]
struct Held {
    action: Action,
    /// Counts optimizers: states of an older one begin anew.
    generation: u64,
    progress: Progress,
}

#[derive(Default)]
enum Action {
    /// What was pushed replaces what was stored.
    #[default]
    Assign,
    Update(Updater),
    Optimize(Arc<Optimizer>),
}

/// One key.
pub(crate) struct MemoryKey {
    stored: Mutex<Stored>,
}

struct Stored {
    weight: Vec<u8>,
    generation: u64,
    lanes: Vec<Lane>,
    state: KeyState,
}

struct Lane {
    name: String,
    dtype: DType,
    bytes: Vec<u8>,
}

thread_local! {
    /// Whether this thread runs a user's updater: a call from there would wait for itself.
    static UPDATING: Cell<bool> = const { Cell::new(false) };
}

/// Refuses calls from inside of an updater.
#[inline]
pub(crate) fn not_updating(operation: &str) -> Result<(), Error> {
    if UPDATING.get() { Err(called_inside(operation)) } else { Ok(()) }
}

#[cold]
fn called_inside(operation: &str) -> Error {
    let detail = format!("{operation}: called from inside of an updater, which gets the stored value to change and may not call a store");
    Error::Configuration { detail }
}

impl Rule {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn optimizes(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.optimizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_updater(&self, updater: Option<Updater>) {
        let mut held = self.lock();
        held.action = updater.map_or(Action::Assign, Action::Update);
        *self.optimizes() = None;
    }

    /// Keys begin new states with their next push.
    pub(crate) fn set_optimizer(&self, optimizer: Optimizer) {
        let mut held = self.lock();
        held.generation += 1;
        held.progress = Progress::default();
        *self.optimizes() = Some(optimizer.method.name());
        held.action = Action::Optimize(Arc::new(optimizer));
    }

    /// The optimizer, to be changed: states stay.
    pub(crate) fn change<T>(&self, change: impl FnOnce(Option<&mut Optimizer>) -> T) -> T {
        match &mut self.lock().action {
            Action::Optimize(optimizer) => change(Some(Arc::make_mut(optimizer))),
            _ => change(None),
        }
    }

    pub(crate) fn optimizer(&self) -> Option<Optimizer> {
        match &self.lock().action {
            Action::Optimize(optimizer) => Some(Optimizer::clone(optimizer)),
            _ => None,
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().progress
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        self.lock().progress = progress;
    }

    /// Refuses a push of numbers that the optimizer cannot change.
    pub(crate) fn check(&self, operation: &str, spec: &KeySpec) -> Result<(), Error> {
        match *self.optimizes() {
            Some(optimizer) if !spec.dtype.is_float() => {
                let error = OptimizerError::NeedsFloat { optimizer, dtype: spec.dtype };
                Err(Error::Configuration { detail: format!("{operation}: key {}: {error}", spec.key) })
            }
            _ => Ok(()),
        }
    }

    fn generation(&self) -> u64 {
        self.lock().generation
    }
}

impl MemoryKey {
    pub(crate) fn new(spec: &KeySpec, initial: &Value<'_>) -> MemoryKey {
        let mut weight = vec![0; spec.bytes()];
        match initial {
            Value::Dense(dense) => weight.copy_from_slice(dense.bytes()),
            Value::RowSparse(rows) => rows.write_dense(&mut weight),
        }
        MemoryKey { stored: Mutex::new(Stored { weight, generation: 0, lanes: Vec::new(), state: KeyState::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pull(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.lock().weight);
    }

    pub(crate) fn pull_rows(&self, spec: &KeySpec, ids: &[i64], out: &mut [u8]) {
        let (stored, width) = (self.lock(), spec.row_bytes());
        for (id, row) in ids.iter().zip(out.chunks_exact_mut(width.max(1))) {
            row.copy_from_slice(&stored.weight[*id as usize * width..][..width]);
        }
    }

    pub(crate) fn push(&self, spec: &KeySpec, rule: &Rule, gradient: Gradient<'_>) -> Result<(), Error> {
        let mut stored = self.lock();
        let mut held = rule.lock();
        let generation = held.generation;
        let Held { action, progress, .. } = &mut *held;
        match action {
            Action::Assign => gradient.write_dense(spec, &mut stored.weight),
            Action::Update(updater) => {
                let weight = DenseMut::new(spec.dtype, spec.shape.dims(), &mut stored.weight)?;
                update(spec, updater, gradient, weight)?;
            }
            Action::Optimize(optimizer) => {
                let optimizer = Arc::clone(optimizer);
                stored.begin(spec, &optimizer, generation)?;
                let mut state = stored.state;
                let step = optimizer.begin(&spec.key, progress, &mut state);
                drop(held); // the others' keys need not wait for this one's numbers
                stored.apply(spec, step, gradient).map_err(|error| refused(spec, &error))?;
                stored.state = state;
            }
        }
        Ok(())
    }

    /// What the optimizer keeps of this key; nothing before its first push.
    pub(crate) fn states(&self, rule: &Rule) -> Option<KeyStates> {
        let stored = self.lock();
        if stored.generation == 0 || stored.generation != rule.generation() {
            return None;
        }
        let lanes = stored.lanes.iter().map(|lane| SavedLane { name: lane.name.clone(), dtype: lane.dtype, bytes: lane.bytes.clone() });
        Some(KeyStates { state: stored.state, lanes: lanes.collect() })
    }

    /// Makes these the states, checked before.
    pub(crate) fn set_states(&self, rule: &Rule, states: KeyStates) {
        let mut stored = self.lock();
        stored.generation = rule.generation();
        stored.state = states.state;
        stored.lanes = states.lanes.into_iter().map(|lane| Lane { name: lane.name, dtype: lane.dtype, bytes: lane.bytes }).collect();
    }

    /// Forgets what the optimizer kept.
    pub(crate) fn clear_states(&self) {
        let mut stored = self.lock();
        (stored.generation, stored.state) = (0, KeyState::default());
        stored.lanes.clear();
    }
}

fn update(spec: &KeySpec, updater: &mut Updater, gradient: Gradient<'_>, weight: DenseMut<'_>) -> Result<(), Error> {
    /// Also when the function panics.
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            UPDATING.set(false);
        }
    }
    let rows;
    let value = match &gradient {
        Gradient::Dense(bytes) => Value::Dense(Dense::new(spec.dtype, spec.shape.dims(), bytes)?),
        Gradient::Rows { ids, values } => {
            rows = RowSparse::new(spec.dtype, spec.shape.dims(), ids.to_vec(), values.to_vec())?;
            Value::RowSparse(&rows)
        }
    };
    UPDATING.set(true);
    let _ended = Ended;
    updater(&spec.key, value, weight)
}

fn refused(spec: &KeySpec, error: &OptimizerError) -> Error {
    Error::Configuration { detail: format!("push: key {}: {error}", spec.key) }
}

impl Stored {
    /// Lanes for this optimizer: those that are there, or new ones when they are another's.
    fn begin(&mut self, spec: &KeySpec, optimizer: &Optimizer, generation: u64) -> Result<(), Error> {
        let wanted = optimizer.lanes(spec.dtype).map_err(|error| refused(spec, &error))?;
        if self.generation == generation && self.lanes.len() == wanted.len() {
            return Ok(());
        }
        let make = |lane: syncline_optimizer::Lane| {
            let mut bytes = vec![0; spec.elements() * lane.dtype.size()];
            if lane.start == Start::Weights {
                cast(spec.dtype, &self.weight, lane.dtype, &mut bytes).expect("checked sizes");
            }
            Lane { name: lane.name, dtype: lane.dtype, bytes }
        };
        self.lanes = wanted.into_iter().map(make).collect();
        if self.generation != generation {
            self.state = KeyState::default();
        }
        self.generation = generation;
        Ok(())
    }

    fn apply(&mut self, spec: &KeySpec, step: syncline_optimizer::Step, gradient: Gradient<'_>) -> Result<(), OptimizerError> {
        let dtype = spec.dtype;
        let mut lanes: Vec<&mut [u8]> = self.lanes.iter_mut().map(|lane| &mut lane.bytes[..]).collect();
        let step = if step.needs_norms() {
            let whole = match &gradient {
                Gradient::Dense(bytes) => std::borrow::Cow::Borrowed(&bytes[..]),
                Gradient::Rows { .. } => {
                    let mut dense = vec![0; spec.bytes()];
                    gradient.write_dense(spec, &mut dense);
                    std::borrow::Cow::Owned(dense)
                }
            };
            let norms = step.measure(&Block::whole(dtype, &mut self.weight, &whole, &mut lanes))?;
            step.with_norms(&norms)
        } else {
            step
        };
        match gradient {
            Gradient::Dense(bytes) => step.apply(Block::whole(dtype, &mut self.weight, &bytes, &mut lanes)),
            Gradient::Rows { ids, values } => {
                let ids: Vec<u64> = ids.iter().map(|id| *id as u64).collect();
                let rows = Rows { row_len: spec.row_len(), ids: &ids };
                step.apply_rows(rows, Block::whole(dtype, &mut self.weight, &values, &mut lanes))
            }
        }
    }
}
