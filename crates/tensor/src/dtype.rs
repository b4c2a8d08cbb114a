//! The nine number types that Syncline keeps, as a value known at run time.
//!
//! Codes travel in frames and stand in checkpoints, so they never change; names are NumPy's.

use std::fmt;
use std::str::FromStr;

use crate::TensorError;

/// The type of each number in a tensor.
///
/// ```
/// use syncline_tensor::DType;
///
/// assert_eq!(DType::BF16.size(), 2);
/// assert_eq!(DType::from_name("float32")?, DType::F32);
/// assert_eq!(DType::from_code(DType::I64.code())?, DType::I64);
/// # Ok::<(), syncline_tensor::TensorError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DType {
    /// IEEE 754 single precision.
    F32 = 0,
    /// IEEE 754 double precision.
    F64 = 1,
    /// IEEE 754 half precision; computed in f32.
    F16 = 2,
    /// The upper half of an f32; computed in f32.
    BF16 = 3,
    /// Signed, 8 bits.
    I8 = 4,
    /// Signed, 16 bits.
    I16 = 5,
    /// Signed, 32 bits.
    I32 = 6,
    /// Signed, 64 bits.
    I64 = 7,
    /// Unsigned, 8 bits.
    U8 = 8,
}

impl DType {
    /// Every dtype, in the order of its code.
    pub const ALL: [DType; 9] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
    ];

    /// Bytes of one number.
    pub const fn size(self) -> usize {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::BF16 | DType::I16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// NumPy's name (`ml_dtypes`' for bfloat16); it is also how the dtype is displayed.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F64 => "float64",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::I8 => "int8",
            DType::I16 => "int16",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::U8 => "uint8",
        }
    }

    /// Whether this is one of the four floating-point types.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }

    /// The stable number that stands for this dtype in frames and files.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The inverse of [`code`](Self::code); fails with [`TensorError::UnknownDTypeCode`].
    pub fn from_code(code: u8) -> Result<DType, TensorError> {
        let known = DType::ALL.get(usize::from(code)).copied();
        known.ok_or(TensorError::UnknownDTypeCode { code })
    }

    /// Finds a dtype by NumPy's name (`float32`), by the short name (`f32`) or by NumPy's array-protocol string (`<f4`).
    ///
    /// Short names count bits and array-protocol strings count bytes, so `i8` is `int8` but `<i8` is `int64`.
    /// A byte order that is not this machine's is refused, and so are `float` and `int`: frameworks disagree about their width.
    pub fn from_name(name: &str) -> Result<DType, TensorError> {
        let found = match native_array_protocol(name) {
            Some(counted_in_bytes) => match counted_in_bytes {
                "f4" => Some(DType::F32),
                "f8" => Some(DType::F64),
                "f2" => Some(DType::F16),
                "i1" => Some(DType::I8),
                "i2" => Some(DType::I16),
                "i4" => Some(DType::I32),
                "i8" => Some(DType::I64),
                "u1" => Some(DType::U8),
                _ => None,
            },
            None => match name {
                "float32" | "f32" | "single" => Some(DType::F32),
                "float64" | "f64" | "double" => Some(DType::F64),
                "float16" | "f16" | "half" => Some(DType::F16),
                "bfloat16" | "bf16" => Some(DType::BF16),
                "int8" | "i8" => Some(DType::I8),
                "int16" | "i16" => Some(DType::I16),
                "int32" | "i32" => Some(DType::I32),
                "int64" | "i64" => Some(DType::I64),
                "uint8" | "u8" => Some(DType::U8),
                _ => None,
            },
        };
        found.ok_or_else(|| TensorError::UnknownDType {
            name: name.to_owned(),
        })
    }
}

/// What follows a byte-order mark that means "as on this machine", if `name` begins with one.
fn native_array_protocol(name: &str) -> Option<&str> {
    let native = if cfg!(target_endian = "little") {
        '<'
    } else {
        '>'
    };
    name.strip_prefix(['=', '|', native])
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = TensorError;

    fn from_str(name: &str) -> Result<DType, TensorError> {
        DType::from_name(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_lead_back_to_their_dtype() {
        for (code, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(dtype.code()), code, "{dtype}");
            assert_eq!(DType::from_code(dtype.code()).unwrap(), dtype);
            assert_eq!(dtype.to_string().parse::<DType>().unwrap(), dtype);
        }
    }

    #[test]
    fn short_names_count_bits_and_array_protocol_strings_count_bytes() {
        assert_eq!(DType::from_name("i8").unwrap(), DType::I8);
        assert_eq!(DType::from_name("=i8").unwrap(), DType::I64);
        assert_eq!(DType::from_name("|u1").unwrap(), DType::U8);
        #[cfg(target_endian = "little")]
        assert_eq!(DType::from_name("<f4").unwrap(), DType::F32);
    }

    #[test]
    fn unknown_names_and_codes_are_repeated_in_the_error() {
        for name in ["float", "int", "complex64", "=f3", "", "FLOAT32"] {
            let text = DType::from_name(name).unwrap_err().to_string();
            assert!(text.contains(&format!("{name:?}")), "{text}");
        }
        #[cfg(target_endian = "little")]
        assert!(DType::from_name(">f4").is_err());
        let text = DType::from_code(9).unwrap_err().to_string();
        assert!(text.contains('9'), "{text}");
    }
}
