//! Reductions over desks: small arrays in one meeting, large ones chunk by chunk with one meeting each.
//!
//! ```text
//!  meeting        k                                   k + 1
//!  rank r   ──────┼─ take answers k−1 · combine my part of chunk k · bring chunk k+1 ─┼──────
//! ```
//! One meeting says both that the answers to chunk k are there and that chunk k + 1 is.
//!
//! No loop reads lines that another core wrote and writes lines that another core has read: each store would wait until the other core
//! has given its line up, and the loads behind it with it. A part is combined in memory of this rank's own and copied from there.

use std::ops::Range;

use syncline_shm::desk::OwnDesk;
use syncline_tensor::kernels::{ReduceOp, divide, reduce_many_into, reduce_pair_into};
use syncline_tensor::{DType, TensorError};

use super::commons::Lent;
use super::head::Head;
use super::meeting::{CHUNK, Member, Memory};
use super::{copy, garbled};
use crate::call::{Call, Failure};

/// Up to this size everybody reads everybody: a second meeting would cost more than the work it spares.
const SMALL: usize = 8 << 10;

/// What is combined per meeting: desks of this size stay in the cache of a core. From 128 to 512 KiB makes little difference.
pub(super) const PIECE: usize = 256 << 10;

/// Members whose parts are listed without allocating.
const FEW: usize = 8;

/// What is combined, and how.
#[derive(Clone, Copy)]
pub(crate) struct Reduction {
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
}

impl Memory {
    /// Combines `array` over all members; the arrays of those for whom `keep` is false stay as they are.
    pub(crate) fn reduce(&mut self, call: &Call<'_>, array: &mut [u8], what: Reduction, keep: bool) -> Result<u32, Failure> {
        let head = Head::of(call);
        self.reduce_after(call, Some(&head), 0, array, what, keep)
    }

    /// Combines one more array in the same call, after `contributors` is known.
    pub(crate) fn reduce_more(&mut self, call: &Call<'_>, contributors: u32, array: &mut [u8], what: Reduction) -> Result<(), Failure> {
        self.reduce_after(call, None, contributors, array, what, true).map(drop)
    }

    fn reduce_after(
        &mut self,
        call: &Call<'_>,
        head: Option<&Head>,
        contributors: u32,
        array: &mut [u8],
        what: Reduction,
        keep: bool,
    ) -> Result<u32, Failure> {
        if array.len() <= SMALL {
            return self.small(call, head, contributors, array, what, keep);
        }
        self.large(call, head, contributors, array, what, keep)
    }

    /// Comes to the next meeting, the first of a call with its head, and waits for all. Returns the contributors.
    #[inline]
    pub(super) fn meet(&mut self, call: &Call<'_>, head: Option<&Head>, contributors: u32) -> Result<u32, Failure> {
        match head {
            Some(head) => {
                self.come_with(head);
                self.wait_and_agree(head, call)
            }
            None => {
                self.come();
                self.wait(call)?;
                Ok(contributors)
            }
        }
    }

    fn small(
        &mut self,
        call: &Call<'_>,
        head: Option<&Head>,
        contributors: u32,
        array: &mut [u8],
        what: Reduction,
        keep: bool,
    ) -> Result<u32, Failure> {
        let (meeting, whole) = (self.next(), 0..array.len());
        copy(self.own.room_for(meeting, whole.clone()), array);
        let contributors = self.meet(call, head, contributors)?;
        if keep {
            let brought = |index: usize| self.members[index].desk.read(meeting, whole.clone());
            combine(what, array, self.members.len(), brought, contributors).map_err(|_| garbled(call.operation()))?;
        }
        Ok(contributors)
    }

    fn large(
        &mut self,
        call: &Call<'_>,
        head: Option<&Head>,
        contributors: u32,
        array: &mut [u8],
        what: Reduction,
        keep: bool,
    ) -> Result<u32, Failure> {
        let (size, members, me, len) = (PIECE, self.members.len(), self.me, array.len());
        let chunks = len.div_ceil(size);
        let chunk = |index: usize| index * size..len.min((index + 1) * size);
        let lent = if keep { self.heap.whereabout(array) } else { None };
        if lent.is_none() {
            let meeting = self.next();
            bring(&mut self.own, meeting, &array[chunk(0)], members, me);
        }
        let brought = head.copied().unwrap_or(Head::BLANK).with_lent(lent);
        let meeting = self.come_with(&brought);
        let met = match head {
            Some(_) => self.wait_and_agree(&brought, call),
            None => self.wait(call).map(|()| contributors),
        };
        let contributors = match met {
            Err(failure) if lent.is_some() => return Err(self.leave(meeting, failure)),
            met => met?,
        };
        let lent = self.lent_by_all();
        if !matches!(lent, Lent::None) {
            self.hold(meeting, call)?;
        }
        match lent {
            Lent::All => return self.common(call, array, what, contributors).map(|()| contributors),
            Lent::None => {}
            // Those who lend have brought nothing: all meet once more with the first chunk.
            Lent::Some => {
                let meeting = self.next();
                bring(&mut self.own, meeting, &array[chunk(0)], members, me);
                self.come();
                self.wait(call)?;
            }
        }
        let first = self.next() - 1;
        for index in 0..chunks {
            let meeting = first + index as u64;
            if index > 0 && keep {
                take_answers(&self.members, meeting - 1, &mut array[chunk(index - 1)], me);
            }
            let piece = &mut array[chunk(index)];
            let mine = part(piece.len(), members, me);
            let answer = self.own.room_for(meeting, CHUNK..CHUNK + mine.len());
            let brought = |index: usize| match index == me {
                true => &piece[mine.clone()],
                false => self.members[index].desk.read(meeting, mine.clone()),
            };
            // By way of this rank's own cache: see the head of this file.
            let combined = &mut self.combined[..mine.len()];
            combine(what, combined, members, brought, contributors).map_err(|_| garbled(call.operation()))?;
            copy(answer, combined);
            if keep {
                copy(&mut piece[mine], combined);
            }
            if index + 1 < chunks {
                bring(&mut self.own, meeting + 1, &array[chunk(index + 1)], members, me);
            }
            self.come();
            self.wait(call)?;
        }
        if keep {
            take_answers(&self.members, first + chunks as u64 - 1, &mut array[chunk(chunks - 1)], me);
        }
        Ok(contributors)
    }

    /// Combines `array` over all members and returns this position's part of it.
    pub(crate) fn reduce_scatter(&mut self, call: &Call<'_>, array: &[u8], what: Reduction) -> Result<Vec<u8>, Failure> {
        let (members, me) = (self.members.len(), self.me);
        let ranges: Vec<Range<usize>> = (0..members).map(|index| share(array.len(), what.dtype, members, index)).collect();
        let longest = ranges.iter().map(Range::len).max().unwrap_or_default();
        let step = (CHUNK / members) & !63;
        let mut out = vec![0; ranges[me].len()];
        let mut head = Some(Head::of(call));
        let mut contributors = 0;
        let mut at = 0;
        loop {
            let meeting = self.next();
            let now = |index: usize| {
                let range = &ranges[index];
                (range.start + at).min(range.end)..(range.start + at + step).min(range.end)
            };
            for index in (0..members).filter(|index| *index != me) {
                let piece = &array[now(index)];
                copy(self.own.room_for(meeting, index * step..index * step + piece.len()), piece);
            }
            contributors = self.meet(call, head.take().as_ref(), contributors)?;
            let mine = now(me);
            let brought = |index: usize| match index == me {
                true => &array[mine.clone()],
                false => self.members[index].desk.read(meeting, me * step..me * step + mine.len()),
            };
            let part = &mut out[at.min(ranges[me].len())..][..mine.len()];
            combine(what, part, members, brought, contributors).map_err(|_| garbled(call.operation()))?;
            at += step;
            if at >= longest {
                return Ok(out);
            }
        }
    }
}

/// Lays down the parts of a chunk that the others combine.
fn bring(own: &mut OwnDesk, meeting: u64, chunk: &[u8], members: usize, me: usize) {
    for index in (0..members).filter(|index| *index != me) {
        let range = part(chunk.len(), members, index);
        copy(own.room_for(meeting, range.clone()), &chunk[range]);
    }
}

/// Takes the parts of a chunk that the others combined.
fn take_answers(members: &[Member], meeting: u64, chunk: &mut [u8], me: usize) {
    for index in (0..members.len()).filter(|index| *index != me) {
        let range = part(chunk.len(), members.len(), index);
        copy(&mut chunk[range.clone()], members[index].desk.read(meeting, CHUNK..CHUNK + range.len()));
    }
}

/// Combines what `members` brought, in their order; a mean is divided by how many contributed.
#[inline]
pub(super) fn combine<'a>(
    what: Reduction,
    out: &mut [u8],
    members: usize,
    brought: impl Fn(usize) -> &'a [u8],
    contributors: u32,
) -> Result<(), TensorError> {
    let Reduction { dtype, op } = what;
    if members == 2 {
        reduce_pair_into(op, dtype, out, brought(0), brought(1))?;
    } else if members <= FEW {
        let mut few: [&[u8]; FEW] = [&[]; FEW];
        for (index, place) in few[..members].iter_mut().enumerate() {
            *place = brought(index);
        }
        reduce_many_into(op, dtype, out, &few[..members])?;
    } else {
        reduce_many_into(op, dtype, out, &(0..members).map(brought).collect::<Vec<_>>())?;
    }
    if op == ReduceOp::Mean { divide(dtype, out, contributors) } else { Ok(()) }
}

/// The part of `bytes` that member `index` combines: all parts about equal, each beginning on a cache line.
#[inline]
pub(super) fn part(bytes: usize, members: usize, index: usize) -> Range<usize> {
    let size = bytes.div_ceil(members).next_multiple_of(64);
    (index * size).min(bytes)..((index + 1) * size).min(bytes)
}

/// The part of an array that position `index` gets of a reduce_scatter: whole numbers, the first positions take the remainder.
pub(crate) fn share(bytes: usize, dtype: DType, members: usize, index: usize) -> Range<usize> {
    let count = bytes / dtype.size();
    let (each, more) = (count / members, count % members);
    let start = |index: usize| (index * each + index.min(more)) * dtype.size();
    start(index)..start(index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once_on_whole_lines() {
        for (bytes, members) in [(0, 3), (8, 4), (64, 2), (1000, 3), (CHUNK, 7), (CHUNK - 8, 256)] {
            let parts: Vec<_> = (0..members).map(|index| part(bytes, members, index)).collect();
            assert_eq!((parts[0].start, parts[members - 1].end), (0, bytes));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert!(parts.iter().all(|part| part.start % 64 == 0 || part.start == bytes));
        }
    }

    #[test]
    fn shares_are_whole_numbers_and_the_first_take_the_remainder() {
        let shares: Vec<_> = (0..4).map(|index| share(4 * 10, DType::F32, 4, index)).collect();
        assert_eq!(shares, [0..12, 12..24, 24..32, 32..40]);
        assert_eq!(share(0, DType::F32, 4, 3), 0..0);
        assert_eq!((share(8, DType::F64, 3, 0), share(8, DType::F64, 3, 2)), (0..8, 8..8));
    }
}
