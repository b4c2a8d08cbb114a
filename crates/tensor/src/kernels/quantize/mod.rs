//! Gradients in fewer bits, with what was lost kept for the next time.
//!
//! Each encoder keeps a *residual*, one f32 per number, that begins as zeros. It adds the gradient to it, sends what the
//! code can say of the sum, and keeps the rest: nothing is lost, it only arrives later (error feedback).
//!
//! | code | one number becomes | bytes for n numbers |
//! |---|---|---|
//! | two bits | `11` +t if r ≥ t, `10` −t if r ≤ −t, else `00`, nothing | 4·⌈n/16⌉ |
//! | one bit | `1` +1 if r > t, else `0` −1 | 4·⌈n/32⌉ |
//! | f16, bf16 | the nearest half, limited to the largest finite one | 2·n |
//! | int8 | a whole number of 1/127 of the largest magnitude among its 256 neighbours | n + 4·⌈n/256⌉ |
//! | top k | itself, if it is one of the ⌈ratio·n⌉ largest magnitudes | 8·⌈ratio·n⌉ |
//!
//! Two bits and one bit are those of MXNet, word for word: numbers in order, the first in the highest bits of a byte, bytes
//! in ascending order up to a whole number of f32 words, tail bits zero. Their decoders read `01` as nothing and ignore
//! tail bits, as MXNet does. A NaN never reaches a threshold, so these two codes keep it in the residual and send nothing (one
//! bit: −1); the other codes send NaN and infinity on, so that a gradient that exploded is seen.
//!
//! All numbers inside the bytes are little-endian. Decoders check lengths and contents before they write anything.
//!
//! On one core of a cloud machine with AVX-512, GB of f32 per second in cache: two bits are encoded at 18 to 21 and decoded at 30, one bit at 19 and 45,
//! halves at 10 and 22 to 25, int8 at 9.5 and 48, top k (1 %) is encoded at 1.4. From memory everything but top k and the halves' encoding runs at
//! the speed of a copy, given what it reads and writes. `cargo run --release -p syncline-tensor --example quantize_speed` prints the table for yours.

mod error;
mod halves;
mod int8;
mod one_bit;
#[cfg(test)]
mod tests;
mod top_k;
mod two_bit;

use super::dispatch::{SimdLevel, simd_level};
pub use error::QuantizeError;

/// How a gradient is made smaller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantizer {
    /// −t, nothing or +t, sixteen numbers to a word.
    TwoBit {
        /// The t: finite and above 0.
        threshold: f32,
    },
    /// −1 or +1, thirty-two numbers to a word.
    OneBit {
        /// What must be exceeded for +1; any number but NaN.
        threshold: f32,
    },
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// Bytes with one scale per [`INT8_BLOCK`] numbers.
    Int8,
    /// The largest magnitudes with their places.
    TopK {
        /// Which part of the numbers is sent: above 0, at most 1.
        ratio: f32,
    },
}

/// Numbers that share one scale in [`Quantizer::Int8`].
pub const INT8_BLOCK: usize = 256;

/// What a decoder does with the numbers that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decode {
    /// The decoded numbers replace them.
    Overwrite,
    /// The decoded numbers are added to them.
    Add,
}

impl Quantizer {
    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Quantizer::TwoBit { .. } => "2bit",
            Quantizer::OneBit { .. } => "1bit",
            Quantizer::F16 => "fp16",
            Quantizer::BF16 => "bf16",
            Quantizer::Int8 => "int8",
            Quantizer::TopK { .. } => "topk",
        }
    }

    /// Refuses parameters that make no sense.
    ///
    /// # Errors
    /// [`QuantizeError::Parameter`] for a threshold of two bits that is not finite and above 0, a threshold of one bit that is
    /// NaN, or a ratio outside of (0, 1].
    pub fn check(self) -> Result<(), QuantizeError> {
        let refuse = |parameter, value: f32, must| Err(QuantizeError::Parameter { quantizer: self.name(), parameter, value, must });
        match self {
            Quantizer::TwoBit { threshold } if !(threshold > 0.0 && threshold.is_finite()) => {
                refuse("threshold", threshold, "finite and above 0")
            }
            Quantizer::OneBit { threshold } if threshold.is_nan() => refuse("threshold", threshold, "a number"),
            Quantizer::TopK { ratio } if !(ratio > 0.0 && ratio <= 1.0) => refuse("ratio", ratio, "above 0 and at most 1"),
            _ => Ok(()),
        }
    }

    /// How many bytes so many numbers become; nothing else in this code depends on their values.
    pub fn encoded_len(self, numbers: usize) -> usize {
        match self {
            Quantizer::TwoBit { .. } => 4 * numbers.div_ceil(16),
            Quantizer::OneBit { .. } => 4 * numbers.div_ceil(32),
            Quantizer::F16 | Quantizer::BF16 => 2 * numbers,
            Quantizer::Int8 => numbers + 4 * numbers.div_ceil(INT8_BLOCK),
            Quantizer::TopK { ratio } => 8 * top_k::kept(ratio, numbers),
        }
    }

    /// Adds `gradient` to `residual`, writes what the code can say of the sum to `out` and leaves the rest in `residual`.
    ///
    /// # Errors
    /// A refused parameter, a residual that is not as long as the gradient, or an `out` that is not
    /// [`encoded_len`](Self::encoded_len) long; then nothing has changed.
    ///
    /// ```
    /// use syncline_tensor::kernels::quantize::{Decode, Quantizer};
    ///
    /// let code = Quantizer::TwoBit { threshold: 0.5 };
    /// let (mut residual, mut bytes) = ([0.0f32; 3], [0u8; 4]);
    /// code.encode(&[0.75, -0.25, 0.0], &mut residual, &mut bytes)?;
    /// assert_eq!((bytes, residual), ([0b1100_0000, 0, 0, 0], [0.25, -0.25, 0.0]));
    /// code.encode(&[0.0, -0.25, 0.0], &mut residual, &mut bytes)?; // what was too small adds up
    /// assert_eq!((bytes, residual), ([0b0010_0000, 0, 0, 0], [0.25, 0.0, 0.0]));
    /// let mut sum = [1.0f32; 3];
    /// code.decode(&bytes, &mut sum, Decode::Add)?;
    /// assert_eq!(sum, [1.0, 0.5, 1.0]);
    /// # Ok::<(), syncline_tensor::kernels::quantize::QuantizeError>(())
    /// ```
    pub fn encode(self, gradient: &[f32], residual: &mut [f32], out: &mut [u8]) -> Result<(), QuantizeError> {
        self.encode_at(simd_level(), gradient, residual, out)
    }

    fn encode_at(self, level: SimdLevel, gradient: &[f32], residual: &mut [f32], out: &mut [u8]) -> Result<(), QuantizeError> {
        self.check()?;
        let numbers = gradient.len();
        if residual.len() != numbers {
            return Err(QuantizeError::Residual { gradient: numbers, residual: residual.len() });
        }
        self.check_len(numbers, out.len())?;
        match self {
            Quantizer::TwoBit { threshold } => level.run(two_bit::Encode { gradient, residual, out, threshold }),
            Quantizer::OneBit { threshold } => level.run(one_bit::Encode { gradient, residual, out, threshold }),
            Quantizer::F16 => level.run(halves::EncodeF16 { gradient, residual, out }),
            Quantizer::BF16 => level.run(halves::EncodeBf16 { gradient, residual, out }),
            Quantizer::Int8 => level.run(int8::Encode { gradient, residual, out }),
            Quantizer::TopK { .. } => top_k::encode(level, gradient, residual, out),
        }
        Ok(())
    }

    /// Turns bytes back into numbers.
    ///
    /// # Errors
    /// A refused parameter, bytes of another length than [`encoded_len`](Self::encoded_len) of the numbers in `out`, or bytes that
    /// no encoder makes: a negative or infinite scale, places that do not ascend or lie outside. Then `out` is as it was.
    pub fn decode(self, bytes: &[u8], out: &mut [f32], how: Decode) -> Result<(), QuantizeError> {
        self.decode_at(simd_level(), bytes, out, how)
    }

    fn decode_at(self, level: SimdLevel, bytes: &[u8], out: &mut [f32], how: Decode) -> Result<(), QuantizeError> {
        self.check()?;
        self.check_len(out.len(), bytes.len())?;
        match self {
            Quantizer::TwoBit { threshold } => two_bit::decode(bytes, out, threshold, how),
            Quantizer::OneBit { .. } => one_bit::decode(bytes, out, how),
            Quantizer::F16 => level.run(halves::DecodeF16 { bytes, out, how }),
            Quantizer::BF16 => level.run(halves::DecodeBf16 { bytes, out, how }),
            Quantizer::Int8 => {
                int8::check(bytes, out.len())?;
                level.run(int8::Decode { bytes, out, how });
            }
            Quantizer::TopK { .. } => {
                top_k::check(bytes, out.len())?;
                top_k::decode(bytes, out, how);
            }
        }
        Ok(())
    }

    fn check_len(self, numbers: usize, found: usize) -> Result<(), QuantizeError> {
        let expected = self.encoded_len(numbers);
        if found == expected { Ok(()) } else { Err(QuantizeError::Bytes { quantizer: self.name(), numbers, expected, found }) }
    }
}
