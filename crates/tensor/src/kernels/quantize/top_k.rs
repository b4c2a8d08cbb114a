//! The largest magnitudes and their places: k places as u32 in ascending order, then k numbers as f32.
//!
//! Of equal magnitudes the first are taken, so the same numbers give the same bytes everywhere. NaN is larger than infinity and
//! thus always sent. What is sent leaves a zero in the residual, all else stays. The k-th magnitude is found by counting, 11, 11 and 9
//! bits at a time, without sorting and without memory for n of anything.

use super::super::dispatch::{Isa, SimdLevel, Work};
use super::{Decode, QuantizeError};

/// How many of so many numbers are sent: at least one if there are any.
pub(super) fn kept(ratio: f32, numbers: usize) -> usize {
    let wanted = (f64::from(ratio) * numbers as f64).ceil() as usize;
    wanted.clamp(usize::from(numbers > 0), numbers)
}

pub(super) fn encode(level: SimdLevel, gradient: &[f32], residual: &mut [f32], out: &mut [u8]) {
    level.run(Accumulate { gradient, residual });
    let count = out.len() / 8;
    if count == 0 {
        return;
    }
    let (least, mut ties) = kth_magnitude(residual, count);
    let (places, numbers) = out.split_at_mut(4 * count);
    let mut slots = places.as_chunks_mut::<4>().0.iter_mut().zip(numbers.as_chunks_mut::<4>().0);
    for (place, number) in residual.iter_mut().enumerate() {
        let magnitude = number.to_bits() & MAGNITUDE;
        if magnitude < least || (magnitude == least && ties == 0) {
            continue;
        }
        ties -= usize::from(magnitude == least);
        let Some((place_bytes, number_bytes)) = slots.next() else { return };
        *place_bytes = (place as u32).to_le_bytes();
        *number_bytes = number.to_le_bytes();
        *number = 0.0;
    }
}

const MAGNITUDE: u32 = 0x7fff_ffff;

struct Accumulate<'a> {
    gradient: &'a [f32],
    residual: &'a mut [f32],
}

impl Work for Accumulate<'_> {
    #[inline(always)]
    fn run<I: Isa>(self, _: I) {
        self.residual.iter_mut().zip(self.gradient).for_each(|(residual, gradient)| *residual += *gradient);
    }
}

/// The bits of the `count`-th largest magnitude, and how many of those that equal it are among the `count` largest.
fn kth_magnitude(numbers: &[f32], count: usize) -> (u32, usize) {
    let (mut prefix, mut wanted) = (0u32, count);
    for (shift, bits, settled) in [(20, 11, 31), (9, 11, 20), (0, 9, 9)] {
        let mut bins = [0usize; 1 << 11];
        for number in numbers {
            let magnitude = number.to_bits() & MAGNITUDE;
            if magnitude >> settled == prefix >> settled {
                bins[(magnitude >> shift & ((1 << bits) - 1)) as usize] += 1;
            }
        }
        let mut bin = (1 << bits) - 1;
        while bins[bin] < wanted {
            wanted -= bins[bin];
            bin -= 1;
        }
        prefix |= (bin as u32) << shift;
    }
    (prefix, wanted)
}

/// Places ascend and lie inside.
pub(super) fn check(bytes: &[u8], numbers: usize) -> Result<(), QuantizeError> {
    let mut free = 0u64;
    for (index, place) in places(bytes).enumerate() {
        let malformed = |why| Err(QuantizeError::Malformed { quantizer: "topk", at: 4 * index, why });
        if u64::from(place) < free {
            return malformed("places do not ascend");
        }
        if place as usize >= numbers {
            return malformed("a place lies outside");
        }
        free = u64::from(place) + 1;
    }
    Ok(())
}

pub(super) fn decode(bytes: &[u8], out: &mut [f32], how: Decode) {
    if how == Decode::Overwrite {
        out.fill(0.0);
    }
    let numbers = bytes[bytes.len() / 2..].as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    for (place, number) in places(bytes).zip(numbers) {
        // An absent number is not even added as zero, so −0.0 stays.
        out[place as usize] = if how == Decode::Add { out[place as usize] + number } else { number };
    }
}

fn places(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes[..bytes.len() / 2].as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes))
}
