//! The collectives of plain slices, typed: what a Rust program calls on its own numbers.
//!
//! Every call takes its place in the program from its caller, so that two calls that differ can both be shown.

use std::panic::Location;

use bytemuck::{cast_slice, cast_slice_mut, pod_collect_to_vec};
use syncline_collective::{How, Pending};
use syncline_tensor::Element;
use syncline_tensor::kernels::ReduceOp;

use super::Tree;
use crate::{Deadline, Error};

/// An array that is being reduced while its owner does something else.
#[derive(Debug)]
#[must_use = "the array comes back from `wait`"]
pub struct PendingReduction<T> {
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    /// Of a tree of one.
    Here(Vec<T>),
    UnderWay(Pending<Numbers<T>>),
}

/// A vector of numbers that lends its bytes.
#[derive(Debug)]
struct Numbers<T>(Vec<T>);

impl<T: Element> AsMut<[u8]> for Numbers<T> {
    fn as_mut(&mut self) -> &mut [u8] {
        cast_slice_mut(&mut self.0)
    }
}

impl<T: Element> PendingReduction<T> {
    /// Whether [`wait`](PendingReduction::wait) would return at once.
    pub fn done(&self) -> bool {
        match &self.state {
            State::Here(_) => true,
            State::UnderWay(pending) => pending.done(),
        }
    }

    /// The array, reduced, and the number of nodes that contributed. It takes the tree, which stays open meanwhile.
    pub fn wait(self, _tree: &Tree) -> Result<(Vec<T>, u32), Error> {
        match self.state {
            State::Here(array) => Ok((array, 1)),
            State::UnderWay(pending) => {
                // The operation keeps to the tree's timeout, and says who is missing; a wait that gave up at the same time would not.
                let (numbers, contributors) = pending.wait(Deadline::never())?;
                Ok((numbers.0, contributors))
            }
        }
    }
}

impl Tree {
    /// Begins an [`all_reduce`](Tree::all_reduce) that runs while the caller does something else.
    #[track_caller]
    pub fn all_reduce_start<T: Element>(&self, array: Vec<T>, op: ReduceOp) -> PendingReduction<T> {
        let site = Location::caller().to_string();
        let state = match self.collectives() {
            None => State::Here(array),
            Some(collectives) => {
                let how = How { site: &site, by: self.deadline() };
                State::UnderWay(collectives.all_reduce_start(Numbers(array), T::DTYPE, op, true, how))
            }
        };
        PendingReduction { state }
    }

    /// Combines `array` over all nodes into that of node `root`; the others' stay as they are.
    #[track_caller]
    pub fn reduce<T: Element>(&self, array: &mut [T], op: ReduceOp, root: u32) -> Result<(), Error> {
        let site = Location::caller().to_string();
        let root = self.position(root)?;
        let Some(collectives) = self.collectives() else { return Ok(()) };
        Ok(collectives.reduce(cast_slice_mut(array), T::DTYPE, op, root, How { site: &site, by: self.deadline() })?)
    }

    /// Makes everybody's `array` that of node `root`.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, array: &mut [T], root: u32) -> Result<(), Error> {
        let site = Location::caller().to_string();
        let root = self.position(root)?;
        let Some(collectives) = self.collectives() else { return Ok(()) };
        Ok(collectives.broadcast(cast_slice_mut(array), T::DTYPE, root, How { site: &site, by: self.deadline() })?)
    }

    /// Everybody's numbers at node `root`, by node; None elsewhere. They need not be equally many.
    #[track_caller]
    pub fn gather<T: Element>(&self, mine: &[T], root: u32) -> Result<Option<Vec<Vec<T>>>, Error> {
        let site = Location::caller().to_string();
        let root = self.position(root)?;
        let Some(collectives) = self.collectives() else { return Ok(Some(vec![mine.to_vec()])) };
        let all = collectives.gather(cast_slice(mine), root, How { site: &site, by: self.deadline() })?;
        Ok(all.map(|all| typed(&all)))
    }

    /// Everybody's numbers, by node. They need not be equally many.
    #[track_caller]
    pub fn all_gather<T: Element>(&self, mine: &[T]) -> Result<Vec<Vec<T>>, Error> {
        let site = Location::caller().to_string();
        let Some(collectives) = self.collectives() else { return Ok(vec![mine.to_vec()]) };
        Ok(typed(&collectives.all_gather(cast_slice(mine), How { site: &site, by: self.deadline() })?))
    }

    /// Combines `array` over all nodes and returns this node's part of it; the first nodes take the remainder.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&self, array: &[T], op: ReduceOp) -> Result<Vec<T>, Error> {
        let site = Location::caller().to_string();
        let Some(collectives) = self.collectives() else { return Ok(array.to_vec()) };
        let part = collectives.reduce_scatter(cast_slice(array), T::DTYPE, op, How { site: &site, by: self.deadline() })?;
        Ok(pod_collect_to_vec(&part))
    }

    /// Sends part i to node i + 1, and returns what each node sent here.
    #[track_caller]
    pub fn all_to_all<T: Element>(&self, parts: &[&[T]]) -> Result<Vec<Vec<T>>, Error> {
        let site = Location::caller().to_string();
        self.check_parts(parts.len())?;
        let Some(collectives) = self.collectives() else { return Ok(vec![parts[0].to_vec()]) };
        let parts: Vec<&[u8]> = parts.iter().map(|part| cast_slice(part)).collect();
        Ok(typed(&collectives.all_to_all(&parts, How { site: &site, by: self.deadline() })?))
    }
}

fn typed<T: Element>(all: &[Vec<u8>]) -> Vec<Vec<T>> {
    all.iter().map(|bytes| pod_collect_to_vec(bytes)).collect()
}
