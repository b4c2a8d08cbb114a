//! Sums of squares over a whole array whose blocks are measured in any order, anywhere, with one result.
//!
//! An array is measured in cells of [`CELL`] numbers. Each cell is summed in one fixed order in f64, and cells are added exactly, as whole multiples
//! of 2⁻⁹⁶⁰ in an integer of 2048 bits: exact sums do not depend on their order, so neither stripes nor servers show in the result.

use serde::{Deserialize, Serialize};

/// Numbers of a cell; measured blocks begin at multiples of it.
pub const CELL: usize = 1024;

const LIMBS: usize = 32;
/// The value of the lowest bit is 2 to the minus this.
const UNIT: i32 = 960;

/// A sum of non-negative numbers without any rounding; what lies below 2⁻⁹⁶⁰ is cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExactSum {
    limbs: [u64; LIMBS],
    /// Whether a number was infinite or NaN: then so is the sum, as NaN.
    lost: bool,
}

impl Default for ExactSum {
    fn default() -> ExactSum {
        ExactSum { limbs: [0; LIMBS], lost: false }
    }
}

impl ExactSum {
    /// Adds one number; a negative one counts as lost.
    pub fn add(&mut self, number: f64) {
        if !number.is_finite() || number < 0.0 {
            self.lost = true;
            return;
        }
        let bits = number.to_bits();
        let exponent = (bits >> 52) as i32;
        let mantissa = (bits & ((1 << 52) - 1)) | if exponent > 0 { 1 << 52 } else { 0 };
        // number = mantissa · 2^(exponent − 1075), for subnormal numbers as if their exponent were 1.
        let place = exponent.max(1) - 1075 + UNIT;
        let (mantissa, place) = if place < 0 { (mantissa.checked_shr(place.unsigned_abs()).unwrap_or(0), 0) } else { (mantissa, place) };
        let wide = u128::from(mantissa) << (place % 64);
        self.add_limbs(place as usize / 64, [wide as u64, (wide >> 64) as u64]);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &ExactSum) {
        let mut carry = false;
        for (limb, more) in self.limbs.iter_mut().zip(other.limbs) {
            let (sum, first) = limb.overflowing_add(more);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, first || second);
        }
        self.lost |= other.lost || carry;
    }

    fn add_limbs(&mut self, at: usize, more: [u64; 2]) {
        let mut carry = false;
        for (index, limb) in self.limbs[at..].iter_mut().enumerate() {
            let more = more.get(index).copied().unwrap_or(0);
            if index >= 2 && !carry {
                return;
            }
            let (sum, first) = limb.overflowing_add(more);
            let (sum, second) = sum.overflowing_add(u64::from(carry));
            (*limb, carry) = (sum, first || second);
        }
        self.lost |= carry;
    }

    /// The sum as a number, NaN if something was lost.
    pub fn value(&self) -> f64 {
        if self.lost {
            return f64::NAN;
        }
        let top = self.limbs.iter().rposition(|limb| *limb != 0).unwrap_or(0);
        let limb = |below: usize| top.checked_sub(below).map_or(0.0, |index| self.limbs[index] as f64);
        const LIMB: f64 = 18_446_744_073_709_551_616.0;
        let scaled = limb(0) + limb(1) / LIMB + limb(2) / LIMB / LIMB;
        // 2^(64·top − 960) is within range; the product may be infinite, as the sum then is.
        scaled * 2f64.powi(64 * top as i32 - UNIT)
    }
}

/// What a step of LAMB or LARS must know of the whole array: sums of squares of its weights and of its update (LARS: of its gradient).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Norms {
    /// Of the weights.
    pub weight: ExactSum,
    /// Of the update.
    pub update: ExactSum,
}

/// 64-bit words that norms are written down in.
pub const NORM_WORDS: usize = 2 * LIMBS + 1;

impl Norms {
    /// As words, for memory that others read.
    pub fn to_words(&self) -> [u64; NORM_WORDS] {
        let mut words = [0; NORM_WORDS];
        words[..LIMBS].copy_from_slice(&self.weight.limbs);
        words[LIMBS..2 * LIMBS].copy_from_slice(&self.update.limbs);
        words[2 * LIMBS] = u64::from(self.weight.lost) | u64::from(self.update.lost) << 1;
        words
    }

    /// From such words.
    pub fn from_words(words: &[u64; NORM_WORDS]) -> Norms {
        let sum = |at: usize, bit: u64| {
            let mut limbs = [0; LIMBS];
            limbs.copy_from_slice(&words[at..at + LIMBS]);
            ExactSum { limbs, lost: words[2 * LIMBS] & bit != 0 }
        };
        Norms { weight: sum(0, 1), update: sum(LIMBS, 2) }
    }

    /// The two norms as numbers: of the weights and of the update.
    pub fn values(&self) -> [f64; 2] {
        [self.weight.value().sqrt(), self.update.value().sqrt()]
    }

    /// Adds what another block, or another server, measured. The order does not matter.
    pub fn merge(&mut self, other: &Norms) {
        self.weight.merge(&other.weight);
        self.update.merge(&other.update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_and_grouping_gives_the_same_bits() {
        let numbers: Vec<f64> = (0..500).map(|i| f64::from(i * 7919 % 1009) * 10f64.powi(i % 60 - 30)).collect();
        let sum = |numbers: &[f64]| {
            let mut sum = ExactSum::default();
            numbers.iter().for_each(|number| sum.add(*number));
            sum
        };
        let forward = sum(&numbers);
        let backward = sum(&numbers.iter().rev().copied().collect::<Vec<_>>());
        let mut parts = sum(&numbers[300..]);
        parts.merge(&sum(&numbers[..300]));
        assert_eq!((&forward, &forward), (&backward, &parts));
        let plain: f64 = numbers.iter().sum();
        assert!((forward.value() - plain).abs() <= 1e-13 * plain, "{} {plain}", forward.value());
    }

    #[test]
    fn words_keep_every_bit() {
        let mut norms = Norms::default();
        (0..100).for_each(|i| norms.weight.add(1.5f64.powi(i * 7 - 300)));
        norms.update.add(f64::NAN);
        assert_eq!(Norms::from_words(&norms.to_words()), norms);
        std::mem::swap(&mut norms.weight, &mut norms.update);
        assert_eq!(Norms::from_words(&norms.to_words()), norms);
    }

    #[test]
    fn the_ends_of_the_range_are_kept() {
        let of = |numbers: &[f64]| {
            let mut sum = ExactSum::default();
            numbers.iter().for_each(|number| sum.add(*number));
            sum.value()
        };
        assert_eq!(of(&[]), 0.0);
        assert_eq!(of(&[1e300, 1e-280]), 1e300);
        assert_eq!(of(&[1e-250]), 1e-250);
        assert_eq!(of(&[5e-324]), 0.0, "below 2^-960");
        assert_eq!(of(&[0.1, 0.2, 0.3]), 0.6);
        assert!(of(&[f64::MAX, f64::MAX]).is_infinite());
        assert!(of(&[f64::INFINITY]).is_nan() && of(&[f64::NAN]).is_nan() && of(&[-1.0]).is_nan());
    }
}
