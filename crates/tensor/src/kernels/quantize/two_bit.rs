//! −t, nothing or +t: two bits each.
//!
//! Both directions are plain loops. Encoding makes one byte per number first, which vectorises like any comparison; a
//! multiplication then moves the codes of four bytes into one. Decoding looks up four numbers per byte in a table of 4 KB.

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

pub(super) fn decode(bytes: &[u8], out: &mut [f32], threshold: f32, how: Decode) {
    let value = |code: usize| match code & 3 {
        3 => threshold,
        2 => -threshold,
        _ => 0.0,
    };
    // A short gradient is decoded before the table would be made.
    if out.len() < 512 {
        for (index, number) in out.iter_mut().enumerate() {
            let decoded = value(usize::from(bytes[index / 4]) >> (6 - 2 * (index % 4)));
            *number = if how == Decode::Add { *number + decoded } else { decoded };
        }
        return;
    }
    let codes = [value(0), value(1), value(2), value(3)];
    let mut table = [[0.0; 4]; 256];
    for (byte, numbers) in table.iter_mut().enumerate() {
        *numbers = [codes[byte >> 6], codes[byte >> 4 & 3], codes[byte >> 2 & 3], codes[byte & 3]];
    }
    match how {
        Decode::Overwrite => LOOK_UP.run(LookUp::<4, false> { bytes, out, table: &table }),
        Decode::Add => LOOK_UP.run(LookUp::<4, true> { bytes, out, table: &table }),
    }
}

/// At wider levels the compiler makes gathers of the look-ups, which take three times as long as plain loads of 16 bytes.
pub(super) const LOOK_UP: SimdLevel = SimdLevel::BASELINE;

/// `N` numbers per byte, from a table.
pub(super) struct LookUp<'a, const N: usize, const ADD: bool> {
    pub(super) bytes: &'a [u8],
    pub(super) out: &'a mut [f32],
    pub(super) table: &'a [[f32; N]; 256],
}

impl<const N: usize, const ADD: bool> Work for LookUp<'_, N, ADD> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        let (whole, tail) = self.out.as_chunks_mut::<N>();
        for (numbers, byte) in whole.iter_mut().zip(self.bytes) {
            let decoded = &self.table[usize::from(*byte)];
            for (number, decoded) in numbers.iter_mut().zip(decoded) {
                *number = if ADD { *number + *decoded } else { *decoded };
            }
        }
        if let Some(byte) = self.bytes.get(whole.len()) {
            for (number, decoded) in tail.iter_mut().zip(&self.table[usize::from(*byte)]) {
                *number = if ADD { *number + *decoded } else { *decoded };
            }
        }
    }
}
