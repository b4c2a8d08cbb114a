//! Conversions of the half types in plain integer arithmetic, without branches, so that loops of them vectorise.
//!
//! The `half` crate has the same conversions, but asks for F16C at every number, which no loop survives, and its
//! f64 → f16 rounds twice on some CPUs. Bits agree with `half` and with the instructions, NaN payloads included.

use half::{bf16, f16};

const F32_INFINITY: u32 = 0x7f80_0000;
const F32_QUIET: u32 = 0x0040_0000;

/// Exact; signalling NaNs become quiet.
#[inline(always)]
pub(crate) fn bf16_to_f32(half: bf16) -> f32 {
    let bits = u32::from(half.to_bits()) << 16;
    f32::from_bits(if is_nan(bits) { bits | F32_QUIET } else { bits })
}

/// Rounds to nearest even; too large becomes infinite, signalling NaNs quiet.
#[inline(always)]
pub(crate) fn f32_to_bf16(wide: f32) -> bf16 {
    let bits = wide.to_bits();
    let to_even = (bits >> 16) & 1;
    let rounded = bits.wrapping_add(0x7fff + to_even);
    let chosen = if is_nan(bits) {
        bits | F32_QUIET
    } else {
        rounded
    };
    bf16::from_bits((chosen >> 16) as u16)
}

/// Exact; signalling NaNs become quiet.
#[inline(always)]
pub(crate) fn f16_to_f32(half: f16) -> f32 {
    // Moves exponent and mantissa in place and corrects the exponent's bias: 15 there, 127 here.
    const REBIAS: u32 = (127 - 15) << 23;
    const EXPONENT: u32 = 0x7c00 << 13;
    let half = u32::from(half.to_bits());
    let moved = (half & 0x7fff) << 13;
    let exponent = moved & EXPONENT;
    let normal = moved + REBIAS;
    // Infinities and NaNs have the largest exponent there and must have it here.
    let special = normal + REBIAS;
    let special = if moved > EXPONENT {
        special | F32_QUIET
    } else {
        special
    };
    // Subnormal numbers get a leading one, which the subtraction takes away again: it normalises them.
    let subnormal =
        (f32::from_bits(normal + (1 << 23)) - f32::from_bits(REBIAS + (1 << 23))).to_bits();
    let magnitude = match exponent {
        EXPONENT => special,
        0 => subnormal,
        _ => normal,
    };
    f32::from_bits(magnitude | (half & 0x8000) << 16)
}

/// Rounds to nearest even; too large becomes infinite, too small becomes subnormal or zero, signalling NaNs quiet.
#[inline(always)]
pub(crate) fn f32_to_f16(wide: f32) -> f16 {
    // From here on everything rounds to infinity; below the second, results are subnormal.
    const TOO_LARGE: u32 = (127 + 16) << 23;
    const SMALLEST_NORMAL: u32 = (127 - 14) << 23;
    let bits = wide.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let to_even = (magnitude >> 13) & 1;
    let normal = magnitude
        .wrapping_sub((127 - 15) << 23)
        .wrapping_add(0xfff + to_even)
        >> 13;
    // Adding one half aligns the mantissa so that the FPU itself rounds it at the subnormals' last place.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0.5f32.to_bits());
    let nan = 0x7e00 | (magnitude >> 13) & 0x3ff;
    let rounded = if is_nan(bits) {
        nan
    } else if magnitude >= TOO_LARGE {
        0x7c00
    } else if magnitude < SMALLEST_NORMAL {
        subnormal
    } else {
        normal
    };
    f16::from_bits((rounded | (bits >> 16) & 0x8000) as u16)
}

/// Rounds to odd: exact if f32 can hold it, else the neighbour whose last bit is one.
///
/// Rounding the result once more, to a half type, gives the same as rounding the f64 directly, because the odd
/// bit remembers on which side of a tie the number was.
#[inline(always)]
pub(crate) fn f64_to_f32_odd(wide: f64) -> f32 {
    let nearest = wide as f32;
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    // Magnitudes of floats order as integers, so the neighbour towards zero is one less.
    let towards_zero = bits.wrapping_sub(u32::from(back.abs() > wide.abs()));
    let inexact = back != wide && !wide.is_nan();
    f32::from_bits(if inexact { towards_zero | 1 } else { bits })
}

/// Rounds to odd, as [`f64_to_f32_odd`].
#[inline(always)]
pub(crate) fn i64_to_f32_odd(whole: i64) -> f32 {
    // An f64 holds 53 bits. Beyond that the low eleven are folded into one that says whether any was set;
    // after an arithmetic shift this picks the odd neighbour for either sign.
    const LOW: i64 = (1 << 11) - 1;
    let folded = (whole >> 11 | i64::from(whole & LOW != 0)) << 11;
    let fits = whole.unsigned_abs() < 1 << 53;
    f64_to_f32_odd(if fits { whole } else { folded } as f64)
}

#[inline(always)]
fn is_nan(bits: u32) -> bool {
    bits & 0x7fff_ffff > F32_INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 2^11-th f32 with its neighbours: all signs, exponents, ties and specials pass by.
    fn sampled_f32() -> impl Iterator<Item = f32> {
        let around = |base: u32| (-2i32..=2).map(move |step| base.wrapping_add_signed(step));
        (0..=u32::MAX >> 11)
            .map(|top| top << 11)
            .flat_map(around)
            .map(f32::from_bits)
    }

    #[test]
    fn widening_agrees_with_the_half_crate_on_every_bit_pattern() {
        for bits in 0..=u16::MAX {
            let (f, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert_eq!(
                f16_to_f32(f).to_bits(),
                f.to_f32_const().to_bits(),
                "f16 {bits:#06x}"
            );
            assert_eq!(
                bf16_to_f32(b).to_bits(),
                b.to_f32_const().to_bits(),
                "bf16 {bits:#06x}"
            );
        }
    }

    #[test]
    fn narrowing_agrees_with_the_half_crate() {
        for wide in sampled_f32() {
            assert_eq!(
                f32_to_f16(wide).to_bits(),
                f16::from_f32_const(wide).to_bits(),
                "{:#010x}",
                wide.to_bits()
            );
            assert_eq!(
                f32_to_bf16(wide).to_bits(),
                bf16::from_f32_const(wide).to_bits(),
                "{:#010x}",
                wide.to_bits()
            );
        }
    }

    #[test]
    fn a_tie_in_f32_that_was_none_in_f64_rounds_the_right_way() {
        let just_above_a_tie = 1.0 + f64::from(f16::EPSILON) / 2.0 + f64::EPSILON;
        let up = f32_to_f16(f64_to_f32_odd(just_above_a_tie));
        assert_eq!(up, f16::from_bits(f16::ONE.to_bits() + 1));
        let (tie, above) = ((1i64 << 62) + (1 << 54), (1i64 << 62) + (1 << 54) + 1);
        let down = f32_to_bf16(i64_to_f32_odd(tie));
        let up = f32_to_bf16(i64_to_f32_odd(above));
        assert_eq!(
            (down.to_f64(), up.to_f64()),
            ((1i64 << 62) as f64, ((1i64 << 62) + (1 << 55)) as f64)
        );
        assert_eq!(f32_to_bf16(i64_to_f32_odd(-above)).to_f64(), -up.to_f64());
    }

    #[test]
    fn rounding_to_odd_keeps_what_f32_can_hold() {
        for exact in [
            0.0,
            -0.0,
            1.0,
            -2.5,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::from(f32::MAX),
        ] {
            assert_eq!(f64::from(f64_to_f32_odd(exact)).to_bits(), exact.to_bits());
        }
        assert!(f64_to_f32_odd(f64::NAN).is_nan());
        assert_eq!(
            f64_to_f32_odd(f64::MAX),
            f32::MAX,
            "infinite only after the second rounding"
        );
        assert_eq!(f32_to_bf16(f64_to_f32_odd(f64::MAX)), bf16::INFINITY);
        assert_eq!(f64_to_f32_odd(f64::MIN_POSITIVE).to_bits(), 1);
        assert_eq!(f64_to_f32_odd(-f64::MIN_POSITIVE).to_bits(), 0x8000_0001);
        for whole in [
            0,
            1,
            -1,
            i64::MAX,
            i64::MIN,
            1 << 53,
            -(1 << 53),
            (1 << 53) + 1,
        ] {
            let odd = f64::from(i64_to_f32_odd(whole));
            assert!(
                (odd - whole as f64).abs() <= (whole as f64).abs() * f64::from(f32::EPSILON),
                "{whole}"
            );
        }
    }
}
