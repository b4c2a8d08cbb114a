//! One byte per number, and one scale for each [`INT8_BLOCK`] of them.
//!
//! A block is its scale as f32, then its numbers as i8, −127 to 127: number = scale · byte, with scale = largest magnitude / 127.
//! The byte is the nearest, ties to even; −128 is never written and read as −128 · scale. A block in which some sum is NaN or
//! infinite is sent with a NaN for a scale, so that all of it decodes to NaN, and leaves zeros in the residual.

use super::super::dispatch::{Isa, Work};
use super::{INT8_BLOCK, QuantizeError};

const SCALE: usize = 4;

pub(super) struct Encode<'a> {
    pub(super) gradient: &'a [f32],
    pub(super) residual: &'a mut [f32],
    pub(super) out: &'a mut [u8],
}

impl Work for Encode<'_> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        let blocks = self.gradient.chunks(INT8_BLOCK).zip(self.residual.chunks_mut(INT8_BLOCK));
        for ((gradient, residual), out) in blocks.zip(self.out.chunks_mut(SCALE + INT8_BLOCK)) {
            let (scale_bytes, bytes) = out.split_at_mut(SCALE);
            // Magnitudes of floats order as integers, NaN above infinity; a maximum of integers vectorises.
            let mut largest = 0u32;
            for (gradient, residual) in gradient.iter().zip(residual.iter_mut()) {
                let sum = *residual + *gradient;
                *residual = sum;
                largest = largest.max(sum.to_bits() & 0x7fff_ffff);
            }
            let largest = f32::from_bits(largest);
            // The quotient of a subnormal may be zero: then nothing is sent, and all of it stays.
            let scale = if largest.is_finite() { scale_for(largest) } else { f32::NAN };
            scale_bytes.copy_from_slice(&scale.to_le_bytes());
            if scale > 0.0 {
                for (residual, byte) in residual.iter_mut().zip(bytes) {
                    let steps = nearest(*residual / scale);
                    *residual -= scale * (steps - NO_FRACTION);
                    *byte = steps.to_bits() as u8;
                }
            } else {
                bytes.fill(0);
                if scale.is_nan() {
                    residual.fill(0.0);
                }
            }
        }
    }
}

/// A 127th of the largest magnitude, or a little less if 127 of that would be infinite.
#[inline(always)]
fn scale_for(largest: f32) -> f32 {
    let scale = largest / 127.0;
    if (127.0 * scale).is_infinite() { scale.next_down() } else { scale }
}

/// Added to a number of a few digits, leaves no bits for a fraction: the FPU rounds it away, ties to even, and the lowest byte is
/// the whole number that is left. (1.5·2²³)
const NO_FRACTION: f32 = 12_582_912.0;

/// The nearest whole number plus [`NO_FRACTION`]; the limit covers quotients that rounding moved beyond 127.
#[inline(always)]
fn nearest(quotient: f32) -> f32 {
    let limited = if quotient > 127.0 { 127.0 } else { quotient };
    let limited = if limited < -127.0 { -127.0 } else { limited };
    limited + NO_FRACTION
}

/// Each scale is a finite number that is not negative, or NaN. Any byte is a number.
pub(super) fn check(bytes: &[u8], _numbers: usize) -> Result<(), QuantizeError> {
    for (block, bytes) in bytes.chunks(SCALE + INT8_BLOCK).enumerate() {
        let scale = scale_of(bytes);
        if scale.is_infinite() || scale < 0.0 {
            let at = block * (SCALE + INT8_BLOCK);
            return Err(QuantizeError::Malformed { quantizer: "int8", at, why: "a scale is neither a magnitude nor NaN" });
        }
    }
    Ok(())
}

fn scale_of(block: &[u8]) -> f32 {
    f32::from_le_bytes(block[..SCALE].try_into().expect("lengths were checked: a block begins with its scale"))
}

pub(super) struct Decode<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) out: &'a mut [f32],
    pub(super) how: super::Decode,
}

impl Work for Decode<'_> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        for (block, out) in self.bytes.chunks(SCALE + INT8_BLOCK).zip(self.out.chunks_mut(INT8_BLOCK)) {
            let scale = scale_of(block);
            let numbers = out.iter_mut().zip(&block[SCALE..]);
            match self.how {
                super::Decode::Overwrite => numbers.for_each(|(out, byte)| *out = scale * f32::from(*byte as i8)),
                super::Decode::Add => numbers.for_each(|(out, byte)| *out += scale * f32::from(*byte as i8)),
            }
        }
    }
}
