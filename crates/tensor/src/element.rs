//! The same nine number types as Rust types, for callers who know at compile time what they hold.

use std::fmt::Debug;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::DType;
use crate::kernels::lanes::Lanes;

/// A Rust type that a tensor can hold: `f32 f64 f16 bf16 i8 i16 i32 i64 u8` and no others.
///
/// The trait is sealed, because frames, files and kernels know exactly these.
/// ```
/// use syncline_tensor::{DType, Element, bf16};
///
/// fn dtype_of<T: Element>(_: &[T]) -> DType {
///     T::DTYPE
/// }
/// assert_eq!(dtype_of(&[bf16::ONE]), DType::BF16);
/// ```
#[expect(private_bounds, reason = "the private bound is the seal, and carries the kernels' inner loops")]
pub trait Element: Pod + Debug + PartialEq + PartialOrd + Send + Sync + Lanes {
    /// The run-time name of this type.
    const DTYPE: DType;
}

/// The floats that are computed with as they are stored.
#[expect(private_bounds, reason = "as above")]
pub trait Native: Element + Lanes<Wide = Self> {}
impl Native for f32 {}
impl Native for f64 {}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for f64 {
    const DTYPE: DType = DType::F64;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}
impl Element for bf16 {
    const DTYPE: DType = DType::BF16;
}
impl Element for i8 {
    const DTYPE: DType = DType::I8;
}
impl Element for i16 {
    const DTYPE: DType = DType::I16;
}
impl Element for i32 {
    const DTYPE: DType = DType::I32;
}
impl Element for i64 {
    const DTYPE: DType = DType::I64;
}
impl Element for u8 {
    const DTYPE: DType = DType::U8;
}

/// Evaluates an expression with `$T` standing for the Rust type of a run-time dtype.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::F16 => {
                type $T = half::f16;
                $body
            }
            $crate::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            $crate::DType::I8 => {
                type $T = i8;
                $body
            }
            $crate::DType::I16 => {
                type $T = i16;
                $body
            }
            $crate::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::DType::U8 => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(crate) use with_element;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_names_the_type_that_names_it() {
        for dtype in DType::ALL {
            let (back, size) = with_element!(dtype, T => (T::DTYPE, size_of::<T>()));
            assert_eq!((back, size), (dtype, dtype.size()));
        }
    }
}
