//! What a table is: agreed by all workers before it exists, the same everywhere afterwards.

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;
use syncline_optimizer::Key;
use syncline_tensor::DType;
use syncline_tensor::kernels::quantize::INT8_BLOCK;

use crate::{Placement, Updater};

/// The shape of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// So many elements, always moved whole.
    Array {
        /// How many; zero is allowed.
        size: u64,
    },
    /// Rows that move whole or by id.
    Matrix {
        /// How many rows; zero is allowed.
        rows: u64,
        /// Elements of each.
        cols: u64,
    },
    /// One value for each 64-bit key; missing ones read as zero.
    Keys,
}

/// How far the workers' views of a table may drift apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consistency {
    /// Adds count when they arrive.
    Async,
    /// The j-th adds of all workers count together, in order of worker; a get after j adds sees exactly j rounds.
    Sync,
    /// A get after j own adds waits until every worker has made j − s; s is at least 1.
    Bounded(u32),
}

impl Consistency {
    /// The dial as users turn it: `staleness` wins; without it, `sync` means 0 and otherwise there is no bound.
    pub fn new(sync: bool, staleness: Option<u32>) -> Consistency {
        match staleness {
            Some(0) => Consistency::Sync,
            Some(bound) => Consistency::Bounded(bound),
            None if sync => Consistency::Sync,
            None => Consistency::Async,
        }
    }
}

/// Everything that must be the same on every worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The name that checkpoints and errors use; `table 3` style names are made up where none is given.
    pub name: Option<String>,
    /// Its shape.
    pub shape: Shape,
    /// The code of its dtype ([`Spec::dtype`] reads it).
    dtype: u8,
    /// What an add does.
    pub updater: Updater,
    /// How far views may drift apart.
    pub consistency: Consistency,
    /// Where its values live; it changes no result.
    pub placement: Placement,
    /// Whose rule a gradient table follows.
    family: u32,
    /// What its optimizer calls it, where that is not its name.
    key: Option<Key>,
    /// The extents that its user sees, where they say more than its own shape.
    extents: Option<Vec<u64>>,
}

impl Spec {
    /// A table of this shape with f32 elements, the `add` updater and no bound on staleness.
    pub fn new(shape: Shape) -> Spec {
        Spec {
            name: None,
            shape,
            dtype: DType::F32.code(),
            updater: Updater::Add,
            consistency: Consistency::Async,
            placement: Placement::Split,
            family: 0,
            key: None,
            extents: None,
        }
    }

    /// `size` elements.
    pub fn array(size: u64) -> Spec {
        Spec::new(Shape::Array { size })
    }

    /// `rows` × `cols` elements.
    pub fn matrix(rows: u64, cols: u64) -> Spec {
        Spec::new(Shape::Matrix { rows, cols })
    }

    /// An open space of 64-bit keys.
    pub fn keys() -> Spec {
        Spec::new(Shape::Keys)
    }

    /// With this dtype.
    pub fn with_dtype(self, dtype: DType) -> Spec {
        Spec { dtype: dtype.code(), ..self }
    }

    /// With this updater.
    pub fn with_updater(self, updater: Updater) -> Spec {
        Spec { updater, ..self }
    }

    /// With this consistency.
    pub fn with_consistency(self, consistency: Consistency) -> Spec {
        Spec { consistency, ..self }
    }

    /// With its values there.
    pub fn placed(self, placement: Placement) -> Spec {
        Spec { placement, ..self }
    }

    /// With this name.
    pub fn named(self, name: impl Into<String>) -> Spec {
        Spec { name: Some(name.into()), ..self }
    }

    /// Of this family: all gradient tables of one follow the same rule ([`Tables::set_rule`](crate::Tables::set_rule)).
    pub fn with_family(self, family: u32) -> Spec {
        Spec { family, ..self }
    }

    /// Called so by its optimizer, which may have multipliers for it; otherwise by its name.
    pub fn with_key(self, key: Key) -> Spec {
        Spec { key: Some(key), ..self }
    }

    /// With extents that its user sees: another worker's must be the same.
    pub fn with_extents(self, extents: &[usize]) -> Spec {
        Spec { extents: Some(extents.iter().map(|extent| *extent as u64).collect()), ..self }
    }

    /// Whose rule it follows.
    pub fn family(&self) -> u32 {
        self.family
    }

    /// What its optimizer calls it.
    pub fn key(&self) -> Key {
        self.key.clone().unwrap_or_else(|| Key::from(self.name.as_deref().unwrap_or_default()))
    }

    /// The dtype of its elements.
    pub fn dtype(&self) -> DType {
        DType::from_code(self.dtype).expect("checked when the specification was made or read")
    }

    /// Rows, elements per row; an array has rows of one element. None for an open key space.
    pub fn rows_and_cols(&self) -> Option<(u64, u64)> {
        match self.shape {
            Shape::Array { size } => Some((size, 1)),
            Shape::Matrix { rows, cols } => Some((rows, cols)),
            Shape::Keys => None,
        }
    }

    /// So many rows begin and end at multiples of [`INT8_BLOCK`] elements: a table that is cut there keeps whole blocks of
    /// every code of `tensor::kernels::quantize` together.
    pub(crate) fn grain(&self) -> u64 {
        let cols = self.rows_and_cols().map_or(1, |(_, cols)| cols.max(1));
        let block = INT8_BLOCK as u64;
        block >> cols.trailing_zeros().min(block.trailing_zeros())
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        let cols = self.rows_and_cols().map_or(1, |(_, cols)| cols);
        cols as usize * self.dtype().size()
    }

    /// Bytes of the whole table; 0 for an open key space.
    pub fn bytes(&self) -> usize {
        self.rows_and_cols().map_or(0, |(rows, _)| rows as usize * self.row_bytes())
    }

    /// Refuses what cannot exist: sizes beyond the address space, a stateful updater on whole numbers.
    pub fn check(&self) -> Result<(), Error> {
        let refused = |detail: String| Err(Error::Configuration { detail });
        if DType::from_code(self.dtype).is_err() {
            return refused(format!("{self}: dtype code {} is unknown", self.dtype));
        }
        if let Some((rows, cols)) = self.rows_and_cols() {
            let bytes = u128::from(rows) * u128::from(cols) * self.dtype().size() as u128;
            if bytes > 1 << 46 {
                return refused(format!("{self}: {bytes} bytes are more than this machine can address"));
            }
        }
        if !self.dtype().is_float() && !matches!(self.updater, Updater::Add | Updater::Sgd | Updater::Gradient) {
            return refused(format!("{self}: updater `{}` needs a floating-point dtype, not {}", self.updater, self.dtype().name()));
        }
        if self.shape == Shape::Keys && self.updater != Updater::Add {
            return refused(format!("{self}: a key-value table adds; updater `{}` needs an array or a matrix", self.updater));
        }
        Ok(())
    }
}

impl std::fmt::Display for Spec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.shape {
            Shape::Array { size } => write!(f, "array of {size}")?,
            Shape::Matrix { rows, cols } => write!(f, "matrix of {rows} x {cols}")?,
            Shape::Keys => write!(f, "key-value table")?,
        }
        write!(f, " {}", DType::from_code(self.dtype).map_or("?", DType::name))?;
        if let Some(name) = &self.name {
            write!(f, " `{name}`")?;
        }
        if let Some(extents) = &self.extents {
            write!(f, " of shape {extents:?}")?;
        }
        if self.updater != Updater::Add {
            write!(f, ", updater {}", self.updater)?;
        }
        if self.family != 0 {
            write!(f, ", family {}", self.family)?;
        }
        match self.consistency {
            Consistency::Async => Ok(()),
            Consistency::Sync => write!(f, ", sync"),
            Consistency::Bounded(bound) => write!(f, ", staleness {bound}"),
        }
    }
}
