//! Trees: nodes that combine what they have, in the manner of torch-ipc.
//!
//! A [`Tree`] is a group of nodes, numbered from 1, that make the same calls in the same order. It stands on the job that
//! is already there ([`Session::tree`]) or on one of its own, which its constructors describe: nodes of one host that
//! find each other by themselves, nodes that know where the first one listens, the tasks of a Slurm step.
//! ```
//! use syncline::{ReduceOp, Session};
//!
//! let session = Session::solo()?;
//! let tree = session.tree()?;
//! let mut gradient = [0.5f32, 1.5];
//! let contributors = tree.all_reduce(&mut gradient, ReduceOp::Mean)?;
//! assert_eq!((contributors, gradient), (1, [0.5, 1.5]));
//! # Ok::<(), syncline::Error>(())
//! ```
//! **Uneven ends.** A node that has run out of data calls [`all_reduce_rest`](Tree::all_reduce_rest): it takes part with
//! zeros in whatever the others still do, and returns when nobody has anything left.

mod arrays;
mod found;
mod leaves;
mod nest;

use std::panic::Location;
use std::sync::Mutex;
use std::time::Duration;

use bytemuck::cast_slice_mut;
use syncline_cluster as cluster;
use syncline_cluster::Deadline;
use syncline_collective::{Collectives, How, Leaf, LinkReport};
use syncline_tensor::Element;
use syncline_tensor::kernels::ReduceOp;
use syncline_wire::Value;

use crate::{Error, Session};

pub use arrays::PendingReduction;
pub use found::TreeOptions;

/// How two leaves become one.
pub enum Reduce<'f> {
    /// By an operation that every node knows.
    By(ReduceOp),
    /// By a function: `f(mine, received)` once per leaf and child. All nodes must pass the same function.
    With(&'f mut LeafMerge<'f>),
}

/// What reduces two leaves to one.
pub type LeafMerge<'f> = dyn FnMut(Value<'static>, Value<'static>) -> Result<Value<'static>, Error> + 'f;

/// What makes the zero of a leaf, given the leaf and its number, for a node that has run out of data.
pub type Zero<'f> = dyn FnMut(Value<'static>, usize) -> Result<Value<'static>, Error> + 'f;

/// Nodes that combine what they have.
#[derive(Debug)]
pub struct Tree {
    /// None for a tree of one that belongs to no job.
    collectives: Option<Collectives>,
    node: u32,
    nodes: u32,
    gpu: Option<u32>,
    timeout: Duration,
    /// The value of the last ordinary call, whose structure a call without a value takes.
    last: Mutex<Option<Value<'static>>>,
    /// The job, where it is the tree's own.
    own: Option<Session>,
}

impl Session {
    /// The tree of all workers of this job; worker w is node w + 1.
    pub fn tree(&self) -> Result<Tree, Error> {
        let Some(worker) = self.worker_id() else {
            return Err(Error::configuration("a dedicated server is no node of a tree; its workers are"));
        };
        Ok(Tree {
            collectives: Some(self.collectives()?),
            node: worker + 1,
            nodes: self.num_workers(),
            gpu: None,
            timeout: self.timeout(),
            last: Mutex::default(),
            own: None,
        })
    }
}

impl Tree {
    /// A tree of one node, which needs nobody.
    pub fn null() -> Tree {
        Tree { collectives: None, node: 1, nodes: 1, gpu: None, timeout: Duration::from_secs(30), last: Mutex::default(), own: None }
    }

    /// A tree over a job of its own; whoever drops it leaves politely.
    fn over(session: Session) -> Result<Tree, Error> {
        let mut tree = session.tree()?;
        tree.own = Some(session);
        Ok(tree)
    }

    /// This node's number, from 1.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Which GPU of its host is this node's, from 1, where the launcher tells.
    pub fn gpu(&self) -> Option<u32> {
        self.gpu
    }

    /// The operations on raw bytes below this tree; none for a tree of one that belongs to no job.
    pub fn collectives(&self) -> Option<&Collectives> {
        self.collectives.as_ref()
    }

    /// How long a call waits for a node that neither comes nor dies.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When a call that begins now gives up.
    pub fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// Combines `array` over all nodes, in place and in order of node; returns how many had data of their own.
    #[track_caller]
    pub fn all_reduce<T: Element>(&self, array: &mut [T], op: ReduceOp) -> Result<u32, Error> {
        let site = Location::caller().to_string();
        self.numbers(array, op, true, How { site: &site, by: self.deadline() })
    }

    /// What a node calls once that has no more data: with zeros it joins the calls of the others until nobody has any left.
    ///
    /// `array` must be as long as theirs. It returns 0, and `array` holds zeros. Not for minima, maxima and products,
    /// of which zero is not the neutral element: see [`all_reduce_value`](Tree::all_reduce_value).
    #[track_caller]
    pub fn all_reduce_rest<T: Element>(&self, array: &mut [T], op: ReduceOp) -> Result<u32, Error> {
        let site = Location::caller().to_string();
        loop {
            cast_slice_mut::<T, u8>(array).fill(0);
            if self.numbers(array, op, false, How { site: &site, by: self.deadline() })? == 0 {
                return Ok(0);
            }
        }
    }

    fn numbers<T: Element>(&self, array: &mut [T], op: ReduceOp, contributes: bool, how: How<'_>) -> Result<u32, Error> {
        match &self.collectives {
            None => Ok(u32::from(contributes)),
            Some(collectives) => Ok(collectives.all_reduce(cast_slice_mut(array), T::DTYPE, op, contributes, how)?),
        }
    }

    /// Combines a nested value, leaf by leaf in one operation; returns it with the number of nodes that had data.
    ///
    /// Leaves are visited in an order that all nodes share: lists in order, maps by key. With `zero` this node has no more
    /// data: each leaf becomes `zero(leaf, number)`, and the call joins those of the others until nobody has data left.
    /// A node that made an ordinary call before may then leave out the value.
    pub fn all_reduce_value(
        &self,
        value: Option<Value<'static>>,
        mut reduce: Reduce<'_>,
        mut zero: Option<&mut Zero<'_>>,
        how: How<'_>,
    ) -> Result<(Value<'static>, u32), Error> {
        let value = match value {
            Some(value) => value,
            None => self.last.lock().expect("no panic while held").clone().ok_or_else(|| {
                Error::configuration(
                    "all_reduce: no value, and no earlier call whose value would do\nhint: pass a value of the others' structure",
                )
            })?,
        };
        let Some(zero) = &mut zero else {
            let reduced = self.nest(value, &mut reduce, true, how)?;
            *self.last.lock().expect("no panic while held") = Some(reduced.0.clone());
            return Ok(reduced);
        };
        loop {
            let mut round = value.clone();
            let mut number = 0;
            nest::walk(&mut round, &mut |_, leaf| {
                *leaf = zero(std::mem::take(leaf), number).map_err(|error| error.into_inner())?;
                number += 1;
                Ok(())
            })?;
            let reduced = self.nest(round, &mut reduce, false, How { by: self.deadline(), ..how })?;
            if reduced.1 == 0 {
                return Ok(reduced);
            }
        }
    }

    fn nest(
        &self,
        value: Value<'static>,
        reduce: &mut Reduce<'_>,
        contributes: bool,
        how: How<'_>,
    ) -> Result<(Value<'static>, u32), Error> {
        let Some(collectives) = &self.collectives else { return Ok((value, u32::from(contributes))) };
        match reduce {
            Reduce::By(op) => reduce_numbers(collectives, value, *op, contributes, how),
            Reduce::With(merge) => {
                let mut value = value;
                let (structure, fingerprint) = (nest::structure(&mut value)?, nest::fingerprint(&mut value)?);
                leaves::fold(collectives, &value, &structure, fingerprint, &mut **merge, contributes, how)
            }
        }
    }

    /// Gives everybody the value of node `root`.
    pub fn broadcast_value(&self, value: &Value<'_>, root: u32, how: How<'_>) -> Result<Value<'static>, Error> {
        let root = self.position(root)?;
        let Some(collectives) = &self.collectives else { return Ok(value.clone().into_owned()) };
        let message = (collectives.group().position() == root).then(|| nest::to_message(value)).transpose()?;
        let received = collectives.broadcast_message(message.as_deref(), root, how)?;
        Ok(nest::from_message(&received)?.into_owned())
    }

    /// Node 1's value for everybody: what torch-ipc calls scatter.
    pub fn scatter_value(&self, value: &Value<'_>, how: How<'_>) -> Result<Value<'static>, Error> {
        self.broadcast_value(value, 1, how)
    }

    /// Everybody's values at node `root`, by node; None elsewhere. They need not be alike.
    pub fn gather_value(&self, value: &Value<'_>, root: u32, how: How<'_>) -> Result<Option<Vec<Value<'static>>>, Error> {
        let Some(collectives) = &self.collectives else { return Ok(Some(vec![value.clone().into_owned()])) };
        collectives.gather(&nest::to_message(value)?, self.position(root)?, how)?.map(|all| values(&all)).transpose()
    }

    /// Everybody's values, by node. They need not be alike.
    pub fn all_gather_value(&self, value: &Value<'_>, how: How<'_>) -> Result<Vec<Value<'static>>, Error> {
        let Some(collectives) = &self.collectives else { return Ok(vec![value.clone().into_owned()]) };
        values(&collectives.all_gather(&nest::to_message(value)?, how)?)
    }

    /// Sends value i of `parts` to node i + 1, and returns what each node sent here.
    pub fn all_to_all_value(&self, parts: &[Value<'_>], how: How<'_>) -> Result<Vec<Value<'static>>, Error> {
        self.check_parts(parts.len())?;
        let Some(collectives) = &self.collectives else { return Ok(vec![parts[0].clone().into_owned()]) };
        let messages = parts.iter().map(nest::to_message).collect::<Result<Vec<_>, _>>()?;
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        values(&collectives.all_to_all(&messages, how)?)
    }

    /// Returns when every node has called it.
    #[track_caller]
    pub fn barrier(&self) -> Result<(), Error> {
        let site = Location::caller().to_string();
        self.barrier_at(How { site: &site, by: self.deadline() })
    }

    /// [`barrier`](Tree::barrier) for a caller that knows better where the user's call stands.
    pub fn barrier_at(&self, how: How<'_>) -> Result<(), Error> {
        self.collectives.as_ref().map_or(Ok(()), |collectives| Ok(collectives.barrier(how)?))
    }

    /// What went over links, one report per peer; inside a host nothing does.
    pub fn net_stats(&self) -> Vec<LinkReport> {
        self.collectives.as_ref().map(Collectives::stats).unwrap_or_default()
    }

    /// Leaves the job, if it is the tree's own; a second call does nothing. Dropping a tree does the same.
    pub fn close(&self) -> Result<(), Error> {
        self.own.as_ref().map_or(Ok(()), Session::shutdown)
    }

    /// Leaves the job, if it is the tree's own, because this process failed; the others hear why.
    pub fn abort(&self, reason: &str) {
        if let Some(session) = &self.own {
            session.abort(reason);
        }
    }

    /// Whether the job is the tree's own, rather than that of a session.
    pub fn has_own_job(&self) -> bool {
        self.own.is_some()
    }

    fn check_parts(&self, parts: usize) -> Result<(), Error> {
        if parts == self.nodes as usize {
            return Ok(());
        }
        let detail = format!("{parts} parts for {} nodes", self.nodes);
        Err(cluster::Error::ShapeMismatch { operation: "all_to_all".into(), detail }.into())
    }

    fn position(&self, node: u32) -> Result<usize, Error> {
        if (1..=self.nodes).contains(&node) {
            return Ok(node as usize - 1);
        }
        Err(Error::configuration(format!("there is no node {node}: they are numbered from 1 to {}", self.nodes)))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // After a panic the others should hear of a failure, which dropping the session tells them.
        if let Some(session) = self.own.as_ref().filter(|_| !std::thread::panicking()) {
            let _ = session.shutdown_by(self.deadline());
        }
    }
}

/// Calls `visit` with every leaf of a nested value and its path, in the order in which trees visit them.
pub fn walk_leaves(value: &mut Value<'static>, visit: &mut dyn FnMut(&str, &mut Value<'static>)) -> Result<(), Error> {
    Ok(nest::walk(value, &mut |path, leaf| {
        visit(path, leaf);
        Ok(())
    })?)
}

fn reduce_numbers(
    collectives: &Collectives,
    mut value: Value<'static>,
    op: ReduceOp,
    contributes: bool,
    how: How<'_>,
) -> Result<(Value<'static>, u32), Error> {
    let mut places = Vec::new();
    let mut numbers = Vec::new();
    let mut names = Vec::new();
    nest::walk(&mut value, &mut |path, leaf| {
        numbers.push(nest::Numbers::take(path, leaf)?);
        names.push(path.to_owned());
        places.push(leaf);
        Ok(())
    })?;
    let mut leaves: Vec<Leaf<'_>> = numbers
        .iter_mut()
        .zip(&names)
        .map(|(one, name)| Leaf { name, dtype: one.dtype, shape: one.shape.clone(), bytes: &mut one.bytes })
        .collect();
    let contributors = collectives.all_reduce_leaves(&mut leaves, op, contributes, how)?;
    for (place, one) in places.into_iter().zip(numbers) {
        let leaf = one.into_leaf(place);
        *place = leaf;
    }
    Ok((value, contributors))
}

fn values(messages: &[Vec<u8>]) -> Result<Vec<Value<'static>>, Error> {
    messages.iter().map(|message| Ok(nest::from_message(message)?.into_owned())).collect()
}
