//! Gradients in few bits on their way: how their words are cut over parts, read into place, and made for a reply.
//!
//! Codes have blocks of numbers that share bytes (16 to a word of two bits, 256 to a scale of int8). Tables made by name are
//! cut between blocks, so the words of a part are a part of the words, and it does not show in a result where a table lives.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;
use syncline_tensor::kernels::quantize::{Decode, INT8_BLOCK, Quantizer};

use super::moving::mismatch;

/// Numbers that are coded or decoded at a time; whole blocks of every code.
const AT_ONCE: usize = 256 * INT8_BLOCK;
/// The most bytes that are made room for before they have arrived.
const STEP: usize = 1 << 20;

/// A quantizer as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Code {
    TwoBit { threshold: f32 },
    OneBit { threshold: f32 },
    F16,
    BF16,
    Int8,
    TopK { ratio: f32 },
}

impl From<Quantizer> for Code {
    fn from(quantizer: Quantizer) -> Code {
        match quantizer {
            Quantizer::TwoBit { threshold } => Code::TwoBit { threshold },
            Quantizer::OneBit { threshold } => Code::OneBit { threshold },
            Quantizer::F16 => Code::F16,
            Quantizer::BF16 => Code::BF16,
            Quantizer::Int8 => Code::Int8,
            Quantizer::TopK { ratio } => Code::TopK { ratio },
        }
    }
}

impl Code {
    pub(crate) fn quantizer(self) -> Quantizer {
        match self {
            Code::TwoBit { threshold } => Quantizer::TwoBit { threshold },
            Code::OneBit { threshold } => Quantizer::OneBit { threshold },
            Code::F16 => Quantizer::F16,
            Code::BF16 => Quantizer::BF16,
            Code::Int8 => Quantizer::Int8,
            Code::TopK { ratio } => Quantizer::TopK { ratio },
        }
    }

    /// Refuses parameters that make no sense.
    pub(crate) fn check(self) -> Result<(), String> {
        self.quantizer().check().map_err(|error| error.to_string())
    }

    /// Whether values, which nobody keeps a residual for, may be fetched in this code.
    pub(crate) fn suits_values(self) -> bool {
        matches!(self, Code::F16 | Code::BF16 | Code::Int8)
    }

    /// Whether so many bytes may be those of a part with so many numbers.
    pub(crate) fn takes(self, bytes: u64, numbers: u64) -> bool {
        match self {
            Code::TopK { .. } => bytes.is_multiple_of(8) && bytes / 8 <= numbers,
            _ => usize::try_from(numbers).is_ok_and(|numbers| self.quantizer().encoded_len(numbers) as u64 == bytes),
        }
    }

    /// Numbers that share bytes.
    fn block(self) -> usize {
        match self {
            Code::TwoBit { .. } => 16,
            Code::OneBit { .. } => 32,
            Code::Int8 => INT8_BLOCK,
            Code::F16 | Code::BF16 | Code::TopK { .. } => 1,
        }
    }

    /// Whether the words of `all` numbers can be cut at these places.
    pub(crate) fn can_be_cut(self, at: impl Iterator<Item = usize>, all: usize) -> bool {
        at.into_iter().all(|place| place.is_multiple_of(self.block()) || place == all)
    }

    /// The words of some of `all` numbers, between places where they [can be cut](Code::can_be_cut).
    pub(crate) fn cut(self, words: &[u8], numbers: Range<usize>, all: usize) -> Cow<'_, [u8]> {
        if numbers == (0..all) {
            return Cow::Borrowed(words);
        }
        if let Code::TopK { .. } = self {
            let (places, values) = words.split_at(words.len() / 2);
            let place = |at: usize| u32::from_le_bytes(places[4 * at..4 * at + 4].try_into().expect("four bytes")) as usize;
            let count = places.len() / 4;
            let first = (0..count).position(|at| place(at) >= numbers.start).unwrap_or(count);
            let end = (first..count).position(|at| place(at) >= numbers.end).map_or(count, |more| first + more);
            let mut part = Vec::with_capacity(8 * (end - first));
            (first..end).for_each(|at| part.extend_from_slice(&((place(at) - numbers.start) as u32).to_le_bytes()));
            part.extend_from_slice(&values[4 * first..4 * end]);
            return Cow::Owned(part);
        }
        let bytes = |numbers: usize| self.quantizer().encoded_len(numbers);
        Cow::Borrowed(&words[bytes(numbers.start)..bytes(numbers.end)])
    }

    /// Writes the numbers that `words` mean to `target`, bytes of f32.
    pub(crate) fn decode(self, words: &[u8], target: &mut [u8]) -> Result<(), Error> {
        if words.len() == self.quantizer().encoded_len(target.len() / 4)
            && let Ok(numbers) = bytemuck::try_cast_slice_mut(target)
        {
            return self.quantizer().decode(words, numbers, Decode::Overwrite).map_err(|error| malformed(&error.to_string()));
        }
        let mut rest = words;
        self.decode_from(words.len(), target, &mut |room| {
            let (now, later) = rest.split_at_checked(room.len()).ok_or_else(|| malformed("the words end too early"))?;
            room.copy_from_slice(now);
            rest = later;
            Ok(())
        })
    }

    /// The same while `bytes` words are read, some at a time.
    pub(crate) fn decode_from(
        self,
        bytes: usize,
        target: &mut [u8],
        read: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Ok(numbers) = bytemuck::try_cast_slice_mut::<u8, f32>(target) else {
            // Memory that does not lie as f32 must: by way of some that does.
            let mut aligned = vec![0f32; target.len() / 4];
            self.read_numbers(bytes, &mut aligned, read)?;
            target.copy_from_slice(bytemuck::cast_slice(&aligned));
            return Ok(());
        };
        self.read_numbers(bytes, numbers, read)
    }

    fn read_numbers(self, bytes: usize, numbers: &mut [f32], read: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
        if !self.takes(bytes as u64, numbers.len() as u64) {
            return Err(malformed(&format!("{bytes} bytes are no {} of {} numbers", self.quantizer().name(), numbers.len())));
        }
        if let Code::TopK { .. } = self {
            return read_places(bytes / 8, numbers, read);
        }
        let mut words = vec![0; self.quantizer().encoded_len(numbers.len().min(AT_ONCE))];
        for some in numbers.chunks_mut(AT_ONCE) {
            let words = &mut words[..self.quantizer().encoded_len(some.len())];
            read(words)?;
            self.quantizer().decode(words, some, Decode::Overwrite).map_err(|error| malformed(&error.to_string()))?;
        }
        Ok(())
    }

    /// Makes of `values`, bytes of f32, what is left of them after a journey in this code.
    pub(crate) fn round(self, values: &mut [u8]) -> Result<(), Error> {
        let (mut making, mut words, all) = (Making::new(self), Vec::new(), values.len());
        making.take(values, &mut |bytes| {
            words.extend_from_slice(bytes);
            Ok(())
        })?;
        making.end(&mut |bytes| {
            words.extend_from_slice(bytes);
            Ok(())
        })?;
        debug_assert_eq!(words.len(), self.quantizer().encoded_len(all / 4));
        self.decode(&words, values)
    }
}

/// Largest magnitudes: their places, then they themselves.
fn read_places(count: usize, numbers: &mut [f32], read: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut places: Vec<u32> = Vec::new();
    while places.len() < count {
        let (before, some) = (places.len(), (count - places.len()).min(STEP / 4));
        places.resize(before + some, 0);
        read(bytemuck::cast_slice_mut(&mut places[before..]))?;
    }
    let ascend = places.windows(2).all(|pair| u32::from_le(pair[0]) < u32::from_le(pair[1]));
    if !ascend || places.last().is_some_and(|place| u32::from_le(*place) as usize >= numbers.len()) {
        return Err(malformed("places of the largest numbers do not ascend, or lie outside"));
    }
    numbers.fill(0.0);
    let mut values = vec![0f32; count.min(STEP / 4)];
    for some in places.chunks(STEP / 4) {
        let values = &mut values[..some.len()];
        read(bytemuck::cast_slice_mut(values))?;
        some.iter().zip(values).for_each(|(place, value)| numbers[u32::from_le(*place) as usize] = *value);
    }
    Ok(())
}

/// Words made of values that come in pieces of any size.
pub(crate) struct Making {
    code: Code,
    /// What has come and is not yet coded; room for `AT_ONCE`.
    values: Vec<f32>,
    filled: usize,
    residual: Vec<f32>,
    words: Vec<u8>,
}

impl Making {
    pub(crate) fn new(code: Code) -> Making {
        Making { code, values: Vec::new(), filled: 0, residual: Vec::new(), words: Vec::new() }
    }

    /// Takes the next values, bytes of f32 of any number, and hands the words that they make to `sink`.
    pub(crate) fn take(&mut self, mut bytes: &[u8], sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        while !bytes.is_empty() {
            let wanted = (self.filled + bytes.len()).min(AT_ONCE * 4);
            if self.values.len() * 4 < wanted {
                self.values.resize(wanted.div_ceil(4), 0.0);
            }
            let room: &mut [u8] = bytemuck::cast_slice_mut(&mut self.values);
            let (now, later) = bytes.split_at(wanted - self.filled);
            room[self.filled..wanted].copy_from_slice(now);
            (self.filled, bytes) = (wanted, later);
            if self.filled == AT_ONCE * 4 {
                self.code_filled(sink)?;
            }
        }
        Ok(())
    }

    /// Makes the last words.
    pub(crate) fn end(&mut self, sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        if self.filled == 0 { Ok(()) } else { self.code_filled(sink) }
    }

    fn code_filled(&mut self, sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let values = &self.values[..self.filled / 4];
        self.filled = 0;
        self.residual.clear(); // values are sent whole, again and again: nothing of them is owed
        self.residual.resize(values.len(), 0.0);
        self.words.resize(self.code.quantizer().encoded_len(values.len()), 0);
        let coded = self.code.quantizer().encode(values, &mut self.residual, &mut self.words);
        coded.map_err(|error| malformed(&error.to_string()))?;
        sink(&self.words)
    }
}

fn malformed(why: &str) -> Error {
    mismatch("quantized numbers", why.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn codes() -> [Code; 6] {
        [Code::TwoBit { threshold: 0.5 }, Code::OneBit { threshold: 0.0 }, Code::F16, Code::BF16, Code::Int8, Code::TopK { ratio: 0.1 }]
    }

    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut chance = syncline_testkit::sim::Chance::new(seed);
        (0..count).map(|_| (chance.below(4001) as f32 - 2000.0) / 700.0).collect()
    }

    #[test]
    fn values_in_pieces_make_the_words_of_the_whole() {
        for code in codes().into_iter().filter(|code| code.suits_values()) {
            let values = numbers(AT_ONCE * 2 + 777, 1);
            let mut expected = vec![0; code.quantizer().encoded_len(values.len())];
            code.quantizer().encode(&values, &mut vec![0.0; values.len()], &mut expected).unwrap();
            let (mut making, mut words) = (Making::new(code), Vec::new());
            let bytes: &[u8] = bytemuck::cast_slice(&values);
            for piece in bytes.chunks(10_007) {
                making
                    .take(piece, &mut |bytes| {
                        words.extend_from_slice(bytes);
                        Ok(())
                    })
                    .unwrap();
            }
            making
                .end(&mut |bytes| {
                    words.extend_from_slice(bytes);
                    Ok(())
                })
                .unwrap();
            assert!(words == expected, "{code:?}");
            let mut rounded = bytes.to_vec();
            code.round(&mut rounded).unwrap();
            let mut decoded = vec![0f32; values.len()];
            code.quantizer().decode(&expected, &mut decoded, Decode::Overwrite).unwrap();
            assert!(rounded == bytemuck::cast_slice::<f32, u8>(&decoded), "{code:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_of_the_words_are_the_words_of_the_parts(seed: u64, blocks in proptest::collection::vec(0usize..4, 1..4), tail in 0usize..300, odd: bool) {
            let mut cuts: Vec<usize> = blocks.iter().scan(0, |at, block| { *at += block * INT8_BLOCK; Some(*at) }).collect();
            let all = cuts.last().unwrap() + tail;
            cuts.insert(0, 0);
            cuts.push(all);
            let gradient = numbers(all, seed);
            for code in codes() {
                let mut words = vec![0; code.quantizer().encoded_len(all)];
                code.quantizer().encode(&gradient, &mut vec![0.0; all], &mut words).unwrap();
                let mut expected = vec![0f32; all];
                code.quantizer().decode(&words, &mut expected, Decode::Overwrite).unwrap();
                prop_assert!(code.can_be_cut(cuts.iter().copied(), all));
                let mut found: Vec<u8> = Vec::new();
                for pair in cuts.windows(2) {
                    let part = code.cut(&words, pair[0]..pair[1], all);
                    prop_assert!(code.takes(part.len() as u64, (pair[1] - pair[0]) as u64));
                    // Odd memory, which is decoded by way of some that is not.
                    let mut room = vec![0u8; (pair[1] - pair[0]) * 4 + 1];
                    let (from, to) = if odd { (1, room.len()) } else { (0, room.len() - 1) };
                    code.decode(&part, &mut room[from..to]).unwrap();
                    found.extend_from_slice(&room[from..to]);
                }
                prop_assert!(found == bytemuck::cast_slice::<f32, u8>(&expected), "{code:?} {cuts:?}");
            }
        }

        #[test]
        fn any_words_are_decoded_or_refused(words in proptest::collection::vec(any::<u8>(), 0..300), numbers in 0usize..300) {
            for code in codes() {
                let mut room = vec![0; numbers * 4];
                let decoded = code.decode(&words, &mut room);
                prop_assert!(decoded.is_err() || code.takes(words.len() as u64, numbers as u64));
            }
        }
    }
}
