//! The half types as codes: rounded to nearest even, but never from a finite number to infinity.
//!
//! What is beyond the largest half is sent as the largest half and the rest stays in the residual. Infinities and NaNs
//! are sent as they are and leave nothing behind: infinity minus infinity would poison the residual.

use half::{bf16, f16};

use super::super::dispatch::{Isa, Work};
use super::super::half_bits;
use super::Decode;

/// Numbers converted at a time.
const BLOCK: usize = 256;

macro_rules! half_codes {
    ($Half:ident, $Encode:ident, $Decode:ident, $widen:expr, $narrow:expr) => {
        pub(super) struct $Encode<'a> {
            pub(super) gradient: &'a [f32],
            pub(super) residual: &'a mut [f32],
            pub(super) out: &'a mut [u8],
        }

        impl Work for $Encode<'_> {
            #[inline(always)]
            fn run<I: Isa>(self, isa: I) {
                let largest = $Half::MAX.to_f32_const();
                let (mut limited, mut halves) = ([0.0f32; BLOCK], [$Half::ZERO; BLOCK]);
                let blocks = self.gradient.chunks(BLOCK).zip(self.residual.chunks_mut(BLOCK));
                for ((gradient, residual), out) in blocks.zip(self.out.chunks_mut(2 * BLOCK)) {
                    let (limited, halves) = (&mut limited[..gradient.len()], &mut halves[..gradient.len()]);
                    for ((gradient, residual), limited) in gradient.iter().zip(residual.iter_mut()).zip(limited.iter_mut()) {
                        let sum = *residual + *gradient;
                        *residual = sum;
                        let finite = if sum > largest {
                            largest
                        } else if sum < -largest {
                            -largest
                        } else {
                            sum
                        };
                        *limited = if sum.is_infinite() { sum } else { finite };
                    }
                    $narrow(isa, limited, halves);
                    for (bytes, half) in out.as_chunks_mut::<2>().0.iter_mut().zip(halves.iter()) {
                        *bytes = half.to_bits().to_le_bytes();
                    }
                    $widen(isa, halves, limited);
                    for (residual, sent) in residual.iter_mut().zip(limited.iter()) {
                        let rest = *residual - *sent;
                        *residual = if sent.is_finite() { rest } else { 0.0 };
                    }
                }
            }
        }

        pub(super) struct $Decode<'a> {
            pub(super) bytes: &'a [u8],
            pub(super) out: &'a mut [f32],
            pub(super) how: Decode,
        }

        impl Work for $Decode<'_> {
            #[inline(always)]
            fn run<I: Isa>(self, isa: I) {
                let (mut wide, mut halves) = ([0.0f32; BLOCK], [$Half::ZERO; BLOCK]);
                for (bytes, out) in self.bytes.chunks(2 * BLOCK).zip(self.out.chunks_mut(BLOCK)) {
                    let (wide, halves) = (&mut wide[..out.len()], &mut halves[..out.len()]);
                    for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
                        *half = $Half::from_bits(u16::from_le_bytes(*bytes));
                    }
                    match self.how {
                        Decode::Overwrite => $widen(isa, halves, out),
                        Decode::Add => {
                            $widen(isa, halves, wide);
                            out.iter_mut().zip(wide).for_each(|(out, wide)| *out += *wide);
                        }
                    }
                }
            }
        }
    };
}

half_codes!(f16, EncodeF16, DecodeF16, widen_f16, narrow_f16);
half_codes!(bf16, EncodeBf16, DecodeBf16, widen_bf16, narrow_bf16);

#[inline(always)]
fn widen_f16<I: Isa>(isa: I, src: &[f16], dst: &mut [f32]) {
    isa.widen_f16(src, dst);
}

#[inline(always)]
fn narrow_f16<I: Isa>(isa: I, src: &[f32], dst: &mut [f16]) {
    isa.narrow_f16(src, dst);
}

#[inline(always)]
fn widen_bf16<I: Isa>(_: I, src: &[bf16], dst: &mut [f32]) {
    dst.iter_mut().zip(src).for_each(|(dst, src)| *dst = half_bits::bf16_to_f32(*src));
}

#[inline(always)]
fn narrow_bf16<I: Isa>(_: I, src: &[f32], dst: &mut [bf16]) {
    dst.iter_mut().zip(src).for_each(|(dst, src)| *dst = half_bits::f32_to_bf16(*src));
}
