//! Collective operations with types: what Rust programs call.

use std::panic::Location;
use std::time::Duration;

use bytemuck::{cast_slice, cast_slice_mut, pod_collect_to_vec};
use syncline_cluster::{Deadline, Group};
use syncline_collective::{Collectives, How};
use syncline_tensor::Element;
use syncline_tensor::kernels::ReduceOp;

use crate::{Error, Session};

/// What the members of a group do together; made by [`Session::among_workers`] and [`Session::among`].
///
/// All members make the same calls in the same order; positions are places in the group. Calls that differ fail on all
/// members alike and name two of them, each with its line.
/// ```
/// use syncline::{ReduceOp, Session};
///
/// let session = Session::solo()?;
/// let workers = session.among_workers()?;
/// let mut gradient = [1.0f32, -1.0];
/// assert_eq!(workers.all_reduce(&mut gradient, ReduceOp::Mean)?, 1); // so many contributed
/// assert_eq!(workers.all_gather(&gradient)?, [[1.0, -1.0]]);
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Among {
    collectives: Collectives,
    timeout: Duration,
}

impl Session {
    /// The operations of all workers. A dedicated server takes no part in them.
    pub fn among_workers(&self) -> Result<Among, Error> {
        Ok(Among { collectives: self.collectives()?, timeout: self.timeout() })
    }

    /// The operations of `group`.
    pub fn among(&self, group: &Group) -> Among {
        Among { collectives: self.collectives_of(group), timeout: self.timeout() }
    }
}

/// Calls `$method` of the collectives with the caller's place and this session's timeout.
macro_rules! call {
    ($self:ident . $method:ident ($($argument:expr),*)) => {{
        let site = Location::caller().to_string();
        $self.collectives.$method($($argument,)* How { site: &site, by: Deadline::after($self.timeout) })
    }};
}

impl Among {
    /// The same operations on raw bytes, with deadlines and call sites of one's own, and those that run in the background.
    pub fn collectives(&self) -> &Collectives {
        &self.collectives
    }

    /// Who takes part.
    pub fn group(&self) -> &Group {
        self.collectives.group()
    }

    /// Combines `array` over all members, in place and in group order; returns how many contributed.
    #[track_caller]
    pub fn all_reduce<T: Element>(&self, array: &mut [T], op: ReduceOp) -> Result<u32, Error> {
        Ok(call!(self.all_reduce(cast_slice_mut(array), T::DTYPE, op, true))?)
    }

    /// Combines `array` over all members into that of `root`; the others' stay as they are.
    #[track_caller]
    pub fn reduce<T: Element>(&self, array: &mut [T], op: ReduceOp, root: usize) -> Result<(), Error> {
        Ok(call!(self.reduce(cast_slice_mut(array), T::DTYPE, op, root))?)
    }

    /// Makes everybody's `array` that of `root`.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, array: &mut [T], root: usize) -> Result<(), Error> {
        Ok(call!(self.broadcast(cast_slice_mut(array), T::DTYPE, root))?)
    }

    /// Everybody's numbers at `root`, by position; None elsewhere. Lengths may differ.
    #[track_caller]
    pub fn gather<T: Element>(&self, mine: &[T], root: usize) -> Result<Option<Vec<Vec<T>>>, Error> {
        Ok(call!(self.gather(cast_slice(mine), root))?.map(numbers))
    }

    /// Everybody's numbers, by position. Lengths may differ.
    #[track_caller]
    pub fn all_gather<T: Element>(&self, mine: &[T]) -> Result<Vec<Vec<T>>, Error> {
        Ok(numbers(call!(self.all_gather(cast_slice(mine)))?))
    }

    /// This position's part of what `root` brings, one part for each position.
    #[track_caller]
    pub fn scatter<T: Element>(&self, parts: Option<&[&[T]]>, root: usize) -> Result<Vec<T>, Error> {
        let parts: Option<Vec<&[u8]>> = parts.map(|parts| parts.iter().map(|part| cast_slice(part)).collect());
        Ok(pod_collect_to_vec(&call!(self.scatter(parts.as_deref(), root))?))
    }

    /// Combines `array` over all members and returns this position's part; the first positions take the remainder.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&self, array: &[T], op: ReduceOp) -> Result<Vec<T>, Error> {
        Ok(pod_collect_to_vec(&call!(self.reduce_scatter(cast_slice(array), T::DTYPE, op))?))
    }

    /// Sends part p to position p, and returns what each position sent here.
    #[track_caller]
    pub fn all_to_all<T: Element>(&self, parts: &[&[T]]) -> Result<Vec<Vec<T>>, Error> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| cast_slice(part)).collect();
        Ok(numbers(call!(self.all_to_all(&parts))?))
    }

    /// Returns when every member has called it.
    #[track_caller]
    pub fn barrier(&self) -> Result<(), Error> {
        Ok(call!(self.barrier())?)
    }
}

fn numbers<T: Element>(all: Vec<Vec<u8>>) -> Vec<Vec<T>> {
    all.iter().map(|bytes| pod_collect_to_vec(bytes)).collect()
}
