//! What can be wrong with an optimizer, its options or the blocks it is given.

use syncline_tensor::{DType, TensorError};

use crate::expression::ExpressionError;

/// Why an optimizer was refused or a step not taken; nothing has changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerError {
    /// No optimizer has this name.
    #[error("no optimizer is called {name:?}; there are {}", known.join(", "))]
    UnknownName {
        /// The name as given.
        name: String,
        /// All names.
        known: Vec<&'static str>,
    },
    /// The optimizer has no such option.
    #[error("{optimizer} has no option {option:?}; it has {}", known.join(", "))]
    UnknownOption {
        /// Which optimizer.
        optimizer: &'static str,
        /// The option as given.
        option: String,
        /// All its options.
        known: Vec<&'static str>,
    },
    /// An option is of the wrong kind or outside of its range.
    #[error("{optimizer}: {option} is {found}, must be {must}")]
    BadOption {
        /// Which optimizer or schedule.
        optimizer: &'static str,
        /// Which option.
        option: String,
        /// What it was.
        found: String,
        /// What it must be.
        must: &'static str,
    },
    /// The text of a custom update is not one.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// Bytes that are no optimizer of this version.
    #[error("these bytes are no optimizer: {why}")]
    Message {
        /// What is wrong with them.
        why: String,
    },
    /// Only floats have gradients.
    #[error("{optimizer} needs float weights, not {dtype}")]
    NeedsFloat {
        /// Which optimizer.
        optimizer: &'static str,
        /// What the weights are.
        dtype: DType,
    },
    /// A gradient is neither of the weight's dtype nor of the type it is computed in.
    #[error("the gradient is {found}, the weight {weight}; it must be {weight} or {wide}")]
    GradientDType {
        /// The weight's.
        weight: DType,
        /// What the weight is computed in.
        wide: DType,
        /// The gradient's.
        found: DType,
    },
    /// A buffer is shorter or longer than the weights need.
    #[error("{what} holds {found} bytes, expected {expected}")]
    Length {
        /// Which buffer.
        what: String,
        /// What it should hold.
        expected: usize,
        /// What it holds.
        found: usize,
    },
    /// Too few or too many states.
    #[error("{optimizer} keeps {expected} states, {found} were given")]
    States {
        /// Which optimizer.
        optimizer: &'static str,
        /// How many it keeps.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A step that needs the norms of the whole array was taken without them.
    #[error("{optimizer} needs the norms of the whole array: measure all of its blocks first")]
    NormsMissing {
        /// Which optimizer.
        optimizer: &'static str,
    },
    /// A measured block begins inside of a cell.
    #[error("a measured block begins at number {at}, must begin at a multiple of {cell}")]
    Unaligned {
        /// Where it begins.
        at: u64,
        /// Numbers of a cell.
        cell: usize,
    },
    /// Rows that do not ascend, or lie outside of the block.
    #[error("row {row} at place {place} of the gradient: {why}")]
    Row {
        /// The offending row.
        row: u64,
        /// Its place in the list.
        place: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A cast or a length that the kernels refused.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
