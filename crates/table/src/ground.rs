//! What the making of a table needs of its job. It keeps no job open, so that threads that serve may hold it.

use std::sync::Arc;

use syncline_cluster::{Job, Vigil};
use syncline_shm::heap::Heap;

use crate::arrays::Arrays;
use crate::spread::Gates;

/// Where tables stand.
pub(crate) struct Ground {
    pub(crate) vigil: Vigil,
    pub(crate) heap: Arc<Heap>,
    /// The ranks that share memory, each list ascending, ordered by their first ranks.
    pub(crate) neighbourhoods: Vec<Vec<u32>>,
    /// Ranks of the workers, by worker.
    pub(crate) workers: Vec<u32>,
    /// Ranks that keep parts of tables.
    pub(crate) servers: Vec<u32>,
    pub(crate) arrays: Arc<Arrays>,
    /// The turns of what this process sends, by peer.
    pub(crate) gates: Gates,
}

impl Ground {
    pub(crate) fn of(job: &Job) -> Ground {
        let topology = job.topology();
        Ground {
            vigil: job.vigil(),
            heap: Arc::clone(job.heap()),
            neighbourhoods: job.neighbourhoods(),
            workers: topology.workers(),
            servers: topology.servers(),
            arrays: Arrays::of(job),
            gates: Gates::default(),
        }
    }

    /// This process's rank.
    pub(crate) fn me(&self) -> u32 {
        self.vigil.me()
    }

    /// This process's number as a worker; none on a dedicated server.
    pub(crate) fn worker(&self) -> Option<u32> {
        self.workers.iter().position(|rank| *rank == self.me()).map(|worker| worker as u32)
    }

    /// The ranks that are over, as far as this process knows: they keep nothing that is made from now on.
    pub(crate) fn gone(&self) -> Vec<u32> {
        (0..self.vigil.topology().world()).filter(|rank| self.vigil.is_over(*rank)).collect()
    }

    /// These ranks, and those that left politely as far as this process knows. A worker leaves between two agreements and is told of before the
    /// next one comes about, so right after an agreement all who took part know of the same ones.
    pub(crate) fn and_left(&self, mut gone: Vec<u32>) -> Vec<u32> {
        gone.extend((0..self.vigil.topology().world()).filter(|rank| self.vigil.has_left(*rank)));
        gone.sort_unstable();
        gone.dedup();
        gone
    }

    /// Whether memory does not reach everybody.
    pub(crate) fn has_links(&self) -> bool {
        self.neighbourhoods.len() > 1
    }
}
