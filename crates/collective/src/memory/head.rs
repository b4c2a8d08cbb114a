//! What a rank was called for, in the words that lie on its desk.

use syncline_shm::array::Whereabout;
use syncline_shm::desk::WORDS;
use syncline_tensor::kernels::ReduceOp;

use crate::call::{Call, What};

/// The words of one rank's call. What others wrote is only compared and counted, so any words will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(pub(super) [u64; WORDS]);

/// The first words must be the same on all ranks: the call's number, its operation, its size, its identity.
const AGREED: usize = 4;
/// Whether the rank's part counts.
const CONTRIBUTES: usize = 4;
/// How many bytes the rank brings, where that is its own business.
const LENGTH: usize = 5;
/// Where its array stands if that is in shared memory: the place in the heap plus one, and where in it the array begins.
const LENT: [usize; 3] = [6, 7, 8];

/// In place of an operation: the member's call failed elsewhere.
const FAILED: u64 = u64::MAX;

impl Head {
    /// That of no call.
    pub(super) const BLANK: Head = Head([0; WORDS]);

    pub(super) fn of(call: &Call<'_>) -> Head {
        let mut words = [0; WORDS];
        words[0] = call.number;
        (words[1], words[2], words[3]) = facts(&call.what);
        words[CONTRIBUTES] = u64::from(call.contributes);
        Head(words)
    }

    pub(super) fn with_length(mut self, bytes: usize) -> Head {
        self.0[LENGTH] = bytes as u64;
        self
    }

    /// Of a member that cannot go on, with so many bytes about it on its desk.
    pub(super) fn failed(bytes: usize) -> Head {
        let mut head = Head::BLANK.with_length(bytes);
        head.0[1] = FAILED;
        head
    }

    pub(super) fn is_failed(&self) -> bool {
        self.0[1] == FAILED
    }

    pub(super) fn length(&self) -> u64 {
        self.0[LENGTH]
    }

    pub(super) fn contributes(&self) -> bool {
        self.0[CONTRIBUTES] != 0
    }

    pub(super) fn agrees(&self, other: &Head) -> bool {
        self.0[..AGREED] == other.0[..AGREED]
    }

    pub(super) fn with_lent(mut self, lent: Option<Whereabout>) -> Head {
        if let Some(place) = lent {
            (self.0[LENT[0]], self.0[LENT[1]], self.0[LENT[2]]) = (place.at + 1, place.len, place.offset);
        }
        self
    }

    pub(super) fn lent(&self) -> Option<Whereabout> {
        let at = self.0[LENT[0]].checked_sub(1)?;
        Some(Whereabout { at, len: self.0[LENT[1]], offset: self.0[LENT[2]] })
    }
}

/// Operation, size and identity. Cheap for the calls that are made all the time; only those of nested structures and
/// user functions are hashed with care.
fn facts(what: &What<'_>) -> (u64, u64, u64) {
    let word = |code: u64, dtype: Option<u8>, op: Option<ReduceOp>, root: usize| {
        let op = op.map_or(0, |op| op as u64 + 1);
        code | dtype.map_or(0, |code| u64::from(code) + 1) << 8 | op << 16 | (root as u64) << 32
    };
    let identity = || {
        let print = what.fingerprint();
        u64::from_le_bytes(*print.0.first_chunk().expect("sixteen bytes"))
    };
    match *what {
        What::AllReduce { dtype, op, count } => (word(1, Some(dtype.code()), Some(op), 0), count as u64, 0),
        What::AllReduceLeaves { op, leaves: [("", dtype, shape)] } => {
            (word(13, Some(dtype.code()), Some(op), 0), shape.elements() as u64, mixed(shape.dims()))
        }
        What::AllReduceLeaves { op, leaves } => (word(2, None, Some(op), 0), leaves.len() as u64, identity()),
        What::Reduce { dtype, op, count, root } => (word(3, Some(dtype.code()), Some(op), root), count as u64, 0),
        What::Broadcast { dtype, count, root } => (word(4, Some(dtype.code()), None, root), count as u64, 0),
        What::BroadcastMessage { root } => (word(5, None, None, root), 0, 0),
        What::Verdict { .. } => (word(14, None, None, 0), 0, 0),
        What::Gather { root } => (word(6, None, None, root), 0, 0),
        What::AllGather => (word(7, None, None, 0), 0, 0),
        What::Scatter { root } => (word(8, None, None, root), 0, 0),
        What::ReduceScatter { dtype, op, count } => (word(9, Some(dtype.code()), Some(op), 0), count as u64, 0),
        What::AllToAll => (word(10, None, None, 0), 0, 0),
        What::Barrier => (word(11, None, None, 0), 0, 0),
        What::Fold { .. } => (word(12, None, None, 0), 0, identity()),
    }
}

/// The extents of a lone array in one word: shapes of as many numbers seldom share it. A hash that nobody can aim at would
/// cost more than a small array's sum.
fn mixed(extents: &[usize]) -> u64 {
    extents.iter().fold(extents.len() as u64, |mix, extent| (mix ^ *extent as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use syncline_cluster::Deadline;
    use syncline_tensor::{DType, Shape};

    use super::*;

    #[test]
    fn what_differs_is_seen_and_what_is_ones_own_business_is_not() {
        let call = |number, what, contributes| {
            Head::of(&Call { number, what, site: "", by: Deadline::never(), started: Instant::now(), contributes })
        };
        let sum = What::AllReduce { dtype: DType::F32, op: ReduceOp::Sum, count: 2 };
        let max = What::AllReduce { dtype: DType::F32, op: ReduceOp::Max, count: 2 };
        let one = call(1, sum, true);
        let place = Whereabout { at: 0, len: 1, offset: 2 };
        assert!(one.agrees(&call(1, sum, false)) && one.agrees(&one.with_length(7).with_lent(Some(place))));
        assert!(!one.agrees(&call(2, sum, true)) && !one.agrees(&call(1, max, true)));
        assert!(one.contributes() && one.lent().is_none());
        assert_eq!((one.with_length(7).length(), one.with_lent(Some(place)).lent()), (7, Some(place)));
    }

    #[test]
    fn lone_arrays_of_other_shapes_or_names_differ() {
        let head = |leaves: &[(&str, DType, Shape)]| {
            let what = What::AllReduceLeaves { op: ReduceOp::Sum, leaves };
            Head::of(&Call { number: 1, what, site: "", by: Deadline::never(), started: Instant::now(), contributes: true })
        };
        let leaf = |name: &'static str, dtype, dims: &[usize]| [(name, dtype, Shape::new(dims).expect("small"))];
        let shapes: [&[usize]; 6] = [&[], &[1, 1], &[3, 4], &[4, 3], &[2, 6], &[12, 1]];
        let mut all: Vec<Head> = shapes.iter().map(|dims| head(&leaf("", DType::F32, dims))).collect();
        all.push(head(&leaf("w", DType::F32, &[3, 4])));
        all.push(head(&leaf("", DType::I32, &[3, 4])));
        for (index, one) in all.iter().enumerate() {
            assert!(all.iter().enumerate().all(|(other, two)| one.agrees(two) == (index == other)), "{index}");
        }
    }
}
