//! Saves and loads the states of a distributed store: worker 0 has the file, the others bring and get their residuals.
//!
//! ```text
//!  all   agree: save to PATH, these keys                  all   agree: load PATH, these keys
//!  each key   residuals to worker 0, which writes them    0     opens and checks the file; the optimizer in it becomes the store's
//!             and what the servers keep                   each key   worker 0 writes to the servers, residuals to their workers
//!  all   agree: done                                      all   agree: done
//! ```
//! A worker that fails says so in place of its next agreement, and then every worker gets an error with its words.

use std::path::Path;
use std::sync::Arc;

use syncline_cluster::{Deadline, Error};
use syncline_collective::How;
use syncline_optimizer::{KeyState, Optimizer, Progress};
use syncline_table::{GradientStates, StateLane};
use syncline_wire::Fingerprint;

use super::Shared;
use super::saving::{Kept, no_optimizer, read_residuals, read_states, write};
use crate::distributed::{Distributed, TableKey};
use crate::slot::{Held, Slot};
use crate::states::{KeyStates, SavedKey, SavedLane, StateReader};

/// One save or load that all workers take part in.
pub(super) struct Together<'a> {
    job: &'a Distributed,
    what: &'static str,
    path: &'a Path,
    by: Deadline,
}

impl<'a> Together<'a> {
    pub(super) fn new(job: &'a Distributed, what: &'static str, path: &'a Path, by: Deadline) -> Together<'a> {
        Together { job, what, path, by }
    }

    /// Goes on when everybody has come this far without a failure.
    fn agree<T>(&self, step: &str, outcome: Result<T, Error>) -> Result<T, Error> {
        let (job, name) = (&self.job.member.job, format!("{} {}: {step}", self.what, self.path.display()));
        match outcome {
            Ok(value) => {
                job.agree(&name, Fingerprint::of(self.what).name(&name).finish(), self.what, &[], self.by)?;
                Ok(value)
            }
            Err(error) => {
                let text: String = error.to_string().chars().take(500).collect();
                let failed = Fingerprint::of("failed").name(&text).number("rank", job.rank().into()).finish();
                // The others fail with this worker's words; it fails with its own.
                let _ = job.agree(&format!("{name} failed: {text}"), failed, self.what, &[], self.by);
                Err(error)
            }
        }
    }

    fn how(&self) -> How<'_> {
        How { site: self.what, by: self.by }
    }

    /// All workers have the same keys, or hear which differ.
    fn begin(&self, slots: &[Arc<Slot>]) -> Result<(), Error> {
        let keys: Vec<String> = slots.iter().map(|slot| slot.spec.key.to_string()).collect();
        let keys = match keys.len() {
            0..=20 => keys.join(" "),
            many => {
                format!("{} … {many} keys, fingerprint {:?}", keys[..10].join(" "), Fingerprint::of("keys").name(&keys.join("\n")).finish())
            }
        };
        // What was pushed before counts: rounds are complete, and nobody pushes until all are done.
        let settled = slots.iter().try_for_each(|slot| table(slot).table().settle(self.by));
        self.agree(&format!("keys {keys}"), settled)
    }

    pub(super) fn save(&self, slots: &[Arc<Slot>], with_optimizer: bool) -> Result<(), Error> {
        self.begin(slots)?;
        let saved = match self.job.worker {
            0 => self.write(slots, with_optimizer),
            _ => slots.iter().try_for_each(|slot| self.send_residual(slot)),
        };
        self.agree("done", saved)
    }

    /// Worker 0's part of a save.
    fn write(&self, slots: &[Arc<Slot>], with_optimizer: bool) -> Result<(), Error> {
        let mut asked = 0;
        let written = match self.job.optimizer(self.by)? {
            None => Err(no_optimizer(self.what)),
            Some(optimizer) => {
                let kept = |slot: &Slot| {
                    asked += 1;
                    self.collect(slot)
                };
                let progress = self.progress(slots)?;
                write(self.path, slots, &optimizer, progress, with_optimizer, self.job.workers as usize, kept)
            }
        };
        // The others bring their residuals whatever became of the file.
        for slot in &slots[asked..] {
            self.gather(slot)?;
        }
        written
    }

    /// The largest count of any key is what schedules go by.
    fn progress(&self, slots: &[Arc<Slot>]) -> Result<Progress, Error> {
        let mut num_update = 0;
        for slot in slots {
            num_update = num_update.max(table(slot).table().key_state(self.by)?.count.unwrap_or(0));
        }
        Ok(Progress { num_update })
    }

    /// What the servers keep of a key, and what the workers have not said of it.
    fn collect(&self, slot: &Slot) -> Result<Kept, Error> {
        let residuals = self.gather(slot)?;
        let states = table(slot).table().states(self.by)?;
        if states.state == KeyState::default() {
            return Ok((None, residuals));
        }
        let lanes = states.lanes.into_iter().map(|lane| SavedLane { name: lane.name, dtype: lane.dtype, bytes: lane.bytes });
        Ok((Some(KeyStates { state: states.state, lanes: lanes.collect() }), residuals))
    }

    /// All workers' residuals of a key, in order of worker; none at all if nobody has any.
    fn gather(&self, slot: &Slot) -> Result<Vec<Vec<f32>>, Error> {
        let parts = self.job.member.collectives.gather(&residual(slot), 0, self.how())?.unwrap_or_default();
        let residuals: Vec<Vec<f32>> = parts.iter().map(|part| bytemuck::pod_collect_to_vec(part)).collect();
        if let Some(odd) = residuals.iter().position(|residual| !residual.is_empty() && residual.len() != slot.spec.elements()) {
            let detail = format!("worker {odd} brought {} numbers for key {}", residuals[odd].len(), slot.spec.key);
            return Err(Error::ShapeMismatch { operation: self.what.into(), detail });
        }
        Ok(if residuals.iter().all(Vec::is_empty) { Vec::new() } else { residuals })
    }

    fn send_residual(&self, slot: &Slot) -> Result<(), Error> {
        self.job.member.collectives.gather(&residual(slot), 0, self.how()).map(drop)
    }

    pub(super) fn load(&self, shared: &Shared) -> Result<(), Error> {
        let slots = shared.sorted();
        self.begin(&slots)?;
        let opened = match self.job.worker {
            0 => StateReader::open(self.path).map(Some),
            _ => Ok(None),
        };
        let checked = opened.and_then(|reader| match reader {
            None => Ok(None),
            Some(reader) => {
                let (optimizer, found) = shared.checked_states(&reader, self.job.optimizer(self.by)?)?;
                let saved: Vec<Option<SavedKey>> = slots
                    .iter()
                    .map(|slot| found.iter().find(|(other, _)| Arc::ptr_eq(slot, other)).map(|(_, saved)| (*saved).clone()))
                    .collect();
                // Anew also without another optimizer: keys that the file does not have begin as if it had just been set.
                shared.check_optimizer(self.what, &optimizer)?;
                self.job.begin_anew(&optimizer, self.by)?;
                Ok(Some((reader, optimizer, saved)))
            }
        });
        let checked = self.agree("checked", checked)?;
        let mut filled = Ok(());
        for (at, slot) in slots.iter().enumerate() {
            // A failure ends the writing, not the scattering, which the others wait in.
            let parts = match &checked {
                Some((reader, optimizer, saved)) => {
                    let result = saved[at].as_ref().map_or(Ok(Vec::new()), |saved| self.fill(reader, saved, slot, optimizer));
                    Some(result.unwrap_or_else(|error| {
                        filled = Err(error);
                        Vec::new()
                    }))
                }
                None => None,
            };
            let mine = self.scatter(parts)?;
            *slot.residuals.lock() = if mine.is_empty() { Vec::new() } else { vec![bytemuck::pod_collect_to_vec(&mine)] };
        }
        self.agree("done", filled)
    }

    /// Writes the states of one key to its servers and returns the residuals.
    fn fill(&self, reader: &StateReader, saved: &SavedKey, slot: &Slot, optimizer: &Optimizer) -> Result<Vec<Vec<f32>>, Error> {
        if let Some(states) = read_states(reader, saved, slot, optimizer)? {
            let lanes = states.lanes.into_iter().map(|lane| StateLane { name: lane.name, dtype: lane.dtype, bytes: lane.bytes });
            let states = GradientStates { optimizer: Some(optimizer.clone()), state: states.state, lanes: lanes.collect() };
            table(slot).table().set_states(&states, self.by)?;
        }
        read_residuals(reader, saved, slot)
    }

    /// Gives each worker its residual. Those of workers that are no more are added to those that are: nothing that was promised is lost.
    fn scatter(&self, residuals: Option<Vec<Vec<f32>>>) -> Result<Vec<u8>, Error> {
        let workers = self.job.workers as usize;
        let parts: Option<Vec<Vec<f32>>> = residuals.map(|residuals| {
            let mut parts = vec![Vec::new(); workers];
            for (worker, residual) in residuals.into_iter().enumerate() {
                let part = &mut parts[worker % workers];
                match part.len() == residual.len() {
                    true => part.iter_mut().zip(residual).for_each(|(sum, more)| *sum += more),
                    false if part.is_empty() => *part = residual,
                    false => {} // a worker that never sent
                }
            }
            parts
        });
        let parts: Option<Vec<&[u8]>> = parts.as_ref().map(|parts| parts.iter().map(|part| bytemuck::cast_slice(part)).collect());
        self.job.member.collectives.scatter(parts.as_deref(), 0, self.how())
    }
}

fn table(slot: &Slot) -> &TableKey {
    match &slot.held {
        Held::Table(table) => table,
        Held::Memory { .. } => unreachable!("a key of a job"),
    }
}

/// What this worker has not said of a key; nothing before it began to compress.
fn residual(slot: &Slot) -> Vec<u8> {
    slot.residuals.lock().first().map(|residual| bytemuck::cast_slice(residual).to_vec()).unwrap_or_default()
}
