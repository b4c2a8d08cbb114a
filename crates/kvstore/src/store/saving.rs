//! Optimizer states to a file and back.

use std::path::Path;
use std::sync::Arc;

use syncline_cluster::{Deadline, Error};
use syncline_optimizer::{Optimizer, Progress};
use syncline_tensor::DType;

use super::together::Together;
use super::{Home, KvStore, Shared};
use crate::memory::not_updating;
use crate::slot::{Held, Slot};
use crate::states::{
    About, KeyStates, SavedKey, StateReader, StateWriter, check_key, check_method, read_lanes, residual_name, tensor_name,
};

const OPTIMIZER: &str = "optimizer";

/// A key of this store, and what the file says of it.
type Found<'r> = (Arc<Slot>, &'r SavedKey);

/// What a save writes of one key: what its optimizer keeps, if it has begun, and the residuals of its senders.
pub(super) type Kept = (Option<KeyStates>, Vec<Vec<f32>>);

impl KvStore {
    /// Writes what the optimizer keeps of all keys, with residuals of compression and, if asked, the optimizer itself, to one file. A crash leaves the old file or the
    /// new one. In a distributed store every worker calls it, between the same pushes; worker 0 writes.
    ///
    /// # Errors
    /// `Configuration` without an optimizer, `System` when the file cannot be written.
    pub fn save_optimizer_states(&self, path: &Path, with_optimizer: bool, by: Deadline) -> Result<(), Error> {
        const WHAT: &str = "save_optimizer_states";
        not_updating(WHAT)?;
        self.flush(by)?;
        match &self.shared.home {
            Home::Memory(rule) => {
                let Some(optimizer) = rule.optimizer() else { return Err(no_optimizer(WHAT)) };
                let slots = self.shared.sorted();
                let kept = |slot: &Slot| match &slot.held {
                    Held::Memory { key, rule } => Ok((key.states(rule), slot.residuals.lock().clone())),
                    Held::Table(_) => unreachable!("a key of this process"),
                };
                let senders = slots.iter().map(|slot| slot.residuals.lock().len()).max().unwrap_or(0);
                write(path, &slots, &optimizer, rule.progress(), with_optimizer, senders, kept)
            }
            Home::Job(job) => Together::new(job, WHAT, path, by).save(&self.shared.sorted(), with_optimizer),
        }
    }

    /// Makes the states of a file, saved by any number of workers and servers, those of this store. An optimizer in the file becomes the store's; otherwise one of the same
    /// name must have been set. Keys that the file does not have begin anew. In a distributed store every worker calls it.
    ///
    /// # Errors
    /// `UnknownKey` for a key that this store does not have, `ShapeMismatch` for one of another shape, `Configuration` for another optimizer: then nothing has changed.
    pub fn load_optimizer_states(&self, path: &Path, by: Deadline) -> Result<(), Error> {
        const WHAT: &str = "load_optimizer_states";
        not_updating(WHAT)?;
        self.flush(by)?;
        match &self.shared.home {
            Home::Memory(rule) => {
                let reader = StateReader::open(path)?;
                let (optimizer, found) = self.shared.checked_states(&reader, rule.optimizer())?;
                if reader.about.has_optimizer {
                    rule.set_optimizer(optimizer.clone());
                }
                rule.set_progress(Progress { num_update: reader.about.num_update });
                for slot in self.shared.keys.slots() {
                    if let Held::Memory { key, .. } = &slot.held {
                        key.clear_states();
                    }
                    slot.residuals.lock().clear();
                }
                for (slot, saved) in found {
                    if let (Held::Memory { key, rule }, Some(states)) = (&slot.held, read_states(&reader, saved, &slot, &optimizer)?) {
                        key.set_states(rule, states);
                    }
                    *slot.residuals.lock() = read_residuals(&reader, saved, &slot)?;
                }
                Ok(())
            }
            Home::Job(job) => Together::new(job, WHAT, path, by).load(&self.shared),
        }
    }
}

pub(super) fn no_optimizer(operation: &str) -> Error {
    Error::Configuration {
        detail: format!("{operation}: this store has no optimizer, so there are no states\nhint: call set_optimizer first"),
    }
}

impl Shared {
    /// All keys, in order.
    pub(super) fn sorted(&self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<Arc<Slot>> = self.keys.slots().cloned().collect();
        slots.sort_by(|a, b| a.spec.key.cmp(&b.spec.key));
        slots
    }

    /// The optimizer that the states belong to, and the keys they are of; everything that can be wrong with the file is found here.
    pub(super) fn checked_states<'r>(
        &self,
        reader: &'r StateReader,
        current: Option<Optimizer>,
    ) -> Result<(Optimizer, Vec<Found<'r>>), Error> {
        let refused = |detail: String| Error::System { operation: reader.operation().to_owned(), detail };
        let optimizer = match (reader.about.has_optimizer, current) {
            (true, _) => {
                let length = reader.shape(OPTIMIZER).map_or(0, |shape| shape.iter().product());
                let message = reader.tensor(OPTIMIZER, DType::U8, &[length])?;
                Optimizer::decode(&message).map_err(|error| refused(error.to_string()))?
            }
            (false, Some(optimizer)) => optimizer,
            (false, None) => return Err(no_optimizer(reader.operation())),
        };
        check_method(reader.operation(), &reader.about, &optimizer)?;
        let mut found = Vec::with_capacity(reader.about.keys.len());
        for saved in &reader.about.keys {
            let slot = self.slot(reader.operation(), &saved.key)?;
            check_key(reader, saved, &slot.spec, &optimizer)?;
            found.push((Arc::clone(slot), saved));
        }
        Ok((optimizer, found))
    }
}

/// Writes the file of a save; `kept` is asked once for each key, and answers with at most so many residuals.
pub(super) fn write(
    path: &Path,
    slots: &[Arc<Slot>],
    optimizer: &Optimizer,
    progress: Progress,
    with_optimizer: bool,
    senders: usize,
    mut kept: impl FnMut(&Slot) -> Result<Kept, Error>,
) -> Result<(), Error> {
    let mut names = vec![OPTIMIZER.to_owned()];
    for slot in slots {
        let lanes = optimizer.lanes(slot.spec.dtype).unwrap_or_default();
        names.extend(lanes.iter().map(|lane| tensor_name(&slot.spec.key, &lane.name)));
        names.extend((0..senders).map(|sender| residual_name(&slot.spec.key, sender)));
    }
    let mut writer = StateWriter::create(path, names.into_iter(), slots.len())?;
    let mut keys = Vec::with_capacity(slots.len());
    for slot in slots {
        let (state, residuals) = kept(slot)?;
        let (key, shape) = (&slot.spec.key, slot.spec.shape.dims());
        let mut saved = SavedKey { key: key.clone(), state: Default::default(), lanes: Vec::new(), residuals: residuals.len() as u32 };
        if let Some(state) = state {
            saved.state = state.state;
            for lane in state.lanes {
                writer.tensor(tensor_name(key, &lane.name), lane.dtype, shape, &lane.bytes)?;
                saved.lanes.push(lane.name);
            }
        }
        for (sender, residual) in residuals.iter().enumerate() {
            // A sender that has not sent yet has none, which reads as zeros.
            let shape = if residual.is_empty() { &[0][..] } else { shape };
            writer.tensor(residual_name(key, sender), DType::F32, shape, bytemuck::cast_slice(residual))?;
        }
        keys.push(saved);
    }
    if with_optimizer {
        let message = optimizer.encode().map_err(|error| Error::Configuration { detail: format!("save_optimizer_states: {error}") })?;
        writer.tensor(OPTIMIZER.into(), DType::U8, &[message.len()], &message)?;
    }
    let method = Some(optimizer.method.name().to_owned());
    writer.finish(&About { method, num_update: progress.num_update, has_optimizer: with_optimizer, keys })
}

/// What the optimizer kept of a key; nothing if it had not begun.
pub(super) fn read_states(reader: &StateReader, saved: &SavedKey, slot: &Slot, optimizer: &Optimizer) -> Result<Option<KeyStates>, Error> {
    if saved.lanes.is_empty() && saved.state.count.is_none() {
        return Ok(None);
    }
    Ok(Some(KeyStates { state: saved.state, lanes: read_lanes(reader, saved, &slot.spec, optimizer)? }))
}

/// The residuals of a key, in order of sender.
pub(super) fn read_residuals(reader: &StateReader, saved: &SavedKey, slot: &Slot) -> Result<Vec<Vec<f32>>, Error> {
    let read = |sender| {
        let name = residual_name(&saved.key, sender);
        if reader.shape(&name) == Some(&[0]) && slot.spec.elements() > 0 {
            return Ok(Vec::new());
        }
        Ok(bytemuck::pod_collect_to_vec(&reader.tensor(&name, DType::F32, slot.spec.shape.dims())?))
    };
    (0..saved.residuals as usize).map(read).collect()
}
