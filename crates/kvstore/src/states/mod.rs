//! What an optimizer keeps beside the weights, as a file: lanes, counts, residuals of compression and, if wanted, the optimizer itself.
//!
//! ```text
//! one safetensors file
//!   KEY/LANE            numbers of a lane, in the shape of the key: `3/momentum`, `fc1_weight/mean`
//!   KEY/residual.N      what sender N (a device, or a worker) has not said of its gradients yet
//!   optimizer           the optimizer as a message, if it was asked for
//!   __metadata__        which keys there are, with their counts; which optimizer made the lanes
//! ```
//! A file is written beside its place and renamed into it: there is the old one or the new one, whole.

mod file;

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;
use syncline_optimizer::{Key, KeyState, Optimizer};
use syncline_tensor::DType;

pub(crate) use file::{StateReader, StateWriter};

use crate::value::KeySpec;

/// What an optimizer keeps of one key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeyStates {
    pub(crate) state: KeyState,
    pub(crate) lanes: Vec<SavedLane>,
}

/// One lane of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SavedLane {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) bytes: Vec<u8>,
}

/// What the header of a file says of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedKey {
    pub(crate) key: Key,
    pub(crate) state: KeyState,
    pub(crate) lanes: Vec<String>,
    /// How many residuals follow.
    pub(crate) residuals: u32,
}

/// What the header of a file says of all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Which optimizer made the lanes; none if only residuals are here.
    pub(crate) method: Option<String>,
    pub(crate) num_update: u64,
    pub(crate) has_optimizer: bool,
    pub(crate) keys: Vec<SavedKey>,
}

/// What the tensor of a lane is called; a lane's name has no slash, so the last one parts them.
pub(crate) fn tensor_name(key: &Key, lane: &str) -> String {
    format!("{key}/{lane}")
}

/// What the tensor of a residual is called.
pub(crate) fn residual_name(key: &Key, sender: usize) -> String {
    tensor_name(key, &format!("residual.{sender}"))
}

/// Refuses states of another optimizer, before anything changes.
pub(crate) fn check_method(operation: &str, about: &About, optimizer: &Optimizer) -> Result<(), Error> {
    match &about.method {
        Some(method) if method != optimizer.method.name() => {
            let detail = format!("{operation}: the states are those of `{method}`, the optimizer is `{}`", optimizer.method.name());
            Err(Error::Configuration { detail })
        }
        _ => Ok(()),
    }
}

/// Refuses lanes and residuals that do not fit the key, before anything changes.
pub(crate) fn check_key(reader: &StateReader, saved: &SavedKey, spec: &KeySpec, optimizer: &Optimizer) -> Result<(), Error> {
    let refused = |detail: String| Error::Configuration { detail: format!("{}: key {}: {detail}", reader.operation(), spec.key) };
    if !saved.lanes.is_empty() || saved.state.count.is_some() {
        let wanted = optimizer.lanes(spec.dtype).map_err(|error| refused(error.to_string()))?;
        let names: Vec<&str> = wanted.iter().map(|lane| lane.name.as_str()).collect();
        if names != saved.lanes {
            return Err(refused(format!("the file has the states {:?}, the optimizer keeps {names:?}", saved.lanes)));
        }
        wanted.iter().try_for_each(|lane| reader.check(&tensor_name(&spec.key, &lane.name), lane.dtype, spec.shape.dims()))?;
    }
    for sender in 0..saved.residuals as usize {
        let name = residual_name(&spec.key, sender);
        if reader.shape(&name) != Some(&[0]) {
            reader.check(&name, DType::F32, spec.shape.dims())?;
        }
    }
    Ok(())
}

/// The lanes of a key, checked before.
pub(crate) fn read_lanes(reader: &StateReader, saved: &SavedKey, spec: &KeySpec, optimizer: &Optimizer) -> Result<Vec<SavedLane>, Error> {
    let wanted = optimizer.lanes(spec.dtype).unwrap_or_default();
    let read = |lane: syncline_optimizer::Lane| {
        let bytes = reader.tensor(&tensor_name(&saved.key, &lane.name), lane.dtype, spec.shape.dims())?;
        Ok(SavedLane { name: lane.name, dtype: lane.dtype, bytes })
    };
    wanted.into_iter().map(read).collect()
}
