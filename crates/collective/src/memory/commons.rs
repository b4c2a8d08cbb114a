//! Arrays that lie in shared memory already: each member combines its part straight from all of them into all of them.
//!
//! Two meetings however large the arrays are: when all have come to the first, all arrays are there; when all have come
//! to the second, all parts are written. Each member reads its n-th of n arrays and writes it n times: every line of every
//! array is read once and written once.

use syncline_shm::array::Whereabout;

use super::garbled;
use super::meeting::{CHUNK, Memory};
use super::reducing::{Reduction, combine, part};
use crate::call::{Call, Failure};

/// What is combined at a time: it stays in the cache while it is written into all arrays.
const BLOCK: usize = 16 << 10;
/// Arrays of each member that stay mapped.
const KEPT: usize = 8;

/// Who brought an array of shared memory to the last meeting.
pub(super) enum Lent {
    All,
    Some,
    None,
}

impl Memory {
    /// Who of the members lends its array: all see the same.
    pub(super) fn lent_by_all(&self) -> Lent {
        let lending = (0..self.members.len()).filter(|index| self.head_of(*index, self.held()).lent().is_some()).count();
        match lending {
            0 => Lent::None,
            all if all == self.members.len() => Lent::All,
            _ => Lent::Some,
        }
    }

    /// Combines the arrays that all members brought to the last meeting.
    pub(super) fn common(&mut self, call: &Call<'_>, array: &mut [u8], what: Reduction, contributors: u32) -> Result<(), Failure> {
        let (members, me, meeting) = (self.members.len(), self.me, self.held());
        let odd = || Failure::from(garbled(call.operation()));
        let mut offsets = vec![0; members];
        for index in (0..members).filter(|index| *index != me) {
            let place = self.head_of(index, meeting).lent().ok_or_else(odd)?;
            offsets[index] = usize::try_from(place.offset).map_err(|_| odd())?;
            self.map(index, place).ok_or_else(odd)?;
        }
        let mine = part(array.len(), members, me);
        for start in mine.clone().step_by(BLOCK) {
            let block = start..mine.end.min(start + BLOCK);
            let there = |index: usize| offsets[index] + block.start..offsets[index] + block.end;
            let result = self.own.room_for(meeting, CHUNK..CHUNK + block.len());
            let (array_part, commons) = (&array[block.clone()], &self.commons);
            // What lies outside of a neighbour's array is no bytes at all, and those do not combine.
            let brought = |index: usize| match index == me {
                true => array_part,
                false => commons[index].first().and_then(|(_, common)| common.bytes(there(index))).unwrap_or_default(),
            };
            combine(what, result, members, brought, contributors).map_err(|_| odd())?;
            array[block.clone()].copy_from_slice(result);
            for (index, kept) in self.commons.iter_mut().enumerate().filter(|(index, _)| *index != me) {
                if let Some((_, common)) = kept.first_mut() {
                    common.write(there(index).start, result);
                }
            }
        }
        self.finish(meeting, call)
    }

    /// Puts the array at `place` first among those of member `index` that are mapped.
    fn map(&mut self, index: usize, place: Whereabout) -> Option<()> {
        let kept = &mut self.commons[index];
        match kept.iter().position(|(known, _)| (known.at, known.len) == (place.at, place.len)) {
            Some(found) => kept[..=found].rotate_right(1),
            None => {
                kept.insert(0, (place, self.heap.common(place)?));
                kept.truncate(KEPT);
            }
        }
        Some(())
    }
}
