//! One call of a collective operation: what all ranks must agree on, and how it goes wrong.
//!
//! A call is described by facts and not by text: words are made only when something has to be said about it.

use std::fmt::{self, Write as _};
use std::time::Instant;

use syncline_cluster::{Deadline, Error};
use syncline_tensor::kernels::ReduceOp;
use syncline_tensor::{DType, Shape};
use syncline_wire::{Fingerprint, FingerprintBuilder};

/// Where a call comes from and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Where the caller stands, as `file:line`, for the error that names two calls that differ.
    pub site: &'a str,
    /// When to give up.
    pub by: Deadline,
}

/// What a call does, in the facts that all ranks must agree on. Roots are positions in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What<'a> {
    AllReduce {
        dtype: DType,
        op: ReduceOp,
        count: usize,
    },
    /// Several arrays in one call.
    AllReduceLeaves {
        op: ReduceOp,
        leaves: &'a [(&'a str, DType, Shape)],
    },
    Reduce {
        dtype: DType,
        op: ReduceOp,
        count: usize,
        root: usize,
    },
    Broadcast {
        dtype: DType,
        count: usize,
        root: usize,
    },
    BroadcastMessage {
        root: usize,
    },
    Gather {
        root: usize,
    },
    AllGather,
    Scatter {
        root: usize,
    },
    ReduceScatter {
        dtype: DType,
        op: ReduceOp,
        count: usize,
    },
    AllToAll,
    Barrier,
    /// What the leaders of the hosts found out about a call of this name. The calls of its hearers may differ: that may be the news.
    Verdict {
        name: &'static str,
    },
    /// Messages that a function of the user's merges; `words` and `fingerprint` say what the user makes of it.
    Fold {
        words: &'a str,
        fingerprint: Fingerprint,
    },
}

/// Leaves that are told one by one when two calls differ.
const LEAVES_TOLD: usize = 8;

impl What<'_> {
    /// The method's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            What::AllReduce { .. } | What::AllReduceLeaves { .. } | What::Fold { .. } => "all_reduce",
            What::Reduce { .. } => "reduce",
            What::Broadcast { .. } | What::BroadcastMessage { .. } => "broadcast",
            What::Gather { .. } => "gather",
            What::AllGather => "all_gather",
            What::Scatter { .. } => "scatter",
            What::ReduceScatter { .. } => "reduce_scatter",
            What::AllToAll => "all_to_all",
            What::Barrier => "barrier",
            What::Verdict { name } => name,
        }
    }

    /// Whether the order in which contributions are put together may show in the result.
    pub(crate) fn shows_order(&self) -> bool {
        match self {
            What::AllReduce { dtype, op, .. } | What::Reduce { dtype, op, .. } | What::ReduceScatter { dtype, op, .. } => {
                !op.is_exact(*dtype)
            }
            What::AllReduceLeaves { op, leaves } => leaves.iter().any(|(_, dtype, _)| !op.is_exact(*dtype)),
            What::Fold { .. } => true,
            What::Broadcast { .. } | What::BroadcastMessage { .. } | What::Gather { .. } | What::AllGather => false,
            What::Scatter { .. } | What::AllToAll | What::Barrier | What::Verdict { .. } => false,
        }
    }

    /// The identity of all that must be the same on all ranks, the number of the call aside.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let begin = || Fingerprint::of(self.name());
        let numbers = |dtype: &DType, count: &usize| begin().dtype(*dtype).shape(&[*count]);
        let root = |description: FingerprintBuilder, root: &usize| description.number("root", *root as u64);
        let op = |description: FingerprintBuilder, op: &ReduceOp| description.text("op", op.name());
        match self {
            What::AllReduce { dtype, op: by, count } | What::ReduceScatter { dtype, op: by, count } => op(numbers(dtype, count), by),
            What::AllReduceLeaves { op: by, leaves } => {
                leaves.iter().fold(op(begin(), by).number("leaves", leaves.len() as u64), |description, (name, dtype, shape)| {
                    description.name(name).dtype(*dtype).shape(shape.dims())
                })
            }
            What::Reduce { dtype, op: by, count, root: at } => root(op(numbers(dtype, count), by), at),
            What::Broadcast { dtype, count, root: at } => root(numbers(dtype, count), at),
            What::BroadcastMessage { root: at } => root(begin().text("of", "a message"), at),
            What::Gather { root: at } | What::Scatter { root: at } => root(begin(), at),
            What::AllGather | What::AllToAll | What::Barrier => begin(),
            What::Verdict { .. } => Fingerprint::of("verdict"),
            What::Fold { words, fingerprint } => begin().name(words).bytes("fingerprint", &fingerprint.0),
        }
        .finish()
    }
}

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::AllReduce { dtype, op, count } => write!(f, "the {op} of {count} {dtype}"),
            What::AllReduceLeaves { op, leaves } => {
                let plural = if leaves.len() == 1 { "array" } else { "arrays" };
                write!(f, "the {op} of {} {plural}: ", leaves.len())?;
                for (index, (name, dtype, shape)) in leaves.iter().take(LEAVES_TOLD).enumerate() {
                    let (comma, space) = (if index > 0 { ", " } else { "" }, if name.is_empty() { "" } else { " " });
                    write!(f, "{comma}{name}{space}{dtype} {shape}")?;
                }
                f.write_str(if leaves.len() > LEAVES_TOLD { ", …" } else { "" })
            }
            What::Reduce { dtype, op, count, root } => write!(f, "the {op} of {count} {dtype} to rank {root} of the group"),
            What::Broadcast { dtype, count, root } => write!(f, "{count} {dtype} from rank {root} of the group"),
            What::BroadcastMessage { root } => write!(f, "a message from rank {root} of the group"),
            What::Gather { root } => write!(f, "to rank {root} of the group"),
            What::Scatter { root } => write!(f, "from rank {root} of the group"),
            What::ReduceScatter { dtype, op, count } => write!(f, "the {op} of {count} {dtype}"),
            What::AllGather | What::AllToAll | What::Barrier | What::Verdict { .. } => Ok(()),
            What::Fold { words, .. } => f.write_str(words),
        }
    }
}

/// One call of this rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// How many calls of this group came before it.
    pub(crate) number: u64,
    pub(crate) what: What<'a>,
    pub(crate) site: &'a str,
    pub(crate) by: Deadline,
    pub(crate) started: Instant,
    /// Whether this rank's part counts; one that has no more data brings zeros of its own making, and is not counted.
    pub(crate) contributes: bool,
}

impl Call<'_> {
    /// What the operation is called in errors: its name and number.
    pub(crate) fn operation(&self) -> String {
        format!("{} {}", self.what.name(), self.number)
    }

    /// The whole call in words, with its site: `all_reduce 3, the sum of 10 float32, at train.py:12`.
    pub(crate) fn words(&self) -> String {
        let mut words = self.operation();
        let what = self.what.to_string();
        if !what.is_empty() {
            let _ = write!(words, ", {what}");
        }
        if !self.site.is_empty() {
            let _ = write!(words, ", at {}", self.site);
        }
        words
    }

    /// The identity of all that must be the same on all ranks, the number of the call aside.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.what.fingerprint()
    }

    /// An error of a part of this call, a link that could not be opened for example, as one of the whole.
    pub(crate) fn renamed(&self, error: Error) -> Error {
        match error {
            Error::PeerLost { who, how, waited, hint, .. } => Error::PeerLost { operation: self.operation(), who, how, waited, hint },
            Error::Timeout { missing, detail, waited, hint, .. } => {
                Error::Timeout { operation: self.operation(), missing, detail, waited, hint }
            }
            Error::Interrupted { waited, .. } => Error::Interrupted { operation: self.operation(), waited },
            other => other,
        }
    }

    /// The error of two ranks whose calls, in [`words`](Call::words), differ; the same on every rank that sees the same two.
    pub(crate) fn mismatch(first: (u32, &str), other: (u32, &str)) -> Error {
        let ((first, one), (other, two)) = (first, other);
        let operation = one.split([',', ' ']).next().unwrap_or_default().to_owned();
        let detail = format!(
            "rank {first} called {one}; rank {other} called {two}\nhint: all ranks of a group make the same calls in the same order"
        );
        Error::ContractMismatch { operation, detail }
    }
}

/// The error of a call that comes after the `first` one that left this rank out of step: the same, as its cause is. Only a key
/// that interrupted one call was not pressed for another.
pub(crate) fn out_of_step(operation: &str, first: &Error) -> Error {
    match first {
        Error::Interrupted { operation: interrupted, .. } => Error::System {
            operation: operation.into(),
            detail: format!(
                "the ranks of this group are out of step since a call of this one was interrupted ({interrupted})\n\
                 hint: save what is needed and start the job again"
            ),
        },
        other => other.clone(),
    }
}

/// How a call went wrong.
#[derive(Debug)]
pub(crate) enum Failure {
    /// In a way that all ranks saw alike: the next call finds them in step.
    Agreed(Error),
    /// Nobody knows how far the others came.
    Astray(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Astray(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<'a>(what: What<'a>, site: &'a str) -> Call<'a> {
        Call { number: 3, what, site, by: Deadline::never(), started: Instant::now(), contributes: true }
    }

    #[test]
    fn a_call_reads_well() {
        let sum = What::AllReduce { dtype: DType::F32, op: ReduceOp::Sum, count: 10 };
        assert_eq!(call(sum, "train.py:12").words(), "all_reduce 3, the sum of 10 float32, at train.py:12");
        assert_eq!(call(What::Barrier, "").words(), "barrier 3");
        let error = Call::mismatch((1, &call(sum, "a:1").words()), (4, &call(What::AllGather, "b:2").words()));
        assert!(
            error
                .to_string()
                .starts_with("all_reduce: rank 1 called all_reduce 3, the sum of 10 float32, at a:1; rank 4 called all_gather 3, at b:2")
        );
    }

    #[test]
    fn every_fact_is_part_of_the_identity() {
        let shape = |dims: &[usize]| Shape::new(dims).expect("a small shape");
        let (one, two) = ([("a", DType::F32, shape(&[6]))], [("a", DType::F32, shape(&[2, 3]))]);
        let three = [("b", DType::F32, shape(&[6]))];
        let op = ReduceOp::Sum;
        let all = [
            What::AllReduce { dtype: DType::F32, op, count: 6 },
            What::AllReduce { dtype: DType::I32, op, count: 6 },
            What::AllReduce { dtype: DType::F32, op, count: 7 },
            What::AllReduce { dtype: DType::F32, op: ReduceOp::Max, count: 6 },
            What::AllReduceLeaves { op, leaves: &one },
            What::AllReduceLeaves { op, leaves: &two },
            What::AllReduceLeaves { op, leaves: &three },
            What::Reduce { dtype: DType::F32, op, count: 6, root: 0 },
            What::Reduce { dtype: DType::F32, op, count: 6, root: 1 },
            What::Broadcast { dtype: DType::F32, count: 6, root: 0 },
            What::BroadcastMessage { root: 0 },
            What::Gather { root: 0 },
            What::Gather { root: 1 },
            What::Scatter { root: 0 },
            What::AllGather,
            What::AllToAll,
            What::Barrier,
            What::Fold { words: "a", fingerprint: Fingerprint::NONE },
            What::Fold { words: "b", fingerprint: Fingerprint::NONE },
        ];
        let mut seen: Vec<Fingerprint> = all.iter().map(What::fingerprint).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all.len());
    }
}
