//! How the writers of a save tell the one who commits what they wrote: by a small file beside each shard.
//!
//! They lie in the folder only between the writing and the commit; what a crash leaves is removed by the next save.

use std::fs;
use std::path::Path;

use syncline_cluster::Error;

use super::folder::record_name;
use super::{ShardRecord, saving, system};

/// Leaves the record of a finished shard.
pub(crate) fn leave(path: &Path, generation: u64, record: &ShardRecord) -> Result<(), Error> {
    let operation = saving(path);
    let text = serde_json::to_vec(record).map_err(|error| system(&operation, error))?;
    let file = path.join(record_name(record.writer, generation));
    fs::write(&file, text).map_err(|error| system(&operation, format_args!("cannot write {}: {error}", file.display())))
}

/// Reads the records of all writers.
pub(crate) fn collect(path: &Path, generation: u64, writers: u32) -> Result<Vec<ShardRecord>, Error> {
    let operation = saving(path);
    (0..writers)
        .map(|writer| {
            let file = path.join(record_name(writer, generation));
            let text = fs::read(&file).map_err(|error| {
                system(&operation, format_args!("worker {writer} left no record of its file ({}: {error})\nhint: workers on several hosts need a path that all of them share", file.display()))
            })?;
            serde_json::from_slice(&text).map_err(|error| system(&operation, format_args!("{}: {error}", file.display())))
        })
        .collect()
}

/// Removes them.
pub(crate) fn remove(path: &Path, generation: u64, writers: u32) {
    for writer in 0..writers {
        let _ = fs::remove_file(path.join(record_name(writer, generation)));
    }
}
