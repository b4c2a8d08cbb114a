//! Which part of a table holds which row, and how a request for rows falls apart.
//!
//! ```text
//!  rows 0..4 | 4..8 | 8..10      ids 9 1 1 5   →   part 0: 1 1 at places 1 2 · part 1: 5 at 3 · part 2: 9 at 0
//! ```
//! Keys have no order worth keeping, so they are spread by a hash that is the same in every process and for ever.

use std::borrow::Cow;
use std::ops::Range;

use super::words::Code;

/// How the ids of a table map to its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Contiguous ranges of rows in order of part, from 0 on without gaps; some may be empty.
    Ranges(Vec<Range<u64>>),
    /// Any 64-bit key, over so many parts.
    Hashed(usize),
}

/// An id that no part holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoSuchRow {
    pub(crate) id: i64,
    pub(crate) rows: u64,
}

/// What one part has to do for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Which part.
    pub(crate) part: usize,
    /// Its ids in the caller's order; none means all it holds.
    pub(crate) ids: Option<Cow<'a, [i64]>>,
    /// Where its rows stand among the caller's.
    pub(crate) places: Places,
}

/// Positions of rows in the caller's buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Places {
    /// Next to each other.
    Run(Range<usize>),
    /// One by one.
    Scattered(Vec<usize>),
}

impl Places {
    /// How many rows.
    pub(crate) fn len(&self) -> usize {
        match self {
            Places::Run(run) => run.len(),
            Places::Scattered(places) => places.len(),
        }
    }
}

impl Layout {
    /// How many parts there are.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Layout::Ranges(ranges) => ranges.len(),
            Layout::Hashed(parts) => *parts,
        }
    }

    /// Rows of the whole table; none for an open key space.
    pub(crate) fn rows(&self) -> Option<u64> {
        match self {
            Layout::Ranges(ranges) => Some(ranges.last().map_or(0, |range| range.end)),
            Layout::Hashed(_) => None,
        }
    }

    /// Whether the parts, with so many numbers to a row, are cut between blocks of this code.
    pub(crate) fn can_be_cut(&self, code: Code, numbers: usize) -> bool {
        let Layout::Ranges(ranges) = self else { return false };
        let all = self.rows().unwrap_or(0) as usize * numbers;
        code.can_be_cut(ranges.iter().map(|range| range.start as usize * numbers), all)
    }

    /// The pieces of a request, in order of part: those that hold something of it, or all parts (`everywhere`: a clock ticks there).
    pub(crate) fn split<'a>(&self, ids: Option<&'a [i64]>, everywhere: bool) -> Result<Vec<Piece<'a>>, NoSuchRow> {
        let mut pieces = match (self, ids) {
            (_, Some(ids)) => self.split_ids(ids)?,
            (Layout::Ranges(ranges), None) => {
                let whole = |(part, range): (usize, &Range<u64>)| Piece {
                    part,
                    ids: None,
                    places: Places::Run(range.start as usize..range.end as usize),
                };
                ranges.iter().enumerate().filter(|(_, range)| !range.is_empty()).map(whole).collect()
            }
            (Layout::Hashed(_), None) => Vec::new(), // an open key space has no whole; callers list their keys
        };
        if everywhere && pieces.len() < self.parts() {
            let mut touched = pieces.into_iter().peekable();
            let tick = |part| Piece { part, ids: Some(Cow::Borrowed(&[][..])), places: Places::Run(0..0) };
            pieces = (0..self.parts()).map(|part| touched.next_if(|piece| piece.part == part).unwrap_or_else(|| tick(part))).collect();
        }
        Ok(pieces)
    }

    fn split_ids<'a>(&self, ids: &'a [i64]) -> Result<Vec<Piece<'a>>, NoSuchRow> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.part_of(ids[0])?;
        let mut places: Vec<Vec<usize>> = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            let part = self.part_of(*id)?;
            if places.is_empty() {
                if part == first {
                    continue;
                }
                places = vec![Vec::new(); self.parts()];
                places[first] = (0..place).collect();
            }
            places[part].push(place);
        }
        if places.is_empty() {
            return Ok(vec![Piece { part: first, ids: Some(Cow::Borrowed(ids)), places: Places::Run(0..ids.len()) }]);
        }
        let piece = |(part, places): (usize, Vec<usize>)| {
            let (start, end) = (places[0], places[places.len() - 1] + 1);
            if end - start == places.len() {
                return Piece { part, ids: Some(Cow::Borrowed(&ids[start..end])), places: Places::Run(start..end) };
            }
            let own = places.iter().map(|place| ids[*place]).collect();
            Piece { part, ids: Some(Cow::Owned(own)), places: Places::Scattered(places) }
        };
        Ok(places.into_iter().enumerate().filter(|(_, places)| !places.is_empty()).map(piece).collect())
    }

    fn part_of(&self, id: i64) -> Result<usize, NoSuchRow> {
        match self {
            Layout::Hashed(parts) => Ok((scattered(id as u64) % *parts as u64) as usize),
            Layout::Ranges(ranges) => {
                let rows = ranges.last().map_or(0, |range| range.end);
                let row = u64::try_from(id).ok().filter(|row| *row < rows).ok_or(NoSuchRow { id, rows })?;
                Ok(ranges.partition_point(|range| range.end <= row))
            }
        }
    }
}

/// SplitMix64's finalizer: neighbouring keys land far apart, and every process agrees on where.
pub(crate) fn scattered(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn three() -> Layout {
        Layout::Ranges(vec![0..4, 4..4, 4..10])
    }

    #[test]
    fn a_whole_request_goes_to_whoever_holds_something() {
        let pieces = three().split(None, false).unwrap();
        assert_eq!(
            pieces.iter().map(|piece| (piece.part, &piece.places)).collect::<Vec<_>>(),
            [(0, &Places::Run(0..4)), (2, &Places::Run(4..10))]
        );
        let ticked = three().split(None, true).unwrap();
        assert_eq!(
            ticked.iter().map(|piece| (piece.part, piece.ids.is_none(), piece.places.len())).collect::<Vec<_>>(),
            [(0, true, 4), (1, false, 0), (2, true, 6)]
        );
    }

    #[test]
    fn bad_ids_are_named() {
        for id in [-1, 10, i64::MIN, i64::MAX] {
            assert_eq!(three().split(Some(&[3, id]), false), Err(NoSuchRow { id, rows: 10 }));
        }
        assert_eq!(Layout::Ranges(vec![]).split(Some(&[0]), false), Err(NoSuchRow { id: 0, rows: 0 }));
        assert!(Layout::Hashed(3).split(Some(&[-1, i64::MIN]), false).is_ok());
    }

    #[test]
    fn keys_stay_where_they_were_in_earlier_releases() {
        assert_eq!(scattered(0), 0xe220_a839_7b1d_cdaf, "as the published generator begins");
        let part = |key: i64| Layout::Hashed(5).split(Some(&[key]), false).unwrap()[0].part;
        assert_eq!([0, 1, 2, -1, i64::MIN, i64::MAX].map(part), [0, 0, 0, 1, 0, 4]);
    }

    proptest! {
        #[test]
        fn every_place_is_filled_once_from_the_right_part(
            cuts in proptest::collection::vec(0u64..40, 1..5), ids in proptest::collection::vec(0i64..1000, 0..30), hashed: bool, everywhere: bool
        ) {
            let mut at = 0;
            let ranges: Vec<_> = cuts.iter().map(|len| { at += len; at - len..at }).collect();
            let layout = if hashed { Layout::Hashed(cuts.len()) } else { Layout::Ranges(ranges.clone()) };
            let ids: Vec<i64> = if hashed || at > 0 { ids.iter().map(|id| if hashed { *id - 500 } else { id % at as i64 }).collect() } else { vec![] };
            let pieces = layout.split(Some(&ids), everywhere).unwrap();
            let mut seen = vec![0; ids.len()];
            for piece in &pieces {
                let own = piece.ids.as_deref().unwrap();
                let places: Vec<usize> = match &piece.places { Places::Run(run) => run.clone().collect(), Places::Scattered(places) => places.clone() };
                prop_assert_eq!(own.len(), places.len());
                for (id, place) in own.iter().zip(places) {
                    prop_assert_eq!(ids[place], *id);
                    seen[place] += 1;
                    prop_assert!(hashed || ranges[piece.part].contains(&(*id as u64)));
                }
            }
            prop_assert!(seen.iter().all(|count| *count == 1));
            prop_assert!(pieces.windows(2).all(|pair| pair[0].part < pair[1].part));
            prop_assert!(!everywhere || pieces.len() == layout.parts());
        }
    }
}
