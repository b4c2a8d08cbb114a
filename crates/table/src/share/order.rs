//! The rows of an add in ascending order: a round goes through the rows of all workers stripe by stripe.
//!
//! Row and place in one word: numbers sort faster than anything that has to be looked up. A thousand of them are sorted by their digits, in two
//! passes over a table of a million rows; comparing them takes twice as long, since no processor guesses right which of two random rows is the smaller.

use std::ops::Range;

/// Fewer are compared: digits have a table of counters to clear first.
const FEW: usize = 128;
/// Bits of a digit: as many counters fit the first-level cache beside the rows.
const DIGIT: u32 = 11;

/// Writes ids in ascending order, and then for each of them which row of the delta it means. Repeated ids keep their order. All lie within `rows`.
pub(super) fn in_order(ids: &[i64], rows: &Range<u64>, room: &mut [i64]) {
    let (sorted, places) = room.split_at_mut(ids.len());
    let (start, count) = (rows.start as i64, rows.end - rows.start);
    if count >= 1 << 31 || ids.len() >= 1 << 32 {
        places.iter_mut().zip(0..).for_each(|(place, index)| *place = index);
        places.sort_by_key(|place| ids[*place as usize]);
        sorted.iter_mut().zip(places).for_each(|(id, place)| *id = ids[*place as usize]);
        return;
    }
    sorted.iter_mut().zip(ids).zip(0..).for_each(|((word, id), place)| *word = (id - start) << 32 | place);
    let bits = u64::BITS - count.leading_zeros();
    match ids.len() {
        0..FEW => sorted.sort_unstable(),
        // An even number of passes, so that the words end where they began.
        _ if bits <= 2 * DIGIT => by_digits::<2>(sorted, places, bits),
        _ => by_digits::<4>(sorted, places, bits),
    }
    for (word, place) in sorted.iter_mut().zip(places) {
        (*word, *place) = ((*word >> 32) + start, *word & 0xffff_ffff);
    }
}

/// Sorts words by the `bits` bits above their lower halves, digit by digit from the lowest; `spare` is as long. Equal ones keep their order.
fn by_digits<const PASSES: usize>(words: &mut [i64], spare: &mut [i64], bits: u32) {
    let width = bits.div_ceil(PASSES as u32).max(1);
    let digit = |word: i64, pass: usize| (word >> (32 + pass as u32 * width)) as usize & ((1 << width) - 1);
    let mut ends = [[0u32; 1 << DIGIT]; PASSES];
    for word in words.iter() {
        ends.iter_mut().enumerate().for_each(|(pass, ends)| ends[digit(*word, pass)] += 1);
    }
    let (mut from, mut to) = (words, spare);
    for (pass, at) in ends.iter_mut().enumerate() {
        let mut before = 0;
        for count in &mut at[..1 << width] {
            before += std::mem::replace(count, before);
        }
        for word in from.iter() {
            let place = &mut at[digit(*word, pass)];
            to[*place as usize] = *word;
            *place += 1;
        }
        std::mem::swap(&mut from, &mut to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What anybody would write.
    fn naive(ids: &[i64]) -> Vec<i64> {
        let mut places: Vec<i64> = (0..ids.len() as i64).collect();
        places.sort_by_key(|place| ids[*place as usize]);
        places.iter().map(|place| ids[*place as usize]).chain(places.iter().copied()).collect()
    }

    #[test]
    fn ids_are_sorted_with_their_places_whatever_their_number_and_range() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let tables = [(0, 1), (0, 2), (0, 7), (5, 1000), (0, 1 << 11), (3, 1 << 22), (0, (1 << 22) + 1), (9, (1 << 31) - 1), (0, 1 << 40)];
        for (start, count) in tables {
            for len in [0, 1, 2, 50, FEW - 1, FEW, 1000, 5000] {
                let rows = start..start + count;
                let mut ids: Vec<i64> = (0..len).map(|_| (start + next() % count) as i64).collect();
                if let [first, .., last] = &mut ids[..] {
                    (*first, *last) = (rows.end as i64 - 1, start as i64); // the ends of the range
                }
                let mut room = vec![-1; 2 * len];
                in_order(&ids, &rows, &mut room);
                assert_eq!(room, naive(&ids), "{len} of {rows:?}");
            }
        }
    }
}
