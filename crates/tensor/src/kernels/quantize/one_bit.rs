//! −1 or +1: one bit each. Whatever the threshold, the magnitude is one, as MXNet has it.

use super::super::dispatch::{Isa, Work};
use super::Decode;
use super::two_bit::{LOOK_UP, LookUp};

/// Numbers whose codes are kept as bytes for a moment; a multiple of the 32 that fill a word.
const BLOCK: usize = 512;

/// Brings the lowest bit of each byte, the first byte highest, together in the top byte.
const GATHER: u64 = 0x8040_2010_0804_0201;

pub(super) struct Encode<'a> {
    pub(super) gradient: &'a [f32],
    pub(super) residual: &'a mut [f32],
    pub(super) out: &'a mut [u8],
    pub(super) threshold: f32,
}

impl Work for Encode<'_> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        let mut codes = [0u8; BLOCK];
        let blocks = self.gradient.chunks(BLOCK).zip(self.residual.chunks_mut(BLOCK));
        for ((gradient, residual), out) in blocks.zip(self.out.chunks_mut(BLOCK / 8)) {
            split(gradient, residual, &mut codes[..gradient.len()], self.threshold);
            codes[gradient.len()..].fill(0);
            for (byte, eight) in out.iter_mut().zip(codes.as_chunks::<8>().0) {
                *byte = (u64::from_le_bytes(*eight).wrapping_mul(GATHER) >> 56) as u8;
            }
        }
    }
}

/// One code per number, and what it leaves in the residual.
#[inline(always)]
fn split(gradient: &[f32], residual: &mut [f32], codes: &mut [u8], threshold: f32) {
    for ((gradient, residual), code) in gradient.iter().zip(residual).zip(codes) {
        let sum = *residual + *gradient;
        let up = sum > threshold;
        *residual = sum - if up { 1.0 } else { -1.0 };
        *code = u8::from(up);
    }
}

/// The eight numbers of each byte.
static TABLE: [[f32; 8]; 256] = {
    let mut table = [[-1.0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut place = 0;
        while place < 8 {
            if byte >> (7 - place) & 1 == 1 {
                table[byte][place] = 1.0;
            }
            place += 1;
        }
        byte += 1;
    }
    table
};

pub(super) fn decode(bytes: &[u8], out: &mut [f32], how: Decode) {
    match how {
        Decode::Overwrite => LOOK_UP.run(LookUp::<8, false> { bytes, out, table: &TABLE }),
        Decode::Add => LOOK_UP.run(LookUp::<8, true> { bytes, out, table: &TABLE }),
    }
}
