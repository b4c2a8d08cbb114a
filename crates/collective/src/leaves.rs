//! Several arrays in one operation.

use syncline_tensor::{DType, Shape};

/// One array of a nested structure.
#[derive(Debug)]
pub struct Leaf<'a> {
    /// The dtype of its numbers.
    pub dtype: DType,
    /// Its shape, which must be the same on all ranks.
    pub shape: Shape,
    /// Its numbers, which become the result.
    pub bytes: &'a mut [u8],
}
