//! One part of a table: the rows that one neighbourhood holds, and what may be asked of them.
//!
//! An add is *staged* (its bytes are here, it does not count) and then *published* (it counts, whoever dies). Everything
//! that needs several shares to agree is built on these two steps, outside of this folder.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_tensor::DType;

use crate::AddOptions;

/// Which rows. Ids are table-wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection<'a> {
    /// All that the share holds, in order.
    All,
    /// These, in this order; they may repeat.
    Rows(&'a [i64]),
}

/// One array of a share: the values or a state of the updater.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneInfo {
    /// `value`, `momentum`, `history.0`, …
    pub(crate) name: String,
    /// What its elements are.
    pub(crate) dtype: DType,
    /// Bytes of one row of it.
    pub(crate) row_bytes: usize,
}

/// What workers, near and far, do to the rows of one neighbourhood.
pub(crate) trait Share: Send + Sync {
    /// The table's rows that live here.
    fn rows(&self) -> Range<u64>;

    /// Takes over add number `sequence` (1, 2, 3 … per worker and share, without gaps) of `worker` without making it count.
    /// `fill` writes the delta bytes in place (may be a socket read).
    /// `Selection::Rows(&[])` is a pure tick of the clock. Ids outside of `rows()` are an error that changes nothing.
    fn stage(
        &self,
        worker: u32,
        sequence: u64,
        rows: Selection<'_>,
        options: &AddOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error>;

    /// Makes a staged add count; a repeated or older number is dropped.
    fn publish(&self, worker: u32, sequence: u64) -> Result<(), Error>;

    /// Forgets a staged add, which will never count.
    fn discard(&self, worker: u32, sequence: u64);

    /// The number of the last add of `worker` that counts.
    fn published(&self, worker: u32) -> u64;

    /// Returns when the worker's adds up to `sequence` are applied. (In sync mode that needs the other workers' rounds.)
    fn settle(&self, worker: u32, sequence: u64, by: Deadline) -> Result<(), Error>;

    /// Fetches for a worker that has made `own_adds` adds here: waits as the table's consistency asks, then hands out the
    /// bytes in order in pieces (each piece consistent).
    fn read(
        &self,
        worker: u32,
        own_adds: u64,
        rows: Selection<'_>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error>;

    /// The ids, ascending, and the bytes of the rows that others changed since this worker's last call.
    fn read_changed(&self, worker: u32, own_adds: u64, by: Deadline) -> Result<(Vec<i64>, Vec<u8>), Error>;

    /// No clock waits for this worker any more.
    fn finish(&self, worker: u32);

    /// The arrays that [`read_lane`](Share::read_lane) and [`write_lane`](Share::write_lane) know: lane 0 is the values,
    /// the others are the updater's states.
    fn lanes(&self) -> Vec<LaneInfo>;

    /// Raw copy of a lane from the table-wide row `first_row` on, as many rows as `out` holds. No updater, no clock.
    fn read_lane(&self, lane: usize, first_row: u64, out: &mut [u8], by: Deadline) -> Result<(), Error>;

    /// The reverse of [`read_lane`](Share::read_lane): initial values and checkpoints.
    fn write_lane(&self, lane: usize, first_row: u64, bytes: &[u8], by: Deadline) -> Result<(), Error>;
}
