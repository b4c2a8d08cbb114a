//! The rows of a table that live in one neighbourhood, and the workers' adds on their way into them.
#![doc = include_str!("README.md")]

mod apply;
mod changed;
mod direct;
mod emit;
mod lending;
mod local;
mod order;
mod parts;
mod place;
mod replica;
mod rescue;
mod rounds;
mod taking;
mod tally;
#[cfg(all(test, debug_assertions))]
mod tests;
mod turns;

use std::ops::Range;

use syncline_cluster::{Deadline, Error};
use syncline_tensor::DType;

use crate::AddOptions;
pub(crate) use apply::Add;
pub(crate) use emit::Emit;
pub(crate) use local::{LocalShare, lanes};
pub(crate) use place::{Place, bytes_ahead};
pub(crate) use rounds::{Steps, all_done};

/// Which rows. Ids are table-wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection<'a> {
    /// All rows of the share, in order.
    All,
    /// These, in this order; repeated ids mean what they say.
    Rows(&'a [i64]),
}

/// One lane of numbers beside each row: the values themselves, or a state of the updater.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LaneInfo {
    /// `value`, `momentum`, `history.0` …
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) row_bytes: usize,
}

/// A contiguous range of a table's rows as their keeper offers them, to workers of this neighbourhood and of others.
pub(crate) trait Share: Send + Sync {
    /// The table's rows that live here.
    fn rows(&self) -> Range<u64>;

    /// Takes over add number `sequence` (1, 2, 3 … per worker and share, without gaps) of `worker` without making it
    /// count. `fill` writes the delta bytes in place. `Selection::Rows(&[])` is a pure tick of the clock. Ids outside of
    /// `rows()` are an error that changes nothing.
    fn stage(
        &self,
        worker: u32,
        sequence: u64,
        rows: Selection<'_>,
        options: &AddOptions,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error>;

    /// Makes a staged add count. A repeated or older number is dropped.
    fn publish(&self, worker: u32, sequence: u64) -> Result<(), Error>;

    /// Forgets a staged add.
    fn discard(&self, worker: u32, sequence: u64);

    /// How many adds of `worker` count.
    fn published(&self, worker: u32) -> u64;

    /// Returns when the worker's adds up to `sequence` are applied. In sync mode that needs the others' rounds.
    fn settle(&self, worker: u32, sequence: u64, by: Deadline) -> Result<(), Error>;

    /// Fetches for a worker that has made `own_adds` adds here: waits as the table's consistency asks, then hands out
    /// the bytes in order in pieces, each of them consistent.
    fn read(
        &self,
        worker: u32,
        own_adds: u64,
        rows: Selection<'_>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
        by: Deadline,
    ) -> Result<(), Error>;

    /// Rows that others changed since this worker's last call: ids ascending, and their bytes.
    ///
    /// `received` is how many answers arrived so far where they may get lost on the way: what a lost one told comes again.
    fn read_changed(&self, worker: u32, own_adds: u64, received: Option<u64>, by: Deadline) -> Result<(Vec<i64>, Vec<u8>), Error>;

    /// No clock waits for this worker any more.
    fn finish(&self, worker: u32);

    /// Workers that may still come; whoever keeps the share stays for them.
    fn unfinished(&self) -> Vec<u32>;

    /// The lanes, values first.
    fn lanes(&self) -> Vec<LaneInfo>;

    /// Copies rows of a lane as they are, from the table's row `first_row` on, as many as `out` holds.
    fn read_lane(&self, lane: usize, first_row: u64, out: &mut [u8], by: Deadline) -> Result<(), Error>;

    /// Overwrites rows of a lane; no updater, no clock.
    fn write_lane(&self, lane: usize, first_row: u64, bytes: &[u8], by: Deadline) -> Result<(), Error>;
}
