//! One operation over and over, and whether its numbers are what they should be.
//!
//! Rank r brings small whole numbers that every dtype holds exactly, and so are their sums: what should come out can be
//! computed in a few lines and compared to the last bit. The loop that is timed runs on zeros, which stay zeros.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use syncline::collective::{Collectives, How};
use syncline::{DType, Deadline, Error, ReduceOp, Session, SharedArray};
use syncline_tensor::kernels;

use super::row::Measured;
use crate::bench::samples::Samples;

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    #[value(alias = "all_reduce")]
    Allreduce,
    Reduce,
    Broadcast,
    Scatter,
    Gather,
    AllGather,
    ReduceScatter,
    AllToAll,
    Barrier,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}

impl Operation {
    /// Whether numbers are combined.
    pub(super) fn reduces(self) -> bool {
        matches!(self, Operation::Allreduce | Operation::Reduce | Operation::ReduceScatter)
    }

    /// What part of the size the hardware moves: the factors of nccl-tests.
    pub(super) fn bus_share(self, ranks: u32) -> f64 {
        let others = f64::from(ranks - 1) / f64::from(ranks);
        match self {
            Operation::Allreduce => 2.0 * others,
            Operation::Reduce | Operation::Broadcast => 1.0,
            Operation::Scatter | Operation::Gather | Operation::AllGather | Operation::ReduceScatter | Operation::AllToAll => others,
            Operation::Barrier => 0.0,
        }
    }
}

/// The way numbers are combined, by its name.
pub(super) fn by_name(name: &str) -> Result<ReduceOp, String> {
    let known = || ReduceOp::ALL.map(ReduceOp::name).join(", ");
    ReduceOp::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| format!("there is no {name}; choose among {}", known()))
}

/// Where the numbers lie.
pub(super) enum Array {
    Private(Vec<u8>),
    Shared(SharedArray),
}

impl Array {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Array::Private(bytes) => bytes,
            Array::Shared(array) => array.bytes_mut(),
        }
    }
}

/// Iterations that tell how long one takes.
const LOOK: usize = 5;
/// The rank whose result counts where there is only one.
const ROOT: usize = 0;

/// One operation of one rank.
pub(super) struct Work<'c> {
    operation: Operation,
    collectives: &'c Collectives,
    array: Array,
    size: usize,
    dtype: DType,
    redop: ReduceOp,
    position: usize,
    ranks: usize,
    wrong: u64,
}

impl<'c> Work<'c> {
    pub(super) fn new(
        operation: Operation,
        collectives: &'c Collectives,
        array: Array,
        size: usize,
        dtype: DType,
        redop: ReduceOp,
    ) -> Work<'c> {
        let group = collectives.group();
        let (position, ranks) = (group.position(), group.ranks().len());
        Work { operation, collectives, array, size, dtype, redop, position, ranks, wrong: 0 }
    }

    /// Checks, times `runs` loops of `secs`, checks again.
    pub(super) fn measure(&mut self, secs: f64, runs: usize, session: &Session) -> Result<Measured, Error> {
        let by = Deadline::after(Duration::from_secs_f64(secs * runs as f64 * 4.0) + session.timeout()); // One for all: clocks cost too.
        self.check(by)?;
        self.array.bytes_mut().fill(0);
        let begun = Instant::now();
        for _ in 0..LOOK {
            self.step(by)?;
        }
        let rounds = self.agree((secs / (begun.elapsed().as_secs_f64() / LOOK as f64)).clamp(1.0, 2e6) as u64, by)?;
        let mut of_runs = Vec::with_capacity(runs);
        let mut samples = Samples::with_room(rounds as usize * runs);
        for _ in 0..runs {
            self.collectives.barrier(how(by))?;
            let start = Instant::now();
            let mut before = start;
            for _ in 0..rounds {
                self.step(by)?;
                let after = Instant::now();
                samples.push(after - before);
                before = after;
            }
            of_runs.push((before - start).as_secs_f64() / rounds as f64);
        }
        of_runs.sort_by(f64::total_cmp);
        self.check(by)?;
        Ok(Measured { size: self.size, time: of_runs[of_runs.len() / 2], p99: samples.quantile(0.99), wrong: self.wrong })
    }

    /// The smallest number that any rank brought.
    fn agree(&self, mine: u64, by: Deadline) -> Result<u64, Error> {
        let mut bytes = mine.to_ne_bytes();
        self.collectives.all_reduce(&mut bytes, DType::I64, ReduceOp::Min, true, how(by))?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The operation once, on whatever the array holds; its result is thrown away where it is not in the array.
    fn step(&mut self, by: Deadline) -> Result<(), Error> {
        let (dtype, redop, how) = (self.dtype, self.redop, how(by));
        let own = self.part(self.position);
        let parts = self.parts_to_send();
        let array = self.array.bytes_mut();
        match self.operation {
            Operation::Allreduce => drop(self.collectives.all_reduce(array, dtype, redop, true, how)?),
            Operation::Reduce => self.collectives.reduce(array, dtype, redop, ROOT, how)?,
            Operation::Broadcast => self.collectives.broadcast(array, dtype, ROOT, how)?,
            Operation::Gather => drop(self.collectives.gather(&array[own], ROOT, how)?),
            Operation::AllGather => drop(self.collectives.all_gather(&array[own], how)?),
            Operation::ReduceScatter => drop(self.collectives.reduce_scatter(array, dtype, redop, how)?),
            Operation::Scatter => drop(self.collectives.scatter(cut(array, parts).as_deref(), ROOT, how)?),
            Operation::AllToAll => drop(self.collectives.all_to_all(&cut(array, parts).unwrap_or_default(), how)?),
            Operation::Barrier => self.collectives.barrier(how)?,
        }
        Ok(())
    }

    /// The operation once, on numbers whose result is known.
    fn check(&mut self, by: Deadline) -> Result<(), Error> {
        let (dtype, redop, how, position) = (self.dtype, self.redop, how(by), self.position);
        let brought: Vec<Vec<u8>> = match self.operation {
            Operation::Barrier => return Ok(self.collectives.barrier(how)?),
            _ => (0..self.ranks).map(|rank| self.numbers(|index| self.number(rank, index))).collect(),
        };
        let (own, parts) = (self.part(position), self.parts_to_send());
        let array = &mut self.array.bytes_mut()[..self.size];
        array.copy_from_slice(&brought[position]);
        let (found, expected): (Vec<u8>, Vec<u8>) = match self.operation {
            Operation::Allreduce => {
                self.collectives.all_reduce(array, dtype, redop, true, how)?;
                (array.to_vec(), self.combined())
            }
            Operation::Reduce => {
                self.collectives.reduce(array, dtype, redop, ROOT, how)?;
                (array.to_vec(), if position == ROOT { self.combined() } else { brought[position].clone() })
            }
            Operation::Broadcast => {
                self.collectives.broadcast(array, dtype, ROOT, how)?;
                (array.to_vec(), brought[ROOT].clone())
            }
            Operation::ReduceScatter => (self.collectives.reduce_scatter(array, dtype, redop, how)?, self.combined()[own].to_vec()),
            Operation::Gather => {
                let all = self.collectives.gather(&array[own], ROOT, how)?;
                (all.map(|all| all.concat()).unwrap_or_default(), if position == ROOT { self.each_its_part(&brought) } else { vec![] })
            }
            Operation::AllGather => (self.collectives.all_gather(&array[own], how)?.concat(), self.each_its_part(&brought)),
            Operation::Scatter => (self.collectives.scatter(cut(array, parts).as_deref(), ROOT, how)?, brought[ROOT][own].to_vec()),
            Operation::AllToAll => {
                let found = self.collectives.all_to_all(&cut(array, parts).unwrap_or_default(), how)?.concat();
                (found, brought.iter().flat_map(|numbers| &numbers[own.clone()]).copied().collect())
            }
            Operation::Barrier => unreachable!("it was handled above"),
        };
        self.wrong += count_wrong(&found, &expected, self.dtype.size());
        Ok(())
    }

    /// Where the parts lie that this rank sends to each rank, if the operation has it send such parts.
    fn parts_to_send(&self) -> Option<Vec<Range<usize>>> {
        let sends = self.operation == Operation::AllToAll || (self.operation == Operation::Scatter && self.position == ROOT);
        sends.then(|| (0..self.ranks).map(|rank| self.part(rank)).collect())
    }

    /// Bytes of the part that belongs to a rank; the first ranks take the remainder.
    fn part(&self, rank: usize) -> Range<usize> {
        let item = self.dtype.size();
        let count = self.size / item;
        let (each, more) = (count / self.ranks, count % self.ranks);
        let start = rank * each + rank.min(more);
        start * item..(start + each + usize::from(rank < more)) * item
    }

    fn each_its_part(&self, brought: &[Vec<u8>]) -> Vec<u8> {
        (0..self.ranks).flat_map(|rank| &brought[rank][self.part(rank)]).copied().collect()
    }

    /// What a rank brings: 1 or 2 to a product, 1 to 5 to everything else.
    fn number(&self, rank: usize, index: usize) -> f64 {
        match self.redop {
            ReduceOp::Prod => (1 + (rank + index) % 2) as f64,
            _ => (1 + (3 * rank + index) % 5) as f64,
        }
    }

    /// What comes out when all are combined.
    fn combined(&self) -> Vec<u8> {
        let truth = |yes: bool| f64::from(u8::from(yes));
        let whole = !self.dtype.is_float();
        let (redop, ranks) = (self.redop, self.ranks);
        let both = |one: f64, other: f64| match redop {
            ReduceOp::Sum | ReduceOp::Mean => one + other,
            ReduceOp::Prod => one * other,
            ReduceOp::Min => one.min(other),
            ReduceOp::Max => one.max(other),
            ReduceOp::And if whole => ((one as i64) & (other as i64)) as f64,
            ReduceOp::Or if whole => ((one as i64) | (other as i64)) as f64,
            ReduceOp::And => truth(one != 0.0 && other != 0.0),
            ReduceOp::Or => truth(one != 0.0 || other != 0.0),
        };
        self.numbers(|index| {
            let all = (1..ranks).fold(self.number(0, index), |sum, rank| both(sum, self.number(rank, index)));
            if redop == ReduceOp::Mean { all / ranks as f64 } else { all }
        })
    }

    /// Numbers of the dtype by a rule.
    fn numbers(&self, rule: impl Fn(usize) -> f64) -> Vec<u8> {
        let exact: Vec<u8> = (0..self.size / self.dtype.size()).flat_map(|index| rule(index).to_ne_bytes()).collect();
        let mut numbers = vec![0; self.size];
        kernels::cast(DType::F64, &exact, self.dtype, &mut numbers).expect("as many numbers on both sides");
        numbers
    }
}

fn cut(array: &[u8], parts: Option<Vec<Range<usize>>>) -> Option<Vec<&[u8]>> {
    Some(parts?.into_iter().map(|part| &array[part]).collect())
}

/// How many numbers of `item` bytes are not what they should be; missing ones and ones too many are not either.
fn count_wrong(found: &[u8], expected: &[u8], item: usize) -> u64 {
    let differ = found.chunks(item).zip(expected.chunks(item)).filter(|(found, expected)| found != expected).count();
    (differ + found.len().abs_diff(expected.len()) / item) as u64
}

fn how(by: Deadline) -> How<'static> {
    How { site: "syncline bench", by }
}

#[cfg(test)]
mod tests {
    use syncline::Config;
    use syncline::bootstrap::{Arguments, Environment};
    use syncline_testkit::ranks::threads;

    use super::*;

    #[test]
    fn numbers_that_differ_are_missing_or_too_many_are_wrong() {
        let right = [1u8, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(count_wrong(&right, &right, 4), 0);
        assert_eq!(count_wrong(&[1, 2, 3, 4, 5, 6, 7, 9], &right, 4), 1, "one bit is enough");
        assert_eq!(count_wrong(&[0, 2, 3, 4, 5, 0, 0, 8], &right, 4), 2, "numbers count, not bytes");
        assert_eq!(count_wrong(&right[..4], &right, 4), 1);
        assert_eq!(count_wrong(&right, &right[..4], 4), 1);
        assert_eq!(count_wrong(&[], &right, 2), 4);
    }

    fn session(rank: usize, ranks: usize, name: &str) -> Session {
        let (rank, world, meeting) = (rank.to_string(), ranks.to_string(), format!("unix:@bench-{}-{name}", std::process::id()));
        let variables = [
            ("SYNCLINE_RANK", rank.as_str()),
            ("SYNCLINE_WORLD_SIZE", &world),
            ("SYNCLINE_RENDEZVOUS", &meeting),
            ("SYNCLINE_TOKEN", "t"),
            ("SYNCLINE_TIMEOUT", "20"),
        ];
        let config = Config::from_environment(&Environment::from_variables(variables), &Arguments::default()).expect("sound");
        Session::open(config).expect("everybody comes")
    }

    /// What two ranks count when rank 1 brings `damaged` numbers that it should not.
    fn wrong_after_damage(name: &str, operation: Operation, damaged: usize) -> Vec<u64> {
        threads(2, |rank| {
            let session = session(rank, 2, name);
            let collectives = session.collectives().expect("a worker");
            let by = Deadline::after(session.timeout());
            let mut work = Work::new(operation, &collectives, Array::Private(vec![0; 400]), 400, DType::F32, ReduceOp::Sum);
            if rank == 0 {
                work.check(by).expect("both came");
            } else {
                let mut bytes = work.numbers(|index| work.number(1, index) + f64::from(u8::from(index >= 100 - damaged)));
                work.array.bytes_mut().copy_from_slice(&bytes);
                work.step(by).expect("both came");
                let expected = work.combined();
                bytes.copy_from_slice(work.array.bytes_mut());
                work.wrong = count_wrong(&bytes, &expected, 4);
            }
            collectives.barrier(how(by)).expect("both came");
            session.shutdown().expect("a polite end");
            work.wrong
        })
    }

    #[test]
    fn a_rank_that_brings_other_numbers_is_found_out() {
        assert_eq!(wrong_after_damage("sound", Operation::Allreduce, 0), [0, 0]);
        assert_eq!(wrong_after_damage("damaged", Operation::Allreduce, 7), [7, 7]);
        assert_eq!(wrong_after_damage("gathered", Operation::AllGather, 7)[0], 7);
    }
}
