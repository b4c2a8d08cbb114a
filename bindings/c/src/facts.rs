//! The constants of the interface, and what they stand for. C may pass any number, so they come in as plain integers.

use syncline::{DType, ReduceOp};

use crate::failure::Failure;

/// The types of numbers.
#[repr(C)]
pub enum syncline_dtype {
    /// float
    SYNCLINE_FLOAT32 = 0,
    /// double
    SYNCLINE_FLOAT64 = 1,
    /// IEEE half precision
    SYNCLINE_FLOAT16 = 2,
    /// the upper half of a float
    SYNCLINE_BFLOAT16 = 3,
    /// int8_t
    SYNCLINE_INT8 = 4,
    /// int16_t
    SYNCLINE_INT16 = 5,
    /// int32_t
    SYNCLINE_INT32 = 6,
    /// int64_t
    SYNCLINE_INT64 = 7,
    /// uint8_t
    SYNCLINE_UINT8 = 8,
}

/// How two numbers become one.
#[repr(C)]
pub enum syncline_op {
    /// Their sum.
    SYNCLINE_SUM = 0,
    /// Their product.
    SYNCLINE_PROD = 1,
    /// The smaller one.
    SYNCLINE_MIN = 2,
    /// The larger one.
    SYNCLINE_MAX = 3,
    /// Their sum, divided by how many there were.
    SYNCLINE_MEAN = 4,
    /// The bits that both have; of floats, 1 if neither is zero.
    SYNCLINE_AND = 5,
    /// The bits that either has; of floats, 0 if both are zero.
    SYNCLINE_OR = 6,
}

/// The dtype that a number of C's stands for.
pub(crate) fn dtype(number: i32) -> Result<DType, Failure> {
    let known = usize::try_from(number).ok().and_then(|index| DType::ALL.get(index)).copied();
    known.ok_or_else(|| Failure::argument(format!("dtype {number} is none of the SYNCLINE_FLOAT32 … SYNCLINE_UINT8")))
}

/// The operation that a number of C's stands for.
pub(crate) fn op(number: i32) -> Result<ReduceOp, Failure> {
    let known = usize::try_from(number).ok().and_then(|index| ReduceOp::ALL.get(index)).copied();
    known.ok_or_else(|| Failure::argument(format!("op {number} is none of SYNCLINE_SUM … SYNCLINE_OR")))
}

const _: () = {
    assert!(DType::F32 as i32 == syncline_dtype::SYNCLINE_FLOAT32 as i32);
    assert!(DType::U8 as i32 == syncline_dtype::SYNCLINE_UINT8 as i32);
    assert!(matches!(ReduceOp::ALL[syncline_op::SYNCLINE_MEAN as usize], ReduceOp::Mean));
    assert!(matches!(ReduceOp::ALL[syncline_op::SYNCLINE_OR as usize], ReduceOp::Or));
};
