//! What an optimizer has learnt of a table, to be kept and brought back: its lanes by name, and the count of updates.
//!
//! Behind its nine lanes of states a table has one more that lies nowhere: the *notes*, the same for every row, through which the count of
//! updates is read and written wherever rows are.

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{KeyState, Optimizer};
use syncline_tensor::DType;

use super::counts::{Count, Notes};
use super::{LANES, Rule, wide};
use crate::share::{LaneInfo, LocalShare};
use crate::table::Inner;
use crate::{Spec, Table, Updater};

/// Bytes of the notes.
const NOTES: usize = 24;
/// The lane they are read and written as.
const NOTES_LANE: usize = LANES + 1;

/// What an optimizer keeps of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientStates {
    /// The optimizer itself; none where there is no rule but to assign.
    pub optimizer: Option<Optimizer>,
    /// How far the key has come.
    pub state: KeyState,
    /// One array of the table's size for each state, as [`Optimizer::lanes`] names them.
    pub lanes: Vec<StateLane>,
}

/// One state of all elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLane {
    /// `mean`, `var`, `master` …
    pub name: String,
    /// f32 or f64.
    pub dtype: DType,
    /// Its numbers, in the order of the table's.
    pub bytes: Vec<u8>,
}

/// The lane through which the notes of a gradient table travel.
pub(crate) fn notes_lane(spec: &Spec) -> Option<LaneInfo> {
    let floats = spec.updater == Updater::Gradient && wide(spec.dtype()).is_some();
    floats.then(|| LaneInfo { name: "notes".into(), dtype: DType::U8, row_bytes: NOTES })
}

fn to_bytes(state: &KeyState) -> [u8; NOTES] {
    let bits = |number: Option<f64>| number.map_or(u64::MAX, f64::to_bits);
    let words = [state.count.map_or(0, |count| count.saturating_add(1)), bits(state.m_schedule), bits(state.last_rate)];
    let mut bytes = [0; NOTES];
    bytes.chunks_mut(8).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    bytes
}

fn of_bytes(bytes: &[u8]) -> KeyState {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
    let number = |at: usize| Some(word(at)).filter(|bits| *bits != u64::MAX).map(f64::from_bits);
    KeyState { count: word(0).checked_sub(1), m_schedule: number(1), last_rate: number(2) }
}

impl LocalShare {
    /// How far the key has come under the newest rule.
    fn key_state(&self) -> Result<KeyState, Error> {
        let gradient = self.gradient();
        let rule = gradient.newest()?;
        let Some(optimizer) = &rule.optimizer else { return Ok(KeyState::default()) };
        let header = self.store.header();
        if self.counts_adds() {
            let mut state = optimizer.state_after(Count(header.count()).get(rule.generation()), KeyState::default());
            let [generation, rate, ..] = header.notes(0);
            if state.count.is_some() && generation.get() == u64::from(rule.generation()) {
                state.last_rate = Some(f64::from_bits(rate.get()));
            }
            return Ok(state);
        }
        let round = header.rounds().get();
        let notes = Notes::read(header.notes(round), round).filter(|notes| notes.generation == rule.generation());
        Ok(notes.map_or(KeyState::default(), |notes| notes.state))
    }

    fn set_key_state(&self, state: KeyState, by: Deadline) -> Result<(), Error> {
        let gradient = self.gradient();
        let rule = gradient.newest()?;
        let Some(optimizer) = &rule.optimizer else { return Ok(()) };
        let header = self.store.header();
        let count = state.count.unwrap_or(0);
        if self.counts_adds() {
            let _hand = self.hand(by)?; // A worker that is alone counts with it.
            Count(header.count()).set(rule.generation(), count.saturating_sub(optimizer.settings.begin_num_update));
            let [generation, rate, ..] = header.notes(0);
            rate.set(state.last_rate.unwrap_or(0.0).to_bits());
            generation.set(state.last_rate.map_or(0, |_| u64::from(rule.generation())));
        } else {
            let round = header.rounds().get();
            Notes { round, generation: rule.generation(), page: rule.number.page, state }.write(header.notes(round));
        }
        Count(gradient.board.count()).raise(rule.generation(), count);
        Ok(())
    }

    /// Rows of a lane: of states as the newest rule has them or will begin them, and of the notes.
    pub(crate) fn read_state_lane(&self, lane: usize, first_row: u64, out: &mut [u8], by: Deadline) -> Result<(), Error> {
        if lane == NOTES_LANE {
            let notes = to_bytes(&self.key_state()?);
            out.chunks_mut(NOTES).for_each(|row| row.copy_from_slice(&notes[..row.len()]));
            return Ok(());
        }
        let rule = self.gradient().newest()?;
        if lane > rule.lanes.len() {
            out.fill(0);
            return Ok(());
        }
        let first = (first_row - self.place.rows.start) * self.cols;
        let elements = first..first + (out.len() / self.store.layout().lanes[lane]) as u64;
        let mut bytes = Vec::new();
        self.copy_elements(&mut *self.hand(by)?, lane, elements, &super::Resolved { rule, step: None }, &mut bytes, by)?;
        out.copy_from_slice(&bytes);
        Ok(())
    }

    /// Overwrites rows of a lane of states, which begin anew first where they are not the newest rule's, or the notes.
    pub(crate) fn write_state_lane(&self, lane: usize, first_row: u64, bytes: &[u8], by: Deadline) -> Result<(), Error> {
        if lane == NOTES_LANE {
            return bytes.chunks_exact(NOTES).next().map_or(Ok(()), |notes| self.set_key_state(of_bytes(notes), by));
        }
        let rule = self.gradient().newest()?;
        if lane > rule.lanes.len() {
            return Ok(());
        }
        let width = self.store.layout().lanes[lane];
        let first = (first_row - self.place.rows.start) * self.cols;
        let end = first + (bytes.len() / width) as u64;
        let mut hand = self.hand(by)?;
        let (mut at, mut done) = (first, 0);
        while at < end {
            let index = self.store.stripe_of(at);
            let until = self.store.elements_of(index).end.min(end);
            let len = (until - at) as usize * width;
            let mut hold = self.take(&mut hand, index, by)?;
            if hold.generation() >> 40 != u64::from(rule.generation()) {
                self.start_states(&mut hold, &rule);
            }
            hold.contents_mut(lane, at..until).copy_from_slice(&bytes[done..done + len]);
            (at, done) = (until, done + len);
        }
        Ok(())
    }
}

impl Inner {
    /// The newest rule of a gradient table.
    pub(crate) fn newest_rule(&self) -> Result<Option<std::sync::Arc<Rule>>, Error> {
        self.gradient.as_ref().map(|gradient| gradient.newest()).transpose()
    }

    pub(crate) fn read_key_state(&self, by: Deadline) -> Result<KeyState, Error> {
        let mut notes = [0; NOTES];
        if self.spec.bytes() == 0 || notes_lane(&self.spec).is_none() {
            return Ok(KeyState::default());
        }
        self.read_lane(NOTES_LANE, 0, &mut notes, by)?;
        Ok(of_bytes(&notes))
    }

    pub(crate) fn write_key_state(&self, state: &KeyState, by: Deadline) -> Result<(), Error> {
        if self.spec.bytes() == 0 || notes_lane(&self.spec).is_none() {
            return Ok(());
        }
        self.homes_of_rows().into_iter().try_for_each(|first| self.write_lane(NOTES_LANE, first, &to_bytes(state), by))
    }
}

impl Table {
    /// What the optimizer keeps of this table, after this worker's adds. Meant for a moment in which nobody adds.
    ///
    /// # Errors
    /// `Configuration` where this is no gradient table.
    pub fn states(&self, by: Deadline) -> Result<GradientStates, Error> {
        let rule = self.rule("states")?;
        let inner = &self.inner;
        inner.settle(by)?;
        let elements = inner.spec.bytes() / inner.spec.dtype().size();
        let mut lanes = Vec::with_capacity(rule.lanes.len());
        for (lane, info) in (1..).zip(&rule.lanes) {
            let mut bytes = vec![0; elements * info.dtype.size()];
            inner.read_lane(lane, 0, &mut bytes, by)?;
            lanes.push(StateLane { name: info.name.clone(), dtype: info.dtype, bytes });
        }
        Ok(GradientStates { optimizer: rule.optimizer.clone(), state: inner.read_key_state(by)?, lanes })
    }

    /// Brings back what [`states`](Table::states) gave, here or in another job, under the optimizer that is set now. One worker calls
    /// it, and nobody adds meanwhile.
    ///
    /// # Errors
    /// `Configuration` where this is no gradient table or the optimizer keeps other states; `ShapeMismatch` for another size. Then nothing
    /// has changed.
    pub fn set_states(&self, states: &GradientStates, by: Deadline) -> Result<(), Error> {
        let rule = self.rule("set_states")?;
        let inner = &self.inner;
        let names = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let (wanted, given): (Vec<_>, Vec<_>) = (
            rule.lanes.iter().map(|lane| format!("{} {}", lane.name, lane.dtype)).collect(),
            states.lanes.iter().map(|lane| format!("{} {}", lane.name, lane.dtype)).collect(),
        );
        if wanted != given {
            let detail = format!(
                "table `{}`: these are the states of another optimizer: {}; the one that is set keeps {}",
                inner.name,
                names(given),
                names(wanted)
            );
            return Err(Error::Configuration { detail });
        }
        let elements = inner.spec.bytes() / inner.spec.dtype().size();
        if let Some(lane) = states.lanes.iter().find(|lane| lane.bytes.len() != elements * lane.dtype.size()) {
            let detail = format!("state `{}` has {} elements, the table {elements}", lane.name, lane.bytes.len() / lane.dtype.size());
            return Err(Error::ShapeMismatch { operation: format!("table `{}`: set_states", inner.name), detail });
        }
        inner.settle(by)?;
        for (lane, state) in (1..).zip(&states.lanes) {
            inner.write_lane(lane, 0, &state.bytes, by)?;
        }
        inner.write_key_state(&states.state, by)
    }

    fn rule(&self, what: &str) -> Result<std::sync::Arc<Rule>, Error> {
        self.inner.vigil.usable(&self.inner.name)?;
        self.inner.newest_rule()?.ok_or_else(|| Error::Configuration {
            detail: format!("table `{}`: {what}: only a gradient table has states of an optimizer", self.inner.name),
        })
    }
}
