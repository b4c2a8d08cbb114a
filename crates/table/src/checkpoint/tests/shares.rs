//! Shares are saved and filled again, by other numbers of servers and workers.

use std::sync::Mutex;

use syncline_cluster::Deadline;

use super::share::{announce_share, fill_share, saved_table};
use super::*;
use crate::AddOptions;
use crate::share::{LaneInfo, Selection, Share};

/// Rows in plain memory: all that saving and loading needs of a share.
struct Plain {
    rows: Range<u64>,
    lanes: Vec<(LaneInfo, Mutex<Vec<u8>>)>,
}

impl Plain {
    fn new(table: &SavedTable, rows: Range<u64>) -> Plain {
        let lane = |lane: &SavedLane| {
            let row_bytes = lane.row_bytes().unwrap() as usize;
            let bytes = vec![0xee; row_bytes * (rows.end - rows.start) as usize];
            (LaneInfo { name: lane.name.clone(), dtype: lane.dtype, row_bytes }, Mutex::new(bytes))
        };
        Plain { lanes: table.lanes.iter().map(lane).collect(), rows }
    }

    fn lane(&self, name: &str) -> Vec<u8> {
        self.lanes.iter().find(|(lane, _)| lane.name == name).unwrap().1.lock().unwrap().clone()
    }
}

impl Share for Plain {
    fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    fn lanes(&self) -> Vec<LaneInfo> {
        self.lanes.iter().map(|(lane, _)| lane.clone()).collect()
    }

    fn read_lane(&self, lane: usize, first_row: u64, out: &mut [u8], _: Deadline) -> Result<(), Error> {
        let begin = first_row as usize * self.lanes[lane].0.row_bytes;
        out.copy_from_slice(&self.lanes[lane].1.lock().unwrap()[begin..begin + out.len()]);
        Ok(())
    }

    fn write_lane(&self, lane: usize, first_row: u64, bytes: &[u8], _: Deadline) -> Result<(), Error> {
        let begin = first_row as usize * self.lanes[lane].0.row_bytes;
        self.lanes[lane].1.lock().unwrap()[begin..begin + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn stage(
        &self,
        _: u32,
        _: u64,
        _: Selection<'_>,
        _: &AddOptions,
        _: &mut dyn FnMut(&mut [u8]) -> Result<(), Error>,
        _: Deadline,
    ) -> Result<(), Error> {
        unreachable!("no adds here")
    }

    fn publish(&self, _: u32, _: u64) -> Result<(), Error> {
        unreachable!("no adds here")
    }

    fn discard(&self, _: u32, _: u64) {}

    fn published(&self, _: u32) -> u64 {
        0
    }

    fn settle(&self, _: u32, _: u64, _: Deadline) -> Result<(), Error> {
        unreachable!("no adds here")
    }

    fn read(&self, _: u32, _: u64, _: Selection<'_>, _: &mut dyn FnMut(&[u8]) -> Result<(), Error>, _: Deadline) -> Result<(), Error> {
        unreachable!("no gets here")
    }

    fn read_changed(&self, _: u32, _: u64, _: Deadline) -> Result<(Vec<i64>, Vec<u8>), Error> {
        unreachable!("no gets here")
    }

    fn finish(&self, _: u32) {}
}

/// Saves with 2 workers and two shares, loads with `workers` and three; returns the lanes of the whole table.
fn moved(updater: Updater, workers: u32, lane: &str) -> (Vec<u8>, Vec<u8>) {
    let scratch = tempfile::tempdir().unwrap();
    let by = Deadline::never();
    let spec = Spec::matrix(11, 3).with_dtype(DType::BF16).with_updater(updater).named("w");
    let old = vec![saved_table(&spec, "w", 0, 2)];
    let shares: Vec<Plain> = (0..2).map(|writer| Plain::new(&old[0], part(11, writer, 2))).collect();
    let generation = prepare(scratch.path()).unwrap();
    let mut records = Vec::new();
    for (writer, share) in shares.iter().enumerate() {
        for (number, (lane, bytes)) in share.lanes.iter().enumerate() {
            fill(9, 0, number, share.rows.start * lane.row_bytes as u64, &mut bytes.lock().unwrap());
        }
        let mut shard = ShardWriter::create(scratch.path(), generation, writer as u32, 2, &old).unwrap();
        announce_share(&mut shard, 0, share, share.rows(), by).unwrap();
        records.push(shard.finish().unwrap());
    }
    Manifest::new(generation, old.clone(), records).commit(scratch.path()).unwrap();

    let checkpoint = Checkpoint::open(scratch.path(), Verify::Checksums).unwrap();
    let new = saved_table(&spec, "w", 0, workers);
    assert_eq!(checkpoint.counterparts(std::slice::from_ref(&new)).unwrap(), [0]);
    let mut found = Vec::new();
    for writer in 0..3 {
        let share = Plain::new(&new, part(11, writer, 3));
        fill_share(&checkpoint, 0, &share, share.rows(), &spec, workers, by).unwrap();
        found.extend(share.lane(lane));
    }
    let before = shares
        .iter()
        .flat_map(|share| share.lanes.iter().any(|(known, _)| known.name == lane).then(|| share.lane(lane)).unwrap_or_default());
    (before.collect(), found)
}

#[test]
fn every_lane_moves_to_other_shares() {
    for (updater, lanes) in [
        (Updater::Add, &["value"][..]),
        (Updater::MomentumSgd, &["value", "momentum"]),
        (Updater::Adagrad, &["value", "history.0", "history.1"]),
        (Updater::Dcasgda, &["value", "backup.1", "mean_square"]),
    ] {
        for lane in lanes {
            let (before, after) = moved(updater, 2, lane);
            assert!(!before.is_empty() && before == after, "{updater}: {lane}");
        }
    }
}

#[test]
fn workers_that_are_new_begin_as_in_a_new_table() {
    let (before, history) = moved(Updater::Adagrad, 3, "history.2");
    assert!(before.is_empty());
    assert_eq!(history, vec![0; 11 * 3 * 4], "no history");
    assert_eq!(moved(Updater::Dcasgda, 3, "backup.2").1, moved(Updater::Dcasgda, 3, "value").1, "as if it had just got the values");
    let (before, after) = moved(Updater::Dcasgda, 3, "mean_square");
    assert_eq!(before, after, "the last lane moved to another place");
    let (before, after) = moved(Updater::Adagrad, 1, "history.0");
    assert_eq!(before, after, "fewer workers take what is theirs");
}
