//! A short walk through what `fuzz/` does for hours: random bytes, and good bytes gone slightly wrong.
//!
//! The seed is fixed, so that a failure is the same everywhere; the counts are chosen for a second or two in all.

mod samples;

use syncline_wire::{Limits, fuzzing};

const ROUNDS: usize = 150_000;

#[test]
fn no_bytes_make_a_frame_header_break_a_promise() {
    let good = samples::frames()
        .into_iter()
        .map(|(_, header, meta)| [&header.encode()[..], meta].concat());
    hammer(fuzzing::frame_header, good.collect(), 1);
}

#[test]
fn no_bytes_make_a_control_message_break_a_promise() {
    let limits = Limits::default();
    let good = samples::controls()
        .into_iter()
        .map(|(_, control)| control.encode(&limits).unwrap());
    hammer(fuzzing::control_message, good.collect(), 2);
}

#[test]
fn no_bytes_make_a_greeting_break_a_promise() {
    let good = samples::hellos()
        .into_iter()
        .map(|(_, hello)| hello.encode().unwrap());
    hammer(fuzzing::hello, good.collect(), 3);
}

#[test]
fn no_bytes_make_a_value_break_a_promise() {
    let short = samples::values().into_iter().map(|(_, value)| value);
    let good = short.chain(samples::long_values()).map(|value| {
        let encoded = value.encode(&Limits::default()).unwrap();
        let split = (encoded.meta().len() as u16).to_le_bytes();
        [&split[..], encoded.meta(), &encoded.payload_to_vec()].concat()
    });
    hammer(fuzzing::value, good.collect(), 4);
}

/// Feeds `parser` the good inputs, random bytes, and mutations of the good inputs.
fn hammer(parser: fn(&[u8]) -> bool, good: Vec<Vec<u8>>, seed: u64) {
    let mut dice = Dice(seed);
    for bytes in &good {
        assert!(parser(bytes), "a good input was refused: {bytes:02x?}");
    }
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let len = dice.below(200);
        parser(&(0..len).map(|_| dice.byte()).collect::<Vec<u8>>());

        let mut bytes = good[dice.below(good.len())].clone();
        for _ in 0..=dice.below(4) {
            dice.mutate(&mut bytes);
        }
        refused += usize::from(!parser(&bytes));
    }
    assert!(
        refused > ROUNDS / 10,
        "only {refused} of {ROUNDS} damaged inputs were refused: is anything checked?"
    );
}

/// SplitMix64: small, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        // Small numbers and extremes are tags and lengths more often than chance would have it.
        match self.below(4) {
            0 => self.below(16) as u8,
            1 => [0, 0x7f, 0x80, 0xff][self.below(4)],
            _ => self.next() as u8,
        }
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return bytes.push(self.byte());
        }
        let at = self.below(bytes.len());
        match self.below(6) {
            0 => bytes[at] ^= 1 << self.below(8),
            1 => bytes[at] = self.byte(),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, self.byte()),
            4 => drop(bytes.remove(at)),
            _ => {
                let end = at + self.below(bytes.len() - at);
                bytes.extend_from_within(at..end);
            }
        }
    }
}
