//! The sum of the gradients of a round, or of the repeated rows of one add, block by block, in order of worker.
//!
//! Half types are summed in f32 and not rounded in between; a lone gradient is used as it stands.

use std::ops::Range;

use syncline_tensor::DType;
use syncline_tensor::kernels::{ReduceOp, cast, reduce_into, reduce_pair_into};

use super::wide;
use crate::share::Add;

/// Gradients that are summed, and how their table is cut.
#[derive(Clone, Copy)]
pub(crate) struct Sum<'a> {
    pub(crate) adds: &'a [Add<'a>],
    pub(crate) dtype: DType,
    pub(crate) cols: u64,
    /// The first row of the share.
    pub(crate) first_row: u64,
}

/// Room for the sum of one block.
#[derive(Default)]
pub(crate) struct Room {
    sum: Vec<u8>,
    cast: Vec<u8>,
}

/// Numbers of some dtype.
pub(crate) type Numbers<'a> = (DType, &'a [u8]);

impl Room {
    fn clear(&mut self, bytes: usize) {
        self.sum.clear();
        self.sum.resize(bytes, 0);
    }

    /// Adds numbers of `dtype` to the sum, from byte `at` on.
    fn add(&mut self, sum_dtype: DType, at: usize, dtype: DType, numbers: &[u8]) {
        let bytes = numbers.len() / dtype.size() * sum_dtype.size();
        let sum = &mut self.sum[at..at + bytes];
        let done = if dtype == sum_dtype {
            reduce_into(ReduceOp::Sum, dtype, sum, numbers)
        } else {
            self.cast.resize(self.cast.len().max(bytes), 0);
            cast(dtype, numbers, sum_dtype, &mut self.cast[..bytes])
                .and_then(|()| reduce_into(ReduceOp::Sum, sum_dtype, sum, &self.cast[..bytes]))
        };
        assert!(done.is_ok(), "a sum of {dtype}: {done:?}");
    }

    /// The sum of some pieces of equal length, in their order.
    pub(crate) fn sum_of<'a>(&'a mut self, dtype: DType, mut pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Numbers<'a> {
        let first = pieces.next().unwrap_or_default();
        let mut rest = pieces.clone();
        let Some(second) = rest.next() else { return (dtype, first) };
        let sum_dtype = wide(dtype).unwrap_or(dtype);
        if sum_dtype == dtype {
            self.sum.resize(first.len(), 0);
            let done = reduce_pair_into(ReduceOp::Sum, dtype, &mut self.sum, first, second);
            assert!(done.is_ok(), "a sum of {dtype}: {done:?}");
        } else {
            self.clear(first.len() / dtype.size() * sum_dtype.size());
            self.add(sum_dtype, 0, dtype, first);
            self.add(sum_dtype, 0, dtype, second);
        }
        rest.for_each(|piece| self.add(sum_dtype, 0, dtype, piece));
        (sum_dtype, &self.sum)
    }
}

impl<'a> Sum<'a> {
    /// The ids of an add that lie in these elements of the share.
    pub(crate) fn run(&self, ids: &[i64], elements: &Range<u64>) -> Range<usize> {
        if self.cols == 0 || elements.is_empty() {
            return 0..0;
        }
        let lowest = (elements.start / self.cols + self.first_row) as i64;
        let highest = ((elements.end - 1) / self.cols + self.first_row) as i64;
        ids.partition_point(|id| *id < lowest)..ids.partition_point(|id| *id <= highest)
    }

    /// The sum for these elements; rows that nobody has are zero.
    pub(crate) fn block(&self, elements: Range<u64>, room: &'a mut Room) -> Numbers<'a> {
        let size = self.dtype.size();
        let bytes = elements.start as usize * size..elements.end as usize * size;
        if self.adds.iter().all(|add| add.entry.ids.is_none()) && !self.adds.is_empty() {
            return room.sum_of(self.dtype, self.adds.iter().map(move |add| add.delta(bytes.clone())));
        }
        let sum_dtype = wide(self.dtype).unwrap_or(self.dtype);
        room.clear((elements.end - elements.start) as usize * sum_dtype.size());
        for add in self.adds {
            let Some(ids) = add.ids() else {
                room.add(sum_dtype, 0, self.dtype, add.delta(bytes.clone()));
                continue;
            };
            let run = self.run(ids, &elements);
            for (id, place) in ids[run.clone()].iter().zip(&add.places()[run]) {
                let first = (*id as u64).wrapping_sub(self.first_row).wrapping_mul(self.cols);
                let piece = first.max(elements.start)..first.saturating_add(self.cols).min(elements.end);
                if piece.is_empty() || *place as u64 >= ids.len() as u64 {
                    continue; // Who measures too late may read ids of a later round, and throws the result away.
                }
                let at = (piece.start - elements.start) as usize * sum_dtype.size();
                room.add(sum_dtype, at, self.dtype, self.piece(add, *place, first, piece));
            }
        }
        (sum_dtype, &room.sum)
    }

    /// The part of a row's gradient that belongs to the elements `piece`, which lie in the row that begins at `first`.
    pub(crate) fn piece<'b>(&self, add: &'b Add<'_>, place: i64, first: u64, piece: Range<u64>) -> &'b [u8] {
        let size = self.dtype.size();
        let at = (place as usize * self.cols as usize + (piece.start - first) as usize) * size;
        add.delta(at..at + (piece.end - piece.start) as usize * size)
    }
}
