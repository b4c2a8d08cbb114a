//! The collectives of a job and a group: which call's turn it is, and by which way it goes.

mod pending;

use std::sync::Arc;

use syncline_cluster::{Error, Group, Job};
use syncline_tensor::DType;
use syncline_tensor::kernels::ReduceOp;
use syncline_wire::Fingerprint;

use crate::{How, Leaf, LinkReport, PlanSettings};

pub use pending::Pending;

/// What [`Collectives::fold`] merges messages with: one's own and a child's become one.
pub type Merge<'a> = dyn FnMut(Vec<u8>, Vec<u8>) -> Result<Vec<u8>, Error> + 'a;

/// The collective operations of one group. All its members make the same calls in the same order.
///
/// Positions are places in the group, from 0. Clones are handles on the same group; calls of several threads run in
/// the order in which they were issued.
#[derive(Clone)]
pub struct Collectives {
    shared: Arc<Shared>,
}

struct Shared {
    job: Arc<Job>,
    group: Group,
    settings: PlanSettings,
}

impl Collectives {
    /// The collectives of `group`, a group of `job`. Nothing is exchanged before the first call.
    pub fn new(job: Arc<Job>, group: Group, settings: PlanSettings) -> Collectives {
        Collectives { shared: Arc::new(Shared { job, group, settings }) }
    }

    /// Who takes part.
    pub fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Combines `array` over all members, in place and in group order; returns how many contributed.
    ///
    /// Who does not contribute brings zeros of its own making, is not counted and gets the result all the same.
    pub fn all_reduce(&self, array: &mut [u8], dtype: DType, op: ReduceOp, contributes: bool, how: How<'_>) -> Result<u32, Error> {
        let _ = (array, dtype, op, contributes, how);
        self.not_built_yet("all_reduce")
    }

    /// [`all_reduce`](Collectives::all_reduce) of several arrays at once: the contract covers all of them.
    pub fn all_reduce_leaves(&self, leaves: &mut [Leaf<'_>], op: ReduceOp, contributes: bool, how: How<'_>) -> Result<u32, Error> {
        let _ = (leaves, op, contributes, how);
        self.not_built_yet("all_reduce")
    }

    /// Combines `array` over all members into the array of `root`; the others' stay as they are.
    pub fn reduce(&self, array: &mut [u8], dtype: DType, op: ReduceOp, root: usize, how: How<'_>) -> Result<(), Error> {
        let _ = (array, dtype, op, root, how);
        self.not_built_yet("reduce")
    }

    /// Makes everybody's `array` that of `root`.
    pub fn broadcast(&self, array: &mut [u8], dtype: DType, root: usize, how: How<'_>) -> Result<(), Error> {
        let _ = (array, dtype, root, how);
        self.not_built_yet("broadcast")
    }

    /// Hands `root`'s message to everybody. Only the root brings one, of any length.
    pub fn broadcast_message(&self, message: Option<&[u8]>, root: usize, how: How<'_>) -> Result<Vec<u8>, Error> {
        let _ = (message, root, how);
        self.not_built_yet("broadcast")
    }

    /// Collects everybody's bytes, of any lengths, at `root`, by position; None elsewhere.
    pub fn gather(&self, mine: &[u8], root: usize, how: How<'_>) -> Result<Option<Vec<Vec<u8>>>, Error> {
        let _ = (mine, root, how);
        self.not_built_yet("gather")
    }

    /// Collects everybody's bytes, of any lengths, by position.
    pub fn all_gather(&self, mine: &[u8], how: How<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let _ = (mine, how);
        self.not_built_yet("all_gather")
    }

    /// Gives each member its part of what `root` brings: one per position, of any lengths.
    pub fn scatter(&self, parts: Option<&[&[u8]]>, root: usize, how: How<'_>) -> Result<Vec<u8>, Error> {
        let _ = (parts, root, how);
        self.not_built_yet("scatter")
    }

    /// Combines `array` over all members and returns this position's part; the first positions take the remainder.
    pub fn reduce_scatter(&self, array: &[u8], dtype: DType, op: ReduceOp, how: How<'_>) -> Result<Vec<u8>, Error> {
        let _ = (array, dtype, op, how);
        self.not_built_yet("reduce_scatter")
    }

    /// Sends part p to position p, and returns what each position sent here.
    pub fn all_to_all(&self, parts: &[&[u8]], how: How<'_>) -> Result<Vec<Vec<u8>>, Error> {
        let _ = (parts, how);
        self.not_built_yet("all_to_all")
    }

    /// Returns when every member has called it.
    pub fn barrier(&self, how: How<'_>) -> Result<(), Error> {
        let _ = how;
        self.not_built_yet("barrier")
    }

    /// Folds messages along a tree: `merge(mine, received)` once per child, children in ascending order; the root's message
    /// goes to all. Returns it with the number of contributors.
    pub fn fold(
        &self,
        mine: Vec<u8>,
        words: &str,
        fingerprint: Fingerprint,
        contributes: bool,
        merge: &mut Merge<'_>,
        how: How<'_>,
    ) -> Result<(Vec<u8>, u32), Error> {
        let _ = (mine, words, fingerprint, contributes, merge, how);
        self.not_built_yet("fold")
    }

    /// Begins an [`all_reduce`](Collectives::all_reduce) that runs while the caller does something else.
    pub fn all_reduce_start<B: AsMut<[u8]> + Send + 'static>(
        &self,
        array: B,
        dtype: DType,
        op: ReduceOp,
        contributes: bool,
        how: How<'_>,
    ) -> Pending<B> {
        let _ = (array, dtype, op, contributes, how);
        Pending::failed(self.not_built_yet::<()>("all_reduce").expect_err("it is not built"))
    }

    /// What went over links, one report per peer. Inside a host nothing does.
    pub fn stats(&self) -> Vec<LinkReport> {
        Vec::new()
    }

    fn not_built_yet<T>(&self, operation: &str) -> Result<T, Error> {
        Err(Error::Configuration { detail: format!("{operation} is not built yet ({:?}, {:?})", self.shared.job, self.shared.settings) })
    }
}

impl std::fmt::Debug for Collectives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collectives({:?} of {:?})", self.shared.group.ranks(), self.shared.job)
    }
}
