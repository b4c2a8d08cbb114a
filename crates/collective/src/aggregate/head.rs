//! What a worker was called for, in the four words that travel with every part.

use std::fmt;

use syncline_tensor::DType;
use syncline_tensor::kernels::ReduceOp;

/// One worker's call. What others wrote is only compared and shown, so any words will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head(pub(super) [u32; 4]);

impl Head {
    /// Bytes of a head on a link.
    pub(super) const BYTES: usize = 16;

    pub(super) fn new(call: u32, dtype: DType, op: ReduceOp, bytes: usize) -> Head {
        let op = ReduceOp::ALL.iter().position(|known| *known == op).expect("every operation is listed") as u32;
        Head([call, u32::from(dtype.code()) | op << 8, bytes as u32, (bytes as u64 >> 32) as u32])
    }

    pub(super) fn to_bytes(self) -> [u8; Head::BYTES] {
        let mut bytes = [0; Head::BYTES];
        for (place, word) in bytes.chunks_exact_mut(4).zip(self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Head::BYTES]) -> Head {
        let mut words = [0; 4];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([place[0], place[1], place[2], place[3]]);
        }
        Head(words)
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [call, what, low, high] = self.0;
        let bytes = u64::from(low) | u64::from(high) << 32;
        match (DType::from_code(what as u8), ReduceOp::ALL.get((what >> 8) as usize)) {
            (Ok(dtype), Some(op)) => write!(f, "aggregate {call}, the {op} of {} {}", bytes / dtype.size() as u64, dtype.name()),
            _ => write!(f, "aggregate {call} of {bytes} bytes"),
        }
    }
}

/// The first two workers that were not called for the same, in words.
pub(super) fn mismatch(heads: &[(u32, Head)], ranks: &[u32]) -> Option<String> {
    let (first, expected) = heads.first()?;
    let (other, found) = heads.iter().find(|(_, head)| head != expected)?;
    let (first, other) = (ranks[*first as usize], ranks[*other as usize]);
    Some(format!("rank {first} called {expected}, rank {other} {found}\nhint: every worker makes the same calls in the same order"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_travels_and_reads_well() {
        let head = Head::new(7, DType::F32, ReduceOp::Max, (5 << 32) + 4);
        assert_eq!(Head::from_bytes(head.to_bytes()), head);
        assert_eq!(Head::new(3, DType::I64, ReduceOp::Sum, 80).to_string(), "aggregate 3, the sum of 10 int64");
        assert_eq!(Head([1, u32::MAX, 9, 0]).to_string(), "aggregate 1 of 9 bytes");
    }

    #[test]
    fn the_two_who_differ_are_named_by_rank() {
        let (sum, max) = (Head::new(1, DType::F32, ReduceOp::Sum, 8), Head::new(1, DType::F32, ReduceOp::Max, 8));
        assert_eq!(mismatch(&[(0, sum), (1, sum)], &[0, 1]), None);
        let text = mismatch(&[(0, sum), (1, sum), (2, max)], &[1, 4, 6]).expect("they differ");
        assert!(text.starts_with("rank 1 called aggregate 1, the sum of 2 float32, rank 6 aggregate 1, the max"), "{text}");
    }
}
