//! A table as a checkpoint knows it, and the names of its tensors.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;
use syncline_optimizer::{KeyState, Optimizer};
use syncline_tensor::DType;

use crate::{Shape, Spec, Updater};

/// One table of a checkpoint: what has to agree when it is loaded, and what was kept of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedTable {
    /// Its name, given or made up.
    pub name: String,
    /// Whether somebody gave it that name; made-up ones match nothing.
    pub named: bool,
    /// Its number in order of creation.
    pub order: u32,
    /// Its shape.
    pub shape: Shape,
    /// The dtype of its values.
    #[serde(with = "dtype_by_name")]
    pub dtype: DType,
    /// What adds did to it.
    #[serde(with = "updater_by_name")]
    pub updater: Updater,
    /// The values first, then the states of the updater. A key-value table has its values alone.
    pub lanes: Vec<SavedLane>,
    /// What a gradient table went by.
    #[serde(default)]
    pub rule: Option<SavedRule>,
}

/// The optimizer of a gradient table, and how far it had come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedRule {
    /// Its message, in hexadecimal digits.
    pub optimizer: String,
    /// Updates so far.
    pub count: Option<u64>,
    /// The bits of Nadam's product of momenta.
    pub m_schedule_bits: Option<u64>,
    /// The bits of the rate of the last update.
    pub last_rate_bits: Option<u64>,
}

impl SavedRule {
    /// This optimizer, after updates that led to this state.
    pub fn new(optimizer: &Optimizer, state: KeyState) -> Result<SavedRule, Error> {
        let message = optimizer.encode().map_err(|error| Error::Configuration { detail: format!("save: {error}") })?;
        Ok(SavedRule {
            optimizer: message.iter().map(|byte| format!("{byte:02x}")).collect(),
            count: state.count,
            m_schedule_bits: state.m_schedule.map(f64::to_bits),
            last_rate_bits: state.last_rate.map(f64::to_bits),
        })
    }

    /// The few numbers that the optimizer kept of the key.
    pub fn state(&self) -> KeyState {
        let (m_schedule, last_rate) = (self.m_schedule_bits.map(f64::from_bits), self.last_rate_bits.map(f64::from_bits));
        KeyState { count: self.count, m_schedule, last_rate }
    }

    /// The optimizer, if the digits are one.
    pub fn optimizer(&self) -> Option<Optimizer> {
        let digits = self.optimizer.as_bytes().chunks(2);
        let bytes: Option<Vec<u8>> = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
        Optimizer::decode(&bytes?).ok()
    }
}

/// Numbers that a table has one row of for each of its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedLane {
    /// `value`, `momentum`, `history.0` …
    pub name: String,
    /// The dtype of its numbers.
    #[serde(with = "dtype_by_name")]
    pub dtype: DType,
    /// Numbers in each row.
    pub cols: u64,
}

impl SavedLane {
    /// The name of the lane that holds the values.
    pub const VALUE: &'static str = "value";

    /// A lane of this name.
    pub fn new(name: impl Into<String>, dtype: DType, cols: u64) -> SavedLane {
        SavedLane { name: name.into(), dtype, cols }
    }

    /// Bytes of one row; None when a damaged file claims more than there can be.
    pub(super) fn row_bytes(&self) -> Option<u64> {
        self.cols.checked_mul(self.dtype.size() as u64)
    }
}

impl SavedTable {
    /// Table number `order` with this `spec`, called `name`; `states` are the lanes of its updater.
    pub fn new(spec: &Spec, name: &str, order: u32, states: impl IntoIterator<Item = SavedLane>) -> SavedTable {
        let cols = spec.rows_and_cols().map_or(1, |(_, cols)| cols);
        let values = SavedLane::new(SavedLane::VALUE, spec.dtype(), cols);
        SavedTable {
            name: name.to_owned(),
            named: spec.name.is_some(),
            order,
            shape: spec.shape,
            dtype: spec.dtype(),
            updater: spec.updater,
            lanes: std::iter::once(values).chain(states).collect(),
            rule: None,
        }
    }

    /// The lane of this name and its number.
    pub fn lane(&self, name: &str) -> Option<(usize, &SavedLane)> {
        self.lanes.iter().enumerate().find(|(_, lane)| lane.name == name)
    }

    /// How many rows it has; none for key-value tables, whose size is what was added.
    pub(super) fn rows(&self) -> u64 {
        match self.shape {
            Shape::Array { size } => size,
            Shape::Matrix { rows, .. } => rows,
            Shape::Keys => 0,
        }
    }

    /// The shape of a tensor that holds so many rows of a lane, as other tools will see it.
    pub(super) fn tensor_shape(&self, lane: &SavedLane, rows: u64) -> Vec<u64> {
        match self.shape {
            Shape::Matrix { .. } => vec![rows, lane.cols],
            Shape::Array { .. } | Shape::Keys if lane.cols == 1 => vec![rows],
            Shape::Array { .. } | Shape::Keys => vec![rows, lane.cols],
        }
    }

    /// Whether the values come first, as the shape and the dtype say, and a key-value table has nothing else.
    pub(super) fn is_sound(&self) -> bool {
        let (cols, states) = match self.shape {
            Shape::Array { .. } => (1, usize::MAX),
            Shape::Matrix { cols, .. } => (cols, usize::MAX),
            Shape::Keys => (1, 0),
        };
        self.lanes.split_first().is_some_and(|(values, others)| {
            (values.name.as_str(), values.dtype, values.cols) == (SavedLane::VALUE, self.dtype, cols) && others.len() <= states
        })
    }

    fn tensor_names(&self, prefix: &str) -> Vec<String> {
        if self.shape == Shape::Keys {
            return vec![format!("{prefix}.keys"), format!("{prefix}.values")];
        }
        let name = |lane: &SavedLane| if lane.name == SavedLane::VALUE { prefix.to_owned() } else { format!("{prefix}.{}", lane.name) };
        self.lanes.iter().map(name).collect()
    }
}

impl fmt::Display for SavedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table `{}`: ", self.name)?;
        match self.shape {
            Shape::Array { size } => write!(f, "array of {size}")?,
            Shape::Matrix { rows, cols } => write!(f, "matrix of {rows} x {cols}")?,
            Shape::Keys => write!(f, "key-value table")?,
        }
        write!(f, " {}, updater {}", self.dtype, self.updater)
    }
}

/// The names of all tensors: for each table those of its lanes, or the keys and the values.
///
/// A table is called what its user called it. Where that would give two tensors one name (a table `w.momentum` beside
/// the momentum of `w`), the tables in question carry their place as well. Every writer knows all tables, so all come to
/// the same names; readers find them in the manifest.
pub(super) fn tensor_names(tables: &[SavedTable]) -> Result<Vec<Vec<String>>, Error> {
    let mut prefixes: Vec<String> = tables.iter().map(|table| table.name.clone()).collect();
    // Each turn parts those that clash; the extra turns are for users who chose such names themselves.
    for _ in 0..tables.len() + 2 {
        let names: Vec<Vec<String>> = tables.iter().zip(&prefixes).map(|(table, prefix)| table.tensor_names(prefix)).collect();
        let mut uses: HashMap<&str, u32> = HashMap::from([("__metadata__", 1)]);
        names.iter().flatten().for_each(|name| *uses.entry(name).or_default() += 1);
        let clashing: Vec<usize> = (0..tables.len()).filter(|table| names[*table].iter().any(|name| uses[name.as_str()] > 1)).collect();
        if clashing.is_empty() {
            return Ok(names);
        }
        clashing.iter().for_each(|table| prefixes[*table] += &format!("@{table}"));
    }
    Err(Error::Configuration { detail: format!("save: no two tensors may have one name; there are {prefixes:?}") })
}

/// Files outlive codes: they hold NumPy's names.
pub(super) mod dtype_by_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use syncline_tensor::DType;

    pub(in super::super) fn serialize<S: Serializer>(dtype: &DType, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(dtype.name())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DType, D::Error> {
        DType::from_name(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

mod updater_by_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::Updater;

    pub(super) fn serialize<S: Serializer>(updater: &Updater, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(updater.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Updater, D::Error> {
        Updater::from_name(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn matrix(name: &str, order: u32, states: &[&str]) -> SavedTable {
        let lanes = states.iter().map(|state| SavedLane::new(*state, DType::F32, 3));
        SavedTable::new(&Spec::matrix(2, 3).named(name), name, order, lanes)
    }

    #[test]
    fn tensors_are_called_what_the_user_called_the_table() {
        let keys = SavedTable::new(&Spec::keys().named("seen"), "seen", 1, []);
        let names = tensor_names(&[matrix("w", 0, &["momentum", "history.0"]), keys]).unwrap();
        assert_eq!(names, [vec!["w", "w.momentum", "w.history.0"], vec!["seen.keys", "seen.values"]]);
    }

    #[test]
    fn names_that_would_meet_carry_a_number() {
        let names = tensor_names(&[matrix("w", 0, &["momentum"]), matrix("w.momentum", 1, &[]), matrix("b", 2, &[])]).unwrap();
        assert_eq!(names, [vec!["w@0", "w@0.momentum"], vec!["w.momentum@1"], vec!["b"]]);
        let twins = tensor_names(&[matrix("w", 0, &[]), matrix("w", 1, &[]), matrix("w@0", 2, &[]), matrix("w@0@0", 3, &[])]).unwrap();
        let all: HashSet<&String> = twins.iter().flatten().collect();
        assert_eq!(all.len(), 4, "{twins:?}");
        assert_eq!(tensor_names(&[matrix("__metadata__", 0, &[])]).unwrap(), [["__metadata__@0"]]);
        assert!(tensor_names(&[matrix("w", 0, &["momentum", "momentum"])]).is_err(), "one table, two lanes of one name");
    }
}
