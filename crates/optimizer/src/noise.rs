//! Normal numbers for SGLD that depend on seed, key, update count and place, and on nothing else.
//!
//! A generator with a state would give each block other numbers depending on who ran before it. This one has none: word i of a stream is
//! SplitMix64's mixing function of `stream + (i+1)·0x9e3779b97f4a7c15`, and the stream is the same function of seed, key and count. The top 53
//! bits of a word are a uniform number in (0, 1), and Acklam's rational approximation of the inverse normal distribution (relative error 1.2·10⁻⁹)
//! makes a normal one of it. Blocks of any size, on any server, at any level of instructions, get the same bits.

use crate::key::Key;
use crate::real::ln;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The numbers of one update of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noise {
    stream: u64,
}

impl Noise {
    pub(crate) fn new(seed: u64, key: &Key, count: u64) -> Noise {
        let stream = mix(mix(seed ^ GOLDEN) ^ key.stable_hash());
        Noise { stream: mix(stream.wrapping_add(count.wrapping_mul(GOLDEN))) }
    }

    /// The standard normal number that belongs to place `at` of the array.
    pub(crate) fn normal(self, at: u64) -> f64 {
        let word = mix(self.stream.wrapping_add((at.wrapping_add(1)).wrapping_mul(GOLDEN)));
        // In the middle of one of 2⁵³ intervals, so neither 0 nor 1.
        inverse_normal(((word >> 11) as f64 + 0.5) * 2f64.powi(-53))
    }
}

fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The number below which a standard normal number lies with probability p.
fn inverse_normal(p: f64) -> f64 {
    const A: [f64; 6] =
        [-3.969683028665376e1, 2.209460984245205e2, -2.759285104469687e2, 1.38357751867269e2, -3.066479806614716e1, 2.506628277459239];
    const B: [f64; 6] = [-5.447609879822406e1, 1.615858368580409e2, -1.556989798598866e2, 6.680131188771972e1, -1.328068155288572e1, 1.0];
    const C: [f64; 6] =
        [-7.784894002430293e-3, -3.223964580411365e-1, -2.400758277161838, -2.549732539343734, 4.374664141464968, 2.938163982698783];
    const D: [f64; 5] = [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    const TAIL: f64 = 0.02425;
    let horner = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient);
    if p < TAIL {
        let q = (-2.0 * ln(p)).sqrt();
        horner(&C, q) / horner(&D, q)
    } else if p > 1.0 - TAIL {
        let q = (-2.0 * ln(1.0 - p)).sqrt();
        -horner(&C, q) / horner(&D, q)
    } else {
        let q = p - 0.5;
        let r = q * q;
        horner(&A, r) * q / horner(&B, r)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_normal() {
        let noise = Noise::new(7, &Key::from("w"), 3);
        let numbers: Vec<f64> = (0..200_000).map(|at| noise.normal(at)).collect();
        let mean = numbers.iter().sum::<f64>() / 2e5;
        let variance = numbers.iter().map(|number| number * number).sum::<f64>() / 2e5;
        let fourth = numbers.iter().map(|number| number.powi(4)).sum::<f64>() / 2e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02 && (fourth - 3.0).abs() < 0.15, "{mean} {variance} {fourth}");
        let below = |limit: f64| numbers.iter().filter(|number| **number < limit).count() as f64 / 2e5;
        for (limit, part) in [(-2.326_348, 0.01), (-1.0, 0.158_655), (0.0, 0.5), (1.959_964, 0.975), (3.0, 0.998_650)] {
            assert!((below(limit) - part).abs() < 0.004, "{limit}: {}", below(limit));
        }
    }

    #[test]
    fn seed_key_count_and_place_all_matter_and_nothing_else() {
        let number = |seed, key: Key, count, at| Noise::new(seed, &key, count).normal(at);
        let first = number(1, Key::Int(3), 1, 0);
        assert_eq!(first, number(1, Key::Int(3), 1, 0));
        for other in
            [number(2, Key::Int(3), 1, 0), number(1, Key::from("3"), 1, 0), number(1, Key::Int(3), 2, 0), number(1, Key::Int(3), 1, 1)]
        {
            assert_ne!(first, other);
        }
    }
}
