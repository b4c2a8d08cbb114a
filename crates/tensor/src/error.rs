//! Everything that can be wrong with numbers handed to this crate.
//!
//! Each variant carries what was given and what was expected, so that the layers above can name the table or key
//! and add nothing else. A call that fails has changed nothing.

use crate::{DType, Shape};

/// Why a dtype, shape, view or kernel call was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// No dtype has this name.
    #[error("no dtype is called {name:?}; there are float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8")]
    UnknownDType {
        /// The name as given.
        name: String,
    },
    /// No dtype has this code.
    #[error("no dtype has code {code}; codes go up to {}", DType::ALL.len() - 1)]
    UnknownDTypeCode {
        /// The code as given.
        code: u8,
    },
    /// The extents multiply to more than an address space holds.
    #[error("a shape of {dims:?} does not fit in memory")]
    ShapeTooLarge {
        /// The extents as given.
        dims: Vec<usize>,
    },
    /// Two dtypes that must agree do not.
    #[error("dtype is {found}, expected {expected}")]
    DTypeMismatch {
        /// What the operation needs.
        expected: DType,
        /// What it was given.
        found: DType,
    },
    /// Two shapes that must agree do not.
    #[error("shape is {found}, expected {expected}")]
    ShapeMismatch {
        /// What the operation needs.
        expected: Shape,
        /// What it was given.
        found: Shape,
    },
    /// A buffer is shorter or longer than its description.
    #[error("{what} holds {found} bytes, expected {expected}")]
    ByteLength {
        /// Which buffer, in the words of the call.
        what: &'static str,
        /// How many bytes it should hold.
        expected: usize,
        /// How many it holds.
        found: usize,
    },
    /// A buffer ends in the middle of a number.
    #[error("{bytes} bytes are not a whole number of {dtype} ({} bytes each)", dtype.size())]
    PartialElement {
        /// Length of the buffer.
        bytes: usize,
        /// What it should hold.
        dtype: DType,
    },
    /// Two slices that are combined number by number differ in length.
    #[error("{what} holds {found} elements, expected {expected}")]
    ElementCount {
        /// Which slice, in the words of the call.
        what: &'static str,
        /// How many elements it should hold.
        expected: usize,
        /// How many it holds.
        found: usize,
    },
    /// A typed slice was asked for, but the bytes do not lie on that type's alignment.
    #[error("the bytes of this {dtype} tensor are not aligned to {} bytes; copy it first", dtype.size())]
    Misaligned {
        /// The dtype of the tensor.
        dtype: DType,
    },
    /// A slice was asked for, but the numbers do not lie one after another.
    #[error("a view of shape {shape} with strides {strides:?} is not contiguous; copy it first")]
    NotContiguous {
        /// The shape of the view.
        shape: Shape,
        /// Its strides in bytes.
        strides: Vec<isize>,
    },
    /// Strides would lead outside the bytes of the view.
    #[error("a view of shape {shape} with strides {strides:?} from byte {offset} leaves its {available} bytes")]
    OutOfBounds {
        /// The shape of the view.
        shape: Shape,
        /// Its strides in bytes.
        strides: Vec<isize>,
        /// Where its first number would lie.
        offset: usize,
        /// How many bytes there are.
        available: usize,
    },
    /// There must be one stride per axis.
    #[error("{strides} strides given for the {axes} axes of shape {shape}")]
    StrideCount {
        /// The shape of the view.
        shape: Shape,
        /// How many axes it has.
        axes: usize,
        /// How many strides came with it.
        strides: usize,
    },
    /// An axis, or a list of axes, does not fit the shape.
    #[error("axes {axes:?} do not suit shape {shape}")]
    BadAxes {
        /// The axes as given.
        axes: Vec<usize>,
        /// The shape they were given for.
        shape: Shape,
    },
    /// A slice along an axis reaches outside it.
    #[error("{count} elements from {start} in steps of {step} leave axis {axis} of shape {shape}")]
    BadSlice {
        /// The sliced axis.
        axis: usize,
        /// First index.
        start: usize,
        /// How many indices.
        count: usize,
        /// Distance between them.
        step: isize,
        /// The shape of the view.
        shape: Shape,
    },
    /// A row id names no row.
    #[error("row id {id} (number {position} of the ids) is outside the {rows} rows")]
    RowOutOfRange {
        /// The id as given.
        id: i64,
        /// Where it stands among the ids.
        position: usize,
        /// How many rows there are.
        rows: usize,
    },
    /// An operation with roots and quotients was asked of whole numbers.
    #[error("{operation} needs a floating-point dtype, not {dtype}")]
    NeedsFloat {
        /// What was asked for.
        operation: &'static str,
        /// What it was asked of.
        dtype: DType,
    },
    /// A reduction of nothing has no value.
    #[error("a reduction needs at least one source")]
    NoSources,
}
