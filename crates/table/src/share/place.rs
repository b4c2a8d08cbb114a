//! Where a share lies: which rows of which table, who shares its memory, and how that is laid out.

use std::ops::Range;
use std::sync::Arc;

use syncline_cluster::Vigil;
use syncline_shm::bulletin::Bulletin;
use syncline_shm::outbox::Outbox;
use syncline_shm::store::Layout;

use crate::arrays::Arrays;
use crate::gradient;
use crate::updater::StateLane;
use crate::{Spec, Updater};

/// Bytes of values that one stripe holds.
pub(super) const STRIPE: usize = 64 << 10;

/// What a share needs to know of its surroundings.
pub(crate) struct Place {
    /// How the table is called in errors: `table 3 (w)`.
    pub(crate) title: String,
    pub(crate) spec: Spec,
    /// The table's rows that live here.
    pub(crate) rows: Range<u64>,
    /// Ranks of the workers of the whole job, by worker.
    pub(crate) workers: Vec<u32>,
    /// Ranks of this neighbourhood, by hand.
    pub(crate) hands: Vec<u32>,
    /// The rank that owns each worker's outbox here: the worker itself if it is a neighbour, else the server it talks to.
    pub(crate) owners: Vec<u32>,
    pub(crate) vigil: Vigil,
    /// Where deltas stand that were not copied.
    pub(crate) arrays: Arc<Arrays>,
    /// Where the rules of a gradient table hang.
    pub(crate) board: Option<Bulletin>,
}

impl Place {
    pub(crate) fn state_lanes(&self) -> Vec<StateLane> {
        self.spec.updater.state_lanes(self.spec.dtype(), self.workers.len() as u32)
    }

    /// The layout of the store, which every neighbour derives alike.
    pub(crate) fn layout(&self) -> Layout {
        let (_, cols) = self.spec.rows_and_cols().expect("a table with rows");
        let rows = self.rows.end - self.rows.start;
        let element = self.spec.dtype().size();
        let mut lanes = vec![element];
        lanes.extend(self.state_lanes().iter().map(|lane| lane.dtype.size()));
        let most = (STRIPE / element) as u64;
        // Whole rows to a stripe where they fit, so that a row is one change.
        let stripe = if cols > 0 && cols <= most { most / cols * cols } else { most };
        let stamps = if matches!(self.spec.shape, crate::Shape::Matrix { .. }) { rows } else { 0 };
        let ahead = if self.spec.updater == Updater::Gradient { 1 } else { lanes.len() };
        let mut layout = Layout { hands: self.hands.len(), elements: rows * cols, lanes, stripe, stamps, ahead, measures: 0 };
        if self.spec.updater == Updater::Gradient {
            layout.measures = gradient::pieces(&layout);
        }
        layout
    }

    /// Bytes of an outbox here: two whole tables and some, of which only what is used costs memory.
    pub(crate) fn outbox_bytes(&self) -> usize {
        let whole = (self.rows.end - self.rows.start) as usize * (self.spec.row_bytes() + 8);
        Outbox::bytes((2 * whole + (64 << 20)).next_multiple_of(4096))
    }
}

/// Bytes of the lanes whose memory is taken when a store is made. Those of states, which may never be used, do not make a table large.
pub(crate) fn bytes_ahead(layout: &Layout) -> usize {
    layout.lanes[..layout.ahead].iter().sum::<usize>() * layout.elements as usize
}
