//! One number: as Lua has it, and as its bytes lie in a tensor.

use mlua::Value;
use syncline::{Element, bf16, f16};

use crate::arguments::{whole, words};
use crate::reply::Failure;

/// Runs `$body` with `$T` as the type behind a dtype.
macro_rules! by_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        by_dtype!(@each $dtype, $T => $body,
            F32: f32, F64: f64, F16: syncline::f16, BF16: syncline::bf16, I8: i8, I16: i16, I32: i32, I64: i64, U8: u8)
    };
    (@each $dtype:expr, $T:ident => $body:expr, $($Name:ident: $Type:ty),*) => {
        match $dtype {
            $(syncline::DType::$Name => {
                type $T = $Type;
                $body
            })*
        }
    };
}
pub(super) use by_dtype;

/// A number as Lua has it.
pub(super) trait InLua: Element {
    fn of_float(number: f64) -> Self;
    fn to_lua(self) -> Value;
    fn to_float(self) -> f64;

    /// The number of the value, if such numbers hold it.
    fn of_lua(value: &Value) -> Result<Self, Failure>;

    /// The number whose bytes these are.
    fn of_place(place: &[u8]) -> Self {
        bytemuck::pod_read_unaligned(place)
    }

    /// Writes it there.
    fn put(self, place: &mut [u8]) {
        place.copy_from_slice(bytemuck::bytes_of(&self));
    }

    /// All of them, in order.
    fn all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.chunks_exact(size_of::<Self>()).map(Self::of_place)
    }

    /// Replaces each number by what `change` makes of it.
    fn change_all(bytes: &mut [u8], mut change: impl FnMut(Self) -> Self) {
        bytes.chunks_exact_mut(size_of::<Self>()).for_each(|place| change(Self::of_place(place)).put(place));
    }
}

fn no_number(value: &Value) -> Failure {
    Failure::argument(format!("a number was expected, and {} came", words(value)))
}

fn not_held(value: &Value, by: &str) -> Failure {
    let number = if let Value::Integer(number) = value { number.to_string() } else { words(value) };
    Failure::argument(format!("the numbers are {by}, and {number} is none of them"))
}

macro_rules! whole_numbers {
    ($($T:ty)*) => { $(impl InLua for $T {
        fn of_float(number: f64) -> Self { number as $T }
        fn of_lua(value: &Value) -> Result<Self, Failure> {
            let number = whole(value).and_then(|number| <$T>::try_from(number).ok());
            number.ok_or_else(|| match value {
                Value::Integer(_) | Value::Number(_) => not_held(value, &format!("{}, whole from {} to {}", Self::DTYPE, <$T>::MIN, <$T>::MAX)),
                other => no_number(other),
            })
        }
        fn to_lua(self) -> Value { integer(i64::from(self)) }
        fn to_float(self) -> f64 { self as f64 }
    })* };
}
whole_numbers!(i8 i16 i32 i64 u8);

macro_rules! real {
    ($($T:ty, $of:expr, $to:expr;)*) => { $(impl InLua for $T {
        fn of_float(number: f64) -> Self { $of(number) }
        fn of_lua(value: &Value) -> Result<Self, Failure> {
            match value {
                Value::Integer(number) => Ok($of(*number as f64)),
                Value::Number(number) => Ok($of(*number)),
                other => Err(no_number(other)),
            }
        }
        fn to_lua(self) -> Value { Value::Number($to(self)) }
        fn to_float(self) -> f64 { $to(self) }
    })* };
}
real! {
    f32, |number| number as f32, f64::from;
    f64, |number| number, |number| number;
    f16, f16::from_f64, f16::to_f64;
    bf16, bf16::from_f64, bf16::to_f64;
}

/// A whole number; Lua 5.1 has none as large as these may be, and takes a float.
pub(crate) fn integer(number: i64) -> Value {
    if cfg!(feature = "lua51") { Value::Number(number as f64) } else { Value::Integer(number) }
}
