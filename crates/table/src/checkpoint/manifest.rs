//! The manifest: the one file that makes a pile of shards a checkpoint.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use syncline_cluster::Error;

use super::folder::{MANIFEST, draft_path, is_shard_of, open_file, remove_others, sync_folder};
use super::pieces::Pieces;
use super::{SavedTable, ShardRecord, saving, system};

const FORMAT: &str = "syncline checkpoint";
const VERSION: u32 = 1;
/// A manifest has a few lines per tensor and shard; beyond this it is something else.
const MOST_BYTES: u64 = 256 << 20;

/// What a checkpoint holds and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u32,
    /// Counts the saves to this path.
    pub generation: u64,
    /// The tables, in order of creation.
    pub tables: Vec<SavedTable>,
    /// The files, one per writer.
    pub shards: Vec<ShardRecord>,
    /// Over everything above; a changed manifest must not send anyone to the wrong rows.
    crc32: u32,
}

/// The moments of a commit between which a crash would leave something different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Drafted,
    Synced,
    Renamed,
    Removed,
}

/// Enough to tell another version from damage.
#[derive(Deserialize)]
struct Opening {
    format: String,
    version: u32,
}

impl Manifest {
    /// The manifest of generation `generation`; `shards` are the records of all writers.
    pub fn new(generation: u64, tables: Vec<SavedTable>, mut shards: Vec<ShardRecord>) -> Manifest {
        shards.sort_by_key(|shard| shard.writer);
        let mut manifest = Manifest { format: FORMAT.into(), version: VERSION, generation, tables, shards, crc32: 0 };
        manifest.crc32 = manifest.checksum();
        manifest
    }

    /// Makes this generation the checkpoint at `path`, then removes what older saves left there.
    ///
    /// Refuses, with the old checkpoint as it was, when a shard is not there in full or the shards do not hold every row
    /// exactly once.
    pub fn commit(&self, path: &Path) -> Result<(), Error> {
        self.commit_in_steps(path, &mut |_| Ok(()))
    }

    pub(super) fn commit_in_steps(&self, path: &Path, after: &mut dyn FnMut(Step) -> Result<(), Error>) -> Result<(), Error> {
        let operation = saving(path);
        self.check(&operation)?;
        for shard in &self.shards {
            shard.check_size(path, &operation).map_err(|error| match error {
                Error::System { operation, detail } => {
                    let hint = "every server must see the path: is it on storage that all hosts share?";
                    Error::System { operation, detail: format!("{detail}\nhint: {hint}") }
                }
                other => other,
            })?;
        }
        let text = serde_json::to_vec_pretty(self).map_err(|error| system(&operation, error))?;
        let draft = draft_path(path, self.generation);
        let failed = |error: std::io::Error| system(&operation, format_args!("cannot write {}: {error}", draft.display()));
        let mut file = File::create(&draft).map_err(failed)?;
        file.write_all(&text).map_err(failed)?;
        after(Step::Drafted)?;
        file.sync_all().map_err(failed)?;
        // The names of the shards must be durable before the manifest that points at them.
        sync_folder(path, &operation)?;
        after(Step::Synced)?;
        fs::rename(&draft, path.join(MANIFEST)).map_err(failed)?;
        after(Step::Renamed)?;
        sync_folder(path, &operation)?;
        remove_others(path, self.generation, &mut || after(Step::Removed))
    }

    /// Reads and checks the manifest of the checkpoint at `path`.
    pub(super) fn read(path: &Path, operation: &str) -> Result<Manifest, Error> {
        let file = path.join(MANIFEST);
        let failed = |detail: String| system(operation, format_args!("{}: {detail}", file.display()));
        let mut text = Vec::new();
        let opened = open_file(&file).map_err(|error| failed(error.to_string()))?;
        opened.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(|error| failed(error.to_string()))?;
        if text.len() as u64 > MOST_BYTES {
            return Err(failed(format!("more than {MOST_BYTES} bytes are no manifest")));
        }
        let manifest = Manifest::parse(&text).map_err(failed)?;
        manifest.check(operation)?;
        Ok(manifest)
    }

    /// The manifest in `text`, or what is wrong with it.
    pub(super) fn parse(text: &[u8]) -> Result<Manifest, String> {
        let opening: Opening = serde_json::from_slice(text).map_err(|error| format!("not the manifest of a checkpoint: {error}"))?;
        if opening.format != FORMAT {
            return Err(format!("format {:?} is not ours ({FORMAT:?})", opening.format));
        }
        if opening.version != VERSION {
            return Err(format!("version {} of the format; this Syncline knows version {VERSION}", opening.version));
        }
        let manifest: Manifest = serde_json::from_slice(text).map_err(|error| format!("damaged: {error}"))?;
        let expected = manifest.checksum();
        if manifest.crc32 != expected {
            return Err(format!("damaged or changed by hand: checksum {:08x} over content of {expected:08x}", manifest.crc32));
        }
        Ok(manifest)
    }

    /// Whether it makes sense in itself: file names of ours, and every row of every lane in one place.
    fn check(&self, operation: &str) -> Result<(), Error> {
        let failed = |detail: String| Err(system(operation, format_args!("{MANIFEST}: {detail}")));
        if let Some(stranger) = self.shards.iter().find(|shard| !is_shard_of(&shard.file, self.generation)) {
            return failed(format!("{:?} is not a shard of generation {}", stranger.file, self.generation));
        }
        if let Some(table) = self.tables.iter().find(|table| !table.is_sound()) {
            return failed(format!("{table}: its lanes do not fit it: {:?}", table.lanes));
        }
        Pieces::of(self).map_or_else(failed, |_| Ok(()))
    }

    /// The same with a checksum that fits: how tests get past it.
    #[cfg(test)]
    pub(super) fn resealed(mut self) -> Manifest {
        self.crc32 = self.checksum();
        self
    }

    /// The checksum is over the compact text of the typed content, so that white space does not matter.
    fn checksum(&self) -> u32 {
        let content = serde_json::to_vec(&(&self.format, self.version, self.generation, &self.tables, &self.shards));
        crc32fast::hash(&content.expect("plain structs with text keys"))
    }
}
