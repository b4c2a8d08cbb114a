//! Which rows of an add have the same id: those are added up before they take their step, and nearly all others stand once.
//!
//! Found with a table of cells that is kept from one add to the next, since sorting the ids takes longer and then takes rows from all over the delta.
//! ```text
//!  cell   [ turn: 8 bits ][ row: 24 bits ]     of another turn: free
//! ```

/// Cells of more rows than this are not kept.
const KEPT: usize = 1 << 16;

/// Finds rows that stand more than once.
#[derive(Default)]
pub(super) struct Repeats {
    cells: Vec<u32>,
    turn: u32,
    /// Sorted.
    pairs: Vec<Pair>,
    /// The later ones, sorted.
    laters: Vec<u32>,
}

/// Two rows with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    /// The first that has it.
    pub(super) first: u32,
    /// Another one.
    pub(super) later: u32,
}

/// What a row is among those with its id.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// The only one.
    Once,
    /// The first of several; here are the others, in order.
    First(&'a [Pair]),
    /// One of those.
    Later,
}

impl Repeats {
    /// Rows that a cell can tell apart.
    pub(super) const MOST: usize = 1 << 24;

    /// Looks at all of them, of which there are no more than [`MOST`](Self::MOST). Rows are then asked about in order.
    pub(super) fn find<'a>(&'a mut self, ids: &[i64]) -> Found<'a> {
        assert!(ids.len() <= Self::MOST, "an add of so many rows is staged");
        self.pairs.clear();
        if !ids.is_sorted_by(|one, next| one < next) {
            self.look(ids);
        }
        self.pairs.sort_unstable();
        self.laters.clear();
        self.laters.extend(self.pairs.iter().map(|pair| pair.later));
        self.laters.sort_unstable();
        Found { pairs: &self.pairs, laters: &self.laters }
    }

    fn look(&mut self, ids: &[i64]) {
        let wanted = (4 * ids.len()).next_power_of_two();
        self.turn += 1;
        if self.cells.len() < wanted || self.turn > 0xff {
            let cells = wanted.max(self.cells.len());
            self.cells.clear();
            self.cells.resize(cells, 0);
            self.turn = 1;
        }
        let last = self.cells.len() - 1;
        for (row, id) in (0..).zip(ids) {
            let mut at = ((*id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & last;
            loop {
                let cell = self.cells[at];
                if cell >> 24 != self.turn {
                    self.cells[at] = self.turn << 24 | row;
                    break;
                }
                let first = cell & 0x00ff_ffff;
                if ids[first as usize] == *id {
                    self.pairs.push(Pair { first, later: row });
                    break;
                }
                at = (at + 1) & last;
            }
        }
        if ids.len() > KEPT {
            self.cells = Vec::new();
        }
    }
}

/// What was found, from some row on.
pub(super) struct Found<'a> {
    pairs: &'a [Pair],
    laters: &'a [u32],
}

impl<'a> Found<'a> {
    /// The next row.
    #[inline]
    pub(super) fn at(&mut self, row: usize) -> Place<'a> {
        if self.laters.is_empty() { Place::Once } else { self.look_up(row as u32) }
    }

    fn look_up(&mut self, row: u32) -> Place<'a> {
        if let Some((_, rest)) = self.laters.split_first().filter(|(later, _)| **later == row) {
            self.laters = rest;
            return Place::Later;
        }
        match self.pairs.iter().take_while(|pair| pair.first == row).count() {
            0 => Place::Once,
            some => {
                let (these, rest) = self.pairs.split_at(some);
                self.pairs = rest;
                Place::First(these)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each row the rows with its id if it is the first, nothing if it is a later one.
    fn groups(repeats: &mut Repeats, ids: &[i64]) -> Vec<Vec<u32>> {
        let mut found = repeats.find(ids);
        let group = |row: usize| match found.at(row) {
            Place::Once => vec![row as u32],
            Place::First(again) => std::iter::once(row as u32).chain(again.iter().map(|pair| pair.later)).collect(),
            Place::Later => vec![],
        };
        (0..ids.len()).map(group).collect()
    }

    fn expected(ids: &[i64]) -> Vec<Vec<u32>> {
        let same = |row: usize| (0..).zip(ids).filter(|(_, id)| **id == ids[row]).map(|(at, _)| at).collect::<Vec<u32>>();
        (0..ids.len()).map(|row| if ids[..row].contains(&ids[row]) { vec![] } else { same(row) }).collect()
    }

    #[test]
    fn rows_with_one_id_are_found_together_and_in_order_whatever_was_looked_at_before() {
        let mut repeats = Repeats::default();
        let shuffled: Vec<i64> = (0..2000).map(|number| number * 7919 % 2000 * 4096).collect();
        let few: Vec<i64> = (0..500).map(|number| number * 7919 % 13).collect();
        let twice = [&shuffled[..], &shuffled[300..302], &shuffled[..1], &shuffled[300..301]].concat();
        for _ in 0..300 {
            for ids in [&[][..], &[7], &[0, 5, 9], &[9, 0, 5], &[5, 5], &[9, 0, 5, 0, 9, 9]] {
                assert_eq!(groups(&mut repeats, ids), expected(ids), "{ids:?}");
            }
        }
        for ids in [&shuffled, &few, &twice, &few] {
            assert_eq!(groups(&mut repeats, ids), expected(ids));
        }
    }

    #[test]
    fn room_for_very_many_rows_is_given_back() {
        let mut repeats = Repeats::default();
        let many: Vec<i64> = (0..KEPT as i64 + 1).rev().collect();
        assert!(groups(&mut repeats, &many).iter().all(|group| group.len() == 1));
        assert!(repeats.cells.is_empty());
        assert_eq!(groups(&mut repeats, &[3, 1, 3]), [vec![0, 2], vec![1], vec![]]);
    }
}
