//! Checkpoints: folders of safetensors files that any number of servers write together and any number read.
//!
//! ```text
//! path/
//! ├── manifest.json                          what there is and where; written last, by one
//! ├── shard-0000-of-0002.7.safetensors       the rows that server 0 held when generation 7 was saved
//! └── shard-0001-of-0002.7.safetensors
//! ```
//! A save goes through four steps, and only the third, which is one rename, changes what a reader finds:
//! 1. one process calls [`prepare`] and tells the others the number of the new generation;
//! 2. each server writes its rows with a [`ShardWriter`] and hands its [`ShardRecord`] to that one process;
//! 3. it commits the [`Manifest`];
//! 4. which then removes the files of older generations and of saves that never finished.
//!
//! Whoever dies on the way leaves the old checkpoint or the new one, whole. Nothing here knows of clusters: who calls
//! what is the caller's business. Memory: one buffer of a few MiB, however large the tables are.

//!
//! ```
//! use syncline_table::checkpoint::{Checkpoint, Manifest, SavedTable, ShardWriter, Verify, prepare};
//! # use syncline_table::Spec;
//! # let scratch = tempfile::tempdir()?;
//! # let path = &scratch.path().join("model");
//! let tables = vec![SavedTable::new(&Spec::array(4).named("w"), "w", 0, [])];
//! let generation = prepare(path)?;
//! let mut records = Vec::new();
//! for (writer, rows) in [(0, 0..3), (1, 3..4)] {
//!     let mut shard = ShardWriter::create(path, generation, writer, 2, &tables)?;
//!     shard.rows(0, 0, rows, |first, out| {
//!         out.fill(first as u8); // a server copies its rows here
//!         Ok(())
//!     })?;
//!     records.push(shard.finish()?);
//! }
//! Manifest::new(generation, tables, records).commit(path)?;
//!
//! let saved = Checkpoint::open(path, Verify::Checksums)?;
//! let mut two = [0; 8];
//! saved.read_rows(0, 0, 2..4, &mut two)?;
//! assert_eq!(two, [0, 0, 0, 0, 3, 3, 3, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod folder;
mod manifest;
mod matching;
mod pieces;
mod read;
pub(crate) mod records;
mod saved;
mod shard;
#[cfg(test)]
mod tests;

pub use folder::prepare;
pub use manifest::Manifest;
pub use read::{Checkpoint, KeyBlock, Verify};
pub use saved::{SavedLane, SavedRule, SavedTable};
pub use shard::{ShardRecord, ShardWriter, Sink, TensorRecord};

use std::path::Path;

use syncline_cluster::Error;

/// What errors call a save to `path`.
fn saving(path: &Path) -> String {
    format!("save {}", path.display())
}

/// What errors call a load from `path`.
fn loading(path: &Path) -> String {
    format!("load {}", path.display())
}

/// The system, or what it stores, is not as it should be.
fn system(operation: &str, detail: impl std::fmt::Display) -> Error {
    Error::System { operation: operation.to_owned(), detail: detail.to_string() }
}
