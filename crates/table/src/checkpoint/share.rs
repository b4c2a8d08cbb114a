//! Between the rows that live in a neighbourhood and the files.

use std::ops::Range;

use syncline_cluster::{Deadline, Error};

use super::{Checkpoint, SavedLane, SavedTable, ShardWriter};
use crate::share::Share;
use crate::updater::StateLane;
use crate::{Shape, Spec};

/// Copied at once on the way in.
const BUFFER: usize = 4 << 20;

/// A table of this job as a checkpoint will know it: the same in every process.
pub(crate) fn saved_table(spec: &Spec, name: &str, order: u32, workers: u32) -> SavedTable {
    let cols = spec.rows_and_cols().map_or(1, |(_, cols)| cols);
    let states = states(spec, workers).into_iter().map(|lane| SavedLane::new(lane.name, lane.dtype, cols));
    SavedTable::new(spec, name, order, states)
}

/// Announces `rows` of every lane of a share; several processes of a neighbourhood may each take some.
pub(crate) fn announce_share<'a>(
    shard: &mut ShardWriter<'a>,
    table: usize,
    share: &'a dyn Share,
    rows: Range<u64>,
    by: Deadline,
) -> Result<(), Error> {
    let first_here = share.rows().start;
    for lane in 0..share.lanes().len() {
        shard.rows(table, lane, rows.clone(), move |first, out| share.read_lane(lane, first - first_here, out, by))?;
    }
    Ok(())
}

/// Fills `rows` of a share from table number `table` of a checkpoint, which must be its counterpart.
///
/// States that the checkpoint lacks, of workers that the saved job did not have, begin as in a new table.
pub(crate) fn fill_share(
    checkpoint: &Checkpoint,
    table: usize,
    share: &dyn Share,
    rows: Range<u64>,
    spec: &Spec,
    workers: u32,
    by: Deadline,
) -> Result<(), Error> {
    let saved = &checkpoint.tables()[table];
    let first_here = share.rows().start;
    let states = states(spec, workers);
    for (number, lane) in share.lanes().iter().enumerate() {
        let cols = saved.lanes[0].cols;
        let its_own = saved.lane(&lane.name).filter(|(_, saved)| (saved.dtype, saved.cols) == (lane.dtype, cols));
        let source = match its_own {
            Some((place, _)) => Some(place),
            None => number.checked_sub(1).and_then(|state| states.get(state)).filter(|state| state.starts_as_value).map(|_| 0),
        };
        let at_once = (BUFFER / lane.row_bytes.max(1)).max(1) as u64;
        let mut buffer = Vec::new();
        let mut first = rows.start;
        while lane.row_bytes > 0 && first < rows.end {
            let last = rows.end.min(first + at_once);
            buffer.resize((last - first) as usize * lane.row_bytes, 0);
            if let Some(place) = source {
                checkpoint.read_rows(table, place, first..last, &mut buffer)?;
            }
            share.write_lane(number, first - first_here, &buffer, by)?;
            first = last;
        }
    }
    Ok(())
}

fn states(spec: &Spec, workers: u32) -> Vec<StateLane> {
    if spec.shape == Shape::Keys { Vec::new() } else { spec.updater.state_lanes(spec.dtype(), workers) }
}
