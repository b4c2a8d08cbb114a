//! −t, nothing or +t: two bits each.
//!
//! Both directions are plain loops. Encoding makes one byte per number first, which vectorises like any comparison; a
//! multiplication then moves the codes of four bytes into one. Decoding compares one word with sixteen masks.

use super::super::dispatch::{Isa, SimdLevel, Work};
use super::Decode;

/// Numbers whose codes are kept as bytes for a moment; a multiple of the 16 that fill a word.
const BLOCK: usize = 512;

/// Brings two bits from the bottom of each byte, the first byte highest, together in the top byte.
const GATHER: u32 = 1 << 30 | 1 << 20 | 1 << 10 | 1;

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
        for ((gradient, residual), out) in blocks.zip(self.out.chunks_mut(BLOCK / 4)) {
            split(gradient, residual, &mut codes[..gradient.len()], self.threshold);
            codes[gradient.len()..].fill(0);
            for (byte, four) in out.iter_mut().zip(codes.as_chunks::<4>().0) {
                *byte = (u32::from_le_bytes(*four).wrapping_mul(GATHER) >> 24) as u8;
            }
        }
    }
}

/// One code per number, and what it leaves in the residual.
#[inline(always)]
fn split(gradient: &[f32], residual: &mut [f32], codes: &mut [u8], threshold: f32) {
    for ((gradient, residual), code) in gradient.iter().zip(residual).zip(codes) {
        let sum = *residual + *gradient;
        let (up, down) = (sum >= threshold, sum <= -threshold);
        // One subtraction, of nothing if need be: adding instead would turn −0.0 into 0.0.
        let sent = if up { threshold } else { 0.0 };
        let sent = if down { -threshold } else { sent };
        *residual = sum - sent;
        let code_up = if up { 3u8 } else { 0 };
        *code = if down { 2u8 } else { code_up };
    }
}

pub(super) fn decode(level: SimdLevel, bytes: &[u8], out: &mut [f32], threshold: f32, how: Decode) {
    match how {
        Decode::Overwrite => level.run(Expand::<false> { bytes, out, threshold }),
        Decode::Add => level.run(Expand::<true> { bytes, out, threshold }),
    }
}

struct Expand<'a, const ADD: bool> {
    bytes: &'a [u8],
    out: &'a mut [f32],
    threshold: f32,
}

impl<const ADD: bool> Work for Expand<'_, ADD> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        let (words, (whole, tail)) = (self.bytes.as_chunks::<4>().0, self.out.as_chunks_mut::<16>());
        for (numbers, word) in whole.iter_mut().zip(words) {
            let decoded = sixteen(*word, self.threshold);
            for (number, decoded) in numbers.iter_mut().zip(decoded) {
                *number = if ADD { *number + decoded } else { decoded };
            }
        }
        if let Some(word) = words.get(whole.len()) {
            for (number, decoded) in tail.iter_mut().zip(sixteen(*word, self.threshold)) {
                *number = if ADD { *number + decoded } else { decoded };
            }
        }
    }
}

/// The numbers of one word. Each looks at its own two bits, which are at the same place in every word: no shifts.
#[inline(always)]
fn sixteen(word: [u8; 4], threshold: f32) -> [f32; 16] {
    const FIRST: u32 = 1 << 31;
    let word = u32::from_be_bytes(word);
    let mut numbers = [0.0; 16];
    for (place, number) in numbers.iter_mut().enumerate() {
        let (sent, up) = (FIRST >> (2 * place), FIRST >> (2 * place + 1));
        let value = if word & up == up { threshold } else { -threshold };
        *number = if word & sent == sent { value } else { 0.0 };
    }
    numbers
}
