//! How often a key was updated, and by which rule an add goes: what stands in words of the store and in entries.

use syncline_optimizer::KeyState;
use syncline_shm::store::AtomicWord;

use crate::AddOptions;

/// A count of one generation in one word; a newer generation begins at zero, an older one is not counted any more.
pub(super) struct Count<'a>(pub(super) &'a AtomicWord);

const BITS: u32 = 40;
const MOST: u64 = (1 << BITS) - 1;

fn split(word: u64) -> (u32, u64) {
    ((word >> BITS) as u32, word & MOST)
}

fn join(generation: u32, count: u64) -> u64 {
    u64::from(generation) << BITS | count.min(MOST)
}

impl Count<'_> {
    /// Counts one up; none when the word has come to a newer generation.
    pub(super) fn next(&self, generation: u32) -> Option<u64> {
        self.advance(generation, 1)
    }

    /// Counts so many up.
    pub(super) fn advance(&self, generation: u32, updates: u64) -> Option<u64> {
        loop {
            let word = self.0.get();
            let (current, count) = split(word);
            if current > generation {
                return None;
            }
            let count = if current == generation { count } else { 0 } + updates;
            if self.0.exchange(word, join(generation, count)) {
                return Some(count);
            }
        }
    }

    /// The same where nobody else counts.
    fn next_alone(&self, generation: u32) -> bool {
        let (current, count) = split(self.0.get());
        if current != generation || count == MOST {
            return self.next(generation).is_some();
        }
        self.0.set(join(generation, count + 1));
        true
    }

    /// Makes it at least `count` and returns what it says then.
    pub(super) fn raise(&self, generation: u32, count: u64) -> u64 {
        loop {
            let word = self.0.get();
            let before = if split(word).0 == generation { split(word).1 } else { 0 };
            if split(word).0 > generation
                || before >= count && split(word).0 == generation
                || self.0.exchange(word, join(generation, count))
            {
                return before.max(count);
            }
        }
    }

    /// What it says of a generation.
    pub(super) fn get(&self, generation: u32) -> u64 {
        let (current, count) = split(self.0.get());
        if current == generation { count } else { 0 }
    }

    /// Makes it say so.
    pub(super) fn set(&self, generation: u32, count: u64) {
        self.0.set(join(generation, count));
    }
}

/// Counts the adds of a share.
#[derive(Clone, Copy)]
pub(super) struct Counter<'a> {
    pub(super) word: &'a AtomicWord,
    /// Nobody else writes the word meanwhile.
    pub(super) alone: bool,
}

impl Counter<'_> {
    /// Counts one up; false when the word has come to a newer generation.
    #[inline]
    pub(super) fn next(self, generation: u32) -> bool {
        let count = Count(self.word);
        if self.alone { count.next_alone(generation) } else { count.next(generation).is_some() }
    }
}

/// What an entry says beside its gradient. It travels as the options of an add, whose numbers a gradient table has no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The page of the rule that it goes by.
    pub(crate) page: u64,
    /// In async mode the number of the update.
    pub(crate) count: u64,
    /// The largest number of an update in the family that its author knew of.
    pub(crate) updates: u64,
}

/// Bits of one word: bits of a number, so that the word is never a NaN, which would mean that there is none.
const WORD: u32 = 30;
const LOW: u64 = (1 << WORD) - 1;
const HIGH: u32 = 15;

impl Stamp {
    /// As the options of an add.
    pub(crate) fn to_options(self) -> AddOptions {
        let (count, updates) = (self.count.min((1 << (WORD + HIGH)) - 1), self.updates.min((1 << (WORD + HIGH)) - 1));
        let high = (count >> WORD) << HIGH | updates >> WORD;
        AddOptions::from_bits([self.page & LOW, count & LOW, updates & LOW, high].map(|word| word as u32))
    }

    /// From the options of an add; none if it carries no stamp.
    pub(crate) fn of_options(options: &AddOptions) -> Option<Stamp> {
        let number = |word: Option<f32>| word.map(|word| u64::from(word.to_bits()));
        let (page, count, updates) = (number(options.learning_rate)?, number(options.momentum)?, number(options.rho)?);
        let high = number(options.lambda)?;
        Some(Stamp { page, count: (high >> HIGH) << WORD | count, updates: (high & ((1 << HIGH) - 1)) << WORD | updates })
    }
}

/// What a round leaves for the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Notes {
    /// The round, plus one; zero for none.
    pub(super) round: u64,
    /// Chapter and page of the rule that it went by.
    pub(super) generation: u32,
    pub(super) page: u64,
    pub(super) state: KeyState,
}

impl Notes {
    pub(super) fn write(&self, words: &[AtomicWord; 8]) {
        let bits = |number: Option<f64>| number.map_or(u64::MAX, f64::to_bits);
        let state = &self.state;
        let count = state.count.map_or(0, |count| count.saturating_add(1));
        let values = [u64::from(self.generation), self.page, count, bits(state.m_schedule), bits(state.last_rate)];
        words[1..].iter().zip(values).for_each(|(word, value)| word.set(value));
        words[0].set(self.round + 1);
    }

    /// What round `round` left; nothing if these are another round's words.
    pub(super) fn read(words: &[AtomicWord; 8], round: u64) -> Option<Notes> {
        let number = |word: &AtomicWord| Some(word.get()).filter(|bits| *bits != u64::MAX).map(f64::from_bits);
        let state = KeyState { count: words[3].get().checked_sub(1), m_schedule: number(&words[4]), last_rate: number(&words[5]) };
        let notes = Notes { round, generation: words[1].get() as u32, page: words[2].get(), state };
        (words[0].get() == round + 1).then_some(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_its_journey_as_options() {
        for stamp in [
            Stamp { page: 0, count: 0, updates: 0 },
            Stamp { page: LOW, count: (1 << 45) - 1, updates: (1 << 45) - 1 },
            Stamp { page: 5, count: (1 << 30) + 3, updates: 1 << 44 },
        ] {
            let options = stamp.to_options();
            assert_eq!(Stamp::of_options(&options), Some(stamp));
            assert_eq!(Stamp::of_options(&AddOptions::from_bits(options.to_bits())), Some(stamp));
        }
        assert_eq!(Stamp::of_options(&AddOptions::default()), None);
    }

    #[test]
    fn counts_begin_anew_with_a_generation_and_never_go_back() {
        let word = AtomicWord::default();
        let count = Count(&word);
        assert_eq!((count.next(1), count.next(1), count.get(1)), (Some(1), Some(2), 2));
        assert_eq!((count.next(3), count.next(2), count.get(2), count.next(3)), (Some(1), None, 0, Some(2)));
        assert_eq!((count.raise(3, 10), count.raise(3, 5), count.raise(2, 99), count.get(3)), (10, 10, 99, 10));
        count.set(4, MOST);
        assert_eq!((count.next(4), count.next(4)), (Some(MOST + 1), Some(MOST + 1)), "it stays where it ends");
        assert_eq!(count.get(4), MOST);
    }

    #[test]
    fn who_is_alone_counts_as_everybody_does() {
        let (shared, own) = (AtomicWord::default(), AtomicWord::default());
        let agree = |generation: u32| {
            let counted = Counter { word: &shared, alone: false }.next(generation);
            assert_eq!(Counter { word: &own, alone: true }.next(generation), counted);
            assert_eq!(own.get(), shared.get());
            counted
        };
        assert_eq!([1, 1, 3, 2, 3].map(agree), [true, true, true, false, true]);
        [&shared, &own].into_iter().for_each(|word| Count(word).set(4, MOST - 1));
        assert_eq!([4, 4, 4].map(agree), [true; 3]);
    }

    #[test]
    fn notes_are_those_of_their_round_or_none() {
        let words: [AtomicWord; 8] = Default::default();
        assert_eq!(Notes::read(&words, 0), None);
        let state = KeyState { count: Some(0), m_schedule: Some(0.5), last_rate: None };
        let notes = Notes { round: 0, generation: 7, page: 9, state };
        notes.write(&words);
        assert_eq!((Notes::read(&words, 0), Notes::read(&words, 2)), (Some(notes), None));
    }
}
